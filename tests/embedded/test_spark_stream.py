"""Streams without Spark: where they begin, how far batches go, and that they repeat exactly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

import karrow
from karrow import errors
from karrow.spark import pool
from karrow.spark.reading.loss import DataLoss
from karrow.spark.reading.stream import StreamReader
from karrow.types import TopicPartition
from tests.embedded.sourcing import (
    Query,
    in_task,
    next_values,
    numbers,
    options,
    places,
    put,
    query,
    stream,
    values,
)


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(seed=1, auto_create_topics=False) as broker:
        broker.create_topic("orders", partitions=2)
        yield broker
        pool.close()


@pytest.fixture
def client(broker: karrow.Broker) -> Iterator[karrow.Client]:
    with karrow.Client(broker.bootstrap) as client:
        yield client


# ---- where it begins


def test_latest_is_where_a_stream_begins(broker: karrow.Broker, client: karrow.Client) -> None:
    put(client, 3)
    running = query(broker)
    assert running.next() == []
    put(client, 3, 5)
    assert next_values(running) == numbers(3, 5)
    assert running.next() is None


def test_where_a_stream_began_is_known_after_a_restart(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    put(client, 3)
    running = query(broker)
    assert running.next() == []
    put(client, 3, 5)
    running.restart()
    assert next_values(running) == numbers(3, 5)


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": '{"orders": {"0": 4, "1": -1}}'}, 4),
        ({"startingOffsets": '{"orders": {"0": -2, "1": -2}}'}, 0),
        ({"startingTimestamp": "0"}, 0),
        ({"startingOffsets": "-1 hour"}, 0),
        ({"startingOffsets": "group", "commitGroup": "billing"}, 7),
        ({"startingOffsets": "group", "kafka_group_id": "billing"}, 7),
    ],
)
def test_other_beginnings(
    broker: karrow.Broker, client: karrow.Client, given: dict[str, str], first: int
) -> None:
    put(client, 10)
    client.commit_offsets("billing", {("orders", 0): 7})
    given = {"startingOffsetsByTimestampStrategy": "latest", **given}
    assert next_values(query(broker, **given)) == numbers(first, 10)


# ---- how far it goes


def test_batches_follow_each_other(broker: karrow.Broker, client: karrow.Client) -> None:
    running = query(broker)
    for first in range(0, 50, 10):
        put(client, first, first + 10)
        assert next_values(running) == numbers(first, first + 10)
    assert running.next() is None


def test_a_limit_of_offsets_is_shared_by_what_is_unread(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    put(client, 90)
    put(client, 10, partition=1)
    running = query(broker, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    sizes = []
    while (rows := running.next()) is not None:
        found = places(rows)
        sizes.append((sum(p == 0 for p, _ in found), sum(p == 1 for p, _ in found)))
    assert sizes[0] == (18, 2)
    assert sum(a for a, _ in sizes) == 90
    assert sum(b for _, b in sizes) == 10
    assert max(map(sum, sizes)) <= 20


def test_small_partitions_do_not_starve(broker: karrow.Broker, client: karrow.Client) -> None:
    put(client, 1000)
    put(client, 1, partition=1)
    rows = query(broker, startingOffsets="earliest", maxOffsetsPerTrigger=10).next()
    assert rows is not None
    assert (1, 0) in places(rows)


def test_a_limit_of_bytes(broker: karrow.Broker, client: karrow.Client) -> None:
    for _ in range(10):
        client.produce("orders", [b"x" * 1000] * 10, partition=0)
        client.produce("orders", [b"x" * 10] * 10, partition=1)
    running = query(broker, startingOffsets="earliest", maxBytesPerTrigger="20k")
    sizes = []
    while (rows := running.next()) is not None:
        sizes.append(sum(map(len, values(rows))))
    assert sum(sizes) == 101_000
    assert max(sizes) < 25_000
    assert len(sizes) < 12


def test_too_few_are_waited_for(broker: karrow.Broker, client: karrow.Client) -> None:
    put(client, 5)
    running = query(
        broker, startingOffsets="earliest", minOffsetsPerTrigger=10, maxTriggerDelay="1s"
    )
    assert next_values(running) == numbers(5)  # the first batch does not wait
    put(client, 5, 10)
    assert running.next() is None
    put(client, 10, 16)
    assert next_values(running) == numbers(5, 16)
    put(client, 16, 18)
    assert running.next() is None
    time.sleep(1.1)
    assert next_values(running) == numbers(16, 18)


def test_limits_as_spark_calls_them(broker: karrow.Broker, client: karrow.Client) -> None:
    def limit(**given: Any) -> object:
        return query(broker, **given).reader.getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(maxOffsetsPerTrigger=7) == ReadMaxRows(7)
    assert limit(maxBytesPerTrigger="1k") == ReadMaxBytes(1024)
    assert limit(minOffsetsPerTrigger=7) == ReadMinRows(7)
    put(client, 30)
    running = query(broker, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    rows = running.next(ReadAllAvailable())
    assert rows is not None
    assert len(rows) == 30


def test_available_now_ends_with_what_is_there(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    put(client, 10)
    running = query(
        broker, startingOffsets="earliest", maxOffsetsPerTrigger=4, minOffsetsPerTrigger=4
    )
    running.reader.prepareForTriggerAvailableNow()
    put(client, 10, 20)
    found: list[bytes] = []
    while (rows := running.next()) is not None:
        found += values(rows)
    assert found == numbers(10)


def test_available_now_at_the_end_of_a_topic_that_grows(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    """Spark asks for the end of the query first, and where it begins after that."""
    put(client, 3)
    running = query(broker)
    running.reader = StreamReader(options(broker.bootstrap, subscribe="orders"))
    running.reader.prepareForTriggerAvailableNow()
    put(client, 3, 5)
    running._initial = json.dumps(running.reader.initialOffset())
    assert running.next() == []
    assert running.next() is None
    running.restart()
    assert running.repeat(0) == []
    put(client, 5, 8)
    assert next_values(running) == numbers(5, 8)


def test_the_latest_offsets_are_reported(broker: karrow.Broker, client: karrow.Client) -> None:
    running = query(broker, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert running.reader.reportLatestOffset() is None
    put(client, 10)
    running.next()
    assert running.reader.reportLatestOffset() == {"orders": {"0": 10, "1": 0}}


# ---- again


def test_the_first_batch_repeats_although_latest_has_moved(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    put(client, 5)
    running = query(broker)
    put(client, 5, 10)
    first = running.next()
    put(client, 10, 20)
    running.restart()
    assert running.repeat(0) == first
    assert next_values(running) == numbers(10, 20)


def add_partition(broker: karrow.Broker) -> None:
    with karrow.Admin(broker.bootstrap) as admin:
        admin.create_partitions({"orders": 3})


def delete_group(broker: karrow.Broker) -> None:
    with karrow.Admin(broker.bootstrap) as admin:
        admin.delete_groups(["billing"])


@pytest.mark.parametrize("is_available_now", [False, True])
@pytest.mark.parametrize(
    ("given", "since"),
    [
        ({"startingOffsets": '{"orders": {"0": 4, "1": 0}}'}, add_partition),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 0, "1": 0}}'}, add_partition),
        ({"startingOffsets": "group", "commitGroup": "billing"}, delete_group),
    ],
)
def test_the_first_batch_repeats_although_its_beginning_could_not_be_named_again(
    broker: karrow.Broker,
    client: karrow.Client,
    given: dict[str, str],
    since: Callable[[karrow.Broker], None],
    is_available_now: bool,
) -> None:
    """It stands in the checkpoint, and so does where it begins."""
    put(client, 10)
    put(client, 10, partition=1)
    client.commit_offsets("billing", {("orders", 0): 4, ("orders", 1): 0})
    running = query(broker, **given, minOffsetsPerTrigger=1)
    first = running.next()
    since(broker)
    running.restart()
    if is_available_now:
        running.reader.prepareForTriggerAvailableNow()
    assert running.repeat(0) == first
    put(client, 10, 12)
    if not is_available_now:
        assert next_values(running) == numbers(10, 12)


def test_a_beginning_that_cannot_be_is_said_before_anything_is_read(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    put(client, 10)
    running = query(broker, startingOffsets='{"orders": {"0": 4}}')
    with pytest.raises(errors.ConfigError, match="startingOffsets does not speak of orders-1"):
        running.next()
    assert running.log == []


def test_a_first_batch_that_does_not_say_where_it_begins_needs_the_options(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    """That of Spark's own connector; without them it would be empty, and its rows lost."""
    put(client, 10)
    running = query(broker, startingOffsets='{"orders": {"0": 4, "1": 0}}')
    running.next()
    running.log = ['{"orders": {"0": 10, "1": 0}}']
    running.restart()
    assert values(running.repeat(0)) == numbers(4, 10)
    add_partition(broker)
    running.restart()
    with pytest.raises(errors.ConfigError, match="startingOffsets does not speak of orders-2"):
        running.repeat(0)


def test_an_empty_first_batch_is_gone_on_from(broker: karrow.Broker, client: karrow.Client) -> None:
    """Spark has a first batch even where it is told the beginning again, and writes that down."""
    put(client, 4)
    running = query(broker, startingOffsets='{"orders": {"0": 4, "1": 0}}')
    assert running.next() is None
    running.log = [running._start(0)]
    add_partition(broker)
    put(client, 4, 6)
    running.restart()
    assert running.repeat(0) == []
    assert next_values(running) == numbers(4, 6)


def test_batches_repeat_after_more_came(broker: karrow.Broker, client: karrow.Client) -> None:
    running = query(broker, startingOffsets="earliest")
    put(client, 5)
    first = running.next()
    put(client, 5, 9)
    second = running.next()
    put(client, 9, 20)
    running.restart()
    assert running.repeat(1) == second
    assert running.repeat(0) == first


def test_offsets_are_in_the_form_of_sparks_own_connector(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    put(client, 3)
    running = query(broker, startingOffsets="earliest")
    running.next()
    put(client, 3, 4)
    running.next()
    end = json.loads(running.log[-1])
    (topic_id,) = end.pop("@ids").values()
    assert len(topic_id) == 36
    assert end.pop("@epochs") == {"orders": {"0": 0, "1": 0}}
    assert end == {"orders": {"0": 4, "1": 0}}
    # A checkpoint of that connector would do, too.
    running.log.append(json.dumps(end))
    put(client, 4, 6)
    assert next_values(running) == numbers(4, 6)


def test_offsets_of_a_checkpoint_can_be_given_as_starting_offsets(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    put(client, 3)
    running = query(broker, startingOffsets="earliest")
    running.next()
    put(client, 3, 5)
    assert next_values(query(broker, startingOffsets=running.log[-1])) == numbers(3, 5)


# ---- topics that change


def test_added_partitions_are_read_from_their_beginning(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = query(broker)
    put(client, 3)
    assert next_values(running) == numbers(3)
    with karrow.Admin(broker.bootstrap) as admin:
        admin.create_partitions({"orders": 3})
    put(client, 7, partition=2)
    second = running.next()
    assert second is not None
    assert places(second) == [(2, number) for number in range(7)]
    running.restart()
    assert running.repeat(1) == second
    assert running.next() is None


def test_added_topics_are_read_from_their_beginning(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = stream(broker.bootstrap, subscribePattern="ord.*")
    assert running.next() == []
    broker.create_topic("ordinary", partitions=1)
    put(client, 3, topic="ordinary")
    assert next_values(running) == numbers(3)


def recreate(broker: karrow.Broker, client: karrow.Client) -> None:
    client.delete_topic("orders")
    broker.create_topic("orders", partitions=2)


def test_a_topic_that_was_made_anew_is_a_loss(broker: karrow.Broker, client: karrow.Client) -> None:
    running = query(broker, startingOffsets="earliest")
    put(client, 3)
    running.next()
    recreate(broker, client)
    put(client, 100)  # more than the old one had: only the id can tell
    with pytest.raises(DataLoss, match="belong to a topic that was deleted; another one has"):
        running.next()


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = query(broker, startingOffsets="earliest", failOnDataLoss=False)
    put(client, 3)
    running.next()
    recreate(broker, client)
    put(client, 100)
    second = running.next()
    assert second is not None
    assert values(second) == numbers(100)
    running.restart()
    assert running.repeat(1) == second


def test_a_topic_that_is_made_anew_while_a_batch_waits(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    put(client, 5)
    running = query(broker, startingOffsets="earliest")
    running.next()
    recreate(broker, client)
    put(client, 100)
    with pytest.raises(DataLoss, match="another one has its name now"):
        running.repeat(0)


def test_a_worker_that_knows_the_old_topic_looks_again(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    given = {"startingOffsets": "earliest"}
    worker = query(broker, **given, kafka_client_id="worker")
    put(client, 3)
    assert next_values(worker) == numbers(3)
    recreate(broker, client)
    put(client, 7)
    planned = query(broker, **given)
    assert next_values(planned) == numbers(7)
    found = [row for part in planned.ranges(0) for row in in_task(worker.reader, part)]
    assert values(found) == numbers(7)


def test_a_topic_that_is_deleted_while_a_batch_waits(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    put(client, 5)
    running = query(broker, startingOffsets="earliest")
    running.next()
    (part,) = running.ranges(0)
    client.delete_topic("orders")
    with pytest.raises(DataLoss, match="are gone with their topic or partition"):
        in_task(running.reader, part)
    running.given["failOnDataLoss"] = "false"
    running.restart()
    assert in_task(running.reader, part) == []


def test_a_topic_that_is_deleted_is_a_loss(broker: karrow.Broker, client: karrow.Client) -> None:
    broker.create_topic("other", partitions=1)
    running = query(broker, subscribe="orders,other", startingOffsets="earliest")
    put(client, 3)
    running.next()
    client.delete_topic("orders")
    with pytest.raises(DataLoss, match="of orders-0 are gone with their topic or partition"):
        running.next()
    running.given["failOnDataLoss"] = "false"
    running.log.pop()
    running.restart()
    put(client, 2, topic="other")
    assert next_values(running) == numbers(2)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_is_missing_for_a_moment_is_not_gone(
    broker: karrow.Broker, client: karrow.Client, fails: str
) -> None:
    """A broker that has just started may not know of it yet."""
    running = query(broker, startingOffsets="earliest", failOnDataLoss=fails)
    put(client, 3)
    running.next()
    put(client, 3, 5)
    fault = broker.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic="orders", times=2)
    assert next_values(running) == numbers(3, 5)
    assert fault.met == 2


def test_a_deleted_topic_has_no_size(broker: karrow.Broker, client: karrow.Client) -> None:
    put(client, 5)
    given = {"maxBytesPerPartition": "100", "failOnDataLoss": "false"}
    running = query(broker, startingOffsets="earliest", **given)
    running.next()
    put(client, 5, 9)
    running.next()
    client.delete_topic("orders")
    running.restart()
    assert running.repeat(1) == []


def test_a_partition_that_lost_its_beginning_before_it_was_seen(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = query(broker, startingOffsets="earliest")
    put(client, 3)
    running.next()
    with karrow.Admin(broker.bootstrap) as admin:
        admin.create_partitions({"orders": 3})
        put(client, 9, partition=2)
        admin.delete_records({("orders", 2): 4})
    with pytest.raises(DataLoss, match="offsets 0 to 3 of orders-2 were removed before the part"):
        running.next()


# Logs that were cut are told by epochs of leaders (test_spark_truncated.py), where there are any.


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karrow.spark.reading.stream.SHORT_PAUSES", (0.01, 0.01))


@pytest.mark.usefixtures("impatient")
def test_a_log_that_is_shorter_than_before_is_a_loss(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = query(broker, startingOffsets="earliest")
    put(client, 4)
    put(client, 4, 10)
    running.next()
    running.forget_epochs()
    broker.truncate("orders", 0, 4)
    with pytest.raises(DataLoss, match=r"offsets 4 to 9 of orders-0 .*it ends at 4"):
        running.next()


def cut_in_two(broker: karrow.Broker, client: karrow.Client, **given: Any) -> Query:
    """A query whose batch is in the checkpoint, and whose log ends in the middle of it."""
    put(client, 50)
    put(client, 50, 100)
    short = {"kafka_default_api_timeout_ms": "1000", "kafka_request_timeout_ms": "500"}
    running = query(broker, startingOffsets="earliest", **short, **given)
    running.next()
    running.forget_epochs()
    broker.truncate("orders", 0, 50)
    running.restart()
    return running


def test_a_log_that_ends_inside_a_batch_is_a_loss(
    broker: karrow.Broker, client: karrow.Client
) -> None:
    running = cut_in_two(broker, client)
    with pytest.raises(DataLoss, match=r"offsets 50 to 99 of orders-0 .*it ends at 50"):
        running.repeat(0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("tasks", ["1", "3"])
def test_a_log_that_ends_inside_a_batch_is_gone_on_with_at_its_end(
    broker: karrow.Broker, client: karrow.Client, caplog: pytest.LogCaptureFixture, tasks: str
) -> None:
    running = cut_in_two(broker, client, failOnDataLoss="false", minPartitions=tasks)
    assert values(running.repeat(0)) == numbers(50)
    assert "to 99 of orders-0 are not there" in caplog.text
    assert running.next() == []
    put(client, 200, 205)
    assert next_values(running) == numbers(200, 205)


# ---- groups


def committed(client: karrow.Client, group: str = "billing") -> dict[int, int | None]:
    stored = client.committed_offsets(group)
    return {one.partition: place.offset for one, place in stored.items()}


def test_a_group_sees_what_is_done(broker: karrow.Broker, client: karrow.Client) -> None:
    running = query(broker, startingOffsets="earliest", commitGroup="billing")
    put(client, 3)
    running.next()
    assert committed(client) == {}  # it is not done before Spark says so
    assert running.next() is None  # which it does by asking for more
    assert committed(client) == {0: 3, 1: 0}
    put(client, 3, 5)
    running.next()
    running.reader.commit(json.loads(running.log[-1]))
    assert committed(client) == {0: 5, 1: 0}
    broker.clear_requests()
    assert running.next() is None
    assert "OffsetCommit" not in [seen.api for seen in broker.requests]


def test_a_commit_that_fails_for_a_moment_is_made_with_the_next_batch(
    broker: karrow.Broker, client: karrow.Client, caplog: pytest.LogCaptureFixture
) -> None:
    running = query(broker, startingOffsets="earliest", commitGroup="billing")
    put(client, 3)
    running.next()
    broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
    assert running.next() is None
    assert "group billing has no offsets of this batch" in caplog.text
    assert running.next() is None
    assert committed(client)[0] == 3


def test_a_group_with_members_is_refused(broker: karrow.Broker, client: karrow.Client) -> None:
    put(client, 3)
    with karrow.Consumer(broker.bootstrap, group="billing", start="earliest") as consumer:
        consumer.subscribe("orders")
        consumer.poll(timeout=5)
        running = query(broker, startingOffsets="earliest", commitGroup="billing")
        running.next()
        with pytest.raises(errors.ConfigError, match="commitGroup='billing' cannot commit"):
            running.next()


# ---- tasks


def test_batches_are_divided(broker: karrow.Broker, client: karrow.Client) -> None:
    put(client, 90)
    put(client, 10, partition=1)
    running = query(broker, startingOffsets="earliest", minPartitions=4)
    running.next()
    sizes = [(part.partition, part.size) for part in running.ranges(0)]
    assert sizes == [(0, 30), (0, 30), (0, 30), (1, 10)]
    running.given |= {"maxBytesPerPartition": "200"}
    running.restart()
    assert len(running.ranges(0)) > 4


def test_ranges_know_their_topic(broker: karrow.Broker, client: karrow.Client) -> None:
    put(client, 3)
    running = query(broker, startingOffsets="earliest")
    running.next()
    (part,) = running.ranges(0)
    assert part.where == TopicPartition("orders", 0)
    assert part.topic_id == json.loads(running.log[0])["@ids"]["orders"]


def test_a_checkpoint_of_another_source_is_refused(broker: karrow.Broker) -> None:
    running = query(broker)
    with pytest.raises(errors.StateError, match="the checkpoint has no offsets of Kafka"):
        running.reader.latestOffset({"logOffset": 3}, ReadAllAvailable())


def test_secrets_do_not_show(broker: karrow.Broker) -> None:
    running = query(broker, kafka_ssl_key_password="hunter2")
    running.next()
    shown = [repr(running.reader), repr(running.log), repr(running.reader.partitions({}, {}))]
    assert "hunter2" not in "".join(shown)
