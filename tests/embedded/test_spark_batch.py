"""Batch queries without Spark: exact ranges, whatever lies in them and happens to them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

import karrow
from karrow import errors
from karrow.spark import pool
from karrow.spark.reading.batch import BatchReader, FilteredReader
from karrow.spark.reading.loss import DataLoss
from karrow.spark.reading.ranges import Range
from karrow.spark.reading.schema import schema
from tests.embedded.sourcing import batch, in_task, numbers, places, read, values

COUNT = 300


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(2, seed=1, auto_create_topics=False) as broker:
        broker.create_topic("orders", partitions=3)
        yield broker
        pool.close()


@pytest.fixture
def client(broker: karrow.Broker) -> Iterator[karrow.Client]:
    with karrow.Client(broker.bootstrap) as client:
        yield client


def fill(client: karrow.Client, *, per_batch: int = 10, partition: int = 0, **more: Any) -> None:
    """So many records that a range has several batches, of which the ends cut some."""
    for first in range(0, COUNT, per_batch):
        client.produce("orders", numbers(first, first + per_batch), partition=partition, **more)


def offsets(**of_partition: int) -> str:
    return json.dumps({"orders": {name[1:]: offset for name, offset in of_partition.items()}})


# ---- rows


def test_rows_have_the_columns_of_sparks_own_connector(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    with karrow.Producer(broker.bootstrap) as producer:
        time_ms = 1_700_000_000_123
        headers = [("a", b"1"), ("a", None)]
        producer.send("orders", b"v", key=b"k", partition=1, headers=headers, timestamp_ms=time_ms)
        producer.send("orders", None, partition=1, timestamp_ms=time_ms)
    first, second = read(broker.bootstrap, subscribe="orders", includeHeaders="TRUE")
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "timestamp": datetime.fromtimestamp(time_ms / 1000, UTC),
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)
    assert schema(with_headers=True).names == list(first)
    assert schema(with_headers=False).names == list(read(broker.bootstrap, subscribe="orders")[0])


def test_append_times_are_told(broker: karrow.Broker, client: karrow.Client) -> None:
    client.create_topic("times", 1, config={"message.timestamp.type": "LogAppendTime"})
    client.produce("times", [b"1"], partition=0)
    (row,) = read(broker.bootstrap, subscribe="times")
    assert row["timestampType"] == 1


def test_several_topics_and_partitions(broker: karrow.Broker, client: karrow.Client) -> None:
    client.create_topic("other", 1)
    client.create_topic("third", 1)
    for topic in ("orders", "other", "third"):
        client.produce(topic, [topic.encode()], partition=0)
    client.produce("orders", [b"2"], partition=2)

    def found(**given: Any) -> set[bytes]:
        return set(values(read(broker.bootstrap, **given)))

    assert found(subscribe="orders, other") == {b"orders", b"2", b"other"}
    assert found(subscribePattern="o.*er") == {b"orders", b"2", b"other"}
    assert found(subscribePattern="^third$") == {b"third"}
    assert found(subscribePattern="fourth") == set()
    assert found(assign='{"orders": [2], "third": [0]}') == {b"2", b"third"}


# ---- exact ranges


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_ranges_are_exact_inside_batches(
    broker: karrow.Broker, client: karrow.Client, compression: str | None
) -> None:
    fill(client, per_batch=50, compression=compression)
    rows = read(
        broker.bootstrap,
        assign='{"orders": [0]}',
        startingOffsets=offsets(p0=37),
        endingOffsets=offsets(p0=123),
    )
    assert values(rows) == numbers(37, 123)


def test_many_fetches(broker: karrow.Broker, client: karrow.Client) -> None:
    fill(client)
    rows = read(broker.bootstrap, subscribe="orders", kafka_max_partition_fetch_bytes=300)
    assert values(rows) == numbers(COUNT)
    fetches = [seen for seen in broker.requests if seen.api == "Fetch"]
    assert len(fetches) > 10


def test_a_task_starts_no_thread(broker: karrow.Broker, client: karrow.Client) -> None:
    """Threads and forked workers do not agree."""
    fill(client)
    reader = batch(broker.bootstrap, subscribe="orders", kafka_max_partition_fetch_bytes=200)
    parts = reader.partitions()
    pool.close()
    before = set(threading.enumerate())
    found = [set(threading.enumerate()) for part in parts for _ in reader.read(part)]
    assert len(found) > 10
    assert all(threads <= before for threads in found)


def test_a_batch_that_is_larger_than_a_fetch(broker: karrow.Broker, client: karrow.Client) -> None:
    large = os.urandom(200_000)
    client.produce("orders", [b"1", large, b"3"], partition=0)
    rows = read(broker.bootstrap, subscribe="orders", kafka_max_partition_fetch_bytes=1000)
    assert values(rows) == [b"1", large, b"3"]


def test_ends_are_found_when_the_task_runs(broker: karrow.Broker, client: karrow.Client) -> None:
    reader = batch(broker.bootstrap, assign='{"orders": [0]}')
    (part,) = reader.partitions()
    client.produce("orders", [b"late"], partition=0)
    assert values(in_task(reader, part)) == [b"late"]


def test_partitions_are_divided(broker: karrow.Broker, client: karrow.Client) -> None:
    fill(client)
    client.produce("orders", numbers(10), partition=1)

    def sizes(**given: Any) -> list[tuple[int, int]]:
        reader = batch(broker.bootstrap, subscribe="orders", **given)
        parts = reader.partitions()
        found = [places(in_task(reader, part)) for part in parts]
        everything = [place for place in found if place]
        expected = [(0, number) for number in range(COUNT)] + [(1, n) for n in range(10)]
        assert sorted(place for part in everything for place in part) == expected
        return [(place[0][0], len(place)) for place in everything]

    assert sizes(minPartitions=4) == [(0, 100), (0, 100), (0, 100), (1, 10)]
    assert sizes(maxRecordsPerPartition=160) == [(0, 150), (0, 150), (1, 10)]
    assert sizes(minPartitions=1) == [(0, COUNT), (1, 10)]
    assert len(sizes(maxBytesPerPartition="1k")) > 3
    assert sizes(maxBytesPerPartition="1g") == [(0, COUNT), (1, 10)]


# ---- transactions


def aborted_and_committed(broker: karrow.Broker) -> None:
    """Committed, aborted and committed records, each with a marker; the last are aborted."""
    with karrow.Producer(broker.bootstrap, transactional_id="t") as producer:
        for first, outcome in ((0, "commit"), (10, "abort"), (20, "commit"), (30, "abort")):
            producer.begin_transaction()
            for value in numbers(first, first + 10):
                producer.send("orders", value, partition=0)
            producer.flush()
            getattr(producer, f"{outcome}_transaction")()


def test_markers_are_passed_over(broker: karrow.Broker) -> None:
    aborted_and_committed(broker)
    assert values(read(broker.bootstrap, subscribe="orders")) == numbers(40)
    assert places(read(broker.bootstrap, subscribe="orders"))[10:11] == [(0, 11)]


def test_aborted_transactions_are_left_out(broker: karrow.Broker) -> None:
    aborted_and_committed(broker)
    began = time.monotonic()
    for given in ({"isolation": "read_committed"}, {"kafka_isolation_level": "read_committed"}):
        rows = read(broker.bootstrap, subscribe="orders", **given)
        assert values(rows) == [*numbers(10), *numbers(20, 30)]
    # A range that ends with markers and aborted records ends at once.
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("end", [11, 15, 21, 22, 44])
def test_ranges_that_end_with_what_nobody_sees(broker: karrow.Broker, end: int) -> None:
    aborted_and_committed(broker)
    rows = read(
        broker.bootstrap,
        assign='{"orders": [0]}',
        isolation="read_committed",
        endingOffsets=offsets(p0=end),
        minPartitions=5,
    )
    seen = [(0, offset) for offset in [*range(10), *range(22, 32)] if offset < end]
    assert places(rows) == seen


def test_an_open_transaction_ends_what_is_committed(broker: karrow.Broker) -> None:
    with karrow.Producer(broker.bootstrap, transactional_id="t") as producer:
        producer.begin_transaction()
        producer.send("orders", b"open", partition=0)
        producer.flush()
        assert read(broker.bootstrap, subscribe="orders", isolation="read_committed") == []
        assert values(read(broker.bootstrap, subscribe="orders")) == [b"open"]
        producer.abort_transaction()


# ---- trouble


@pytest.mark.parametrize(
    "error",
    ["NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH", "UNKNOWN_TOPIC_ID", "KAFKA_STORAGE_ERROR"],
)
def test_retriable_errors_are_retried(
    broker: karrow.Broker, client: karrow.Client, error: str
) -> None:
    fill(client)
    broker.fail("Fetch", error, times=2)
    broker.close("Fetch")
    rows = read(broker.bootstrap, subscribe="orders", kafka_max_partition_fetch_bytes=300)
    assert values(rows) == numbers(COUNT)


def test_leaders_that_move_are_followed(broker: karrow.Broker, client: karrow.Client) -> None:
    fill(client)
    given = {"subscribe": "orders", "kafka_max_partition_fetch_bytes": 300}
    reader = batch(broker.bootstrap, **given)
    part = reader.partitions()[0]
    found: list[bytes] = []
    for number, rows in enumerate(reader.read(part)):
        found += rows.column("value").to_pylist()
        if number % 3 == 0:
            broker.move_leader("orders", 0)
        if number % 5 == 0:
            broker.close_connections()
    assert found == numbers(COUNT)


def test_throttled_brokers_are_waited_for(broker: karrow.Broker, client: karrow.Client) -> None:
    fill(client)
    broker.throttle(0.1, "Fetch", times=2)
    assert values(read(broker.bootstrap, subscribe="orders")) == numbers(COUNT)


def test_damaged_records_fail_the_task(broker: karrow.Broker, client: karrow.Client) -> None:
    fill(client)
    broker.corrupt("Fetch")
    with pytest.raises(errors.CorruptRecordError, match="orders"):
        read(broker.bootstrap, subscribe="orders")


def test_a_broker_that_does_not_answer(broker: karrow.Broker, client: karrow.Client) -> None:
    client.produce("orders", [b"1"], partition=0)
    reader = batch(
        broker.bootstrap,
        subscribe="orders",
        kafka_request_timeout_ms=200,
        kafka_default_api_timeout_ms=500,
    )
    part = reader.partitions()[0]
    broker.drop("Fetch", times=100)
    began = time.monotonic()
    with pytest.raises(errors.RequestTimeout):
        in_task(reader, part)
    assert time.monotonic() - began < 5


def test_a_task_that_is_closed_takes_its_fetch_back(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    fill(client)
    given = {"subscribe": "orders", "kafka_max_partition_fetch_bytes": 300}
    reader = batch(broker.bootstrap, **given)
    part = reader.partitions()[0]
    broker.delay("Fetch", 1.0, times=3)
    reading = reader.read(part)
    assert isinstance(reading, Generator)
    next(reading)
    began = time.monotonic()
    reading.close()
    assert time.monotonic() - began < 0.5
    broker.clear_faults()
    assert values(read(broker.bootstrap, **given)) == numbers(COUNT)


def test_clients_are_kept_between_tasks_and_checked(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    fill(client)
    reader = batch(broker.bootstrap, subscribe="orders")
    part = reader.partitions()[0]
    in_task(reader, part)
    broker.clear_requests()
    assert len(in_task(reader, part)) == COUNT
    assert "ApiVersions" not in [seen.api for seen in broker.requests]
    broker.close_connections()
    time.sleep(0.1)
    assert len(in_task(reader, part)) == COUNT


# ---- data that is gone


def shorten(broker: karrow.Broker, client: karrow.Client, offset: int) -> None:
    with karrow.Admin(broker.bootstrap) as admin:
        admin.delete_records({("orders", 0): offset})


def test_what_retention_removed_is_a_loss(broker: karrow.Broker, client: karrow.Client) -> None:
    fill(client)
    given = {"assign": '{"orders": [0]}', "startingOffsets": offsets(p0=5)}
    reader = batch(broker.bootstrap, **given)
    (part,) = reader.partitions()
    shorten(broker, client, 100)
    text = "offsets 5 to 99 of orders-0 were removed before they were read, by retention"
    with pytest.raises(DataLoss, match=text) as caught:
        in_task(reader, part)
    assert "failOnDataLoss=false" in str(caught.value)
    with pytest.raises(DataLoss, match="startingOffsets names them"):
        batch(broker.bootstrap, **given).partitions()


def test_without_what_retention_removed(
    broker: karrow.Broker, client: karrow.Client, caplog: pytest.LogCaptureFixture
) -> None:
    fill(client)
    given = {"assign": '{"orders": [0]}', "startingOffsets": offsets(p0=5), "failOnDataLoss": False}
    reader = batch(broker.bootstrap, **given)
    (part,) = reader.partitions()
    shorten(broker, client, 100)
    assert values(in_task(reader, part)) == numbers(100, COUNT)
    assert values(read(broker.bootstrap, **given)) == numbers(100, COUNT)
    assert "offsets 5 to 99 of orders-0 were removed" in caplog.text


def test_earliest_is_no_loss(broker: karrow.Broker, client: karrow.Client) -> None:
    fill(client)
    reader = batch(broker.bootstrap, subscribe="orders", minPartitions=4)
    first, *_ = reader.partitions()
    shorten(broker, client, 7)
    assert isinstance(first, Range)
    assert values(in_task(reader, first)) == numbers(7, first.end)


def test_a_truncated_log_is_a_loss(broker: karrow.Broker, client: karrow.Client) -> None:
    fill(client)
    given = {"assign": '{"orders": [0]}', "startingOffsets": offsets(p0=250)}
    reader = batch(broker.bootstrap, **given, endingOffsets=offsets(p0=280))
    (part,) = reader.partitions()
    broker.truncate("orders", 0, 200)
    with pytest.raises(DataLoss, match="offsets 250 to 279 of orders-0 are not there"):
        in_task(reader, part)


def test_an_offset_that_is_out_of_range_for_a_moment(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    fill(client)
    broker.fail("Fetch", "OFFSET_OUT_OF_RANGE")
    assert values(read(broker.bootstrap, subscribe="orders")) == numbers(COUNT)
    broker.fail("Fetch", "OFFSET_OUT_OF_RANGE", times=2)
    with pytest.raises(DataLoss, match="of orders-0 are not there"):
        read(broker.bootstrap, subscribe="orders")


def test_a_topic_that_is_made_anew_between_plan_and_task_is_a_loss(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    given = {
        "startingOffsets": offsets(p0=2, p1=0, p2=0),
        "endingOffsets": offsets(p0=8, p1=0, p2=0),
    }
    fill(client)
    planned = {
        fails: batch_of(broker, failOnDataLoss=fails, **given) for fails in ("true", "false")
    }
    client.delete_topic("orders")
    broker.create_topic("orders", partitions=3)
    fill(client)
    with pytest.raises(DataLoss, match="offsets 2 to 7 of orders-0 belong to a topic that was del"):
        in_task(*planned["true"])
    assert in_task(*planned["false"]) == []


def batch_of(broker: karrow.Broker, **given: Any) -> tuple[BatchReader, InputPartition]:
    """A reader of ``orders`` and the range of its first partition."""
    reader = batch(broker.bootstrap, subscribe="orders", **given)
    return reader, reader.partitions()[0]


# ---- times


def test_times_choose_where_to_begin_and_end(broker: karrow.Broker, client: karrow.Client) -> None:
    with karrow.Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send("orders", b"%d" % number, partition=0, timestamp_ms=1000 * number)

    def found(**given: Any) -> list[bytes]:
        return values(read(broker.bootstrap, assign='{"orders": [0]}', **given))

    assert found(startingTimestamp=3500) == numbers(4, 10)
    assert found(startingTimestamp=3000, endingTimestamp="6000") == numbers(3, 6)
    assert found(startingOffsetsByTimestamp=offsets(p0=8000)) == numbers(8, 10)
    assert found(endingTimestamp=99_000) == numbers(10)
    # A time for all goes before times for each, and those before offsets.
    both = {"startingOffsetsByTimestamp": offsets(p0=8000), "startingOffsets": offsets(p0=1)}
    assert found(**both) == numbers(8, 10)
    assert found(**both, startingTimestamp=9000) == numbers(9, 10)
    assert found(startingTimestamp="1970-01-01T00:00:07+00:00") == numbers(7, 10)


def test_times_that_no_record_reaches(broker: karrow.Broker, client: karrow.Client) -> None:
    client.produce("orders", [b"1"], partition=0)
    given = {"assign": '{"orders": [0]}', "startingTimestamp": 99_999_999_999_999}
    with pytest.raises(
        errors.ConfigError, match="startingTimestamp: orders-0 has no record as new"
    ):
        read(broker.bootstrap, **given)
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert read(broker.bootstrap, **given, **strategy) == []


def test_ages(broker: karrow.Broker, client: karrow.Client) -> None:
    with karrow.Producer(broker.bootstrap) as producer:
        hour_ago = int((time.time() - 3600) * 1000)
        producer.send("orders", b"old", partition=0, timestamp_ms=hour_ago)
        producer.send("orders", b"new", partition=0)
    given = {"assign": '{"orders": [0]}'}
    assert values(read(broker.bootstrap, **given, startingOffsets="-10 minutes")) == [b"new"]
    assert values(read(broker.bootstrap, **given, startingTimestamp="-2 hours")) == [b"old", b"new"]
    assert values(read(broker.bootstrap, **given, endingTimestamp="-10 minutes")) == [b"old"]
    assert values(read(broker.bootstrap, **given, endingOffsets="-10 minutes")) == [b"old"]
    assert read(broker.bootstrap, **given, endingOffsets="-2 hours") == []
    each = '{"orders": {"0": "-10m"}}'
    assert values(read(broker.bootstrap, **given, startingOffsetsByTimestamp=each)) == [b"new"]
    assert values(read(broker.bootstrap, **given, endingOffsetsByTimestamp=each)) == [b"old"]
    time.sleep(0.05)
    assert read(broker.bootstrap, **given, startingOffsets="-1ms") == []


@pytest.mark.parametrize(
    "division", [{"minPartitions": 8}, {"maxRecordsPerPartition": 3}, {"maxBytesPerPartition": 90}]
)
@pytest.mark.parametrize("by_age", [True, False])
def test_partitions_without_a_record_that_new_stay_empty_when_others_are_divided(
    broker: karrow.Broker, division: dict[str, int], by_age: bool
) -> None:
    """Their beginning is their end, which is no offset to count from."""
    now = int(time.time() * 1000)
    with karrow.Producer(broker.bootstrap) as producer:
        for partition in (0, 1):
            for value in numbers(10):
                producer.send("orders", value, partition=partition, timestamp_ms=now - 3_600_000)
        producer.flush()
        for value in numbers(10, 20):
            producer.send("orders", value, partition=1, timestamp_ms=now)
    start = {"startingOffsets": "-10 minutes"}
    if not by_age:
        strategy = {"startingOffsetsByTimestampStrategy": "latest"}
        start = {"startingTimestamp": str(now - 1000), **strategy}
    reader = batch(broker.bootstrap, subscribe="orders", **start, **division)
    parts = reader.partitions()
    assert len(parts) > 1
    found = [place for part in parts for place in places(in_task(reader, part))]
    assert found == [(1, offset) for offset in range(10, 20)]


def test_a_group_says_where_to_begin(broker: karrow.Broker, client: karrow.Client) -> None:
    fill(client)
    client.produce("orders", [b"x"], partition=1)
    client.commit_offsets("billing", {("orders", 0): 290})
    given = {"subscribe": "orders", "startingOffsets": "group"}
    found = values(read(broker.bootstrap, **given, commitGroup="billing"))
    assert found == [*numbers(290, COUNT), b"x"]
    assert values(read(broker.bootstrap, **given, kafka_group_id="billing")) == found
    with pytest.raises(errors.ConfigError, match="group 'other' has stored no offset of topic"):
        read(broker.bootstrap, **given, commitGroup="other")


def test_a_group_is_where_its_open_transaction_ends(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    """What a transactional program has done and is about to commit is not read again."""
    fill(client)
    client.commit_offsets("billing", {("orders", 0): 100})
    stored = threading.Event()

    def transact() -> None:
        with (
            karrow.Producer(broker.bootstrap, transactional_id="t") as producer,
            producer.transaction() as transaction,
        ):
            transaction.send_offsets("billing", {("orders", 0): 290})
            stored.set()
            time.sleep(0.3)

    given = {"assign": '{"orders": [0]}', "startingOffsets": "group", "commitGroup": "billing"}
    with ThreadPoolExecutor() as threads:
        program = threads.submit(transact)
        assert stored.wait(10)
        assert values(read(broker.bootstrap, **given)) == numbers(290, COUNT)
        program.result()


# ---- filters


def test_filters_choose_what_is_fetched(broker: karrow.Broker, client: karrow.Client) -> None:
    with karrow.Producer(broker.bootstrap) as producer:
        for number in range(100):
            producer.send("orders", b"%d" % number, partition=0, timestamp_ms=1000 * number)
    client.produce("orders", [b"x"], partition=1)

    def found(*filters: Any) -> tuple[list[tuple[int, int]], list[Any]]:
        reader = batch(broker.bootstrap, subscribe="orders", pushdown="true")
        assert isinstance(reader, FilteredReader)
        left = reader.pushFilters(list(filters))
        return [p for part in reader.partitions() for p in places(in_task(reader, part))], left

    partition, offset, moment = ("partition",), ("offset",), ("timestamp",)
    assert found(EqualTo(partition, 1)) == ([(1, 0)], [])
    assert found(In(partition, (1, 7))) == ([(1, 0)], [])
    some = [(0, number) for number in range(10, 20)]
    bounds = (GreaterThanOrEqual(offset, 10), LessThan(offset, 20), EqualTo(partition, 0))
    assert found(*bounds) == (some, [])
    others = (GreaterThan(offset, 9), LessThanOrEqual(offset, 19), EqualTo(partition, 0))
    assert found(*others, IsNotNull(offset)) == (some, [])
    assert found(EqualTo(offset, 5)) == ([(0, 5)], [])
    assert found(GreaterThan(offset, 500)) == ([], [])
    since = GreaterThan(moment, datetime.fromtimestamp(95.5, UTC))
    assert found(since, EqualTo(partition, 0)) == ([(0, n) for n in range(96, 100)], [since])
    other = StringContains(("topic",), "x")
    assert len(found(other)[0]) == 101
    assert found(other)[1] == [other]


@pytest.mark.parametrize("bound", [LessThan(("offset",), 100), EqualTo(("offset",), 100)])
def test_rows_that_come_after_the_plan_do_not_pass_a_filter(
    broker: karrow.Broker, client: karrow.Client, bound: Any
) -> None:
    client.produce("orders", [b"early"] * 80, partition=0)
    reader = batch(broker.bootstrap, subscribe="orders", pushdown="true")
    assert isinstance(reader, FilteredReader)
    assert reader.pushFilters([bound]) == []
    parts = reader.partitions()
    client.produce("orders", [b"late"] * 40, partition=0)
    found = [offset for part in parts for _, offset in places(in_task(reader, part))]
    assert found == (list(range(80)) if isinstance(bound, LessThan) else [])


@pytest.mark.parametrize(
    "bound",
    [
        EqualTo(("offset",), -1),
        EqualTo(("offset",), -2),
        LessThan(("offset",), -1),
        LessThan(("offset",), 0),
        LessThanOrEqual(("offset",), -2),
        LessThanOrEqual(("offset",), -3),
    ],
)
@pytest.mark.parametrize("given", [{}, {"minPartitions": "5"}])
def test_nothing_is_in_front_of_a_partition(
    broker: karrow.Broker, client: karrow.Client, bound: Any, given: dict[str, str]
) -> None:
    """Numbers below 0 are the ends of partitions where offsets are given, not in filters."""
    client.produce("orders", numbers(50), partition=0)
    reader = batch(broker.bootstrap, subscribe="orders", pushdown="true", **given)
    assert isinstance(reader, FilteredReader)
    assert reader.pushFilters([bound]) == []
    assert [row for part in reader.partitions() for row in in_task(reader, part)] == []


@pytest.mark.parametrize("number", [-1, -2])
def test_filters_that_begin_in_front_of_a_partition_leave_nothing_out(
    broker: karrow.Broker, client: karrow.Client, number: int
) -> None:
    client.produce("orders", numbers(50), partition=0)
    reader = batch(broker.bootstrap, subscribe="orders", pushdown="true")
    assert isinstance(reader, FilteredReader)
    before_1970 = GreaterThan(("timestamp",), datetime.fromtimestamp(number / 1000, UTC))
    bounds = [GreaterThan(("offset",), number), GreaterThanOrEqual(("offset",), number)]
    assert reader.pushFilters([*bounds, before_1970]) == [before_1970]
    rows = [row for part in reader.partitions() for row in in_task(reader, part)]
    assert values(rows) == numbers(50)


def test_spark_may_take_longer_for_a_batch_than_a_call_may(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    """Nobody runs the loop meanwhile, and the fetch that was sent ahead seems to have failed."""
    for _ in range(3):
        client.produce("orders", [b"x" * 100_000], partition=0)
    given = {"subscribe": "orders", "kafka_max_partition_fetch_bytes": "1000"}
    short = {"kafka_default_api_timeout_ms": "300", "kafka_request_timeout_ms": "200"}
    reader = batch(broker.bootstrap, **given, **short)
    rows = reader.read(reader.partitions()[0])
    found = [next(rows).num_rows]
    time.sleep(0.5)
    found += [one.num_rows for one in rows]
    assert found == [1, 1, 1]


def test_readers_take_filters_only_if_asked(broker: karrow.Broker) -> None:
    assert not isinstance(batch(broker.bootstrap, subscribe="orders"), FilteredReader)


# ---- logins


@pytest.fixture
def guarded() -> Iterator[karrow.Broker]:
    with karrow.Broker(sasl={"u": "hunter2"}) as broker:
        login = karrow.Scram("u", "hunter2")
        with karrow.Client(broker.bootstrap, sasl=login) as client:
            client.create_topic("orders", 1)
            client.produce("orders", [b"1"], partition=0)
        yield broker
        pool.close()


JAAS = "org.apache.kafka.common.security.{} required username='u' password='{}';"
LOGINS: dict[str, dict[str, str]] = {
    "jaas": {
        "kafka_sasl_mechanism": "PLAIN",
        "kafka_sasl_jaas_config": JAAS.format("plain.PlainLoginModule", "hunter2"),
    },
    "scram": {
        "kafka_sasl_mechanism": "SCRAM-SHA-256",
        "kafka_sasl_username": "u",
        "kafka_sasl_password": "hunter2",
    },
    "environment": {"credentials": "environment"},
}


@pytest.mark.parametrize("kind", LOGINS)
def test_logins(guarded: karrow.Broker, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("KARROW_SASL_MECHANISM", "SCRAM-SHA-512")
    monkeypatch.setenv("KARROW_SASL_USERNAME", "u")
    monkeypatch.setenv("KARROW_SASL_PASSWORD", "hunter2")
    given = {"subscribe": "orders", "kafka_security_protocol": "SASL_PLAINTEXT", **LOGINS[kind]}
    assert values(read(guarded.bootstrap, **given)) == [b"1"]


def test_a_wrong_password_does_not_show(guarded: karrow.Broker) -> None:
    given = {
        "subscribe": "orders",
        "kafka_security_protocol": "SASL_PLAINTEXT",
        "kafka_sasl_mechanism": "PLAIN",
        "kafka_sasl_jaas_config": JAAS.format("plain.PlainLoginModule", "hunter3"),
    }
    with pytest.raises(errors.AuthenticationError) as caught:
        read(guarded.bootstrap, **given)
    assert "hunter3" not in str(caught.value)
    assert "hunter3" not in repr(batch(guarded.bootstrap, **given))
