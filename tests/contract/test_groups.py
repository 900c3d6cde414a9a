"""Classic groups: one program, the same observations on the embedded broker and on real ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.grouping import Joined, Peer, new_id, subscription, until
from tests.fix_any import AnyKafka

DESCRIBED_BY_ERROR = 6


@pytest.fixture
def one(any_kafka: AnyKafka) -> Iterator[Peer]:
    with Peer(any_kafka, new_id()) as peer:
        peer.wait_until_coordinated()
        yield peer


@pytest.fixture
def two(any_kafka: AnyKafka, one: Peer) -> Iterator[Peer]:
    """Another connection, for the same group."""
    with Peer(any_kafka, one.group) as peer:
        yield peer


def both(one: Peer, two: Peer, first: Joined, **more: Any) -> tuple[Joined, Joined]:
    """Take a second member into a stable group of one."""
    new = two.join(**more)
    two.send_join(new.member, **more)
    until(lambda: one.heartbeat(first.member, first.generation), bool)
    rejoined = one.join(first.member, **more)
    return rejoined, two.receive_join()


def test_a_new_member_gets_an_id_to_join_with(one: Peer) -> None:
    first = one.join()
    assert first.error == "MEMBER_ID_REQUIRED"
    assert first.member.startswith("karrow-tests-")
    assert first.generation == -1
    until(lambda: one.describe()[1:], lambda seen: seen == ("Empty", "", 0))
    joined = one.join(first.member)
    assert joined[:6] == ("", 1, "range", first.member, first.member, False)
    assert joined.members == {first.member: subscription("nothing")}
    assert one.describe()[1:] == ("CompletingRebalance", "", 1)
    assert one.heartbeat(joined.member, 1) == ""
    assert one.sync(joined, {joined.member: b"mine"}) == ("", b"mine")
    assert one.describe()[1:] == ("Stable", "range", 1)
    assert one.sync(joined) == ("", b"mine")


def test_every_version_of_the_membership_calls(any_kafka: AnyKafka) -> None:
    with Peer(any_kafka, new_id()) as peer:
        peer.wait_until_coordinated()
        for version in peer.versions("JoinGroup"):
            peer.group = new_id()
            joined = peer.join(version=version)
            if version >= 4:
                assert joined.error == "MEMBER_ID_REQUIRED"
                joined = peer.join(joined.member, version=version)
            assert joined[:3] == ("", 1, "range")
            assert joined.leader == joined.member
            for sync in peer.versions("SyncGroup"):
                assert peer.sync(joined, {joined.member: b"mine"}, sync) == ("", b"mine")
            for heartbeat in peer.versions("Heartbeat"):
                assert peer.heartbeat(joined.member, 1, heartbeat) == ""
                assert peer.heartbeat(joined.member, 2, heartbeat) == "ILLEGAL_GENERATION"


def test_every_version_of_leaving(one: Peer) -> None:
    for version in one.versions("LeaveGroup"):
        joined = one.enter()
        body: Any = {"group_id": one.group, "member_id": joined.member}
        if version >= 3:
            body = {"group_id": one.group, "members": [{"member_id": joined.member}]}
        assert one.ask("LeaveGroup", body, version).error_code == 0
        assert one.describe()[1:] == ("Empty", "", 0)
        again = one.ask("LeaveGroup", body, version)
        assert (again.members[0] if version >= 3 else again).error_code == 25


def test_a_second_member_makes_the_group_rebalance(one: Peer, two: Peer) -> None:
    first = one.settle()
    leader, follower = both(one, two, first)
    assert leader.error == follower.error == ""
    assert leader.generation == follower.generation == 2
    assert leader.leader == follower.leader == first.member
    assert set(leader.members) == {leader.member, follower.member}
    assert follower.members == {}
    # The follower waits for what the leader has to say.
    two.send_sync(follower)
    assert one.heartbeat(leader.member, 2) == ""
    assert one.describe()[1:] == ("CompletingRebalance", "", 2)
    assert one.sync(leader, {leader.member: b"a", follower.member: b"b"}) == ("", b"a")
    assert two.receive_sync() == ("", b"b")
    assert one.describe()[1:] == ("Stable", "range", 2)


def test_a_rebalance_interrupts_those_who_wait_for_the_assignment(one: Peer, two: Peer) -> None:
    leader, follower = both(one, two, one.settle())
    two.send_sync(follower)
    one.send_join(leader.member, protocols=[("range", subscription("another"))])
    assert two.receive_sync() == ("REBALANCE_IN_PROGRESS", b"")
    assert two.sync(follower) == ("REBALANCE_IN_PROGRESS", b"")
    assert two.join(follower.member)[:2] == ("", 3)
    assert one.receive_join()[:2] == ("", 3)


def test_joining_again_without_a_change(one: Peer, two: Peer) -> None:
    leader, follower = both(one, two, one.settle())
    # Before the assignment everyone hears the same again, the leader with all members.
    assert two.join(follower.member) == follower
    assert one.join(leader.member) == leader
    one.sync(leader, {follower.member: b"b"})
    # Then followers still do, but the leader makes the group rebalance.
    assert two.join(follower.member) == follower
    assert two.sync(follower) == ("", b"b")
    one.send_join(leader.member)
    until(lambda: two.heartbeat(follower.member, 2), lambda e: e == "REBALANCE_IN_PROGRESS")
    assert two.join(follower.member)[:2] == ("", 3)
    assert one.receive_join()[:2] == ("", 3)


def test_joins_that_are_refused(one: Peer) -> None:
    assert one.join("stranger").error == "UNKNOWN_MEMBER_ID"
    assert one.listed() is None
    assert one.join(session_timeout_ms=1).error == "INVALID_SESSION_TIMEOUT"
    assert one.join(session_timeout_ms=3_600_000).error == "INVALID_SESSION_TIMEOUT"
    assert one.join(protocol_type="").error == "INCONSISTENT_GROUP_PROTOCOL"
    assert one.join(protocols=[]).error == "INCONSISTENT_GROUP_PROTOCOL"
    joined = one.settle()
    assert one.join("stranger").error == "UNKNOWN_MEMBER_ID"
    assert one.join(protocol_type="connect").error == "INCONSISTENT_GROUP_PROTOCOL"
    assert one.join(protocols=[("other", b"")]).error == "INCONSISTENT_GROUP_PROTOCOL"
    refused = one.join(joined.member, protocols=[("other", b"")])
    assert refused[:2] == ("INCONSISTENT_GROUP_PROTOCOL", -1)
    assert refused.member == joined.member
    one.group = ""
    assert one.join().error == "INVALID_GROUP_ID"


def test_syncs_and_heartbeats_that_are_refused(one: Peer) -> None:
    joined = one.settle()
    stranger, late = joined._replace(member="stranger"), joined._replace(generation=7)
    assert one.sync(stranger)[0] == "UNKNOWN_MEMBER_ID"
    assert one.sync(late)[0] == "ILLEGAL_GENERATION"
    nobody: Any = {"group_instance_id": "nobody"}
    # The oldest ones look for the instance only if the group has it.
    if one.kafka.number >= (3, 0):
        assert one.sync(joined, **nobody)[0] == "UNKNOWN_MEMBER_ID"
        assert one.heartbeat(joined.member, 1, **nobody) == "UNKNOWN_MEMBER_ID"
    for named in ({"protocol_type": "connect"}, {"protocol_name": "other"}):
        assert one.sync(joined, **named)[0] == "INCONSISTENT_GROUP_PROTOCOL"
    assert one.sync(joined, protocol_name=None)[0] == "INCONSISTENT_GROUP_PROTOCOL"
    assert one.heartbeat("stranger", 1) == "UNKNOWN_MEMBER_ID"
    assert one.heartbeat(joined.member, 7) == "ILLEGAL_GENERATION"
    one.group = new_id()
    assert one.sync(joined)[0] == one.heartbeat(joined.member, 1) == "UNKNOWN_MEMBER_ID"
    one.group = ""
    assert one.sync(joined)[0] == one.heartbeat(joined.member, 1) == "INVALID_GROUP_ID"
    assert one.leave((joined.member, None)) == ["INVALID_GROUP_ID"]


def test_the_protocol_with_most_votes_is_taken(one: Peer, two: Peer, any_kafka: AnyKafka) -> None:
    first = one.settle(protocols=[("a", b"a1"), ("b", b"b1")])
    with Peer(any_kafka, one.group) as three:
        others = [(two, two.join(protocols=[("b", b"b2"), ("a", b"a2")]))]
        others.append((three, three.join(protocols=[("c", b"c3"), ("b", b"b3"), ("a", b"a3")])))
        for peer, new in others:
            order = [("b", b"b"), ("a", b"a")] if peer is two else [("c", b"c"), ("b", b"b")]
            peer.send_join(new.member, protocols=order)
        until(lambda: one.heartbeat(first.member, 1), lambda e: e == "REBALANCE_IN_PROGRESS")
        leader = one.join(first.member, protocols=[("a", b"a1"), ("b", b"b1")])
        assert leader[:3] == ("", 2, "b")
        assert sorted(leader.members.values()) == [b"b", b"b", b"b1"]
        assert {peer.receive_join()[:3] for peer, _ in others} == {("", 2, "b")}


def test_leaving(one: Peer, two: Peer) -> None:
    leader, follower = both(one, two, one.settle())
    one.sync(leader, {})
    wanted = [("stranger", None), ("", None), ("", "nobody"), (leader.member, None)]
    unknown = "UNKNOWN_MEMBER_ID"
    assert one.leave(*wanted) == [unknown, unknown, unknown, ""]
    assert two.heartbeat(follower.member, 2) == "REBALANCE_IN_PROGRESS"
    alone = two.join(follower.member)
    assert alone[:2] == ("", 3)
    assert alone.leader == follower.member
    assert two.leave((follower.member, None)) == [""]
    assert two.describe()[1:] == ("Empty", "", 0)
    assert two.heartbeat(follower.member, 3) == unknown
    assert two.join(follower.member).error == unknown
    assert two.leave((follower.member, None)) == [unknown]
    assert two.settle().generation == 5


def test_who_was_given_an_id_may_leave_before_joining(one: Peer) -> None:
    joined = one.settle()
    new = one.join()
    one.send_join(joined.member)
    time.sleep(0.1)
    with Peer(one.kafka, one.group) as other:
        # The rebalance waits for the one that is yet to join.
        assert other.describe()[1:] == ("PreparingRebalance", "", 1)
        assert other.leave((new.member, None)) == [""]
    assert one.receive_join()[:2] == ("", 2)


def test_a_member_that_does_not_rejoin_is_removed(one: Peer, two: Peer) -> None:
    first = one.settle(rebalance_timeout_ms=300)
    second = two.enter(rebalance_timeout_ms=300)
    assert second[:2] == ("", 2)
    assert second.leader == second.member
    assert one.heartbeat(first.member, 1) == "UNKNOWN_MEMBER_ID"


def test_a_member_that_does_not_ask_for_its_assignment_is_removed(one: Peer, two: Peer) -> None:
    first = one.settle(rebalance_timeout_ms=400)
    leader, follower = both(one, two, first, rebalance_timeout_ms=400)
    assert one.sync(leader, {leader.member: b"mine"}) == ("", b"mine")
    again = until(lambda: one.heartbeat(leader.member, 2), lambda error: error != "")
    assert again == "REBALANCE_IN_PROGRESS"
    assert two.heartbeat(follower.member, 2) == "UNKNOWN_MEMBER_ID"
    assert one.join(leader.member)[:2] == ("", 3)


def test_a_static_member_comes_back_without_a_rebalance(one: Peer, two: Peer) -> None:
    first = one.settle()
    static: Any = {"group_instance_id": "i1"}
    two.send_join(**static)
    until(lambda: one.heartbeat(first.member, 1), lambda e: e == "REBALANCE_IN_PROGRESS")
    leader = one.join(first.member)
    follower = two.receive_join()
    assert follower.member.startswith("i1-")
    one.sync(leader, {leader.member: b"a", follower.member: b"b"})
    assert two.sync(follower, **static) == ("", b"b")

    back = two.join(**static)
    assert back[:2] == ("", 2)
    assert back.leader == leader.member
    assert back.member not in (follower.member, leader.member)
    assert two.sync(back, **static) == ("", b"b")
    assert one.heartbeat(leader.member, 2) == ""
    # The one before is fenced.
    assert two.heartbeat(follower.member, 2, **static) == "FENCED_INSTANCE_ID"
    assert two.sync(follower, **static)[0] == "FENCED_INSTANCE_ID"
    assert two.join(follower.member, **static).error == "FENCED_INSTANCE_ID"
    assert two.leave((follower.member, "i1")) == ["FENCED_INSTANCE_ID"]
    assert two.heartbeat(follower.member, 2) == "UNKNOWN_MEMBER_ID"
    # An administrator need not know the member's id.
    assert two.leave(("", "i1")) == [""]
    assert one.heartbeat(leader.member, 2) == "REBALANCE_IN_PROGRESS"


def test_a_static_leader_that_comes_back_leaves_the_assignment_alone(one: Peer) -> None:
    static: Any = {"group_instance_id": "i1"}
    first = one.join(**static)
    assert first[:2] == ("", 1)
    assert one.sync(first, {first.member: b"mine"}, **static) == ("", b"mine")
    version = one.newest("JoinGroup")
    back = one.join(**static)
    assert back[:2] == ("", 1)
    assert back.member != first.member
    # Where it cannot be told to skip the assignment, it is told that another one leads (KIP-814).
    assert back.skip == (version >= 9)
    assert back.leader == (back.member if version >= 9 else first.member)
    assert list(back.members) == ([back.member] if version >= 9 else [])
    assert one.sync(back, **static) == ("", b"mine")
    old = one.join(version=5, **static)
    assert (old.leader, old.skip, old.members) == (back.member, False, {})
    # Other protocols make a new generation all the same.
    changed = one.join(protocols=[("other", b""), ("range", b"")], **static)
    assert changed[:3] == ("", 2, "other")


def test_groups_listed_described_and_deleted(one: Peer) -> None:
    for version in one.versions("DescribeGroups"):
        error = "GROUP_ID_NOT_FOUND" if version >= DESCRIBED_BY_ERROR else ""
        assert one.describe(version) == (error, "Dead", "", 0)
    joined = one.settle()
    for version in one.versions("DescribeGroups"):
        assert one.describe(version) == ("", "Stable", "range", 1)
    member = one.ask("DescribeGroups", {"groups": [one.group]}).groups[0].members[0]
    assert (member.client_id, member.client_host) == ("karrow-tests", "/127.0.0.1")
    assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (
        subscription("nothing"),
        b"mine",
    )
    for version in one.versions("ListGroups"):
        listed = one.listed(version)
        assert listed.protocol_type == "consumer"
        assert listed.group_state == ("Stable" if version >= 4 else "")
        assert listed.group_type == ("classic" if version >= 5 else "")
    assert one.listed(states_filter=["Stable", "Dead"])
    assert not one.listed(states_filter=["Empty"])
    if one.newest("ListGroups") >= 5:
        assert one.listed(types_filter=["Classic"])
        assert not one.listed(types_filter=["consumer"])
    for version in one.versions("DeleteGroups"):
        assert one.delete(version=version) == ["NON_EMPTY_GROUP"]
    one.leave((joined.member, None))
    assert one.delete(one.group, "missing") == ["", "GROUP_ID_NOT_FOUND"]
    assert one.describe(5)[1] == "Dead"
    assert one.listed() is None


def test_what_may_be_done_with_a_group(one: Peer) -> None:
    one.settle()
    body = {"groups": [one.group], "include_authorized_operations": True}
    operations = one.ask("DescribeGroups", body).groups[0].authorized_operations
    old = 1 << 3 | 1 << 6 | 1 << 8
    assert operations == (old | 1 << 10 | 1 << 11 if one.kafka.number >= (4, 0) else old)


@pytest.mark.slow
def test_a_silent_member_is_removed(one: Peer) -> None:
    joined = one.settle(session_timeout_ms=6000)
    time.sleep(4)
    assert one.heartbeat(joined.member, 1) == ""
    time.sleep(4)
    assert one.heartbeat(joined.member, 1) == ""
    time.sleep(7)
    assert one.describe()[1:] == ("Empty", "", 0)
    assert one.heartbeat(joined.member, 1) == "UNKNOWN_MEMBER_ID"
