"""Groups of the consumer protocol (KIP-848): the same on the embedded broker and on a real one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.grouping import Beaten, Peer, name_of, new_id, subscription, until
from tests.fix_any import AnyKafka


@pytest.fixture
def one(any_kafka: AnyKafka) -> Iterator[Peer]:
    if any_kafka.number < (4, 0):
        pytest.skip("the protocol is not switched on")
    with Peer(any_kafka, new_id()) as peer:
        peer.wait_until_coordinated()
        yield peer


@pytest.fixture
def topic(any_kafka: AnyKafka, one: Peer) -> str:
    """One that coordinators have heard of: they hear of it a moment after everybody else."""
    name = any_kafka.create_topic(partitions=4)

    def partitions_of_another_group() -> int:
        with Peer(any_kafka, new_id()) as other:
            found = other.subscribe("a", [name]).partitions
            other.beat("a", -1)
            return len(found or ())

    until(partitions_of_another_group, lambda count: count == 4)
    return name


def owns(peer: Peer, topic: str, *partitions: int) -> dict[str, Any]:
    owned = [{"topic_id": peer.topic_id(topic), "partitions": list(partitions)}]
    return {"topic_partitions": owned}


def described(peer: Peer, version: int | None = None) -> Any:
    return peer.ask("ConsumerGroupDescribe", {"group_ids": [peer.group]}, version).groups[0]


def two_members(peer: Peer, topic: str) -> None:
    """Members a and b in epoch 3, with two partitions each."""
    assert peer.subscribe("a", [topic]) == ("", 2, [0, 1, 2, 3], "a")
    assert peer.subscribe("b", [topic]) == ("", 3, [], "b")
    assert peer.beat("a", 2, **owns(peer, topic, 0, 1, 2, 3)) == ("", 2, [0, 1], "a")
    assert peer.beat("a", 2, **owns(peer, topic, 0, 1)) == ("", 3, None, "a")
    assert peer.beat("b", 3) == ("", 3, [2, 3], "b")


def test_switched_off_in_old_releases(any_kafka: AnyKafka) -> None:
    with Peer(any_kafka, new_id()) as peer:
        peer.wait_until_coordinated()
        if any_kafka.number >= (4, 0):
            assert peer.subscribe("a", []).error == ""
        elif any_kafka.number >= (3, 9):
            assert peer.subscribe("a", ["topic"]).error == "UNSUPPORTED_VERSION"
            assert name_of(described(peer).error_code) == "UNSUPPORTED_VERSION"


def test_partitions_move_when_they_were_given_up(one: Peer, topic: str) -> None:
    assert one.subscribe("a", [topic]) == ("", 2, [0, 1, 2, 3], "a")
    assert one.beat("a", 2) == ("", 2, None, "a")
    assert described(one).group_state == "Stable"
    # Another one gets nothing before the first has given it up.
    assert one.subscribe("b", [topic]) == ("", 3, [], "b")
    assert one.beat("b", 3) == ("", 3, None, "b")
    assert one.beat("a", 2, **owns(one, topic, 0, 1, 2, 3)) == ("", 2, [0, 1], "a")
    assert one.beat("a", 2) == ("", 2, None, "a")
    assert described(one).group_state == "Reconciling"
    assert one.beat("b", 3) == ("", 3, None, "b")
    assert one.beat("a", 2, **owns(one, topic, 0, 1)) == ("", 3, None, "a")
    assert one.beat("b", 3) == ("", 3, [2, 3], "b")
    assert described(one).group_state == "Stable"
    # Who leaves is replaced with the next heartbeat.
    assert one.beat("a", -1) == ("", -1, None, "a")
    assert described(one).group_state == "Assigning"
    assert one.beat("b", 3) == ("", 4, [0, 1, 2, 3], "b")
    assert one.beat("b", -1) == ("", -1, None, "b")
    assert described(one).group_state == "Empty"


def test_who_names_a_wrong_epoch_is_fenced(one: Peer, topic: str) -> None:
    two_members(one, topic)
    fenced = Beaten("FENCED_MEMBER_EPOCH", 0, None, None)
    assert one.beat("a", 4) == fenced
    assert one.beat("a", 1) == fenced
    # The epoch before, from one that owns no more than it should: the answer may have been lost.
    assert one.beat("a", 2, **owns(one, topic, 0)) == ("", 3, None, "a")
    assert one.beat("a", 2, **owns(one, topic, 3)) == fenced
    assert one.beat("a", 2) == fenced
    assert one.subscribe("a", [topic]) == ("", 3, [0, 1], "a")
    assert one.beat("stranger", 3).error == "UNKNOWN_MEMBER_ID"
    assert one.beat("stranger", -1).error == "UNKNOWN_MEMBER_ID"


def test_heartbeats_that_are_refused(one: Peer, topic: str) -> None:
    assert one.beat("a", 1).error == "GROUP_ID_NOT_FOUND"
    assert one.beat("a", -1).error == "GROUP_ID_NOT_FOUND"
    for wrong in (
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"instance_id": ""},
        {"rack_id": ""},
        owns(one, topic, 0),
    ):
        assert one.subscribe("a", [topic], **wrong).error == "INVALID_REQUEST"
    assert one.subscribe("", [topic]).error == "INVALID_REQUEST"
    assert one.beat("a", -3).error == one.beat("a", -2).error == "INVALID_REQUEST"
    assert one.subscribe("a", [topic], server_assignor="x").error == "UNSUPPORTED_ASSIGNOR"
    bad: Any = {"subscribed_topic_names": None, "subscribed_topic_regex": "[a"}
    assert one.subscribe("a", [], **bad).error == "INVALID_REGULAR_EXPRESSION"
    assert one.listed() is None
    one.group = ""
    assert one.subscribe("a", [topic]).error == "INVALID_REQUEST"


def test_version_0_gives_members_their_ids(one: Peer, topic: str) -> None:
    joined = one.subscribe("", [topic], version=0)
    assert joined[:3] == ("", 2, [0, 1, 2, 3])
    assert joined.member
    assert one.beat(joined.member, 2, version=0) == ("", 2, None, joined.member)


def test_other_topics(one: Peer, topic: str, any_kafka: AnyKafka) -> None:
    other = any_kafka.create_topic(partitions=2)
    assert one.subscribe("a", [topic])[:2] == ("", 2)
    both = one.beat("a", 2, subscribed_topic_names=[topic, other])
    assert both == ("", 3, [0, 0, 1, 1, 2, 3], "a")
    assert one.beat("a", 3, subscribed_topic_names=[topic, other]) == ("", 3, None, "a")
    unknown = one.beat("a", 3, subscribed_topic_names=[topic, other, "unknown"])
    assert unknown == ("", 4, None, "a")
    fewer = one.beat("a", 4, subscribed_topic_names=[other], **owns(one, topic, 0, 1, 2, 3))
    assert fewer == ("", 4, [0, 1], "a")
    assert one.beat("a", 4, **owns(one, other, 0, 1)) == ("", 5, None, "a")


def test_topics_that_appear_and_grow(one: Peer, any_kafka: AnyKafka) -> None:
    name = f"later-{uuid.uuid4().hex[:8]}"
    assert one.subscribe("a", [name]) == ("", 2, [], "a")
    any_kafka.create_topic(name)
    seen = until(lambda: one.beat("a", 2), lambda beaten: beaten.epoch > 2)
    assert seen == ("", 3, [0], "a")
    body = {"topics": [{"name": name, "count": 2, "assignments": None}], "timeout_ms": 10_000}
    assert one.ask("CreatePartitions", body).results[0].error_code == 0
    seen = until(lambda: one.beat("a", 3), lambda beaten: beaten.epoch > 3)
    assert seen == ("", 4, [0, 1], "a")


def test_topics_by_regular_expression(one: Peer, any_kafka: AnyKafka) -> None:
    prefix = f"regex-{uuid.uuid4().hex[:8]}"
    any_kafka.create_topic(f"{prefix}-a")
    any_kafka.create_topic(f"{prefix}.b", partitions=2)
    any_kafka.create_topic(f"x{prefix}")
    wish: Any = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{prefix}(-|[.]).*"}
    first = one.subscribe("a", [], **wish)
    assert first.error == ""
    # A real broker looks for the topics beside the first heartbeat.
    seen = [first]

    def look() -> list[int] | None:
        seen.append(one.beat("a", seen[-1].epoch))
        return next(beaten.partitions for beaten in reversed(seen) if beaten.partitions is not None)

    until(look, lambda owned: bool(owned == [0, 0, 1]))
    member = described(one).members[0]
    assert member.subscribed_topic_regex == f"{prefix}(-|[.]).*"
    assert member.subscribed_topic_names == []


def test_static_members(one: Peer, topic: str) -> None:
    static: Any = {"instance_id": "i1"}
    assert one.subscribe("a", [topic], **static) == ("", 2, [0, 1, 2, 3], "a")
    assert one.subscribe("b", [topic], **static).error == "UNRELEASED_INSTANCE_ID"
    assert one.beat("b", 2, **static).error == "FENCED_INSTANCE_ID"
    assert one.beat("a", 2, instance_id="i9").error == "UNKNOWN_MEMBER_ID"
    assert one.beat("a", -2, instance_id="i9").error == "UNKNOWN_MEMBER_ID"
    # It goes for a while, and somebody else comes in its place.
    assert one.beat("a", -2, **static) == ("", -2, None, "a")
    assert described(one).members[0].member_epoch == -2
    assert one.beat("a", 2).error == "FENCED_MEMBER_EPOCH"
    assert one.subscribe("b", [topic], **static) == ("", 2, [0, 1, 2, 3], "b")
    assert one.beat("a", -1, **static).error == "FENCED_INSTANCE_ID"
    assert one.beat("b", -1, **static) == ("", -1, None, "b")
    assert described(one).group_state == "Empty"


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_assignors(one: Peer, assignor: str, any_kafka: AnyKafka) -> None:
    topics = [any_kafka.create_topic(partitions=3) for _ in range(2)]
    wish: Any = {"server_assignor": assignor}
    assert one.subscribe("a", topics, **wish).partitions == [0, 0, 1, 1, 2, 2]
    assert one.subscribe("b", topics, **wish).epoch == 3
    group = described(one)
    assert group.assignor_name == assignor
    target = {
        member.member_id: sorted(
            index
            for topic in member.target_assignment.topic_partitions
            for index in topic.partitions
        )
        for member in group.members
    }
    if assignor == "range":
        assert target == {"a": [0, 0, 1, 1], "b": [2, 2]}
    else:
        assert {id_: len(indexes) for id_, indexes in target.items()} == {"a": 3, "b": 3}


def test_a_member_that_does_not_give_up_partitions_is_removed(one: Peer, topic: str) -> None:
    assert one.subscribe("a", [topic], rebalance_timeout_ms=300).epoch == 2
    assert one.subscribe("b", [topic]) == ("", 3, [], "b")
    assert one.beat("a", 2, **owns(one, topic, 0, 1, 2, 3)) == ("", 2, [0, 1], "a")
    until(lambda: one.beat("a", 2).error, lambda error: error == "UNKNOWN_MEMBER_ID")
    assert one.beat("b", 3) == ("", 4, [0, 1, 2, 3], "b")


def test_an_administrator_removes_members(one: Peer, topic: str) -> None:
    two_members(one, topic)
    one.subscribe("s", [topic], instance_id="i1")
    assert one.leave(("x", "i1"), ("stranger", None), ("", "i1"), ("b", None)) == [
        "FENCED_INSTANCE_ID",
        "UNKNOWN_MEMBER_ID",
        "",
        "",
    ]
    group = described(one)
    assert (group.group_state, group.group_epoch) == ("Assigning", 5)
    assert [member.member_id for member in group.members] == ["a"]


def test_groups_described_listed_and_deleted(one: Peer, topic: str) -> None:
    for version in one.versions("ConsumerGroupDescribe"):
        assert name_of(described(one, version).error_code) == "GROUP_ID_NOT_FOUND"
    two_members(one, topic)
    for version in one.versions("ConsumerGroupDescribe"):
        group = described(one, version)
        assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (3, 3, "uniform")
        member = next(member for member in group.members if member.member_id == "b")
        assert (member.member_epoch, member.client_id, member.client_host) == (
            3,
            "karrow-tests",
            "/127.0.0.1",
        )
        for assignment in (member.assignment, member.target_assignment):
            (owned,) = assignment.topic_partitions
            assert (owned.topic_name, sorted(owned.partitions)) == (topic, [2, 3])
            assert owned.topic_id == one.topic_id(topic)
        assert member.subscribed_topic_names == [topic]
        assert member.member_type == (1 if version >= 1 else -1)
    assert one.describe() == ("GROUP_ID_NOT_FOUND", "Dead", "", 0)
    listed = one.listed(types_filter=["consumer"], states_filter=["stable"])
    assert (listed.protocol_type, listed.group_state, listed.group_type) == (
        "consumer",
        "Stable",
        "consumer",
    )
    assert one.delete() == ["NON_EMPTY_GROUP"]
    assert one.delete_offsets(topic) == "GROUP_SUBSCRIBED_TO_TOPIC"
    one.beat("a", -1)
    one.beat("b", -1)
    assert one.delete() == [""]
    assert one.listed() is None


def test_offsets_need_the_current_epoch(one: Peer, topic: str) -> None:
    two_members(one, topic)
    assert one.commit(topic, {0: 5}, "a", 3) == [""]
    for epoch in (-1, 0, 1, 4):
        assert one.commit(topic, {0: 6}, "a", epoch) == ["STALE_MEMBER_EPOCH"]
    # An older epoch will do, if the member had every one of the partitions then (KIP-1251).
    assert one.commit(topic, {0: 5, 1: 5}, "a", 2) == ["", ""]
    assert one.commit(topic, {0: 6, 2: 6}, "a", 2) == ["STALE_MEMBER_EPOCH"] * 2
    assert one.commit(topic, {2: 5}, "a", 3) == [""]
    assert one.commit(topic, {2: 6}, "b", 2) == ["STALE_MEMBER_EPOCH"]
    assert one.commit(topic, {0: 6}, "stranger", 3) == ["UNKNOWN_MEMBER_ID"]
    assert one.commit(topic, {0: 6}) == ["UNKNOWN_MEMBER_ID"]
    assert one.commit(topic, {0: 6}, "a", 3, version=8) == ["UNSUPPORTED_VERSION"]
    stored = {(topic, 0): (5, "", "")}
    assert one.fetch({topic: [0]}) == one.fetch({topic: [0]}, member="a", epoch=3) == stored
    assert one.fetch({topic: [0]}, member="a", epoch=2) == "STALE_MEMBER_EPOCH"
    assert one.fetch({topic: [0]}, member="stranger", epoch=3) == "UNKNOWN_MEMBER_ID"


def test_an_empty_group_changes_its_protocol(one: Peer, topic: str) -> None:
    assert one.subscribe("a", [topic])[:2] == ("", 2)
    assert one.commit(topic, {0: 5}, "a", 2) == [""]
    assert one.heartbeat("a", 2) == "UNKNOWN_MEMBER_ID"
    assert one.leave(("a", None)) == [""]
    joined = one.settle(protocols=[("range", subscription(topic))])
    assert joined[:2] == ("", 1)
    assert one.listed().group_type == "classic"
    assert one.beat("a", 2).error == "GROUP_ID_NOT_FOUND"
    assert one.leave((joined.member, None)) == [""]
    assert one.subscribe("a", [topic]) == ("", 2, [0, 1, 2, 3], "a")
    assert one.listed().group_type == "consumer"
    assert one.fetch(None) == {(topic, 0): (5, "", "")}


def test_a_group_of_another_kind_keeps_its_protocol(one: Peer, topic: str) -> None:
    one.enter(protocol_type="connect")
    assert one.subscribe("a", [topic]).error == "GROUP_ID_NOT_FOUND"
    assert one.listed().group_type == "classic"
