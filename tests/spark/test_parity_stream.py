"""Streams: the same micro-batches from both connectors, offset by offset."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import karrow
from tests.brokers import KafkaCluster
from tests.fix_admin import eventually, new_name
from tests.spark.both import FORMATS, OURS, THEIRS, Both, Query, Span, in_json
from tests.spark.filled import HEADERS, SIZES, Filled, deal, filled, moment, new_topic, put

EARLIEST, LATEST = -2, -1


@pytest.fixture
def topics(kafka: KafkaCluster) -> Filled:
    return filled(kafka)


def count(batches: list[list[Span]]) -> int:
    return sum(rows for batch in batches for *_, rows in batch)


# ---- what is there


@pytest.mark.gate
def test_limits_divide_what_is_there_alike(both: Both, topics: Filled) -> None:
    batches = both.drain(
        subscribe=f"{topics.orders},{topics.sparse}",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=50,
        includeHeaders="true",
    )
    assert count(batches) == sum(SIZES) + 10
    assert 5 < len(batches) < 10


def test_headers_come_as_they_were_written(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka)
    put(both.bootstrap, topic, 0, range(8))
    options = {"startingOffsets": "earliest", "includeHeaders": "true"}
    with both.running(subscribe=topic, **options) as pair:
        pair.settle()
        pair.alike()
    found = [[tuple(header) for header in row[-1] or ()] for row in pair.ours.rows]
    assert found == [list(HEADERS[number % len(HEADERS)]) for number in range(8)]


@pytest.mark.parametrize(
    "options",
    [{"groupIdPrefix": "mine"}, {"kafka.group.id": "mine", "groupIdPrefix": "ignored"}],
    ids=str,
)
def test_groups_change_nothing_in_streams(
    both: Both, topics: Filled, options: dict[str, str]
) -> None:
    limits: dict[str, Any] = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 4}
    assert count(both.drain(subscribe=topics.sparse, **limits, **options)) == 10


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_small_limits_starve_no_partition(both: Both, kafka: KafkaCluster, limit: int) -> None:
    topic = new_topic(kafka, partitions=4)
    for partition, size in enumerate((9, 1, 0, 3)):
        put(both.bootstrap, topic, partition, range(size))
    batches = both.drain(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
    assert count(batches) == 13


def test_streams_begin_where_they_are_told(both: Both, topics: Filled) -> None:
    places = in_json(topics.orders, {0: 200, 1: LATEST, 2: EARLIEST})
    assert count(both.drain(subscribe=topics.orders, startingOffsets=places)) == 10 + 6
    # By default at the end.
    assert both.drain(subscribe=topics.orders) == []


def test_streams_begin_at_times(both: Both, topics: Filled) -> None:
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    late = {"subscribe": topics.orders, "startingTimestamp": str(moment(40))}
    assert count(both.drain(**late, **latest)) == 170 + 5
    assert "startingTimestamp" in both.stream_refused(**late)
    each = in_json(topics.orders, {0: moment(209), 1: moment(0), 2: moment(99)})
    by_partition = {"subscribe": topics.orders, "startingOffsetsByTimestamp": each}
    assert count(both.drain(**by_partition, **latest, startingOffsets="earliest")) == 1 + 45
    assert "startingOffsetsByTimestamp" in both.stream_refused(**by_partition)


def test_assigned_partitions_and_patterns(both: Both, topics: Filled) -> None:
    some = json.dumps({topics.orders: [0, 2]})
    assert count(both.drain(assign=some, startingOffsets="earliest")) == 210 + 6
    family = topics.orders.rsplit(".", 1)[0]
    matched = both.drain(subscribePattern=f"{family}.(orders|empty)", startingOffsets="earliest")
    assert count(matched) == sum(SIZES)


def test_micro_batches_are_split_alike(both: Both, topics: Filled) -> None:
    options = {"subscribe": f"{topics.orders},{topics.empty}", "startingOffsets": "earliest"}
    limits: list[dict[str, Any]] = [{"minPartitions": 9}, {"maxRecordsPerPartition": 64}]
    for splits in limits:
        (batch,) = both.drain(**options, **splits)
        assert len(batch) > len(SIZES)
    # Empty partitions do not count in streams, as they do in batch queries.
    assert len(both.drain(**options, minPartitions=5)[0]) == 5


def test_streams_of_committed_records(both: Both, topics: Filled) -> None:
    committed = {"kafka.isolation.level": "read_committed", "startingOffsets": "earliest"}
    batches = both.drain(subscribe=topics.dealt, **committed, maxOffsetsPerTrigger=9)
    assert count(batches) == 30
    assert count(both.drain(subscribe=topics.dealt, startingOffsets="earliest")) == 50


def test_a_stream_of_nothing(both: Both, topics: Filled) -> None:
    assert both.drain(subscribe=topics.empty, startingOffsets="earliest") == []


def test_the_least_that_makes_a_batch_of_what_is_there(both: Both, topics: Filled) -> None:
    options = {"subscribe": topics.orders, "startingOffsets": "earliest"}
    for least in (10, 1000):
        both.drain(**options, minOffsetsPerTrigger=least)


# ---- restarts


@pytest.mark.gate
def test_a_restart_goes_on_where_it_was(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka, partitions=2)
    put(both.bootstrap, topic, 0, range(30))
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}
    assert count(both.drain("restarted", **options)) == 30
    assert both.drain("restarted", **options) == []
    put(both.bootstrap, topic, 1, range(25))
    # Neither a new start nor a new limit takes back what was done.
    options |= {"startingOffsets": "latest", "maxOffsetsPerTrigger": 10}
    assert count(both.drain("restarted", **options)) == 25


def test_partitions_and_topics_that_came_between_runs(both: Both, kafka: KafkaCluster) -> None:
    family = new_name("family")
    topic = new_topic(kafka, f"{family}.a")
    put(both.bootstrap, topic, 0, range(3))
    options = {"subscribePattern": f"{family}[.].*", "maxOffsetsPerTrigger": 4}
    assert both.drain("grown", **options) == []  # from the end, where the first run began
    with karrow.Admin(both.bootstrap) as admin:
        admin.create_partitions({topic: 3})
    other = new_topic(kafka, f"{family}.b", 2)
    for name, partition in ((topic, 0), (topic, 2), (other, 1)):
        put(both.bootstrap, name, partition, range(5))
    # What is new is read from its beginning.
    assert count(both.drain("grown", **options)) == 15


# ---- while it runs


@pytest.mark.gate
def test_partitions_that_are_added_are_read_from_their_beginning(
    both: Both, kafka: KafkaCluster
) -> None:
    topic = new_topic(kafka)
    put(both.bootstrap, topic, 0, range(5))
    with both.running(subscribe=topic) as pair:
        pair.settle()
        put(both.bootstrap, topic, 0, range(4))
        pair.settle()
        with karrow.Admin(both.bootstrap) as admin:
            admin.create_partitions({topic: 2})
        eventually(lambda: kafka.leader(topic, 1) != -1)
        put(both.bootstrap, topic, 1, range(6))
        pair.settle()
        eventually(lambda: len(pair.ours.rows) == len(pair.theirs.rows) == 10)
        assert sorted(pair.ours.rows, key=str) == sorted(pair.theirs.rows, key=str)


@pytest.mark.gate
def test_batches_wait_for_the_least_and_not_too_long(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka)
    put(both.bootstrap, topic, 0, range(3))
    options: dict[str, Any] = {"minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 12}
    with both.running(subscribe=topic, startingOffsets="earliest", **options) as pair:
        pair.settle()
        assert count(pair.alike()) == 3  # the first never waits
        put(both.bootstrap, topic, 0, range(5))
        time.sleep(1.5)
        assert len(pair.alike()) == 1
        put(both.bootstrap, topic, 0, range(9))
        pair.settle()
        eventually(lambda: len(pair.ours.done) == len(pair.theirs.done) == 2)
        # Twelve of fourteen: the other two are too few again.
        assert [count([batch]) for batch in pair.alike()] == [3, 12]


def test_the_longest_delay_ends_the_waiting(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka)
    options: dict[str, Any] = {"minOffsetsPerTrigger": 1000, "maxTriggerDelay": "3s"}
    with both.running(subscribe=topic, startingOffsets="earliest", **options) as pair:
        pair.settle()
        put(both.bootstrap, topic, 0, range(5))
        eventually(lambda: len(pair.ours.rows) == len(pair.theirs.rows) == 5)
        put(both.bootstrap, topic, 0, range(2))
        eventually(lambda: len(pair.ours.rows) == len(pair.theirs.rows) == 7)
        assert pair.ours.rows == pair.theirs.rows


def test_committed_records_as_transactions_end(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka)
    options = {"kafka.isolation.level": "read_committed", "startingOffsets": "earliest"}
    with both.running(subscribe=topic, **options) as pair:
        for _ in range(2):
            deal(both.bootstrap, topic, (3, True), (4, False))
            pair.settle()
        eventually(lambda: len(pair.ours.rows) == len(pair.theirs.rows) == 6)
        assert pair.ours.rows == pair.theirs.rows


# ---- lost data


@pytest.mark.gate
def test_records_deleted_between_runs_are_an_error_or_left_out(
    both: Both, kafka: KafkaCluster
) -> None:
    topic = new_topic(kafka)
    put(both.bootstrap, topic, 0, range(10))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert count(both.drain("lossy", **options)) == 10
    put(both.bootstrap, topic, 0, range(10))
    with karrow.Admin(both.bootstrap) as admin:
        admin.delete_records({(topic, 0): 15})
    assert topic in both.stream_refused("lossy", **options)
    assert count(both.drain("lossy", **options, failOnDataLoss="false")) == 5


def test_a_topic_made_anew_between_runs_is_an_error(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka)
    put(both.bootstrap, topic, 0, range(10))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert count(both.drain("anew", **options)) == 10
    with karrow.Admin(both.bootstrap) as admin:
        admin.delete_topic(topic)
        eventually(lambda: topic not in admin.list_topics())
    new_topic(kafka, topic)
    put(both.bootstrap, topic, 0, range(4))
    assert topic in both.stream_refused("anew", **options)
    # Spark's connector knows a topic by its name, and takes the end of the new one for its place.
    lenient = {**options, "failOnDataLoss": "false"}
    for place, connector in (([], THEIRS), ([0, 1, 2, 3], OURS)):
        assert offsets(both.drained(connector, "anew", lenient)) == place
    put(both.bootstrap, topic, 0, range(3))
    for connector in FORMATS:
        assert offsets(both.drained(connector, "anew", lenient)) == [4, 5, 6]


def offsets(query: Query) -> list[int]:
    return [row[4] for row in query.rows]


def test_a_start_that_is_deleted(both: Both, topics: Filled) -> None:
    start = in_json(topics.trimmed, {0: 10, 1: 30})
    options = {"subscribe": topics.trimmed, "startingOffsets": start}
    assert topics.trimmed in both.stream_refused(**options)
    assert count(both.drain(**options, failOnDataLoss="false")) == 60
