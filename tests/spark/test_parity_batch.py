"""Batch reads: the same rows, offsets and tasks from both connectors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, functions

import karrow
from tests.brokers import KafkaCluster
from tests.spark.both import FORMATS, OURS, THEIRS, Both, in_json, in_order, spans, with_task
from tests.spark.filled import SIZES, Filled, deal, filled, moment, new_topic, put

EARLIEST, LATEST = -2, -1
PARTITIONS = range(len(SIZES))


@pytest.fixture
def topics(kafka: KafkaCluster) -> Filled:
    return filled(kafka)


def everywhere(place: int) -> dict[int, int]:
    return dict.fromkeys(PARTITIONS, place)


# ---- what is in a row


@pytest.mark.gate
def test_rows_of_every_codec_with_headers_are_the_same(both: Both, topics: Filled) -> None:
    rows = both.read(subscribe=topics.orders, includeHeaders="true")
    assert len(rows) == sum(SIZES)
    assert {row.timestampType for row in rows} == {0}
    assert any(row.key is None for row in rows)
    assert any(row.value is None for row in rows)
    found = [[tuple(header) for header in row.headers or ()] for row in rows[:4]]
    assert found == [
        [],
        [("trace", b"1"), ("trace", b"2"), ("trace", b"1")],
        [("none", None), ("empty", b"")],
        [("größe", b"\x00\xff")],
    ]


def test_times_of_the_broker_have_their_type(both: Both, topics: Filled) -> None:
    rows = both.read(subscribe=topics.stamped)
    assert {row.timestampType for row in rows} == {1}


@pytest.mark.gate
@pytest.mark.parametrize("options", [{}, {"includeHeaders": "true"}, {"INCLUDEHEADERS": "TRUE"}])
def test_schemas_are_the_same(both: Both, topics: Filled, options: dict[str, str]) -> None:
    theirs, ours = (both.frame(one, subscribe=topics.orders, **options) for one in FORMATS)
    assert ours.schema == theirs.schema
    assert ours.schema.json() == theirs.schema.json()
    streams = [both.stream(one, subscribe=topics.orders, **options) for one in FORMATS]
    assert [one.schema.json() for one in streams] == [theirs.schema.json()] * 2


# ---- which partitions


@pytest.mark.gate
def test_topics_by_name_pattern_and_partition(both: Both, topics: Filled) -> None:
    family = topics.orders.rsplit(".", 1)[0]
    several = both.read(subscribe=f" {topics.orders} , {topics.sparse},{topics.empty},")
    assert len(several) == sum(SIZES) + 10
    # A pattern need not match the whole name, as in Spark.
    matched = both.read(subscribePattern=f"{family}.*(der|pars)")
    assert {row.topic for row in matched} == {topics.orders, topics.sparse}
    assigned = both.read(assign=json.dumps({topics.orders: [1, 2], topics.sparse: [1]}))
    assert {(row.topic, row.partition) for row in assigned} == {
        (topics.orders, 1),
        (topics.orders, 2),
        (topics.sparse, 1),
    }


def test_internal_topics_do_not_match_patterns(both: Both, topics: Filled) -> None:
    with_groups = both.read(subscribePattern=f"^__consumer_offsets$|^__transaction|{topics.sparse}")
    assert {row.topic for row in with_groups} == {topics.sparse}


def test_a_pattern_without_topics_gives_nothing(both: Both) -> None:
    assert both.read(subscribePattern="no-such-topic-.*") == []


@pytest.mark.gate
def test_empty_topics_and_ranges_give_nothing(both: Both, topics: Filled) -> None:
    assert both.read(subscribe=topics.empty) == []
    here = in_json(topics.orders, everywhere(5))
    assert both.read(subscribe=topics.orders, startingOffsets=here, endingOffsets=here) == []


# ---- offsets


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        ("earliest", "latest", sum(SIZES)),
        (" EARLIEST", "Latest ", sum(SIZES)),
        ({0: 209, 1: EARLIEST, 2: 6}, None, 1 + 45 + 0),
        (None, {0: 1, 1: LATEST, 2: 0}, 1 + 45 + 0),
        pytest.param(
            {0: 100, 1: EARLIEST, 2: 4},
            {0: 200, 1: 10, 2: LATEST},
            100 + 10 + 2,
            marks=pytest.mark.gate,
        ),
    ],
)
def test_offsets(both: Both, topics: Filled, start: Any, end: Any, count: int) -> None:
    places = {"startingOffsets": start, "endingOffsets": end}
    options = {
        name: place if isinstance(place, str) else in_json(topics.orders, place)
        for name, place in places.items()
        if place is not None
    }
    assert len(both.read(subscribe=topics.orders, **options)) == count


def test_names_of_options_in_any_case(both: Both, topics: Filled) -> None:
    here = in_json(topics.orders, {0: 200, 1: LATEST, 2: 5})
    rows = both.read(
        SUBSCRIBE=topics.orders, endingoffsets=here, STARTINGoffsets="earliest", MINpartitions="7"
    )
    assert len(rows) == 200 + 45 + 5


# ---- times


def test_times_of_all_partitions(both: Both, topics: Filled) -> None:
    rows = both.read(
        subscribe=topics.orders,
        startingTimestamp=str(moment(3)),
        endingTimestamp=f" {moment(40) - 1} ",
    )
    # An end without a record that late is the end of the partition.
    assert len(rows) == (40 - 3) + (40 - 3) + (6 - 3)


@pytest.mark.gate
def test_times_of_each_partition(both: Both, topics: Filled) -> None:
    start = in_json(topics.orders, {0: moment(209), 1: 0, 2: moment(0) + 1})
    end = in_json(topics.orders, {0: moment(500), 1: moment(30), 2: moment(2)})
    first = both.read(subscribe=topics.orders, startingOffsetsByTimestamp=start)
    assert len(first) == 1 + 45 + 5
    last = both.read(subscribe=topics.orders, endingOffsetsByTimestamp=end)
    assert len(last) == 210 + 30 + 2


@pytest.mark.gate
def test_a_time_after_the_last_record_is_an_error_or_the_end(both: Both, topics: Filled) -> None:
    late = {"subscribe": topics.orders, "startingTimestamp": str(moment(40))}
    assert "startingTimestamp" in both.refused(**late)
    assert "startingTimestamp" in both.refused(**late, startingOffsetsByTimestampStrategy="error")
    rows = both.read(**late, startingOffsetsByTimestampStrategy="Latest")
    assert len(rows) == (210 - 40) + (45 - 40)
    each = in_json(topics.orders, everywhere(moment(44)))
    assert "startingOffsetsByTimestamp" in both.refused(
        subscribe=topics.orders, startingOffsetsByTimestamp=each
    )
    rows = both.read(
        subscribe=topics.orders,
        startingOffsetsByTimestamp=each,
        startingOffsetsByTimestampStrategy="latest",
    )
    assert len(rows) == (210 - 44) + 1


@pytest.mark.gate
def test_which_of_several_starts_and_ends_counts(both: Both, topics: Filled) -> None:
    by_offset = in_json(topics.orders, everywhere(1))
    by_time = in_json(topics.orders, everywhere(moment(2)))
    rows = both.read(
        subscribe=topics.orders,
        startingOffsets=by_offset,
        startingOffsetsByTimestamp=by_time,
        endingOffsets=in_json(topics.orders, everywhere(6)),
        endingOffsetsByTimestamp=in_json(topics.orders, everywhere(moment(5))),
    )
    assert {row.offset for row in rows} == {2, 3, 4}
    rows = both.read(
        subscribe=topics.orders,
        startingOffsets="latest",  # would be refused if it counted
        startingOffsetsByTimestamp=by_time,
        startingTimestamp=str(moment(4)),
        endingOffsetsByTimestamp=in_json(topics.orders, everywhere(moment(5))),
        endingTimestamp=str(moment(6)),
    )
    assert {row.offset for row in rows} == {4, 5}


# ---- tasks


@pytest.mark.parametrize(
    "options",
    [
        {"minPartitions": 3},
        {"minPartitions": 9},
        {"maxRecordsPerPartition": 64},
        pytest.param({"maxRecordsPerPartition": 64, "minPartitions": 11}, marks=pytest.mark.gate),
    ],
    ids=str,
)
def test_reads_are_split_alike(both: Both, topics: Filled, options: dict[str, int]) -> None:
    end = SIZES[0] if "minPartitions" not in options else LATEST
    found = both.tasks(
        subscribe=topics.orders,
        startingOffsets=in_json(topics.orders, {0: 17, 1: 0, 2: EARLIEST}),
        endingOffsets=in_json(topics.orders, {0: end, 1: 40, 2: LATEST}),
        **options,
    )
    assert sum(rows for *_, rows in found) == 193 + 40 + 6


def test_the_most_records_of_a_task_hold_up_to_latest(both: Both, topics: Filled) -> None:
    """Where Spark's connector forgets them, unless minPartitions is given too."""
    frame = with_task(both.frame(OURS, subscribe=topics.orders, maxRecordsPerPartition=64))
    found = spans(frame.collect())
    assert [rows for *_, rows in found] == [52, 52, 53, 53, 45, 6]


def test_reads_of_unequal_topics_are_split_alike(both: Both, topics: Filled) -> None:
    names = f"{topics.orders},{topics.sparse},{topics.empty}"
    for count in (4, 5, 6, 7, 12, 25):
        both.read(subscribe=names, minPartitions=count)
    for most in (10, 22, 45, 46, 209, 210):
        both.read(subscribe=names, maxRecordsPerPartition=most, minPartitions=9)


# ---- lost data


@pytest.mark.gate
def test_deleted_records_are_an_error_or_left_out(both: Both, topics: Filled) -> None:
    from_zero = {
        "assign": json.dumps({topics.trimmed: [0]}),
        "startingOffsets": in_json(topics.trimmed, {0: 0}),
    }
    assert topics.trimmed in both.refused(**from_zero)
    assert topics.trimmed in both.refused(**from_zero, failOnDataLoss="TRUE")
    rows = both.read(**from_zero, failOnDataLoss="false")
    assert [row.offset for row in rows] == list(range(40, 100))
    # What is earliest is not lost.
    assert len(both.read(subscribe=topics.trimmed)) == 60


def test_ranges_deleted_altogether(both: Both, topics: Filled) -> None:
    gone = {
        "subscribe": topics.trimmed,
        "startingOffsets": in_json(topics.trimmed, {0: 3, 1: 0}),
        "endingOffsets": in_json(topics.trimmed, {0: 39, 1: 30}),
    }
    assert topics.trimmed in both.refused(**gone)
    assert both.read(**gone, failOnDataLoss="false") == []
    half = {**gone, "endingOffsets": in_json(topics.trimmed, {0: 41, 1: 29})}
    assert [row.offset for row in both.read(**half, failOnDataLoss="false")] == [40]
    split = both.read(**half, failOnDataLoss="false", maxRecordsPerPartition=7)
    assert [row.offset for row in split] == [40]


# ---- transactions


@pytest.mark.gate
def test_transactions(both: Both, topics: Filled) -> None:
    everything = both.read(subscribe=topics.dealt)
    assert len(everything) == 20 + 15 + 10 + 5
    committed = both.read(subscribe=topics.dealt, **{"kafka.isolation.level": "read_committed"})
    assert [row.offset for row in committed] == [*range(20), *range(37, 47)]


def test_ranges_that_begin_and_end_in_gaps(both: Both, topics: Filled) -> None:
    committed = {"subscribe": topics.dealt, "kafka.isolation.level": "read_committed"}
    for start, end in ((20, 21), (20, 37), (21, 36), (47, LATEST), (25, 40), (0, 20), (46, 54)):
        places = {
            "startingOffsets": in_json(topics.dealt, {0: start}),
            "endingOffsets": in_json(topics.dealt, {0: end}),
        }
        both.read(**committed, **places)
    for parts in (3, 11):
        both.read(**committed, minPartitions=parts)


def test_an_open_transaction_hides_what_follows(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka)
    deal(both.bootstrap, topic, (3, True))
    with karrow.Producer(both.bootstrap, transactional_id=f"{topic}-open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result(10)
        put(both.bootstrap, topic, 0, range(4))
        seen = both.read(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
        assert len(seen) == 3
        assert len(both.read(subscribe=topic)) == 3 + 1 + 4
        producer.abort_transaction()
    seen = both.read(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert len(seen) == 3 + 4


# ---- groups


@pytest.mark.parametrize(
    "options",
    [{"groupIdPrefix": "mine"}, {"kafka.group.id": "mine", "groupIdPrefix": "ignored"}],
    ids=str,
)
def test_groups_change_nothing(both: Both, topics: Filled, options: dict[str, str]) -> None:
    assert len(both.read(subscribe=topics.sparse, **options)) == 10


def test_options_of_java_clients_that_change_no_rows(both: Both, topics: Filled) -> None:
    options = {
        "kafka.max.poll.records": "7",
        "kafka.fetch.max.bytes": "1000",
        "kafka.max.partition.fetch.bytes": "500",
        "kafka.client.id": "parity",
        "kafka.request.timeout.ms": "20000",
        "kafkaConsumer.pollTimeoutMs": "30000",
        "fetchOffset.numRetries": "2",
        "fetchOffset.retryIntervalMs": "100",
    }
    assert len(both.read(subscribe=topics.orders, **options)) == sum(SIZES)


# ---- programs


@pytest.mark.gate
def test_what_programs_make_of_rows(both: Both, topics: Filled) -> None:
    def counted(frame: DataFrame) -> Any:
        return frame.count()

    def filtered(frame: DataFrame) -> Any:
        wanted = "partition = 1 and offset between 10 and 19 or timestamp < '2023-11-14 22:13:22'"
        return in_order(with_task(frame.where(wanted)).collect())

    def totals(frame: DataFrame) -> Any:
        sums = frame.groupBy("partition").agg(
            functions.sum("offset"),
            functions.max("timestamp"),
            functions.count("key"),
            functions.sum(functions.length("value")),
        )
        return sorted(map(tuple, sums.collect()))

    def joined_with_itself(frame: DataFrame) -> Any:
        other = frame.select("partition", (functions.col("offset") + 1).alias("offset"), "value")
        both_sides = frame.alias("a").join(other.alias("b"), ["partition", "offset"])
        return both_sides.select(functions.count("a.value"), functions.count("b.value")).collect()

    def narrow(frame: DataFrame) -> Any:
        return sorted(
            frame.select(functions.col("value").cast("string")).distinct().collect(), key=str
        )

    for program in (counted, filtered, totals, joined_with_itself, narrow):
        theirs, ours = (program(both.frame(one, subscribe=topics.orders)) for one in FORMATS)
        assert ours == theirs, program.__name__


@pytest.mark.gate
def test_every_run_of_a_query_finds_its_end_anew(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka)
    put(both.bootstrap, topic, 0, range(3))
    frames = {one: both.frame(one, subscribe=topic) for one in FORMATS}
    assert [len(frames[one].collect()) for one in FORMATS] == [3, 3]
    put(both.bootstrap, topic, 0, range(2))
    assert [frames[one].count() for one in FORMATS] == [5, 5]
    # Even the very plan that ran before.
    assert [len(frames[one].collect()) for one in FORMATS] == [5, 5]


def test_a_view_is_read_anew(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka)
    for one in FORMATS:
        both.frame(one, subscribe=topic).createOrReplaceTempView(f"view_{one}")
    for expected in (0, 4):
        for one in (THEIRS, OURS):
            (found,) = both.spark.sql(f"select count(*) from view_{one}").collect()
            assert found[0] == expected
        put(both.bootstrap, topic, 0, range(4))
