"""Members of groups that the broker divides: who owns what, and when, on the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.aio.calls.base import Request
from karrow.aio.groups import member as module
from karrow.aio.groups.member import MemberState
from karrow.aio.groups.served import ServedMembership
from karrow.types import GroupMetadata, TopicPartition
from tests.membership import (
    GROUP,
    TOPIC,
    Clock,
    EmbeddedGroup,
    Pair,
    Reader,
    group,
    parts,
    run,
    settled,
    takes_over,
    until,
)

API = "ConsumerGroupHeartbeat"


def served(**options: Any) -> AbstractAsyncContextManager[EmbeddedGroup]:
    """A group without members, of the new protocol."""
    return group(**{"protocol": "consumer", **options})


def all_owned(g: EmbeddedGroup, count: int, *members: Pair) -> Callable[[], bool]:
    """Whether everything is owned, in one epoch."""
    return lambda: len(g.owners) == count and settled(*members)()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What heartbeats say, in their order."""
    found: list[dict[str, Any]] = []
    send = ServedMembership._send

    async def noted(self: ServedMembership, request: Request) -> Any:
        def body(version: int, connection: Any) -> Any:
            made = request.body(version, connection)
            if request.name == API:
                found.append(dict(made))  # type: ignore[arg-type]
            return made

        return await send(self, request._replace(body=body))

    monkeypatch.setattr(ServedMembership, "_send", noted)
    return found


def test_a_member_alone_owns_everything(said: list[dict[str, Any]]) -> None:
    async def main() -> None:
        async with served() as g:
            member, reader = await g.join()
            await until(settled((member, reader)))
            assert reader.news == [("assigned", parts(0, 1, 2, 3))]
            assert (member.is_leader, member.leader_id, member.protocol) == (False, "", None)
            assert member.has_session
            assert reader.generations == [member.generation]
            assert member.metadata() == GroupMetadata(GROUP, member.generation, member.member_id)
            await until(lambda: len(said) > 3)
            # Everything once, then only what is new.
            assert said[0]["member_epoch"] == 0
            assert said[0]["subscribed_topic_names"] == [TOPIC]
            assert said[0]["topic_partitions"] == []
            assert said[0]["rebalance_timeout_ms"] == 300_000
            assert [one["partitions"] for one in said[1]["topic_partitions"]] == [[0, 1, 2, 3]]
            assert "subscribed_topic_names" not in said[1]
            assert said[2].keys() == {"group_id", "member_id", "member_epoch", "instance_id"}
            assert {one["member_id"] for one in said} == {member.member_id}

    run(main())


def test_in_version_0_the_broker_gives_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    send = ServedMembership._send

    async def old(self: ServedMembership, request: Request) -> Any:
        version = 0 if request.name == API else None
        return await send(self, request._replace(api_version=version))

    async def main() -> None:
        monkeypatch.setattr(ServedMembership, "_send", old)
        async with served() as g:
            member, reader = await g.join()
            await until(settled((member, reader)))
            assert isinstance(member, ServedMembership)
            assert member.member_id not in ("", member._made_id)
            _, other = await g.join(pattern="t.*")
            await until(lambda: other.errors)
            assert isinstance(other.errors[0], errors.UnsupportedVersion)
            assert "name the topics" in str(other.errors[0])

    run(main())


def test_members_share_and_keep_what_they_have() -> None:
    async def main() -> None:
        async with served(partitions=6) as g:
            members: list[Pair] = []
            for number in (1, 2, 3):
                members.append(await g.join())
                await until(all_owned(g, 6, *members))
                assert all(len(reader.owned()) == 6 // number for _, reader in members)
            first = members[0][1]
            assert sum(map(len, first.heard("revoked"))) == 4  # 6, then 3, then 2
            await members.pop(0)[0].close()
            await until(all_owned(g, 6, *members))
            assert sum(len(reader.heard("revoked")) for _, reader in members) == 1  # 3, then 2
            assert not any(reader.heard("lost") for _, reader in members)

    run(main())


def test_who_leaves_gives_back_and_may_come_again() -> None:
    async def main() -> None:
        async with served() as g:
            first, second = await g.join(), await g.join()
            await until(all_owned(g, 4, first, second))
            had, old = first[1].owned(), first[0].member_id
            await first[0].leave("enough")
            assert first[0].state is MemberState.LEFT
            assert first[1].heard("revoked")[-1] == had
            assert not first[0].has_session
            await until(lambda: second[1].owned() == parts(0, 1, 2, 3))
            assert not first[1].heard("lost")
            await first[0].start()
            await until(all_owned(g, 4, first, second))
            assert first[0].member_id == old  # an id is a member's for its life

    run(main())


@pytest.mark.parametrize("name", ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"])
def test_who_is_dropped_has_lost_everything_and_joins_anew(
    name: str, said: list[dict[str, Any]]
) -> None:
    async def main() -> None:
        async with served() as g:
            member, reader = await g.join()
            await until(settled((member, reader)))
            old = member.member_id
            g.broker.fail(API, name, times=1)
            await until(lambda: reader.heard("lost"))
            await until(settled((member, reader)))
            assert member.member_id == old
            assert [what for what, _ in reader.news] == ["assigned", "lost", "assigned"]
            joins = [one for one in said if one["member_epoch"] == 0]
            assert [one["topic_partitions"] for one in joins] == [[], []]

    run(main())


def test_who_was_expired_joins_anew() -> None:
    async def main() -> None:
        async with served() as g:
            member, reader = await g.join()
            await until(settled((member, reader)))
            assert g.broker.expire_session(group=GROUP) == 1
            await until(lambda: reader.heard("lost"))
            await until(settled((member, reader)))
            assert not reader.errors

    run(main())


def test_a_coordinator_that_moves_costs_nothing(said: list[dict[str, Any]]) -> None:
    async def main() -> None:
        async with served(brokers=2) as g:
            g.broker.move_coordinator(GROUP, 1)
            member, reader = await g.join()
            await until(settled((member, reader)))
            generation = member.generation
            g.broker.move_coordinator(GROUP, 2)
            await until(lambda: member.trouble is not None)
            await until(lambda: member.trouble is None)
            assert (member.state, member.generation) == (MemberState.STABLE, generation)
            assert [what for what, _ in reader.news] == ["assigned"]
            # The new one hears everything, in the same epoch.
            last = [one for one in said if "subscribed_topic_names" in one][-1]
            assert last["member_epoch"] == generation
            assert "topic_partitions" in last

    run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_heartbeats_that_get_no_answer_are_repeated(when: Any) -> None:
    async def main() -> None:
        async with served() as g:
            g.broker.close(API, when=when, times=1)
            first = await g.join()
            await until(settled(first))
            second = await g.join()
            for _ in range(4):
                g.broker.close(API, when=when, times=1)
                await asyncio.sleep(0.1)
            await until(all_owned(g, 4, first, second))
            assert not any(reader.heard("lost") for _, reader in (first, second))

    run(main())


def test_a_session_without_answers_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with served() as g:
            clock = Clock()
            monkeypatch.setattr(module, "time", clock)
            member, reader = await g.join()
            await until(settled((member, reader)))
            clock.ahead = 10.5
            assert not member.has_session
            await until(lambda: reader.heard("lost"))
            await until(settled((member, reader)))
            assert not reader.heard("revoked")

    run(main())


def test_others_wait_for_a_slow_owner_while_its_heartbeats_go_on() -> None:
    async def main() -> None:
        async with served() as g:
            first = await g.join()
            await until(settled(first))
            gate = first[1].gate = asyncio.Event()
            second = await g.join()
            await until(lambda: first[0]._telling)
            before = len(g.sent(API))
            await until(lambda: len(g.sent(API)) > before + 6)
            assert second[0].state is MemberState.STABLE
            assert second[1].news == [("assigned", frozenset())]
            assert len(first[1].owned()) == 4
            gate.set()
            await until(all_owned(g, 4, first, second))
            assert len(first[1].heard("revoked")) == 1

    run(main())


def test_who_is_too_slow_to_give_up_has_lost_the_rest() -> None:
    async def main() -> None:
        async with served() as g:
            first = await g.join(rebalance_timeout=0.3)
            await until(settled(first))
            gate = first[1].gate = asyncio.Event()
            second = await g.join()
            await until(lambda: first[0]._told)
            going = first[0]._told
            await until(lambda: first[1].heard("lost"))
            assert first[1].heard("lost") == [parts(0, 1, 2, 3) - going]
            gate.set()
            await until(all_owned(g, 4, first, second))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "assigned", takes_over)  # the broker did not wait for the first
        run(main())


class SlowTaker(Reader):
    """An owner that takes its time to take over."""

    taking: asyncio.Event | None = None

    async def assigned(self, added: frozenset[TopicPartition], generation: int) -> None:
        if self.taking is not None and added:
            await self.taking.wait()
        await super().assigned(added, generation)


def test_what_is_being_taken_over_is_not_given_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr("tests.membership.Reader", SlowTaker)
        async with served() as g:
            SlowTaker.taking = asyncio.Event()
            first = await g.join()
            await until(lambda: first[0]._told)
            second = await g.join()
            await until(lambda: second[0].state is MemberState.STABLE)
            await asyncio.sleep(0.3)
            assert second[1].news == [("assigned", frozenset())]
            SlowTaker.taking.set()
            await until(all_owned(g, 4, first, second))
            assert first[1].heard("assigned") == [parts(0, 1, 2, 3)]

    try:
        run(main())
    finally:
        SlowTaker.taking = None


def test_who_does_not_poll_leaves_and_comes_back_with_the_next_poll() -> None:
    async def main() -> None:
        async with served() as g:
            member, reader = await g.join(max_poll_interval=0.3, rebalance_timeout=10.0)
            await until(lambda: reader.heard("lost"))
            other, owner = await g.join()
            await until(lambda: len(owner.owned()) == 4)  # at once, not after the session
            assert isinstance(member.trouble, errors.StateError)
            assert member.state is MemberState.UNJOINED
            await other.close()
            await asyncio.to_thread(member.polled)
            await until(settled((member, reader)))
            assert member.trouble is None

    run(main())


def test_a_static_member_keeps_its_place_while_it_is_away(said: list[dict[str, Any]]) -> None:
    async def main() -> None:
        async with served() as g:
            first, second = await g.join(instance_id="one"), await g.join()
            await until(all_owned(g, 4, first, second))
            had, generation = first[1].owned(), second[0].generation
            await first[0].close()
            assert said[-1]["member_epoch"] == -2
            await asyncio.sleep(0.2)
            assert second[0].generation == generation
            again = await g.join(instance_id="one")
            await until(all_owned(g, 4, again, second))
            assert again[1].owned() == had
            assert not second[1].heard("revoked")
            await again[0].leave("for good", for_good=True)
            assert [one["member_epoch"] for one in said if one["member_epoch"] < 0] == [-2, -1]
            await until(lambda: len(second[1].owned()) == 4)

    run(main())


def test_an_instance_that_is_there_is_not_replaced() -> None:
    async def main() -> None:
        async with served() as g:
            first = await g.join(instance_id="one")
            await until(settled(first))
            second = await g.join(instance_id="one")
            await until(lambda: second[1].errors)
            assert isinstance(second[1].errors[0], errors.UnreleasedInstanceId)
            assert "until it leaves" in str(second[1].errors[0])
            assert second[0].state is MemberState.FAILED
            g.broker.fail(API, "FENCED_INSTANCE_ID", times=1)
            await until(lambda: first[1].errors)
            assert isinstance(first[1].errors[0], errors.FencedInstanceId)
            assert first[1].heard("lost") == [parts(0, 1, 2, 3)]

    run(main())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("UNSUPPORTED_ASSIGNOR", "remote_assignor"),
        ("INVALID_REGULAR_EXPRESSION", "RE2"),
        ("GROUP_MAX_SIZE_REACHED", ""),
        ("GROUP_AUTHORIZATION_FAILED", ""),
        ("TOPIC_AUTHORIZATION_FAILED", ""),
        ("INVALID_REQUEST", ""),
    ],
)
@pytest.mark.parametrize("joined", [False, True])
def test_a_refusal_for_good_reaches_the_owner(name: str, hint: str, *, joined: bool) -> None:
    async def main() -> None:
        async with served() as g:
            if not joined:
                g.broker.fail(API, name, times=1)
            member, reader = await g.join()
            if joined:
                await until(settled((member, reader)))
                g.broker.fail(API, name, times=1)
            await until(lambda: reader.errors)
            found = reader.errors[0]
            assert isinstance(found, errors.for_name(name))
            assert hint in (found.hint or "")
            assert member.state is MemberState.FAILED
            assert not reader.owned()
            await member.start()
            await until(settled((member, reader)))
            assert len(reader.errors) == 1

    run(main())


@pytest.mark.parametrize("version", ["2.8", "3.9"])
def test_brokers_without_the_protocol_are_named(version: str) -> None:
    async def main() -> None:
        async with served(version=version) as g:
            member, reader = await g.join()
            await until(lambda: reader.errors)
            assert isinstance(reader.errors[0], errors.UnsupportedVersion)
            assert "protocol='classic'" in str(reader.errors[0])
            assert member.state is MemberState.FAILED

    run(main())


def test_the_brokers_assignor_can_be_chosen() -> None:
    async def main() -> None:
        async with served() as g:
            member, reader = await g.join(remote_assignor="range")
            await until(settled((member, reader)))
            assert member.protocol == "range"
            _, other = await g.join(remote_assignor="mine")
            await until(lambda: other.errors)
            assert isinstance(other.errors[0], errors.UnsupportedAssignor)

    run(main())


def test_another_subscription_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with served(partitions=2) as g:
            monkeypatch.setattr(g.broker._cluster, "heartbeat_interval", 60.0)
            g.broker.create_topic("u", 2)
            member, reader = await g.join(session_timeout=300.0)
            await until(settled((member, reader)))
            reader.topics = frozenset({"u"})
            member.rejoin("the subscription has changed")
            await until(lambda: reader.owned() == parts(0, 1, topic="u"))
            assert reader.heard("revoked") == [parts(0, 1)]
            reader.topics = frozenset({TOPIC, "u"})
            member.rejoin("the subscription has changed")
            await until(lambda: len(reader.owned()) == 4)
            assert len(g.sent(API)) < 12

    run(main())


def test_topics_may_come_grow_and_be_made_again() -> None:
    async def main() -> None:
        async with served(partitions=2) as g, karrow.AsyncAdmin(g.broker.bootstrap) as admin:
            _, reader = await g.join(TOPIC, "later")
            await until(lambda: len(reader.owned()) == 2)
            g.broker.create_topic("later", 2)
            await until(lambda: reader.owned() >= parts(0, 1, topic="later"))
            await admin.create_partitions({TOPIC: 3})
            await until(lambda: reader.owned() >= parts(0, 1, 2))
            before = len(reader.news)
            await admin.delete_topic("later")
            g.broker.create_topic("later", 2)
            later = parts(0, 1, topic="later")
            await until(lambda: reader.news[before:] == [("revoked", later), ("assigned", later)])

    run(main())


def test_a_pattern_is_matched_by_the_broker(said: list[dict[str, Any]]) -> None:
    async def main() -> None:
        async with served(partitions=1) as g:
            g.broker.create_topic("orders-1", 2)
            member, reader = await g.join(pattern="orders-.*")
            await until(lambda: reader.owned() == parts(0, 1, topic="orders-1"))
            assert said[0]["subscribed_topic_regex"] == "orders-.*"
            assert said[0]["subscribed_topic_names"] == []
            g.broker.create_topic("orders-2", 1)
            await until(lambda: len(reader.owned()) == 3)
            reader.regex = None  # names again
            member.rejoin("the subscription has changed")
            await until(lambda: reader.owned() == parts(0))
            reader.regex = "("
            member.rejoin("the subscription has changed")
            await until(lambda: reader.errors)
            assert isinstance(reader.errors[0], errors.InvalidRegularExpression)

    run(main())


def test_topics_without_a_name_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    names_of = ServedMembership._names_of
    asked = 0

    async def late(self: ServedMembership, ids: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise errors.Disconnected("not now")
        found = await names_of(self, ids)
        return {one: name for one, name in found.items() if name == TOPIC or asked > 4}

    async def main() -> None:
        monkeypatch.setattr(ServedMembership, "_names_of", late)
        async with served(partitions=2) as g:
            g.broker.create_topic("u", 1)
            member, reader = await g.join(TOPIC, "u")
            await until(lambda: reader.owned() == parts(0, 1))  # the others do not wait
            assert isinstance(member.trouble, errors.UnknownTopicId)
            await until(lambda: len(reader.owned()) == 3)
            await until(lambda: member.trouble is None)
            assert asked == 5

    run(main())


def test_a_commit_in_an_old_epoch_may_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with served() as g:
            first = await g.join()
            await until(settled(first))
            monkeypatch.setattr(g.broker._cluster, "heartbeat_interval", 60.0)
            await asyncio.sleep(0.2)
            member, before = first[0], first[0].metadata()
            sent = len(g.sent(API))
            await asyncio.sleep(0.1)
            assert len(g.sent(API)) <= sent + 1
            assert member.refused(errors.StaleMemberEpoch(), before)
            await until(lambda: len(g.sent(API)) > sent)  # at once
            assert member.refused(errors.StaleMemberEpoch(), GroupMetadata(GROUP, 0, "other")) is (
                False
            )
            assert first[1].owned() == parts(0, 1, 2, 3)
            assert not member.refused(errors.UnknownMemberId(), member.metadata())
            assert not first[1].owned()
            assert not member.refused(errors.StaleMemberEpoch(), before)
            await until(settled(first))

    run(main())


def test_leaving_waits_for_the_owner_and_ends_a_join() -> None:
    async def main() -> None:
        async with served() as g:
            first = await g.join()
            await until(settled(first))
            gate = first[1].gate = asyncio.Event()
            second = await g.join()
            await until(lambda: first[0]._telling)
            await asyncio.wait_for(second[0].close(), 2)
            closing = asyncio.create_task(first[0].close())
            await asyncio.sleep(0.1)
            assert not closing.done()
            gate.set()
            await closing
            assert frozenset().union(*first[1].heard("revoked")) == parts(0, 1, 2, 3)
            assert not first[1].heard("lost")
            g.broker.delay(API, 0.3, times=1)
            third = await g.join()
            await until(lambda: third[0].state is MemberState.JOINING and third[0].member_id)
            await asyncio.wait_for(third[0].close(), 2)
            assert not third[1].news
            fourth = await g.join()
            await until(settled(fourth))  # it has left, although it never heard that it was in

    run(main())


def test_joins_are_given_up_after_so_many_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOIN_PAUSE", 0.02)

    async def main(protocol: str, api: str) -> None:
        async with group(protocol=protocol) as g:
            g.broker.fail(api, "COORDINATOR_NOT_AVAILABLE", times=2)
            member, reader = await g.join(join_attempts=3)
            await until(settled((member, reader)))
            assert member.failures == 0
            g.broker.fail(api, "UNKNOWN_TOPIC_OR_PARTITION", times=3)
            await member.leave("to join again")
            g.broker.clear_faults()
            g.broker.fail(api, "UNKNOWN_TOPIC_OR_PARTITION", times=3)
            await member.start()
            await until(lambda: reader.errors)
            assert isinstance(reader.errors[0], errors.GroupJoinFailed)
            assert isinstance(reader.errors[0].__cause__, errors.UnknownTopicOrPartition)
            assert "3 attempts" in str(reader.errors[0])
            assert member.failures == 3

    run(main("classic", "JoinGroup"))
    run(main("consumer", API))


def test_memberships_tell_what_they_do() -> None:
    heard: list[karrow.events.Event] = []

    async def main(protocol: str) -> None:
        async with group(protocol=protocol) as g:
            first = await g.join()
            await until(settled(first))
            second = await g.join()
            await until(all_owned(g, 4, first, second))
            await second[0].close()
            await until(lambda: len(first[1].owned()) == 4)
            g.broker.expire_session(group=GROUP)
            await until(lambda: first[1].heard("lost"))
            await until(lambda: settled(first)() and owned() == 4)  # it is told of a moment later

    def owned() -> float:
        changes = [one.measurements for one in heard if one.name == "rebalance"]
        return sum(one["added"] - one["revoked"] - one["lost"] for one in changes)

    for protocol in ("classic", "consumer"):
        heard.clear()
        with karrow.events.subscribe(
            heard.append, "join", "sync", "heartbeat", "leave", "rebalance"
        ):
            run(main(protocol))
        spans = {one.name for one in heard}
        assert {"join.stop", "heartbeat.stop", "leave.stop", "rebalance"} <= spans
        assert ("sync.stop" in spans) is (protocol == "classic")
        assert all(one.fields["group"] == GROUP for one in heard)
        joins = [one for one in heard if one.name == "join.stop"]
        assert all(one.fields["generation"] > 0 and one.fields["member_id"] for one in joins)
        changes = [one for one in heard if one.name == "rebalance"]
        for one in changes:
            assert one.fields.keys() == set(karrow.events.fields("rebalance"))
        assert sum(one.measurements["lost"] for one in changes) == 4
        assert owned() == 0  # all ended
        assert changes[0].fields["reason"] == "a new member"
