"""Admin on any broker: groups, their members and the offsets they store."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.types import CommittedOffset, Node, Offset
from tests.fix_admin import eventually, new_name
from tests.fix_any import AnyKafka


def join(admin: karrow.Admin, topic: str, instance_id: str | None = None) -> tuple[str, str]:
    """A new group with one member of the classic protocol; the group and the member's id."""
    group = new_name("group")
    protocol = karrow.Client.default_protocol("range", 0, [topic])
    joined = admin.client.join_group(
        group, [protocol], instance_id=instance_id, session_timeout=60.0
    )
    admin.client.sync_group(
        group,
        generation=joined.generation,
        member_id=joined.member_id,
        instance_id=instance_id,
        assignments={joined.member_id: {topic: [0]}},
    )
    return group, joined.member_id


def heartbeat(admin: karrow.Admin, group: str, member_id: str, **more: Any) -> None:
    """One of the new protocol (KIP-848)."""
    body = {"group_id": group, "member_id": member_id, "member_epoch": 0, **more}
    answer = admin.client.request("ConsumerGroupHeartbeat", body, to=Node.coordinator(group))
    assert answer.error_code == 0


def join_new(admin: karrow.Admin, topic: str) -> tuple[str, str]:
    """A new group with one member of the new protocol."""
    group, member_id = new_name("group"), str(uuid.uuid4())
    topics = {"subscribed_topic_names": [topic], "topic_partitions": []}
    heartbeat(admin, group, member_id, rebalance_timeout_ms=5000, **topics)
    return group, member_id


def filled(any_kafka: AnyKafka, admin: karrow.Admin, partitions: int = 1) -> str:
    """A topic with five records in each partition, an hour apart, the last one written now."""
    topic = any_kafka.create_topic(partitions=partitions)
    now = datetime.now(UTC)
    times = [now - timedelta(hours=hours) for hours in (4, 3, 2, 1, 0)]
    records = [karrow.Record(value=b"x", timestamp_ms=int(t.timestamp() * 1000)) for t in times]
    for partition in range(partitions):
        admin.client.produce(topic, records, partition=partition)
    return topic


def stored(admin: karrow.Admin, group: str) -> dict[tuple[str, int], int | None]:
    return {key: place.offset for key, place in admin.list_group_offsets(group).items()}


@pytest.mark.since("4.0")
def test_groups_are_listed_by_state_and_type(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    (old, _), (new, member_id) = join(admin, topic), join_new(admin, topic)
    empty = new_name("group")
    admin.create_group(empty, {topic: "latest"})
    stable = {one.group for one in admin.list_groups(states=["Stable"])}
    assert old in stable
    assert empty not in stable
    assert {one.group for one in admin.list_groups(states=["Empty"])} >= {empty}
    consumers = {one.group for one in admin.list_groups(types=["consumer"])}
    assert new in consumers
    assert old not in consumers
    heartbeat(admin, new, member_id, member_epoch=-1)


def test_groups_cannot_be_filtered_by_old_versions(admin: karrow.Admin) -> None:
    with pytest.raises(errors.UnsupportedVersion, match="cannot carry types"):
        admin.list_groups(types=["consumer"], api_version=4)


def test_coordinator_is_found(admin: karrow.Admin) -> None:
    found = admin.find_coordinator(new_name("group"))
    assert found.broker is not None
    assert found.broker.id == 1


def test_coordinator_of_an_unknown_kind_fails(admin: karrow.Admin) -> None:
    with pytest.raises(errors.UnsupportedVersion, match="transaction"):
        admin.find_coordinator(new_name("tx"), "transaction", api_version=0)


@pytest.mark.since("4.0")
def test_groups_of_both_protocols_are_described(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    (old, member), (new, new_member) = join(admin, topic), join_new(admin, topic)
    described = admin.describe_group(old)
    assert (described.state, described.type, described.active) == ("Stable", "classic", True)
    found = admin.describe_groups([old, new])
    assert list(found) == [old, new]
    assert found[old].members[0].member_id == member
    assert found[old].members[0].assignment == ((topic, 0),)
    assert (found[new].type, found[new].members[0].member_id) == ("consumer", new_member)
    heartbeat(admin, new, new_member, member_epoch=-1)


@pytest.mark.since("4.0")
def test_absent_groups_are_not_described(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    group, _ = join(admin, any_kafka.create_topic())
    absent = new_name("absent")
    with pytest.raises(errors.GroupIdNotFound):
        admin.describe_group(absent)
    with pytest.raises(errors.PartialError) as caught:
        admin.describe_groups([group, absent])
    assert list(caught.value.results) == [group]


def test_empty_groups_are_deleted(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic, groups = any_kafka.create_topic(), [new_name("group") for _ in range(3)]
    for group in groups:
        admin.create_group(group, {topic: "earliest"})
    admin.delete_group(groups[0])
    admin.delete_groups(groups[1:])
    assert not {one.group for one in admin.list_groups()} & set(groups)


def test_groups_with_members_are_not_deleted(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    (active, _), empty = join(admin, topic), new_name("group")
    admin.create_group(empty, {topic: "earliest"})
    with pytest.raises(errors.NonEmptyGroup, match=active):
        admin.delete_group(active)
    with pytest.raises(errors.PartialError) as caught:
        admin.delete_groups([active, empty, new_name("absent")])
    assert list(caught.value.results) == [empty]


@pytest.mark.since("4.0")
def test_members_are_removed(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    group, member_id = join(admin, topic)
    admin.remove_members(group, member_ids=[], instance_ids=[])
    assert admin.describe_group(group).active
    admin.remove_members(group, member_ids=[member_id], reason="maintenance")
    assert not admin.describe_group(group).active
    static, _ = join(admin, topic, "i-1")
    admin.remove_members(static, instance_ids=["i-1"])
    assert not admin.describe_group(static).active
    everybody, _ = join(admin, topic, "i-2")
    admin.remove_members(everybody)
    assert not admin.describe_group(everybody).active
    new, _ = join_new(admin, topic)
    admin.remove_members(new)
    assert not admin.describe_group(new).active


def test_members_that_are_not_there_cannot_be_removed(
    admin: karrow.Admin, any_kafka: AnyKafka
) -> None:
    group, member_id = join(admin, any_kafka.create_topic())
    with pytest.raises(errors.UnknownMemberId, match="nobody"):
        admin.remove_members(group, member_ids=["nobody"])
    with pytest.raises(errors.PartialError) as caught:
        admin.remove_members(group, member_ids=[member_id], instance_ids=["nobody"])
    assert list(caught.value.results) == [member_id]
    assert list(caught.value.errors) == ["nobody"]


def test_offsets_are_stored_and_listed(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic, groups = any_kafka.create_topic(partitions=2), [new_name("group") for _ in range(2)]
    admin.alter_group_offsets(groups[0], {(topic, 0): 3, (topic, 1): (4, "note")})
    admin.alter_group_offsets(groups[1], {(topic, 0): CommittedOffset(5)})
    found = admin.list_group_offsets(groups[0])
    assert {key: place.offset for key, place in found.items()} == {(topic, 0): 3, (topic, 1): 4}
    assert found[karrow.TopicPartition(topic, 1)].metadata == "note"
    many = admin.list_groups_offsets(groups, [topic])
    assert many[groups[0]] == found
    assert [place.offset for place in many[groups[1]].values()] == [5, None]


def test_offsets_of_absent_topics_are_not_listed(admin: karrow.Admin) -> None:
    group, absent = new_name("group"), new_name("absent")
    with pytest.raises(errors.UnknownTopicOrPartition, match=absent):
        admin.list_group_offsets(group, [absent])
    with pytest.raises(errors.UnknownTopicOrPartition, match=absent):
        admin.list_groups_offsets([group, new_name("group")], [absent])


@pytest.mark.since("4.0")
def test_offsets_of_active_groups_are_not_altered(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    (group, _), (new, member_id) = join(admin, topic), join_new(admin, topic)
    with pytest.raises(errors.UnknownMemberId, match="stop them first"):
        admin.alter_group_offsets(group, {(topic, 0): 0})
    with pytest.raises(errors.UnknownMemberId, match="stop them first"):
        admin.alter_group_offsets(new, {(topic, 0): 0})
    heartbeat(admin, new, member_id, member_epoch=-1)


def test_offsets_are_deleted(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(partitions=2), new_name("group")
    admin.create_group(group, {topic: "earliest"})
    admin.delete_group_offsets(group, [(topic, 0)])
    assert stored(admin, group) == {(topic, 1): 0}


def test_offsets_of_subscribed_topics_are_not_deleted(
    admin: karrow.Admin, any_kafka: AnyKafka
) -> None:
    topic = any_kafka.create_topic()
    group, _ = join(admin, topic)
    with pytest.raises(errors.GroupSubscribedToTopic, match=topic):
        admin.delete_group_offsets(group, [(topic, 0)])
    with pytest.raises(errors.GroupIdNotFound):
        admin.delete_group_offsets(new_name("absent"), [(topic, 0)])


def test_group_is_created_empty(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic, group = filled(any_kafka, admin, partitions=2), new_name("group")
    places: dict[str | tuple[str, int], Any] = {topic: "latest", (topic, 1): 2}
    made = admin.create_group(group, places)
    assert made == {(topic, 0): 5, (topic, 1): 2}
    assert stored(admin, group) == made
    assert admin.describe_group(group).state == "Empty"


def test_group_is_not_created_twice(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(), new_name("group")
    admin.create_group(group, {topic: "latest"})
    with pytest.raises(errors.DuplicateResource, match="reset_group"):
        admin.create_group(group, {topic: "latest"})
    with pytest.raises(errors.ConfigError, match="at least one"):
        admin.create_group(new_name("group"), {})


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (3, 3),
        (99, 5),
        ("earliest", 1),
        (0, 1),
        ("latest", 5),
        ("-150m", 2),
        (timedelta(minutes=90), 3),
        (datetime.now(UTC) + timedelta(days=1), 5),
        (Offset.at_timestamp_ms(0), 1),
    ],
    ids=str,
)
def test_group_is_reset(admin: karrow.Admin, any_kafka: AnyKafka, place: Any, offset: int) -> None:
    topic, group = filled(any_kafka, admin), new_name("group")
    admin.delete_records({(topic, 0): 1})
    admin.create_group(group, {topic: "latest"})
    assert admin.reset_group(group, {topic: place}) == {(topic, 0): offset}
    assert stored(admin, group) == {(topic, 0): offset}


@pytest.mark.since("4.0")
def test_group_of_the_new_protocol_is_reset(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, admin)
    group, member_id = join_new(admin, topic)
    with pytest.raises(errors.NonEmptyGroup):
        admin.reset_group(group, {topic: "earliest"})
    heartbeat(admin, group, member_id, member_epoch=-1)
    eventually(lambda: not admin.describe_group(group).active)
    assert admin.reset_group(group, {topic: "earliest"}) == {(topic, 0): 0}


def test_active_and_absent_groups_are_not_reset(admin: karrow.Admin, any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    group, _ = join(admin, topic)
    with pytest.raises(errors.NonEmptyGroup, match="stop them first"):
        admin.reset_group(group, {topic: "earliest"})
    with pytest.raises(errors.GroupIdNotFound, match="create_group"):
        admin.reset_group(new_name("absent"), {topic: "earliest"})
    with pytest.raises(errors.ConfigError, match="no place in a partition"):
        admin.create_group(new_name("group"), {topic: "somewhere"})
