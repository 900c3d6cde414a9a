"""delivery=exactly-once without Spark: rows packed by tasks, and committed batch by batch."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import karrow
from karrow import errors
from karrow.spark.writing import driver, producers
from karrow.spark.writing.parcel import Parcel, packed
from karrow.spark.writing.terms import Terms
from tests import kept

PARTITIONS = 3


@pytest.fixture(params=["3.9", "4.3"])
def broker(request: pytest.FixtureRequest) -> Iterator[karrow.Broker]:
    with karrow.Broker(seed=1, version=request.param, auto_create_topics=False) as broker:
        broker.create_topic("totals", partitions=PARTITIONS)
        broker.create_topic("other", partitions=1)
        yield broker


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    """A process of Spark keeps its clients until it ends; a test does not."""
    yield
    kept.close_all()


class Query:
    """A query, as Spark runs it: tasks, then a commit."""

    def __init__(self, broker: karrow.Broker, query: str = "query", **options: str) -> None:
        self.broker = broker
        self.query = query
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "delivery": "exactly-once",
            "sinkId": "sink",
            "topic": "totals",
            "kafka.request.timeout.ms": "5000",
            **options,
        }
        chosen = {name: value for name, value in given.items() if value}
        self.terms = Terms.read(CaseInsensitiveDict(chosen))

    def parcel(self, *values: str, **columns: pa.Array) -> Parcel:
        """What a task sends to the driver."""
        rows = pa.record_batch({"value": pa.array(list(values), pa.string()), **columns})
        made = packed(producers.producer(self.terms.config), self.terms.topic, self.query, [rows])
        shipped: Parcel = pickle.loads(pickle.dumps(made))
        return shipped

    def commit(self, batch: int, *parcels: Parcel) -> None:
        assert self.terms.exactly_once is not None
        driver.commit(self.terms, self.terms.exactly_once, parcels, batch)

    def batch(self, number: int) -> None:
        """A batch of two tasks, with rows that tell where they are from."""
        self.commit(number, self.parcel(f"{number}a", f"{number}b"), self.parcel(f"{number}c"))

    def restart(self) -> None:
        """Be another process."""
        driver.kept.clear()


@pytest.fixture
def query(broker: karrow.Broker) -> Query:
    return Query(broker)


def stored(broker: karrow.Broker, topic: str = "totals") -> list[str]:
    """What readers of committed data see."""
    with karrow.Client(broker.bootstrap) as client:
        count = len(client.metadata([topic]).topics[topic].partitions)
        return sorted(
            bytes(record.value or b"").decode()
            for number in range(count)
            for record in client.fetch_all(topic, number, isolation="read_committed").records
        )


def rows_of(*batches: int) -> list[str]:
    return [f"{batch}{letter}" for batch in batches for letter in "abc"]


def test_batches_are_committed_one_after_the_other(query: Query) -> None:
    for batch in range(4):
        query.batch(batch)
    assert stored(query.broker) == rows_of(0, 1, 2, 3)


def test_another_process_goes_on(query: Query) -> None:
    for batch in range(3):
        query.restart()
        query.batch(batch)
    assert stored(query.broker) == rows_of(0, 1, 2)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_batch_that_is_in_is_not_written_again(query: Query, restarted: bool) -> None:
    query.batch(0)
    query.batch(1)
    if restarted:
        query.restart()
    query.batch(1)
    query.batch(2)
    assert stored(query.broker) == rows_of(0, 1, 2)


def test_batches_may_take_turns_between_processes(query: Query) -> None:
    """Spark has several processes when several queries commit at once."""
    processes: list[dict[Terms, driver.DriverSink]] = [{}, {}]
    for batch, place in enumerate([0, 1, 1, 0, 0, 1]):
        driver.kept.clear()
        driver.kept.update(processes[place])
        query.batch(batch)
        processes[place] = dict(driver.kept)
    assert stored(query.broker) == rows_of(*range(6))


def test_an_empty_batch_is_noted(query: Query) -> None:
    query.commit(0, query.parcel())
    query.restart()
    query.batch(1)
    assert stored(query.broker) == rows_of(1)


def test_a_batch_too_far_stops_the_query(query: Query) -> None:
    query.batch(0)
    with pytest.raises(errors.StateError, match="the ledger's last batch is 0, and this is 2"):
        query.batch(2)
    assert stored(query.broker) == rows_of(0)


def test_another_query_is_refused(query: Query) -> None:
    query.batch(0)
    other = Query(query.broker, "another")
    with pytest.raises(errors.StateError, match=r"belongs to the query query.* sinkId"):
        other.batch(0)
    query.batch(1)
    assert stored(query.broker) == rows_of(0, 1)


def test_a_lost_ledger_stops_the_query_unless_told(query: Query) -> None:
    query.batch(0)
    with karrow.Admin(query.broker.bootstrap) as admin:
        admin.delete_group("karrow.ledger.sink")
    query.restart()
    with pytest.raises(errors.StateError, match="onMissingLedger='redo' or 'skip'"):
        query.batch(1)
    Query(query.broker, onMissingLedger="skip").batch(1)
    query.batch(2)
    assert stored(query.broker) == rows_of(0, 2)


def test_a_ledger_may_be_a_topic(broker: karrow.Broker) -> None:
    query = Query(broker, ledger="topic", topic="")
    for batch in range(3):
        query.restart()
        names = pa.array(["totals", "other"], pa.string())
        query.commit(batch, query.parcel(f"{batch}a", f"{batch}b", topic=names))
    query.restart()
    query.commit(2, query.parcel("again", topic=pa.array(["other"], pa.string())))
    assert stored(broker) == ["0a", "1a", "2a"]
    assert stored(broker, "other") == ["0b", "1b", "2b"]


@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn", "InitProducerId"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_that_is_lost_changes_nothing(query: Query, api: str, when: Any) -> None:
    query.batch(0)
    query.broker.close(api, when=when)
    query.batch(1)
    query.broker.close(api, when=when)
    query.restart()
    query.batch(2)
    assert stored(query.broker) == rows_of(0, 1, 2)


def test_a_batch_that_fails_is_tried_again(query: Query) -> None:
    query.batch(0)
    query.broker.fail("Produce", "INVALID_RECORD")
    query.batch(1)
    assert stored(query.broker) == rows_of(0, 1)


def test_a_batch_that_fails_for_good_leaves_nothing_behind(query: Query) -> None:
    query.batch(0)
    query.broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=100)
    with pytest.raises(errors.TopicAuthorizationFailed):
        query.batch(1)
    query.broker.clear_faults()
    query.batch(1)
    assert stored(query.broker) == rows_of(0, 1)


def test_a_driver_that_was_replaced_writes_nothing(query: Query) -> None:
    """The old one has not heard of the new one, which has written the same batch."""
    query.batch(0)
    old = dict(driver.kept)
    query.restart()
    query.batch(1)
    driver.kept.clear()
    driver.kept.update(old)
    with pytest.raises(errors.KarrowError, match=r"has karrow\.sink\.sink now"):
        query.batch(1)
    query.batch(2)
    assert stored(query.broker) == rows_of(0, 1, 2)


# ---- parcels


def test_rows_travel_as_they_are(query: Query) -> None:
    headers = pa.array([[{"key": "h", "value": b"1"}]])
    key, number = pa.array([b"k"]), pa.array([2], pa.int32())
    query.commit(0, query.parcel("v", key=key, headers=headers, partition=number))
    with karrow.Client(query.broker.bootstrap) as client:
        (record,) = client.fetch_all("totals", 2, isolation="read_committed").records
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"1"),))


def test_wrong_rows_fail_their_task(query: Query) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition, match="partitions 0 to 2"):
        query.parcel("v", partition=pa.array([7], pa.int32()))
    with pytest.raises(errors.UnknownTopicOrPartition, match="does not exist"):
        Query(query.broker, ledger="topic", topic="").parcel("v", topic=pa.array(["missing"]))
    assert stored(query.broker) == []


def test_too_many_bytes_are_refused_early(query: Query) -> None:
    rows = pa.record_batch({"value": ["x" * 1000] * 10})
    with pytest.raises(errors.StateError, match=r"more than 15000 bytes .* maxBytesPerTrigger"):
        packed(producers.producer(query.terms.config), "totals", "query", [rows] * 9, 15_000)


def test_a_parcel_does_not_show_its_rows(query: Query) -> None:
    assert "secret" not in repr(query.parcel("secret"))
