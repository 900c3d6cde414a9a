"""Admin on every release: what it has works, what it lacks is refused by name."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.types import (
    AclBinding,
    AclFilter,
    AclOperation,
    ConfigResource,
    NewTopic,
    Node,
    PatternType,
    ResourceType,
)
from tests.brokers import KafkaCluster
from tests.fix_admin import OPTIONS, eventually, new_name
from tests.fix_any import AnyKafka
from tests.fix_kafka import NewKafka

# What the embedded broker does without.
NOT_EMBEDDED = {"describe_acls", "elect_leaders"}
# The first release with each call that not all have.
SINCE: dict[str, tuple[int, ...]] = {
    "describe_config": (0, 11),
    "alter_config": (0, 11),
    "delete_records": (0, 11),
    "describe_acls": (0, 11),
    "create_partitions": (1, 0),
    "delete_group": (1, 1),
    "elect_leaders": (2, 2),
    "remove_members": (2, 4),
    "delete_group_offsets": (2, 4),
    "describe_scram_users": (2, 7),
    "describe_producers": (2, 8),
    "list_transactions": (3, 0),
    "describe_transaction": (3, 0),
}


def calls(topic: str) -> dict[str, tuple[Any, ...]]:
    owner = ConfigResource.topic(topic)
    return {
        "describe_config": (owner,),
        "alter_config": (owner, {}),
        "delete_records": ({(topic, 0): 0},),
        "describe_acls": (),
        "create_partitions": ({topic: 2},),
        "delete_group": (new_name("absent"),),
        "elect_leaders": ([(topic, 0)],),
        "delete_group_offsets": (new_name("absent"), [(topic, 0)]),
        "describe_scram_users": (),
        "describe_producers": ([(topic, 0)],),
        "list_transactions": (),
        "describe_transaction": (new_name("absent"),),
    }


def admin_of(cluster: AnyKafka | KafkaCluster) -> karrow.Admin:
    found = cluster.bootstrap
    return karrow.Admin(found if isinstance(found, str) else found(), **OPTIONS)


def succeeds(call: Callable[..., object], *args: Any) -> bool:
    """Whether the broker knows the call; what it thinks of the arguments does not matter."""
    try:
        call(*args)
    except errors.UnsupportedVersion:
        return False
    except (errors.GroupIdNotFound, errors.TransactionalIdNotFound):
        return True
    return True


def test_what_a_release_lacks_is_refused_by_name(every_kafka: AnyKafka) -> None:
    topic, release = every_kafka.create_topic(), every_kafka.release.number
    wanted = calls(topic)
    if every_kafka.is_embedded:
        wanted = {name: args for name, args in wanted.items() if name not in NOT_EMBEDDED}
    with admin_of(every_kafka) as admin:
        found = {name: succeeds(getattr(admin, name), *args) for name, args in wanted.items()}
        if not found["list_transactions"]:
            with pytest.raises(errors.UnsupportedVersion, match="the broker does not have it"):
                admin.list_transactions()
    assert found == {name: release >= SINCE[name] for name in found}


def test_topics_and_cluster(every_kafka: AnyKafka) -> None:
    name = new_name("topic")
    with admin_of(every_kafka) as admin:
        admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "5000"})])
        eventually(lambda: name in admin.list_topics())
        assert len(admin.describe_topic(name).partitions) == 2
        with pytest.raises(errors.UnknownTopicOrPartition):
            admin.describe_topic(new_name("absent"))
        assert list(admin.describe_cluster().brokers) == [1]
        admin.delete_topic(name)


def test_groups(every_kafka: AnyKafka) -> None:
    topic, group = every_kafka.create_topic(), new_name("group")
    with admin_of(every_kafka) as admin:
        admin.client.produce(topic, [b"a", b"b"])
        assert admin.create_group(group, {topic: "latest"}) == {(topic, 0): 2}
        with pytest.raises(errors.DuplicateResource):
            admin.create_group(group, {topic: "latest"})
        assert admin.reset_group(group, {topic: "earliest"}) == {(topic, 0): 0}
        assert [one.offset for one in admin.list_group_offsets(group).values()] == [0]
        with pytest.raises(errors.GroupIdNotFound):
            admin.reset_group(new_name("absent"), {topic: "earliest"})


def test_members_are_removed(every_kafka: AnyKafka) -> None:
    topic, group = every_kafka.create_topic(), new_name("group")
    protocol = karrow.Client.default_protocol("range", 0, [topic])
    with admin_of(every_kafka) as admin:
        joined = admin.client.join_group(group, [protocol])
        admin.client.sync_group(
            group,
            generation=joined.generation,
            member_id=joined.member_id,
            assignments={joined.member_id: {topic: [0]}},
        )
        with pytest.raises(errors.NonEmptyGroup):
            admin.reset_group(group, {topic: "earliest"})
        if every_kafka.release.number < SINCE["remove_members"]:
            with pytest.raises(errors.UnsupportedVersion, match="these members"):
                admin.remove_members(group, instance_ids=["i-1"])
        admin.remove_members(group)
        assert not admin.describe_group(group).active


def test_rules(kafka_version: KafkaCluster) -> None:
    if kafka_version.release.number < SINCE["describe_acls"]:
        pytest.skip("0.10 has no API for access control")
    name = new_name("topic")
    rule = AclBinding(ResourceType.TOPIC, name, "User:zoe", AclOperation.READ)
    prefixed = AclBinding(
        ResourceType.TOPIC, name, "User:zoe", AclOperation.READ, pattern_type=PatternType.PREFIXED
    )
    with admin_of(kafka_version) as admin:
        admin.create_acls([rule])
        eventually(lambda: admin.describe_acls(AclFilter(resource_name=name)) == [rule])
        if kafka_version.release.number < (2, 0):
            with pytest.raises(errors.UnsupportedVersion, match="cannot carry a pattern"):
                admin.create_acls([prefixed])
        assert admin.delete_acls([rule]) == {rule: [rule]}


@pytest.mark.slow
@pytest.mark.parametrize("enabled", [True, False])
def test_groups_of_the_new_protocol_on_3_9(new_kafka: NewKafka, enabled: bool) -> None:
    """Its DescribeGroups takes them for dead; ConsumerGroupDescribe is there in any case."""
    protocols = "classic,consumer" if enabled else "classic"
    cluster = new_kafka("3.9.2", properties={"group.coordinator.rebalance.protocols": protocols})
    topic, new, old = cluster.create_topic(), new_name("new"), new_name("old")
    absent = new_name("absent")
    with admin_of(cluster) as admin:
        admin.create_group(old, {topic: "earliest"})
        code = join_new(admin, new, topic)
        assert code == (0 if enabled else errors.UnsupportedVersion.code)
        found = admin.describe_groups([new, old, absent])
        assert {name: one.state for name, one in found.items()} == {
            new: "Stable" if enabled else "Dead",
            old: "Empty",
            absent: "Dead",
        }
        assert found[new].active is enabled
        assert admin.describe_group(new) == found[new]
        if enabled:
            assert found[new].members[0].assignment == ((topic, 0),)
            with pytest.raises(errors.NonEmptyGroup):
                admin.reset_group(new, {topic: "latest"})
        with pytest.raises(errors.GroupIdNotFound):
            admin.reset_group(absent, {topic: "latest"})


def join_new(admin: karrow.Admin, group: str, topic: str) -> int:
    """A member by the protocol of KIP-848, or the broker's refusal."""
    body = {
        "group_id": group,
        "member_id": str(uuid.uuid4()),
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    answer = admin.client.request("ConsumerGroupHeartbeat", body, to=Node.coordinator(group))
    code: int = answer.error_code
    return code
