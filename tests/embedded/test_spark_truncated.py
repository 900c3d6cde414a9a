"""Streams whose logs were cut by an unclean election, and have other records by now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import karrow
from karrow.spark import pool
from karrow.spark.reading.epochs import Epochs
from karrow.spark.reading.loss import DataLoss
from karrow.types import TopicPartition
from tests.embedded.sourcing import Query, in_task, next_values, numbers, put, query, values

LOST = r"offsets 5 to 9 of orders-0 were cut off: a leader was elected .*its log goes on at 5"


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(2, seed=1, auto_create_topics=False) as broker:
        broker.create_topic("orders", partitions=2)
        yield broker
        pool.close()


@pytest.fixture
def client(broker: karrow.Broker) -> Iterator[karrow.Client]:
    with karrow.Client(broker.bootstrap) as client:
        yield client


def begun(broker: karrow.Broker, client: karrow.Client, **given: Any) -> Query:
    """A stream that has read offsets 0 to 9."""
    running = query(broker, startingOffsets="earliest", **given)
    put(client, 5)
    put(client, 5, 10)
    assert next_values(running) == numbers(10)
    return running


def cut(broker: karrow.Broker, client: karrow.Client, *regrown: int) -> None:
    """Lose offsets 5 to 9 and write others in their place."""
    broker.truncate("orders", 0, 5)
    put(client, *(regrown or (100, 108)))


def epochs(text: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(text)["@epochs"]["orders"]
    return found


def went_on(running: Query) -> Query:
    """The same checkpoint with failOnDataLoss=false."""
    running.given["failOnDataLoss"] = "false"
    running.restart()
    return running


# ---- seen by the planner


def test_a_log_that_was_cut_and_is_as_long_again_is_a_loss(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = begun(broker, client)
    cut(broker, client)
    with pytest.raises(DataLoss, match=LOST):
        running.next()
    running.restart()
    with pytest.raises(DataLoss, match=LOST):
        running.repeat(1)


def test_a_log_that_was_cut_is_gone_on_with_where_it_was_cut(
    broker: karrow.Broker, client: karrow.Client, caplog: pytest.LogCaptureFixture
) -> None:
    running = begun(broker, client, failOnDataLoss="false")
    cut(broker, client)
    second = running.next()
    assert second is not None
    assert values(second) == numbers(100, 108)
    assert [row["offset"] for row in second] == list(range(5, 13))
    assert "offsets 5 to 9 of orders-0 were cut off" in caplog.text
    assert running.next() is None
    running.restart()
    assert running.repeat(1) == second
    assert running.next() is None
    put(client, 108, 110)
    assert next_values(running) == numbers(108, 110)


def test_a_query_that_failed_goes_on_when_it_may(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = begun(broker, client)
    cut(broker, client)
    with pytest.raises(DataLoss, match=LOST):
        running.next()
    went_on(running)
    assert values(running.repeat(1)) == numbers(100, 108)
    assert running.next() is None


def test_limits_count_from_where_the_log_was_cut(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = begun(broker, client, failOnDataLoss="false", maxOffsetsPerTrigger=12)
    cut(broker, client, 100, 120)
    assert next_values(running) == numbers(100, 112)
    assert next_values(running) == numbers(112, 120)


def test_available_now_goes_on_where_the_log_was_cut(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = begun(broker, client, failOnDataLoss="false")
    cut(broker, client)
    running.restart()
    running.reader.prepareForTriggerAvailableNow()
    assert next_values(running) == numbers(100, 108)
    assert running.next() is None


@pytest.mark.parametrize("has", [7, 10])
def test_a_leader_that_does_not_know_its_end_yet(
    broker: karrow.Broker, client: karrow.Client, monkeypatch: pytest.MonkeyPatch, has: int
) -> None:
    """Until its followers have fetched, it tells of less than it has."""
    running = begun(broker, client, failOnDataLoss="false")
    broker.truncate("orders", 0, 5)

    async def ends(_: Epochs, asked: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return dict.fromkeys(asked, has)

    monkeypatch.setattr(Epochs, "ends", ends)
    if has == 10:
        assert running.next() is None
    else:
        assert running.next() == []
        assert json.loads(running.log[-1])["orders"]["0"] == has


def test_what_was_cut_before_it_was_read_is_no_loss(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = query(broker, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    put(client, 5)
    put(client, 5, 10)
    assert next_values(running) == numbers(5)
    cut(broker, client)
    assert next_values(running) == numbers(100, 105)


# ---- nothing to see


def test_a_leader_that_has_everything_is_no_news(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = begun(broker, client)
    broker.move_leader("orders", 0)
    broker.clear_requests()
    assert running.next() is None
    assert "OffsetForLeaderEpoch" in [seen.api for seen in broker.requests]
    put(client, 10, 13)
    assert next_values(running) == numbers(10, 13)
    assert epochs(running.log[0]) == {"0": 0, "1": 0}
    assert epochs(running.log[1]) == {"0": 1, "1": 0}
    broker.clear_requests()
    assert running.next() is None
    assert "OffsetForLeaderEpoch" not in [seen.api for seen in broker.requests]


def test_a_checkpoint_without_epochs_is_gone_on_with(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = begun(broker, client)
    running.forget_epochs()
    cut(broker, client)
    assert next_values(running) == numbers(105, 108)
    assert epochs(running.log[-1])["0"] == 1


def test_a_topic_that_was_made_anew_has_epochs_of_its_own(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    broker.move_leader("orders", 0)
    running = begun(broker, client, failOnDataLoss="false")
    assert epochs(running.log[-1])["0"] == 1
    client.delete_topic("orders")
    broker.create_topic("orders", partitions=2)
    put(client, 20)
    assert next_values(running) == numbers(20)
    assert epochs(running.log[-1])["0"] == 0


# ---- seen by a task


@pytest.mark.parametrize("tasks", [1, 4])
def test_a_log_that_is_cut_before_the_task(
    broker: karrow.Broker, client: karrow.Client, tasks: int
) -> None:
    running = begun(broker, client, minPartitions=tasks)
    cut(broker, client)
    running.restart()
    with pytest.raises(DataLoss, match=r"to \d of orders-0 were cut off.*its log goes on at 5"):
        running.repeat(0)
    went_on(running)
    assert values(running.repeat(0)) == numbers(5)
    assert next_values(running) == numbers(100, 108)
    assert running.next() is None


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_log_that_is_cut_while_the_task_reads(
    broker: karrow.Broker, client: karrow.Client, fails: str
) -> None:
    for first in range(0, 300, 10):
        client.produce("orders", [b"%d" % first + b"x" * 10_000] * 10, partition=0)
    given = {"kafka_max_partition_fetch_bytes": "100000", "failOnDataLoss": fails}
    running = query(broker, startingOffsets="earliest", **given)
    assert len(running.next() or ()) == 300
    (part,) = running.ranges(0)
    reading = running.reader.read(part)
    rows = next(reading).num_rows
    broker.truncate("orders", 0, 200)
    client.produce("orders", [b"new"] * 150, partition=0)
    if fails == "true":
        with pytest.raises(DataLoss, match="to 299 of orders-0 were cut off"):
            list(reading)
    else:
        assert rows + sum(one.num_rows for one in reading) == 200
        assert next_values(running) == [b"new"] * 150


def test_a_task_of_a_range_that_the_new_leader_has(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = begun(broker, client)
    broker.move_leader("orders", 0)
    assert values(running.repeat(0)) == numbers(10)
    put(client, 10, 12)
    broker.truncate("orders", 0, 10)
    assert values(running.repeat(0)) == numbers(10)


def test_a_worker_that_knows_an_older_leader(broker: karrow.Broker, client: karrow.Client) -> None:
    worker = begun(broker, client, kafka_client_id="worker")
    broker.move_leader("orders", 0)
    planned = query(broker, startingOffsets="earliest")
    assert next_values(planned) == numbers(10)
    found = [row for part in planned.ranges(0) for row in in_task(worker.reader, part)]
    assert values(found) == numbers(10)
