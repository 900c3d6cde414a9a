"""Administration: one program, the same observations on the embedded broker and on real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.brokers import RawConnection
from tests.contract.transactional import PATIENCE, name_of, new_id
from tests.fix_any import AnyKafka

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NOWHERE = "nowhere"
# Bits of the operations that there are, and what is told to those who did not ask.
TOPIC_RIGHTS, CLUSTER_RIGHTS, UNTOLD = 3576, 8096, -0x80000000
# Before they had a quorum, brokers were less exact about what they refuse.
QUORUM = (3, 0)


@pytest.fixture
def connection(any_kafka: AnyKafka) -> Iterator[RawConnection]:
    with any_kafka.connect() as connection:
        yield connection


def eventually(condition: Callable[[], object]) -> None:
    """Real brokers learn a moment later what the controller has decided."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def node_of(connection: RawConnection) -> int:
    node: int = connection.request("Metadata", {"topics": []}, 1).brokers[0].node_id
    return node


# Topics.


def wanted(
    name: str, partitions: int = 1, factor: int = 1, *, replicas: Any = (), **config: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [{"partition_index": i, "broker_ids": ids} for i, ids in replicas],
        "configs": [{"name": k.replace("_", "."), "value": v} for k, v in config.items()],
    }


def create(
    connection: RawConnection,
    *topics: dict[str, Any],
    version: int | None = None,
    validate_only: bool = False,
) -> list[Any]:
    body = {"topics": list(topics), "validate_only": validate_only, "timeout_ms": 10_000}
    found: list[Any] = connection.request("CreateTopics", body, version).topics
    return found


def created(connection: RawConnection, topic: dict[str, Any], **options: Any) -> str:
    """What comes of one topic."""
    (answer,) = create(connection, topic, **options)
    return name_of(answer.error_code)


def test_topics_are_created_and_told(any_kafka: AnyKafka, connection: RawConnection) -> None:
    name = new_id("topic")
    topic = wanted(name, 3, retention_ms="5000")
    (planned,) = create(connection, topic, validate_only=True)
    (answer,) = create(connection, topic)
    assert (answer.error_code, answer.error_message) == (0, None)
    for found in (planned, answer):
        assert (found.num_partitions, found.replication_factor) == (3, 1)
        configs = {config.name: config for config in found.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5000", 1)
        assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == (
            "604800000",
            5,
        )
    assert created(connection, topic) == "TOPIC_ALREADY_EXISTS"
    assert created(connection, topic, validate_only=True) == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "é"])
def test_topics_must_have_legal_names(connection: RawConnection, name: str) -> None:
    assert created(connection, wanted(name)) == "INVALID_TOPIC_EXCEPTION"


def test_names_must_not_look_alike(connection: RawConnection) -> None:
    base = new_id("alike")
    assert created(connection, wanted(f"{base}.a")) == "NONE"
    eventually(lambda: created(connection, wanted(f"{base}_a")) == "INVALID_TOPIC_EXCEPTION")


def test_name_given_twice_is_refused(connection: RawConnection) -> None:
    name = new_id("topic")
    codes = {name_of(found.error_code) for found in create(connection, wanted(name), wanted(name))}
    assert codes == {"INVALID_REQUEST"}


@pytest.mark.parametrize(
    ("partitions", "factor", "outcome"),
    [
        (0, 1, "INVALID_PARTITIONS"),
        (-2, 1, "INVALID_PARTITIONS"),
        (1, 0, "INVALID_REPLICATION_FACTOR"),
        (1, -2, "INVALID_REPLICATION_FACTOR"),
        (1, 2, "INVALID_REPLICATION_FACTOR"),
        (-1, -1, "NONE"),
    ],
)
def test_numbers_must_be_possible(
    connection: RawConnection, partitions: int, factor: int, outcome: str
) -> None:
    topic = wanted(new_id("topic"), partitions, factor)
    assert created(connection, topic) == outcome
    assert created(connection, {**topic, "name": new_id("topic")}, version=3) == outcome


@pytest.mark.parametrize(
    "config",
    [
        {"no_such": "1"},
        {"retention_ms": "long"},
        {"retention_ms": "-2"},
        {"cleanup_policy": "burn"},
        {"compression_type": "lzma"},
        {"min_insync_replicas": "0"},
        {"segment_bytes": "1"},
        {"preallocate": "perhaps"},
        {"min_cleanable_dirty_ratio": "2"},
    ],
)
def test_settings_must_be_known_and_possible(
    connection: RawConnection, config: dict[str, Any]
) -> None:
    assert created(connection, wanted(new_id("topic"), **config)) == "INVALID_CONFIG"


def test_replicas_can_be_chosen(any_kafka: AnyKafka, connection: RawConnection) -> None:
    node = node_of(connection)

    def chosen(*replicas: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> str:
        topic = wanted(new_id("topic"), partitions, factor, replicas=replicas)
        return created(connection, topic)

    assert chosen((0, [node]), (1, [node])) == "NONE"
    assert chosen((0, [node]), partitions=1) == "INVALID_REQUEST"
    assert chosen((0, [node]), factor=1) == "INVALID_REQUEST"
    assert chosen((0, [node, node])) == "INVALID_REPLICA_ASSIGNMENT"
    if any_kafka.number >= QUORUM:
        for wrong in ((0, [77]), (0, []), (1, [node])):
            assert chosen(wrong) == "INVALID_REPLICA_ASSIGNMENT"
        for other in (0, 2):
            assert chosen((0, [node]), (other, [node])) == "INVALID_REPLICA_ASSIGNMENT"


def test_partitions_are_added(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic, node = any_kafka.create_topic(partitions=2), node_of(connection)

    def grow(
        count: int, replicas: Any = None, name: str = topic, *, validate_only: bool = False
    ) -> str:
        chosen = None if replicas is None else [{"broker_ids": ids} for ids in replicas]
        body = {
            "topics": [{"name": name, "count": count, "assignments": chosen}],
            "timeout_ms": 10_000,
            "validate_only": validate_only,
        }
        (answer,) = connection.request("CreatePartitions", body).results
        return name_of(answer.error_code)

    assert grow(3, validate_only=True) == "NONE"
    assert grow(3) == "NONE"
    eventually(lambda: grow(3) == "INVALID_PARTITIONS")
    for count in (2, 0, -3):
        assert grow(count) == "INVALID_PARTITIONS"
    assert grow(4, name=NOWHERE) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert grow(5, [[node], [node]]) == "NONE"
    eventually(lambda: grow(7, [[node]]) == "INVALID_REPLICA_ASSIGNMENT")
    assert grow(6, [[99]]) == "INVALID_REPLICA_ASSIGNMENT"
    assert grow(6, [[node, node]]) == "INVALID_REPLICA_ASSIGNMENT"

    def partitions() -> int:
        found = connection.request("Metadata", {"topics": [{"name": topic}]}, 4).topics[0]
        return len(found.partitions)

    eventually(lambda: partitions() == 5)


def test_topics_are_deleted(any_kafka: AnyKafka, connection: RawConnection) -> None:
    one, other, twice = (any_kafka.create_topic() for _ in range(3))
    found = connection.request("Metadata", {"topics": [{"name": other}]}, 10).topics[0]

    def delete(*topics: dict[str, Any]) -> dict[str | None, str]:
        body = {"topics": list(topics), "timeout_ms": 10_000}
        answer = connection.request("DeleteTopics", body, 6)
        return {item.name: name_of(item.error_code) for item in answer.responses}

    assert delete({"name": one}) == {one: "NONE"}
    assert delete({"topic_id": found.topic_id, "name": None}) == {other: "NONE"}
    eventually(lambda: delete({"name": one}) == {one: "UNKNOWN_TOPIC_OR_PARTITION"})
    assert delete({"name": NOWHERE}) == {NOWHERE: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert delete({"topic_id": UUID(int=5), "name": None}) == {None: "UNKNOWN_TOPIC_ID"}
    if any_kafka.number >= QUORUM:
        assert delete({"name": twice}, {"name": twice}) == {twice: "INVALID_REQUEST"}
        assert delete({"name": twice, "topic_id": UUID(int=5)}) == {twice: "INVALID_REQUEST"}
        assert delete({"name": None}) == {None: "INVALID_REQUEST"}


def test_records_are_deleted(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic()
    compacted = any_kafka.create_topic(config={"cleanup.policy": "compact"})

    def trim(name: str, partition: int, offset: int) -> tuple[str, int]:
        item = {"partition_index": partition, "offset": offset}
        body = {"topics": [{"name": name, "partitions": [item]}], "timeout_ms": 10_000}
        answer = connection.request("DeleteRecords", body).topics[0].partitions[0]
        return name_of(answer.error_code), answer.low_watermark

    assert trim(topic, 0, -1) == ("NONE", 0)
    assert trim(topic, 0, 0) == ("NONE", 0)
    assert trim(topic, 0, 1) == trim(topic, 0, -2) == ("OFFSET_OUT_OF_RANGE", -1)
    assert trim(topic, 9, 0) == trim(NOWHERE, 0, 0) == ("UNKNOWN_TOPIC_OR_PARTITION", -1)
    assert trim(compacted, 0, 0) == ("POLICY_VIOLATION", -1)


# Configurations.


def describe(
    connection: RawConnection,
    kind: int,
    name: str,
    *keys: str,
    synonyms: bool = True,
    version: int = 4,
) -> dict[str, tuple[Any, ...]]:
    """Value, source, type, read-only and synonyms of each key; an error has the key "error"."""
    item = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": list(keys) if keys else None,
    }
    body = {"resources": [item], "include_synonyms": synonyms}
    (found,) = connection.request("DescribeConfigs", body, version).results
    if found.error_code:
        return {"error": (name_of(found.error_code),)}
    return {
        config.name: (
            config.value,
            config.config_source,
            config.config_type,
            config.read_only,
            [(other.name, other.value, other.source) for other in config.synonyms],
        )
        for config in found.configs
    }


def alter(
    connection: RawConnection,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> str:
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    item = {"resource_type": kind, "resource_name": name, "configs": configs}
    body = {"resources": [item], "validate_only": validate_only}
    (answer,) = connection.request("IncrementalAlterConfigs", body).responses
    return name_of(answer.error_code)


# Every setting of a topic that has none of its own, by release.
COUNTS = {"4.3": 33, "3.9": 36, "2.8": 26}


def test_topics_settings_are_described(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic(config={"max.message.bytes": "5000"})
    found = describe(connection, TOPIC, topic)
    assert len(found) == COUNTS[any_kafka.version]
    own = [("max.message.bytes", "5000", 1), ("message.max.bytes", "1048588", 5)]
    assert found["max.message.bytes"] == ("5000", 1, 3, False, own)
    inherited = [("log.cleanup.policy", "delete", 5)]
    assert found["cleanup.policy"] == ("delete", 5, 7, False, inherited)
    assert found["retention.ms"] == ("604800000", 5, 5, False, [])
    in_sync = found["min.insync.replicas"]
    assert in_sync[:3] == (("1", 3, 3) if any_kafka.number >= (4, 0) else ("1", 5, 3))
    some = describe(connection, TOPIC, topic, "segment.ms", "no.such", synonyms=False, version=1)
    assert some == {"segment.ms": ("604800000", 5, 0, False, [])}


def test_resources_to_describe_must_exist(connection: RawConnection) -> None:
    assert describe(connection, TOPIC, NOWHERE) == {"error": ("UNKNOWN_TOPIC_OR_PARTITION",)}
    for name in ("a b", ""):
        assert describe(connection, TOPIC, name) == {"error": ("INVALID_TOPIC_EXCEPTION",)}
    for name in ("99", "x"):
        assert describe(connection, BROKER, name) == {"error": ("INVALID_REQUEST",)}


def test_settings_are_changed_one_by_one(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic()

    def values() -> list[tuple[Any, ...]]:
        found = describe(connection, TOPIC, topic, "cleanup.policy", "retention.ms")
        return [found[name][:2] for name in sorted(found)]

    changes: list[tuple[str, int, str | None]] = [
        ("retention.ms", SET, "77"),
        ("cleanup.policy", APPEND, "compact"),
    ]
    assert alter(connection, TOPIC, topic, *changes, validate_only=True) == "NONE"
    assert alter(connection, TOPIC, topic, *changes) == "NONE"
    eventually(lambda: values() == [("delete,compact", 1), ("77", 1)])
    changes = [("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete")]
    assert alter(connection, TOPIC, topic, *changes) == "NONE"
    eventually(lambda: values() == [("compact", 1), ("604800000", 5)])
    assert alter(connection, TOPIC, topic, ("retention.ms", SET, "5"), validate_only=True) == "NONE"
    assert alter(connection, TOPIC, topic, ("cleanup.policy", DELETE, None)) == "NONE"
    eventually(lambda: values() == [("delete", 5), ("604800000", 5)])


def test_impossible_changes_are_refused(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic()

    def refused(*changes: tuple[str, int, str | None], name: str = topic) -> str:
        return alter(connection, TOPIC, name, *changes)

    assert refused(("no.such", SET, "5")) == "INVALID_CONFIG"
    assert refused(("retention.ms", SET, None)) == "INVALID_REQUEST"
    assert refused(("retention.ms", SET, "5"), ("retention.ms", SET, "6")) == "INVALID_REQUEST"
    assert refused(("retention.ms", SET, "5"), name=NOWHERE) == "UNKNOWN_TOPIC_OR_PARTITION"
    if any_kafka.number >= QUORUM:
        assert refused(("retention.ms", SET, "x")) == "INVALID_CONFIG"
        assert refused(("cleanup.policy", APPEND, "burn")) == "INVALID_CONFIG"
        assert refused(("retention.ms", APPEND, "5")) == "INVALID_CONFIG"
        assert refused(("retention.ms", SET, "5"), name="") == "INVALID_REQUEST"
        assert refused(("retention.ms", SET, "5"), name="a b") == "INVALID_TOPIC_EXCEPTION"
        assert refused(("retention.ms", SET, "x"), name=NOWHERE) == "INVALID_CONFIG"
        item = {"resource_type": TOPIC, "resource_name": topic, "configs": []}
        body = {"resources": [item, item], "validate_only": False}
        answers = connection.request("IncrementalAlterConfigs", body).responses
        assert {name_of(answer.error_code) for answer in answers} == {"INVALID_REQUEST"}


def test_old_way_replaces_all_settings(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic(config={"retention.ms": "77"})

    def replace(name: str, *, validate_only: bool = False, **config: str | None) -> str:
        configs = [{"name": k.replace("_", "."), "value": v} for k, v in config.items()]
        item = {"resource_type": TOPIC, "resource_name": name, "configs": configs}
        body = {"resources": [item], "validate_only": validate_only}
        (answer,) = connection.request("AlterConfigs", body).responses
        return name_of(answer.error_code)

    assert replace(topic, validate_only=True, max_message_bytes="9000") == "NONE"
    assert replace(topic, segment_ms="555555") == "NONE"

    def values() -> list[str]:
        keys = ("max.message.bytes", "retention.ms", "segment.ms")
        found = describe(connection, TOPIC, topic, *keys)
        return [found[name][0] for name in keys]

    eventually(lambda: values() == ["1048588", "604800000", "555555"])
    assert replace(topic, no_such="1") == "INVALID_CONFIG"
    if any_kafka.number >= QUORUM:
        assert replace(topic, segment_ms="x") == "INVALID_CONFIG"
        assert replace(topic, segment_ms=None) == "INVALID_REQUEST"
    assert replace(NOWHERE, segment_ms="555555") == "UNKNOWN_TOPIC_OR_PARTITION"


def test_brokers_settings_are_described(any_kafka: AnyKafka, connection: RawConnection) -> None:
    node = str(node_of(connection))
    found = describe(connection, BROKER, node)
    assert found["broker.id"][:4] == (node, 4, 3, True)
    if any_kafka.number >= QUORUM:  # 2.8 shows it too, once any setting was changed
        default = [("node.id", "-1", 5)] if any_kafka.number < (4, 0) else []
        assert found["node.id"] == (node, 4, 3, True, [("node.id", node, 4), *default])
    largest = [("message.max.bytes", "1048588", 5)]
    assert found["message.max.bytes"] == ("1048588", 5, 3, False, largest)
    assert found["log.retention.ms"] == (None, 5, 5, False, [])
    assert found["num.partitions"][:4] == ("1", 5, 3, True)
    delay = [
        ("group.initial.rebalance.delay.ms", "0", 4),
        ("group.initial.rebalance.delay.ms", "3000", 5),
    ]
    assert found["group.initial.rebalance.delay.ms"] == ("0", 4, 3, True, delay)


def test_settings_for_all_topics_act_on_those_without_their_own(
    any_kafka: AnyKafka, connection: RawConnection
) -> None:
    node = str(node_of(connection))
    plain = any_kafka.create_topic()
    own = any_kafka.create_topic(config={"index.interval.bytes": "5000"})
    key, name = "index.interval.bytes", "log.index.interval.bytes"

    def value(topic: str) -> tuple[Any, ...]:
        return describe(connection, TOPIC, topic, key)[key][:2]

    for_all = [(name, "6000", 3), (name, "4096", 5)]
    try:
        assert alter(connection, BROKER, "", (name, SET, "6000")) == "NONE"
        eventually(lambda: value(plain) == ("6000", 3))
        assert value(own) == ("5000", 1)
        assert describe(connection, BROKER, "")[name] == ("6000", 3, 3, False, for_all[:1])
        assert describe(connection, BROKER, node, name)[name] == ("6000", 3, 3, False, for_all)
        assert alter(connection, BROKER, node, (name, SET, "7000")) == "NONE"
        eventually(lambda: value(plain) == ("7000", 2))
    finally:
        assert alter(connection, BROKER, node, (name, DELETE, None)) == "NONE"
        assert alter(connection, BROKER, "", (name, DELETE, None)) == "NONE"
    eventually(lambda: value(plain) == ("4096", 5))


def test_brokers_refuse_what_they_cannot_change(connection: RawConnection) -> None:
    node = str(node_of(connection))
    for name, change in (
        ("", ("num.partitions", SET, "5")),
        ("", ("message.max.bytes", SET, "x")),
        (node, ("broker.id", SET, "7")),
        ("99", ("message.max.bytes", SET, "5")),
        ("x", ("message.max.bytes", SET, "5")),
    ):
        assert alter(connection, BROKER, name, change) == "INVALID_REQUEST", change


def test_resources_are_listed(any_kafka: AnyKafka, connection: RawConnection) -> None:
    if any_kafka.number < (4, 1):
        pytest.skip("ListConfigResources 1")
    topic, node = any_kafka.create_topic(), str(node_of(connection))

    def listed(*kinds: int, version: int = 1) -> tuple[str, list[tuple[str, int]]]:
        body = {"resource_types": list(kinds)} if version else {}
        answer = connection.request("ListConfigResources", body, version)
        found = [(item.resource_name, item.resource_type) for item in answer.config_resources]
        return name_of(answer.error_code), found

    assert listed(4, 8) == ("NONE", [(node, 8), (node, 4)])
    assert (topic, 2) in listed()[1]
    assert listed(3) == ("UNSUPPORTED_VERSION", [])
    assert listed(version=0) == ("NONE", [])


# The cluster.


def test_cluster_is_described(any_kafka: AnyKafka, connection: RawConnection) -> None:
    for version in range(connection.newest("DescribeCluster") + 1):
        answer = connection.request("DescribeCluster", {}, version)
        assert (answer.error_code, answer.error_message, answer.endpoint_type) == (0, None, 1)
        assert answer.cluster_id
        (broker,) = answer.brokers
        assert (broker.broker_id, broker.rack, broker.is_fenced) == (
            node_of(connection),
            None,
            False,
        )
        assert answer.controller_id == broker.broker_id
        assert answer.cluster_authorized_operations == -0x80000000
    asked = {"include_cluster_authorized_operations": True}
    assert connection.request("DescribeCluster", asked).cluster_authorized_operations == 8096
    if any_kafka.number >= (3, 7):
        for kind, error in ((2, "MISMATCHED_ENDPOINT_TYPE"), (3, "UNSUPPORTED_ENDPOINT_TYPE")):
            answer = connection.request("DescribeCluster", {"endpoint_type": kind}, 1)
            assert name_of(answer.error_code) == error
            assert answer.brokers == []


def test_partitions_are_described_in_pages(any_kafka: AnyKafka, connection: RawConnection) -> None:
    if any_kafka.number < (3, 8):
        pytest.skip("DescribeTopicPartitions")
    base = new_id("page")
    one, two = f"{base}-1", f"{base}-2"
    any_kafka.create_topic(one, partitions=3)
    any_kafka.create_topic(two, partitions=2)

    def page(
        limit: int, *names: str, cursor: tuple[str, int] | None = None
    ) -> tuple[list[tuple[str, str, list[int]]], tuple[str, int] | None]:
        body = {
            "topics": [{"name": name} for name in names or (two, one)],
            "response_partition_limit": limit,
            "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
        }
        answer = connection.request("DescribeTopicPartitions", body)
        found = [
            (t.name, name_of(t.error_code), [p.partition_index for p in t.partitions])
            for t in answer.topics
        ]
        rest = answer.next_cursor
        return found, rest and (rest.topic_name, rest.partition_index)

    whole = (one, "NONE", [0, 1, 2])
    assert page(2000) == ([whole, (two, "NONE", [0, 1])], None)
    assert page(2) == ([(one, "NONE", [0, 1])], (one, 2))
    assert page(3) == ([whole], (two, 0))
    assert page(4) == ([whole, (two, "NONE", [0])], (two, 1))
    assert page(2, cursor=(one, 2)) == ([(one, "NONE", [2]), (two, "NONE", [0])], (two, 1))
    assert page(0) == page(-5) == ([(one, "NONE", [0])], (one, 1))
    assert page(5, one, cursor=(one, 10)) == ([(one, "NONE", [])], None)
    absent, illegal = f"{base}-0", f"{base} "
    found, _ = page(9, one, absent, illegal)
    assert found == [
        (illegal, "INVALID_TOPIC_EXCEPTION", []),
        (absent, "UNKNOWN_TOPIC_OR_PARTITION", []),
        whole,
    ]
    for cursor in ((two, 0), (one, -1)):
        assert page(9, one, cursor=cursor) == ([(one, "INVALID_REQUEST", [])], None)
    body = {"topics": [{"name": one}], "response_partition_limit": 1, "cursor": None}
    (topic,) = connection.request("DescribeTopicPartitions", body).topics
    assert topic.topic_authorized_operations == 3576
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.leader_epoch) == (node_of(connection), 0)
    assert partition.replica_nodes == partition.isr_nodes == [node_of(connection)]
    assert partition.offline_replicas == []


def test_sizes_are_described(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic(partitions=2)

    def sizes(topics: Any) -> dict[str, list[tuple[int, int, int]]]:
        answer = connection.request("DescribeLogDirs", {"topics": topics})
        assert answer.error_code == 0
        (folder,) = answer.results
        return {
            item.name: sorted(
                (part.partition_index, part.partition_size, part.offset_lag)
                for part in item.partitions
            )
            for item in folder.topics
            if item.partitions
        }

    asked = [{"topic": topic, "partitions": [0, 1, 9]}]
    assert sizes(asked) == {topic: [(0, 0, 0), (1, 0, 0)]}
    assert sizes([]) == {}
    assert sizes(None)[topic] == [(0, 0, 0), (1, 0, 0)]


def test_rights_are_told_to_those_who_ask(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    body = {
        "topics": [{"name": topic}],
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }
    with any_kafka.connect() as connection:
        told = connection.request("Metadata", body, 9)
        untold = connection.request("Metadata", {"topics": [{"name": topic}]}, 9)
    assert told.topics[0].topic_authorized_operations == TOPIC_RIGHTS
    assert told.cluster_authorized_operations == CLUSTER_RIGHTS
    assert untold.topics[0].topic_authorized_operations == UNTOLD
    assert untold.cluster_authorized_operations == UNTOLD
