"""What Spark's connector refuses, karrow refuses too, and says which option it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException

import karrow
from tests.brokers import KafkaCluster
from tests.spark.both import OURS, THEIRS, Both, in_json
from tests.spark.filled import Filled, filled, moment
from tests.spark.once import wait_for

EARLIEST, LATEST = -2, -1
INTERNAL = "__consumer_offsets"
ALIKE = {0: 5, 1: 5, 2: 5}


@pytest.fixture
def topics(kafka: KafkaCluster) -> Filled:
    return filled(kafka)


def given(topics: Filled, options: dict[str, Any]) -> dict[str, Any]:
    """Options, with offsets as JSON, and the topic where no other is given."""
    made = {
        name: in_json(topics.orders, value) if isinstance(value, dict) else value
        for name, value in options.items()
    }
    is_chosen = {"subscribe", "assign", "subscribePattern"} & made.keys()
    return made if is_chosen else {"subscribe": topics.orders, **made}


# Options that no query may have, and what the error names.
ALWAYS: list[tuple[str, dict[str, Any]]] = [
    ("subscribe", {"subscribe": " , "}),
    ("subscribe", {"subscribe": "one", "assign": json.dumps({"one": [0]})}),
    ("assign", {"assign": "one"}),
    ("assign", {"assign": '{"one": "0"}'}),
    ("assign", {"assign": '{"one": [0]'}),
    ("subscribePattern", {"subscribePattern": " "}),
    ("subscribePattern", {"subscribePattern": "(", "subscribe": "one"}),
    ("startingOffsets", {"startingOffsets": "{"}),
    ("startingOffsets", {"startingOffsets": "soon"}),
    ("startingOffsets", {"startingOffsets": {0: 1, 1: 1}}),
    ("startingOffsets", {"startingOffsets": {**ALIKE, 3: 5}}),
    ("startingTimestamp", {"startingTimestamp": "soon"}),
    ("startingOffsetsByTimestamp", {"startingOffsetsByTimestamp": "{"}),
    ("startingOffsetsByTimestamp", {"startingOffsetsByTimestamp": {0: moment(1)}}),
    ("minPartitions", {"minPartitions": "0"}),
    ("minPartitions", {"minPartitions": "some"}),
    ("maxRecordsPerPartition", {"maxRecordsPerPartition": "-1"}),
    ("failOnDataLoss", {"failOnDataLoss": "maybe"}),
    ("includeHeaders", {"includeHeaders": "some"}),
    (
        "startingOffsetsByTimestampStrategy",
        {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "earliest"},
    ),
    ("kafka.auto.offset.reset", {"kafka.auto.offset.reset": "earliest"}),
    ("kafka.key.deserializer", {"kafka.key.deserializer": "ByteArrayDeserializer"}),
    ("kafka.value.deserializer", {"kafka.value.deserializer": "ByteArrayDeserializer"}),
    ("kafka.enable.auto.commit", {"kafka.enable.auto.commit": "true"}),
    ("kafka.interceptor.classes", {"kafka.interceptor.classes": "Spy"}),
    ("kafka.isolation.level", {"kafka.isolation.level": "none"}),
    ("kafka.bootstrap.servers", {"kafka.bootstrap.servers": ""}),
]
IN_BATCH: list[tuple[str, dict[str, Any]]] = [
    ("startingOffsets", {"startingOffsets": "latest"}),
    ("startingOffsets", {"startingOffsets": {**ALIKE, 1: LATEST}}),
    ("endingOffsets", {"endingOffsets": "earliest"}),
    ("endingOffsets", {"endingOffsets": {**ALIKE, 1: EARLIEST}}),
    ("endingOffsets", {"endingOffsets": {0: 1}}),
    ("endingOffsets", {"startingOffsets": ALIKE, "endingOffsets": {**ALIKE, 2: 4}}),
    (
        "endingOffsetsByTimestamp",
        {
            "startingOffsetsByTimestamp": dict.fromkeys(ALIKE, moment(3)),
            "endingOffsetsByTimestamp": dict.fromkeys(ALIKE, moment(2)),
        },
    ),
    ("endingTimestamp", {"endingTimestamp": "soon"}),
    ("endingTimestamp", {"startingTimestamp": moment(4), "endingTimestamp": moment(2)}),
    # Spark's own connector begins to read, and waits for the rest.
    (
        "endingOffsets",
        {"endingOffsets": {**ALIKE, 0: 1000}, "kafkaConsumer.pollTimeoutMs": "2000"},
    ),
]
IN_STREAMS: list[tuple[str, dict[str, Any]]] = [
    ("endingOffsets", {"endingOffsets": "latest"}),
    ("endingOffsetsByTimestamp", {"endingOffsetsByTimestamp": "{}"}),
    ("maxOffsetsPerTrigger", {"maxOffsetsPerTrigger": "all"}),
    ("minOffsetsPerTrigger", {"minOffsetsPerTrigger": "few"}),
    ("maxTriggerDelay", {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "long"}),
    ("startingOffsets", {"startingOffsets": {**ALIKE, 0: 1000}}),
]


@pytest.mark.gate
@pytest.mark.parametrize(("named", "options"), IN_BATCH, ids=str)
def test_batch_queries_that_both_refuse(
    both: Both, topics: Filled, named: str, options: dict[str, Any]
) -> None:
    assert named in both.refused(**given(topics, options))


@pytest.mark.parametrize(("named", "options"), ALWAYS, ids=str)
def test_batch_queries_that_are_wrong_as_any(
    both: Both, topics: Filled, named: str, options: dict[str, Any]
) -> None:
    assert named in both.refused(**given(topics, options))


@pytest.mark.parametrize(("named", "options"), IN_STREAMS, ids=str)
def test_streams_that_both_refuse(
    both: Both, topics: Filled, named: str, options: dict[str, Any]
) -> None:
    assert named in both.stream_refused(**given(topics, options))


@pytest.mark.parametrize(("named", "options"), ALWAYS, ids=str)
def test_streams_that_are_as_wrong_as_batch_queries(
    both: Both, topics: Filled, named: str, options: dict[str, Any]
) -> None:
    assert named in both.stream_refused(**given(topics, options))


def test_streams_have_no_end_in_time(both: Both, topics: Filled) -> None:
    """Spark's connector refuses the other two ways to say one, and passes over this one."""
    options = given(topics, {"endingTimestamp": moment(2)})
    every = len(both.frame(THEIRS, subscribe=topics.orders).collect())
    theirs = both.drained(THEIRS, both.new_name(), {"startingOffsets": "earliest", **options})
    assert len(theirs.rows) == every
    with pytest.raises(PySparkException, match="endingTimestamp"):
        both.drained(OURS, both.new_name(), options)


def test_internal_topics_that_are_named(both: Both) -> None:
    """Spark's connector gives no rows."""
    with karrow.Client(both.bootstrap) as client:
        client.find_coordinator("any")  # makes the topic
        wait_for(lambda: INTERNAL in client.metadata().topics, "no internal topic")
    for options in ({"subscribe": INTERNAL}, {"assign": json.dumps({INTERNAL: [0]})}):
        assert both.frame(THEIRS, **options).collect() == []
        with pytest.raises(PySparkException, match=f"names {INTERNAL}, .* no internal topics"):
            both.frame(OURS, **options).collect()


def test_topics_that_do_not_exist(both: Both) -> None:
    assert "subscribe" in both.refused(subscribe="no-such-topic")
    assert "no-such-topic" in both.refused(assign=json.dumps({"no-such-topic": [0]}))
    assert "no-such-topic" in both.stream_refused(subscribe="no-such-topic")
