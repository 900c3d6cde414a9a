"""Values: frozen, comparable, picklable, and offsets in every way people write them."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import karrow
from karrow import types
from karrow.errors import ConfigError, UnknownTopicOrPartition
from karrow.types import (
    AclBinding,
    AclOperation,
    BrokerInfo,
    ClusterMetadata,
    ConfigResource,
    ConfigSource,
    ElectionResult,
    FetchResult,
    GroupAssignment,
    GroupDescription,
    JoinedGroup,
    MemberDescription,
    NewTopic,
    Node,
    Offset,
    OffsetSpec,
    RecordMetadata,
    ResourceType,
    ScramMechanism,
    TopicMetadata,
    TopicPartition,
)
from karrow.types.acls import operations_in

CLASSES = [value for name in types.__all__ if isinstance(value := getattr(types, name), type)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_public_values_stand_in_karrow(kind: type) -> None:
    assert kind.__module__ == "karrow"
    assert getattr(karrow, kind.__name__) is kind
    assert kind.__doc__


@pytest.mark.parametrize("kind", [k for k in CLASSES if not issubclass(k, Enum)])
def test_public_values_are_frozen_and_without_dict(kind: Any) -> None:
    if dataclasses.is_dataclass(kind):
        assert kind.__setattr__ is not object.__setattr__
        assert "__slots__" in kind.__dict__
    else:
        assert issubclass(kind, tuple)


VALUES = [
    TopicPartition("orders", 0),
    Node.leader("orders", 0),
    ClusterMetadata({1: BrokerInfo(1, "b1", 9092)}, 1, "id", {"t": TopicMetadata("t")}),
    NewTopic("orders", config={"retention.ms": "1"}),
    OffsetSpec.parse("-1h"),
    AclBinding(ResourceType.TOPIC, "orders", "User:a", AclOperation.READ),
    FetchResult(topic="t", partition=0, records=[1], high_watermark=1, next_offset=1),
    TopicMetadata("t", error=UnknownTopicOrPartition(topic="t")),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_pickle(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_topic_partition_is_its_plain_tuple() -> None:
    one = TopicPartition("orders", 3)
    assert one == ("orders", 3)
    assert {one: 1}[("orders", 3)] == 1  # type: ignore[index]
    assert str(one) == "orders-3"


@pytest.mark.parametrize(
    ("node", "kind", "key"),
    [
        (Node.id(3), "id", (3,)),
        (Node.any(), "any", ()),
        (Node.random(), "random", ()),
        (Node.controller(), "controller", ()),
        (Node.leader("orders", 1), "leader", ("orders", 1)),
        (Node.coordinator("billing"), "coordinator", ("billing",)),
        (Node.transaction_coordinator("tx"), "transaction_coordinator", ("tx",)),
    ],
)
def test_selectors_are_values_with_a_kind(node: Node, kind: str, key: tuple[Any, ...]) -> None:
    assert (node.kind, node.key) == (kind, key)
    assert repr(node) == f"Node.{kind}({', '.join(map(repr, key))})"
    assert hash(node) == hash(dataclasses.replace(node))


def test_selectors_tell_what_they_select() -> None:
    assert Node.id(3).broker_id == 3
    assert Node.leader("orders", 1).partition == TopicPartition("orders", 1)


def test_the_controller_is_found_among_the_brokers() -> None:
    broker = BrokerInfo(1, "b1", 9092)
    assert ClusterMetadata({1: broker}, controller_id=1).controller is broker
    assert ClusterMetadata({1: broker}).controller is None
    assert ClusterMetadata({1: broker}, controller_id=2).controller is None


class TestOffsets:
    @pytest.mark.parametrize(
        ("given", "kind", "value"),
        [
            (0, "offset", 0),
            (2**63 - 1, "offset", 2**63 - 1),
            ("earliest", "earliest", 0),
            ("latest", "latest", 0),
            ("max_timestamp", "max_timestamp", 0),
            (" latest ", "latest", 0),
            ("-1h", "age", 3_600_000),
            ("-10 minutes", "age", 600_000),
            ("- 1.5 s", "age", 1_500),
            ("-500ms", "age", 500),
            ("-2D", "age", 172_800_000),
            ("-1 week", "age", 604_800_000),
            (timedelta(hours=1), "age", 3_600_000),
            (timedelta(hours=-1), "age", 3_600_000),
            (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "timestamp", 1000),
            (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "timestamp", 0),
            ("2024-01-01T00:00:00Z", "timestamp", 1_704_067_200_000),
            ("2024-01-01T01:00:00+01:00", "timestamp", 1_704_067_200_000),
            (Offset.at_timestamp_ms(7), "timestamp", 7),
        ],
    )
    def test_places_are_parsed(self, given: Any, kind: str, value: int) -> None:
        assert OffsetSpec.parse(given) == OffsetSpec(kind, value)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            (-1, "earliest"),
            (2**63, "outside"),
            (True, "no offset"),
            (1.5, "cannot be a float"),
            (None, "cannot be a NoneType"),
            ("first", "no place"),
            ("", "no place"),
            ("-1", "no place"),
            ("42", "no place"),
            ("-1 fortnight", "no known unit"),
            ("1h", "no place"),
            ("2024-01-01T00:00:00", "no time zone"),
            (datetime(2024, 1, 1), "no time zone"),  # noqa: DTZ001 - the very mistake
            (datetime(1969, 1, 1, tzinfo=UTC), "outside"),
            (f"-{'9' * 30}w", "outside"),
        ],
    )
    def test_what_is_no_place_is_refused(self, given: Any, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem):
            OffsetSpec.parse(given)

    @given(st.text(max_size=30))
    def test_any_text_is_a_place_or_a_config_error(self, text: str) -> None:
        try:
            spec = OffsetSpec.parse(text)
        except ConfigError:
            return
        assert spec.kind != "offset"

    @given(st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.timezones()))  # noqa: DTZ001
    def test_a_datetime_is_its_milliseconds(self, moment: datetime) -> None:
        spec = OffsetSpec.parse(moment)
        assert abs(spec.value - moment.timestamp() * 1000) <= 1

    @pytest.mark.parametrize(
        ("given", "asked"),
        [
            ("latest", -1),
            ("earliest", -2),
            ("max_timestamp", -3),
            ("earliest_local", -4),
            ("latest_tiered", -5),
            ("-1s", 9_000),
            ("-1h", 0),
            (Offset.at_timestamp_ms(5), 5),
        ],
    )
    def test_it_becomes_what_list_offsets_asks_for(self, given: Any, asked: int) -> None:
        spec = OffsetSpec.parse(given)
        assert spec.needs_broker
        assert spec.timestamp_ms(now_ms=10_000) == asked

    def test_an_offset_needs_no_look_up(self) -> None:
        assert not OffsetSpec.at(5).needs_broker
        with pytest.raises(ConfigError, match="no look-up"):
            OffsetSpec.at(5).timestamp_ms(now_ms=0)

    def test_constructors_are_what_parse_gives(self) -> None:
        assert Offset.earliest() == OffsetSpec.parse("earliest")
        assert Offset.latest() == OffsetSpec.parse("latest")
        assert Offset.max_timestamp() == OffsetSpec.parse("max_timestamp")
        assert [str(OffsetSpec.parse(text)) for text in ("latest", "-1s")] == [
            "latest", "age 1000 ms",
        ]  # fmt: skip
        assert str(Offset.at(3)) == "3"


def test_numbers_are_found_by_name_and_unknown_ones_do_not_fail() -> None:
    assert AclOperation.named("read") is AclOperation.READ
    assert AclOperation.named("describe-configs") is AclOperation.DESCRIBE_CONFIGS
    assert AclOperation(3) is AclOperation.READ
    assert AclOperation(99) is AclOperation.UNKNOWN
    assert ScramMechanism.named("SCRAM-SHA-256") is ScramMechanism.SCRAM_SHA_256
    assert str(ScramMechanism.SCRAM_SHA_512) == "SCRAM-SHA-512"
    with pytest.raises(ConfigError, match=r"'reed'.*'read'"):
        AclOperation.named("reed")


def test_authorized_operations_are_read_from_bits() -> None:
    assert operations_in(1 << 3 | 1 << 4) == frozenset({"read", "write"})
    assert operations_in(0) == frozenset()
    assert operations_in(-(2**31)) is None


def test_config_resources_name_their_owner() -> None:
    assert ConfigResource.broker(3).name == "3"
    assert ConfigResource.broker().name == ""
    assert (
        len({ConfigResource.topic("t"), ConfigResource.topic("t"), ConfigResource.group("t")}) == 2
    )


def test_small_properties_say_what_they_mean() -> None:
    default = types.ConfigEntry("a", "1", ConfigSource.DEFAULT_CONFIG)
    assert default.is_default
    assert RecordMetadata("t", 1, 5).topic_partition == ("t", 1)
    assert JoinedGroup("g", 1, "m", "m", "range").is_leader
    assert not JoinedGroup("g", 1, "m", "other", "range").is_leader
    assert GroupDescription("g", members=(MemberDescription("m", "c", "h"),)).active
    assert not GroupDescription("g").active
    failed = UnknownTopicOrPartition()
    result = ElectionResult({TopicPartition("t", 0): None, TopicPartition("t", 1): failed})
    assert result.elected == (("t", 0),)
    assignment = GroupAssignment(
        (TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("a", 2))
    )
    assert assignment.topics == {"a": (0, 2), "b": (1,)}
    assert str(BrokerInfo(1, "b1", 9092)) == "1 (b1:9092)"
