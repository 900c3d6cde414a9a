"""Pipelines that begin at the end of their topics: all of their queries at the same place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import karrow
from karrow.errors import ConfigError
from karrow.spark.pipeline.queries import Flow
from tests.spark.pipelines import Shop, order

START = Flow.start
PLAIN: dict[str, Any] = {
    "sinks__totals": None,
    "steps": {},
    "sinks__also": {"from": "orders", "kind": "parquet", "path": "also"},
}


@pytest.fixture(scope="module")
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker() as made:
        yield made


@pytest.fixture
def shop(broker: karrow.Broker, tmp_path: Path) -> Shop:
    """With orders of before."""
    made = Shop(broker.bootstrap, tmp_path)
    made.send(order(0), b"bad and old", order(1))
    return made


def after_each_start(monkeypatch: pytest.MonkeyPatch, then: Callable[[str], None]) -> None:
    """Have something happen between the starts of queries, which know their place by then."""

    def start(flow: Flow, *, once: bool) -> StreamingQuery:
        query = START(flow, once=once)
        deadline = time.monotonic() + 60
        while not query.recentProgress and query.isActive:
            assert time.monotonic() < deadline, query.status
            time.sleep(0.1)
        then(flow.name)
        return query

    monkeypatch.setattr(Flow, "start", start)


def written(shop: Shop, folder: str) -> list[int]:
    return Shop.raw(_At(shop, folder))  # type: ignore[arg-type]


class _At:
    """A shop whose files are somewhere else."""

    def __init__(self, shop: Shop, folder: str) -> None:
        self.folder = shop.folder / "unused"
        self.folder.mkdir(exist_ok=True)
        link = self.folder / "raw"
        link.unlink(missing_ok=True)
        link.symlink_to(shop.folder / folder)


@pytest.mark.parametrize("start", ["latest", "-0 seconds"])
def test_rows_between_the_starts_of_queries_are_in_all_sinks(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    sent = iter(range(10, 100))

    def send(name: str) -> None:
        shop.send(order(next(sent)), f"bad after {name}".encode())

    after_each_start(monkeypatch, send)
    with shop.pipeline(sources__orders__start=start, **PLAIN).start(spark) as running:
        assert [*running.queries] == ["raw", "also", "orders.dead-letter"]
        for query in running.queries.values():
            query.processAllAvailable()
    assert shop.raw() == written(shop, "also") == [10, 11, 12]
    assert {message.value() for message in shop.bad()} == {
        b"bad after raw",
        b"bad after also",
        b"bad after orders.dead-letter",
    }


def test_a_pipeline_that_dies_between_starts_goes_on_from_the_first_one(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(name: str) -> None:
        shop.send(order(10), b"bad before it died")
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        after_each_start(patch, die)
        with pytest.raises(ZeroDivisionError):
            shop.pipeline(sources__orders__start="latest", **PLAIN).start(spark)
    shop.send(order(11))
    shop.pipeline(sources__orders__start="latest", **PLAIN).run(spark, once=True)
    assert shop.raw() == written(shop, "also") == [10, 11]
    assert [message.value() for message in shop.bad()] == [b"bad before it died"]


def test_a_sink_that_is_added_later_begins_at_start_by_itself(
    shop: Shop, spark: SparkSession
) -> None:
    first: dict[str, Any] = {**PLAIN, "sinks__also": None, "sources__orders__start": "latest"}
    shop.pipeline(**first).run(spark, once=True)
    shop.send(order(10))
    shop.pipeline(**first).run(spark, once=True)
    second = {**first, "sinks__also": PLAIN["sinks__also"]}
    shop.pipeline(**second).run(spark, once=True)
    shop.send(order(11))
    shop.pipeline(**second).run(spark, once=True)
    assert shop.raw() == [10, 11]
    assert written(shop, "also") == [11]


def test_partitions_that_come_after_the_beginning_was_noted_are_read_from_theirs(
    shop: Shop, spark: SparkSession
) -> None:
    pipeline = shop.pipeline(sources__orders__start="latest", **PLAIN)
    pipeline.run(spark, once=True)
    with karrow.Admin(shop.bootstrap) as admin:
        admin.create_partitions({shop.topic("orders"): 3})
    with karrow.Producer(shop.bootstrap) as producer:
        producer.send(shop.topic("orders"), order(10), partition=2)
    shop.send(order(11))
    shop.pipeline(sources__orders__start="latest", **PLAIN).run(spark, once=True)
    assert shop.raw() == written(shop, "also") == [10, 11]


def test_all_queries_begin_where_a_group_is_and_go_on_from_there(
    shop: Shop, spark: SparkSession
) -> None:
    start: dict[str, Any] = {
        "sources__orders__start": "group",
        "sources__orders__kafka": {"group.id": shop.name},
    }
    shop.send(order(10), order(11), order(12), order(13))
    group_is_at(shop, 3, 2)
    shop.pipeline(**PLAIN, **start).run(spark, once=True)
    assert shop.raw() == written(shop, "also") == [12, 13]
    assert shop.bad() == []
    group_is_at(shop, 0, 0)  # from here on the checkpoint decides
    shop.send(order(14))
    shop.pipeline(**PLAIN, **start).run(spark, once=True)
    assert shop.raw() == written(shop, "also") == [12, 13, 14]


def group_is_at(shop: Shop, *offsets: int) -> None:
    """Have the group of the shop's name be there."""
    topic = shop.topic("orders")
    with karrow.Client(shop.bootstrap) as client:
        client.commit_offsets(
            shop.name, {(topic, number): offset for number, offset in enumerate(offsets)}
        )


def test_a_group_is_taken_over_by_a_pipeline_of_one_query(shop: Shop, spark: SparkSession) -> None:
    group_is_at(shop, 1, 1)
    shop.send(order(10), order(11))
    alone: dict[str, Any] = {
        "sinks__totals": None,
        "steps": {},
        "sources__orders__dead_letter": None,
        "sources__orders__start": "group",
        "sources__orders__options": {"commitGroup": shop.name},
    }
    shop.pipeline(**alone).run(spark, once=True)
    assert shop.raw() == [1, 10, 11]
    with karrow.Client(shop.bootstrap) as client:
        found = client.committed_offsets(shop.name)
    assert {entry.offset for entry in found.values()} == {2, 3}


def test_a_group_that_has_stored_nothing_is_refused_before_any_query_is_started(
    shop: Shop, spark: SparkSession
) -> None:
    start: dict[str, Any] = {
        "sources__orders__start": "group",
        "sources__orders__kafka": {"group.id": "nobody"},
    }
    with pytest.raises(ConfigError, match=r"\[sources.orders\] start=group: .*nobody"):
        shop.pipeline(**PLAIN, **start).start(spark)
    assert not (shop.folder / "checkpoint").exists()
