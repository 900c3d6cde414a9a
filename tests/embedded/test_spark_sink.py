"""The writers of the sink without Spark: made, pickled, and given the rows of a task."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

import karrow
from karrow import errors
from karrow.records import Record, partition_for
from karrow.spark.writing import producers
from karrow.spark.writing.batch import BatchWriter
from karrow.spark.writing.sink import Written
from karrow.spark.writing.stream import StreamWriter

PARTITIONS = 3
TYPES = {
    "topic": StringType(),
    "key": StringType(),
    "value": StringType(),
    "partition": IntegerType(),
    "headers": ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
}
ARROW = {
    "topic": pa.string(),
    "key": pa.string(),
    "value": pa.string(),
    "partition": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
Rows = list[dict[str, Any]]


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(seed=1, auto_create_topics=False) as broker:
        broker.create_topic("orders", partitions=PARTITIONS)
        broker.create_topic("other", partitions=1)
        yield broker


@pytest.fixture(autouse=True)
def closed_producers() -> Iterator[None]:
    """A process of Spark keeps its producers until it ends; a test does not."""
    yield
    for producer in producers.kept.values():
        producer.close(timeout=0)
    producers.kept.clear()


def writer(broker: karrow.Broker, columns: str = "key value", **options: str) -> BatchWriter:
    """A writer as it is in a task, after its way from the driver."""
    schema = StructType([StructField(name, TYPES[name]) for name in columns.split()])
    given = CaseInsensitiveDict({"kafka.bootstrap.servers": broker.bootstrap, **options})
    here = set(producers.kept)
    made = BatchWriter(given, schema, overwrite=False)
    for config in set(producers.kept) - here:  # those of the driver
        producers.kept.pop(config).close(timeout=0)
    shipped: BatchWriter = pickle.loads(pickle.dumps(made))
    return shipped


def batches(rows: Rows, columns: str = "key value", size: int = 100) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([(name, ARROW[name]) for name in columns.split()])
    for first in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(rows[first : first + size], schema=schema)


def stored(broker: karrow.Broker, topic: str = "orders") -> dict[int, list[Record]]:
    with karrow.Client(broker.bootstrap) as client:
        count = len(client.metadata([topic]).topics[topic].partitions)
        return {number: list(client.fetch_all(topic, number).records) for number in range(count)}


def values(found: dict[int, list[Record]]) -> list[bytes]:
    return sorted(record.value or b"" for records in found.values() for record in records)


def test_a_topic_that_is_missing_is_told_with_what_would_be_right(broker: karrow.Broker) -> None:
    right = "create it first, or name another by the option topic"
    with pytest.raises(errors.UnknownTopicOrPartition, match=rf"topic missing\); {right}"):
        writer(broker, topic="missing")


def test_a_task_returns_when_its_rows_are_written(broker: karrow.Broker) -> None:
    rows: Rows = [{"key": str(n), "value": f"value {n}"} for n in range(1000)]
    assert writer(broker, topic="orders").write(batches(rows)) == Written(1000)
    found = stored(broker)
    assert values(found) == sorted(row["value"].encode() for row in rows)
    for number, records in found.items():
        assert {partition_for(record.key or b"", PARTITIONS) for record in records} == {number}


def test_a_task_without_rows_is_done(broker: karrow.Broker) -> None:
    assert writer(broker, topic="orders").write(iter(())) == Written(0)


def test_nulls_and_headers_are_written_as_they_are(broker: karrow.Broker) -> None:
    columns = "key value headers partition"
    rows: Rows = [
        {"key": None, "value": None, "headers": None, "partition": 1},
        {"key": "", "value": "", "headers": [], "partition": 1},
        {
            "key": "k",
            "value": "v",
            "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
            "partition": 1,
        },
    ]
    writer(broker, columns, topic="orders").write(batches(rows, columns))
    found = [(record.key, record.value, record.headers) for record in stored(broker)[1]]
    assert found == [
        (None, None, ()),
        (b"", b"", ()),
        (b"k", b"v", (("a", b"1"), ("a", None))),
    ]


def test_rows_go_to_the_topics_of_their_column(broker: karrow.Broker) -> None:
    columns = "topic value"
    rows: Rows = [{"topic": ("orders", "other")[n % 2], "value": str(n)} for n in range(10)]
    writer(broker, columns).write(batches(rows, columns))
    assert [record.value for record in stored(broker, "other")[0]] == [b"1", b"3", b"5", b"7", b"9"]
    assert sum(map(len, stored(broker).values())) == 5


def test_the_option_goes_before_the_column(broker: karrow.Broker) -> None:
    columns = "topic value"
    rows: Rows = [{"topic": name, "value": "v"} for name in ("missing", None)]
    writer(broker, columns, topic="other").write(batches(rows, columns))
    assert len(stored(broker, "other")[0]) == 2


@pytest.mark.parametrize(
    ("columns", "row", "kind", "text"),
    [
        ("topic value", {"topic": None, "value": "v"}, ValueError, "column 'topic' is null"),
        (
            "topic value",
            {"topic": "missing", "value": "v"},
            errors.UnknownTopicOrPartition,
            "the topic does not exist .*missing",
        ),
        (
            "topic value partition",
            {"topic": "orders", "value": "v", "partition": 3},
            errors.UnknownTopicOrPartition,
            "column 'partition' asks for what is not there .* partitions 0 to 2 .*partition 3",
        ),
        (
            "topic value partition",
            {"topic": "orders", "value": "v", "partition": -1},
            errors.UnknownTopicOrPartition,
            "partition -1",
        ),
        (
            "topic value headers",
            {"topic": "orders", "value": "v", "headers": [{"key": None, "value": b""}]},
            ValueError,
            "headers",
        ),
    ],
)
def test_a_wrong_row_fails_its_task_before_any_of_its_batch_is_sent(
    broker: karrow.Broker, columns: str, row: dict[str, Any], kind: type[Exception], text: str
) -> None:
    good = {"topic": "orders", "value": "good", "partition": 0, "headers": None}
    rows = [{name: one.get(name) for name in columns.split()} for one in (good, row, good)]
    with pytest.raises(kind, match=text):
        writer(broker, columns).write(batches(rows, columns))
    assert not any(stored(broker).values())


def test_a_missing_topic_is_said_before_there_is_a_task(broker: karrow.Broker) -> None:
    with pytest.raises(errors.UnknownTopicOrPartition, match=r"does not exist .*missing"):
        writer(broker, topic="missing")


def test_topics_only_grow() -> None:
    schema = StructType([StructField("value", StringType())])
    with pytest.raises(errors.ConfigError, match=r"mode\('overwrite'\) is not possible"):
        BatchWriter({}, schema, overwrite=True)


def test_complete_mode_is_taken_as_by_sparks_sink(broker: karrow.Broker) -> None:
    schema = StructType([StructField("value", StringType())])
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "other"}
    made = StreamWriter(options, schema, overwrite=True)
    assert made.write(batches([{"value": "v"}], "value")) == Written(1)


def test_a_refused_batch_fails_the_task_in_one_line(broker: karrow.Broker) -> None:
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=10)
    with pytest.raises(errors.TopicAuthorizationFailed) as caught:
        writer(broker, topic="orders").write(batches([{"key": "k", "value": "v"}]))
    assert "\n" not in str(caught.value)


def test_what_passes_is_waited_out(broker: karrow.Broker) -> None:
    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    broker.close("Produce", when="after")
    rows: Rows = [{"key": str(n), "value": str(n)} for n in range(300)]
    writer(broker, topic="orders").write(batches(rows))
    assert sum(map(len, stored(broker).values())) == len(rows)


# ---- producers


def test_tasks_of_a_process_share_a_producer(broker: karrow.Broker) -> None:
    rows: Rows = [{"key": "k", "value": "v"}]
    for _ in range(3):
        writer(broker, topic="orders").write(batches(rows))
    writer(broker, topic="orders", **{"kafka.linger.ms": "1"}).write(batches(rows))
    assert len(producers.kept) == 2


def test_a_closed_producer_is_replaced(broker: karrow.Broker) -> None:
    made = writer(broker, topic="orders")
    made.write(batches([{"key": "k", "value": "v"}]))
    for producer in list(producers.kept.values()):
        producer.close()
    assert made.write(batches([{"key": "k", "value": "v"}])) == Written(1)


def test_rows_of_a_task_that_is_no_more_are_given_up(broker: karrow.Broker) -> None:
    made = writer(broker, topic="orders")
    made.write(batches([{"key": "k", "value": "v"}]))
    producer = next(iter(producers.kept.values()))
    fault = broker.delay("Produce", seconds=30)
    left = producer.send_arrow("orders", pa.table({"value": ["left"]}))
    while not fault.met:
        time.sleep(0.01)
    assert made.write(batches([{"key": "k", "value": "v"}])) == Written(1)
    assert next(iter(producers.kept.values())) is not producer
    assert left.done()


def test_a_forked_worker_makes_its_own(broker: karrow.Broker) -> None:
    made = writer(broker, topic="orders")
    made.write(batches([{"key": "k", "value": "parent"}]))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            made.write(batches([{"key": "k", "value": "child"}]))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert values(stored(broker)) == [b"child", b"parent"]


# ---- secrets


def test_a_writers_pickle_and_repr_show_no_more_than_the_options_have() -> None:
    with karrow.Broker(sasl=karrow.Plain("user", "hidden")) as broker:
        broker.create_topic("orders")
        options = {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "user",
            "kafka.sasl.password": "hidden",
        }
        made = writer(broker, topic="orders", **options)
        assert made.write(batches([{"key": "k", "value": "v"}])) == Written(1)
        assert "hidden" not in repr(made)
