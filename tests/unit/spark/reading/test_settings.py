"""What a query wants, and what is refused before anything is asked of Kafka."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from karrow.errors import ConfigError
from karrow.spark.reading.ranges import Division
from karrow.spark.reading.settings import Limits, Settings
from karrow.types import OffsetSpec, TopicPartition

BASE = {"kafka.bootstrap.servers": "b1:9092", "subscribe": "orders"}
FIRST = TopicPartition("orders", 0)


def batch(**given: Any) -> Settings:
    return Settings.for_batch({**BASE, **given})


def stream(**given: Any) -> Settings:
    return Settings.for_stream({**BASE, **given})


def test_defaults_are_those_of_sparks_own_connector() -> None:
    found = batch()
    assert (found.start.kind, found.end.kind) == ("earliest", "latest")
    assert stream().start.kind == "latest"
    assert found.fails_on_loss is True
    assert found.with_headers is False
    assert found.config.isolation == "read_uncommitted"
    assert found.division == Division()
    assert found.limits == Limits(max_delay=900.0)
    assert found.commit_group is None


def test_names_are_without_case() -> None:
    found = stream(STARTINGOFFSETS="EARLIEST", MaxOffsetsPerTrigger="7", failondataloss="False")
    assert found.start.kind == "earliest"
    assert found.limits.max_offsets == 7
    assert found.fails_on_loss is False


def test_limits() -> None:
    found = stream(
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        maxBytesPerTrigger="64m",
        minPartitions="3",
        maxRecordsPerPartition="50",
        maxBytesPerPartition="1g",
    )
    assert found.limits == Limits(100, 10, 64 << 20, 30.0)
    assert found.division == Division(3, 50, 1 << 30)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900.0), ("2h", 7200.0), ("1500", 1.5), ("20ms", 0.02), ("1d", 86400.0), ("1min", 60)],
)
def test_durations_as_spark_writes_them(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).limits.max_delay == seconds


def test_offsets_of_partitions() -> None:
    found = batch(startingOffsets='{"orders": {"0": 23, "1": -2}}').start
    assert found.offsets == {FIRST: 23, TopicPartition("orders", 1): -2}


def test_times() -> None:
    found = batch(startingTimestamp=" 1700000000000 ").start
    assert found.time == OffsetSpec.at_timestamp_ms(1_700_000_000_000)
    assert found.or_latest is False
    assert batch(endingTimestamp="5").end.or_latest is True
    each = '{"orders": {"0": 5, "1": "-10 minutes"}}'
    assert batch(startingOffsetsByTimestamp=each).start.times == {
        FIRST: OffsetSpec.at_timestamp_ms(5),
        TopicPartition("orders", 1): OffsetSpec.parse("-10 minutes"),
    }


def test_ages_mean_the_end_where_nothing_is_as_new() -> None:
    assert stream(startingOffsets="-10 minutes").start.or_latest is True
    assert stream(startingTimestamp="-10 minutes").start.or_latest is True
    strict = {"startingOffsetsByTimestampStrategy": "error"}
    assert stream(startingTimestamp="-10 minutes", **strict).start.or_latest is False
    lenient = {"startingOffsetsByTimestampStrategy": "LATEST"}
    assert stream(startingTimestamp="5", **lenient).start.or_latest is True


def test_groups() -> None:
    found = stream(startingOffsets="group", commitGroup="a")
    assert (found.commit_group, found.start_group) == ("a", "a")
    found = stream(startingOffsets="group", **{"kafka.group.id": "b"})
    assert (found.commit_group, found.start_group) == (None, "b")
    found = stream(startingOffsets="group", commitGroup="a", **{"kafka.group.id": "b"})
    assert found.start_group == "a"


BAD: list[tuple[dict[str, str], str]] = [
    ({"startingOffset": "earliest"}, "there is no option 'startingOffset'; did you mean"),
    ({"topic": "orders"}, "there is no option 'topic'"),
    ({"subscribePattern": "x"}, "exactly one of subscribe, subscribePattern and assign"),
    ({"subscribe": " , "}, "subscribe=',' names no topic"),
    ({"startingOffsets": "erliest"}, "startingOffsets='erliest' is no place"),
    ({"startingOffsets": "max_timestamp"}, "startingOffsets='max_timestamp' is no place"),
    ({"startingOffsets": "{"}, "startingOffsets is no JSON"),
    ({"startingOffsets": '{"orders": 5}'}, "startingOffsets has no partitions for orders"),
    ({"startingOffsets": '{"orders": {"x": 5}}'}, "'x' is no partition of orders"),
    ({"startingOffsets": '{"orders": {"0": "5"}}'}, "startingOffsets: '5' is no offset"),
    ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets: -3 is no offset"),
    ({"startingOffsets": "group"}, "startingOffsets=group needs a group"),
    ({"startingTimestamp": "soon"}, "startingTimestamp: 'soon' is no time"),
    ({"startingTimestamp": "latest"}, "startingTimestamp: 'latest' is no time"),
    ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "'-1' is no time"),
    ({"startingOffsetsByTimestampStrategy": "x"}, "Strategy='x' is none of 'error', 'latest'"),
    ({"failOnDataLoss": "no"}, "failOnDataLoss='no' is neither true nor false"),
    ({"includeHeaders": "1"}, "includeHeaders='1' is neither true nor false"),
    ({"minPartitions": "0"}, "minPartitions=0 is not above zero"),
    ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition=-1 is not above zero"),
    ({"maxBytesPerPartition": "much"}, "maxBytesPerPartition='much' is no size"),
    ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many' is no whole number"),
    (
        {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
        "minOffsetsPerTrigger=6 is above maxOffsetsPerTrigger=5",
    ),
    ({"maxTriggerDelay": "later"}, "maxTriggerDelay='later' is no duration"),
    ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset is not for sources; say star"),
    ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit is not for sources"),
    ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer is not supported"),
]


@pytest.mark.parametrize(("given", "said"), BAD)
@pytest.mark.parametrize("parse", [Settings.for_batch, Settings.for_stream])
def test_bad_input_is_refused_by_name(parse: Any, given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse({**BASE, **given})


@pytest.mark.parametrize("parse", [Settings.for_batch, Settings.for_stream])
def test_something_has_to_be_read(parse: Any) -> None:
    with pytest.raises(ConfigError, match=r"exactly one of .*: none is given"):
        parse({"kafka.bootstrap.servers": "b1:9092"})
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        parse({"subscribe": "orders"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribePattern": "("}, "subscribePattern='(' is no regular expression"),
        ({"assign": "orders"}, "assign is no JSON"),
        ({"assign": "[1]"}, "assign='[1]' is no JSON object"),
        ({"assign": '{"orders": ["0"]}'}, "names no partitions"),
        ({"assign": "{}"}, "names no partitions"),
    ],
)
def test_choices_that_make_no_sense(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        Settings.for_batch({"kafka.bootstrap.servers": "b1:9092", **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch query"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest in a batch query"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets cannot be earliest"),
        (
            {
                "startingOffsets": '{"orders": {"0": 5}}',
                "endingOffsets": '{"orders": {"0": 4}}',
            },
            "startingOffsets begins at 5 of orders-0, and endingOffsets ends at 4",
        ),
        ({"endingOffsets": "group"}, "endingOffsets='group' is no place"),
    ],
)
def test_batches_cannot_begin_at_the_end(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        batch(**given)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_streams_do_not_end(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} has no meaning in a stream"):
        stream(**{name: "latest"})


def test_what_has_no_effect_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        batch(maxOffsetsPerTrigger="5", groupIdPrefix="mine")
    assert "maxOffsetsPerTrigger has no effect in a batch query" in caplog.text
    assert "groupIdPrefix has no effect" in caplog.text
    stream(pushdown="false")
    assert "pushdown" not in caplog.text
    stream(pushdown="true")
    assert "pushdown has no effect in a stream" in caplog.text
    with pytest.raises(ConfigError, match="pushdown='maybe' is neither true nor false"):
        stream(pushdown="maybe")


@pytest.mark.parametrize(("start", "has_effect"), [("earliest", False), ("group", True)])
def test_a_batch_uses_the_group_only_to_begin_at(
    caplog: pytest.LogCaptureFixture, start: str, has_effect: bool
) -> None:
    found = batch(startingOffsets=start, commitGroup="orders")
    assert found.start_group == "orders"
    assert ("commitGroup has no effect" not in caplog.text) is has_effect
