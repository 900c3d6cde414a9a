"""Members of classic groups against the embedded broker: who owns what, and when."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.aio.calls.base import Request
from karrow.aio.groups import member as module
from karrow.aio.groups.assignment import Subscription
from karrow.aio.groups.assignors import custom_assignor
from karrow.aio.groups.leader import offered, received, understood
from karrow.aio.groups.membership import Membership, MemberState
from karrow.aio.groups.sticky import CooperativeSticky
from karrow.config import ConsumerConfig
from karrow.net.cluster import Cluster
from karrow.types import GroupMember, GroupMetadata, TopicPartition
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


def test_a_member_alone_leads_and_owns_everything() -> None:
    async def main() -> None:
        async with group() as g:
            member, reader = await g.join()
            await until(settled((member, reader)))
            assert reader.news == [("assigned", parts(0, 1, 2, 3))]
            assert member.is_leader
            assert member.has_session
            assert member.protocol == "range"
            assert reader.generations == [member.generation]
            assert member.metadata() == GroupMetadata(GROUP, member.generation, member.member_id)
            await until(lambda: len(g.sent("Heartbeat")) > 1)
            assert len(g.sent("JoinGroup")) == 2  # the first for the id

    run(main())


def test_two_eager_members_share_and_give_up_everything_once() -> None:
    async def main() -> None:
        async with group() as g:
            first = await g.join()
            await until(settled(first))
            second = await g.join()
            await until(settled(first, second))
            assert first[1].owned() | second[1].owned() == parts(0, 1, 2, 3)
            assert len(first[1].owned()) == len(second[1].owned()) == 2
            assert first[1].heard("revoked") == [parts(0, 1, 2, 3)]
            assert second[1].heard("revoked") == []
            assert first[0].is_leader != second[0].is_leader

    run(main())


def speak(monkeypatch: pytest.MonkeyPatch, versions: dict[str, int]) -> None:
    """Let members use old versions."""
    send = Membership._send

    async def old(self: Membership, request: Request) -> Any:
        return await send(self, request._replace(api_version=versions[request.name]))

    monkeypatch.setattr(Membership, "_send", old)


# As of 0.10.2, 1.1, 2.3, and the newest.
@pytest.mark.parametrize("versions", [(1, 0, 0, 0), (2, 1, 1, 1), (5, 3, 3, 2), (9, 5, 4, 5)])
@pytest.mark.parametrize("assignors", ["range", "sticky", "cooperative-sticky"])
def test_members_share_and_leave_whatever_version_they_speak(
    versions: tuple[int, ...], assignors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with group(version="4.3" if versions[0] == 9 else "2.8") as g:
            names = "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"
            speak(monkeypatch, dict(zip(names, versions, strict=True)))
            first = await g.join(assignors=assignors)
            second = await g.join(assignors=assignors)
            await until(lambda: len(g.owners) == 4 and settled(first, second)())
            await first[0].close()
            await until(lambda: second[1].owned() == parts(0, 1, 2, 3))
            assert not second[1].heard("lost")
            assert not second[1].errors

    run(main())


def test_an_instance_id_needs_a_broker_that_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with group(version="2.8") as g:
            speak(monkeypatch, {"JoinGroup": 4})
            _, reader = await g.join(instance_id="one")
            await until(lambda: reader.errors)
            assert isinstance(reader.errors[0], errors.UnsupportedVersion)

    run(main())


def test_who_leaves_gives_back_and_the_other_gets_it_at_once() -> None:
    async def main() -> None:
        async with group() as g:
            first, second = await g.join(), await g.join()
            await until(settled(first, second))
            had = first[1].owned()
            await first[0].leave("enough")
            assert first[0].state is MemberState.LEFT
            assert first[1].heard("revoked")[-1] == had
            assert not first[0].has_session
            await until(lambda: second[1].owned() == parts(0, 1, 2, 3))
            assert not first[1].heard("lost")
            await first[0].start()
            await until(settled(first, second))

    run(main())


def test_who_was_expired_has_lost_everything_and_joins_anew() -> None:
    async def main() -> None:
        async with group() as g:
            member, reader = await g.join()
            await until(settled((member, reader)))
            old = member.member_id
            assert g.broker.expire_session(group=GROUP) == 1
            await until(lambda: reader.heard("lost"))
            await until(settled((member, reader)))
            assert member.member_id != old
            assert [what for what, _ in reader.news] == ["assigned", "lost", "assigned"]

    run(main())


def test_a_coordinator_that_moves_costs_nothing() -> None:
    async def main() -> None:
        async with group(brokers=2) as g:
            g.broker.move_coordinator(GROUP, 1)
            member, reader = await g.join()
            await until(settled((member, reader)))
            generation = member.generation
            g.broker.move_coordinator(GROUP, 2)
            await until(lambda: member.trouble is not None)
            await until(lambda: member.trouble is None)
            assert (member.state, member.generation) == (MemberState.STABLE, generation)
            assert [what for what, _ in reader.news] == ["assigned"]

    run(main())


def test_an_instance_that_is_replaced_fails_and_does_not_fight() -> None:
    async def main() -> None:
        async with group() as g:
            first = await g.join(instance_id="one")
            await until(settled(first))
            second = await g.join(instance_id="one")
            await until(lambda: first[1].errors)
            await until(settled(second))
            assert isinstance(first[1].errors[0], errors.FencedInstanceId)
            assert first[0].state is MemberState.FAILED
            assert first[1].heard("lost") == [parts(0, 1, 2, 3)]
            await asyncio.sleep(0.2)
            assert second[0].state is MemberState.STABLE
            assert not g.sent("LeaveGroup")

    # The second is there before the first has heard of it: for that moment both read.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "assigned", takes_over)
        run(main())


def test_a_static_member_keeps_its_place_when_it_is_closed() -> None:
    async def main() -> None:
        async with group() as g:
            first = await g.join(instance_id="one")
            await until(settled(first))
            generation = first[0].generation
            await first[0].close()
            assert first[1].heard("revoked") == [parts(0, 1, 2, 3)]
            assert not g.sent("LeaveGroup")
            again = await g.join(instance_id="one")
            await until(settled(again))
            assert again[0].generation == generation
            await again[0].leave("for good", for_good=True)
            assert len(g.sent("LeaveGroup")) == 1

    run(main())


def test_cooperative_members_keep_what_they_have_and_own_nothing_twice() -> None:
    async def main() -> None:
        async with group(partitions=6) as g:
            members: list[Pair] = []
            for _ in range(3):
                members.append(await g.join(assignors="cooperative-sticky"))
                number = len(members)
                each = 6 // number
                await until(
                    lambda number=number, each=each: (  # type: ignore[misc]
                        settled(*members)()
                        and len(g.owners) == 6
                        and all(len(reader.owned()) == each for _, reader in members)
                    )
                )
            first = members[0][1]
            assert sum(map(len, first.heard("revoked"))) == 4  # 6, then 3, then 2
            await members.pop(0)[0].close()
            await until(lambda: len(g.owners) == 6 and settled(*members)())
            for _, reader in members[1:]:
                assert not reader.heard("revoked")
            assert not any(reader.heard("lost") for _, reader in members)

    run(main())


def test_the_id_that_was_given_is_kept_when_the_join_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids: list[str] = []
    join = Membership._join_group

    async def noted(self: Membership, member_id: str, *rest: Any) -> Any:
        ids.append(member_id)
        if len(ids) in (2, 3):
            raise errors.CoordinatorLoadInProgress("not yet")
        return await join(self, member_id, *rest)

    async def main() -> None:
        async with group() as g:
            monkeypatch.setattr(Membership, "_join_group", noted)
            member = await g.join()
            await until(settled(member))
            assert ids == ["", *[member[0].member_id] * 3]

    run(main())


def test_a_join_may_take_longer_than_a_request() -> None:
    async def main() -> None:
        async with group() as g:
            first = await g.join()
            await until(settled(first))
            gate = first[1].gate = asyncio.Event()
            second = await g.join(request_timeout=0.6)
            await until(lambda: second[0].state is MemberState.JOINING)
            await asyncio.sleep(1.0)
            assert second[0].trouble is None
            gate.set()
            await until(settled(first, second))
            assert len(g.sent("JoinGroup")) == 5  # two with ids, and the first one's again

    run(main())


def test_who_does_not_poll_leaves_and_comes_back_with_the_next_poll() -> None:
    async def main() -> None:
        async with group() as g:
            member, reader = await g.join(max_poll_interval=0.3, rebalance_timeout=10.0)
            await until(lambda: reader.heard("lost"))
            await until(lambda: g.sent("LeaveGroup"))
            assert isinstance(member.trouble, errors.StateError)
            await asyncio.sleep(0.1)
            assert member.state is MemberState.UNJOINED
            await asyncio.to_thread(member.polled)
            await until(settled((member, reader)))
            assert member.trouble is None

    run(main())


@pytest.mark.parametrize(
    "error", [errors.CoordinatorNotAvailable("moves"), errors.RequestTimeout("late")]
)
@pytest.mark.parametrize(
    ("stray", "pauses"),
    [(-0.2, [1.0, 1.6, 3.2, 6.4, 8.0]), (0.2, [1.2, 2.4, 4.8, 9.6, 10.0])],
)
def test_joins_pause_for_one_to_ten_seconds_and_are_given_up(
    error: errors.KarrowError, stray: float, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def noted(seconds: float) -> None:
        slept.append(seconds)

    async def main() -> None:
        config = ConsumerConfig(bootstrap="localhost:1", group=GROUP)
        member = Membership(config, Cluster(config), Reader({}), join_attempts=len(pauses) + 1)
        for _ in pauses:
            await member._set_back(error)
        with pytest.raises(errors.GroupJoinFailed, match="6 attempts") as caught:
            await member._set_back(error)
        assert caught.value.__cause__ is error

    monkeypatch.setattr(random, "uniform", lambda *_: stray)
    monkeypatch.setattr(asyncio, "sleep", noted)
    run(main())
    assert slept == pytest.approx(pauses)


def test_a_session_without_answers_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with group() as g:
            clock = Clock()
            monkeypatch.setattr(module, "time", clock)
            member, reader = await g.join()
            await until(settled((member, reader)))
            old = member.member_id
            clock.ahead = 10.5
            assert not member.has_session
            await until(lambda: reader.heard("lost"))
            await until(settled((member, reader)))
            assert member.member_id == old  # the broker still knew it
            assert not reader.heard("revoked")

    run(main())


def test_joins_that_fail_for_a_session_lose_what_was_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with group() as g:
            clock = Clock()
            monkeypatch.setattr(module, "time", clock)
            member, reader = await g.join(assignors="cooperative-sticky")
            await until(settled((member, reader)))
            g.broker.fail("JoinGroup", "COORDINATOR_NOT_AVAILABLE", times=1_000_000)
            member.rejoin("to see")
            await until(lambda: len(g.sent("JoinGroup")) > 4)
            assert not reader.heard("lost")
            clock.ahead = 10.5
            await until(lambda: reader.heard("lost"))
            g.broker.clear_faults()
            await until(settled((member, reader)))
            assert not reader.heard("revoked")

    run(main())


def test_what_is_lost_while_the_owner_gives_up_a_part_is_lost_at_once() -> None:
    async def main() -> None:
        async with group() as g:
            first = await g.join(assignors="cooperative-sticky")
            await until(settled(first))
            gate = first[1].gate = asyncio.Event()
            second = await g.join(assignors="cooperative-sticky")
            await until(lambda: first[0]._told)
            going = first[0]._told
            assert g.broker.expire_session(group=GROUP, member=first[0].member_id) == 1
            await until(lambda: first[1].heard("lost"))
            assert first[1].heard("lost") == [parts(0, 1, 2, 3) - going]
            gate.set()
            await until(lambda: len(g.owners) == 4 and settled(first, second)())
            assert first[1].heard("revoked")[0] == going

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "assigned", takes_over)  # the broker did not wait for the first
        run(main())


def test_the_leader_divides_anew_when_topics_come() -> None:
    async def main() -> None:
        async with group() as g:
            member = await g.join(TOPIC, "later", metadata_max_age=0.2)
            await until(settled(member))
            g.broker.create_topic("later", 2)
            await until(lambda: member[1].owned() >= parts(0, 1, topic="later"))
            assert settled(member)()

    run(main())


def test_the_leader_divides_anew_when_topics_grow() -> None:
    async def main() -> None:
        async with group(partitions=2) as g, karrow.AsyncAdmin(g.broker.bootstrap) as admin:
            member = await g.join(metadata_max_age=0.2, assignors="cooperative-sticky")
            await until(settled(member))
            await admin.create_partitions({TOPIC: 3})
            await until(lambda: member[1].owned() == parts(0, 1, 2))
            assert member[1].news == [("assigned", parts(0, 1)), ("assigned", parts(2))]

    run(main())


def test_another_subscription_takes_away_and_gives() -> None:
    async def main() -> None:
        async with group(partitions=2) as g:
            g.broker.create_topic("u", 2)
            member, reader = await g.join(assignors="cooperative-sticky")
            await until(settled((member, reader)))
            reader.topics = frozenset({"u"})
            member.rejoin("the subscription has changed")
            await until(lambda: reader.owned() == parts(0, 1, topic="u"))
            assert reader.heard("revoked") == [parts(0, 1)]

    run(main())


def test_a_join_whose_connection_breaks_is_repeated() -> None:
    async def main() -> None:
        async with group() as g:
            g.broker.close("JoinGroup", times=1)
            member = await g.join()
            await until(lambda: member[0].trouble is not None)
            await until(settled(member))

    run(main())


def test_a_refusal_for_good_reaches_the_owner() -> None:
    async def main() -> None:
        async with group() as g:
            g.broker.fail("JoinGroup", "GROUP_AUTHORIZATION_FAILED", times=1)
            member, reader = await g.join()
            await until(lambda: reader.errors)
            assert isinstance(reader.errors[0], errors.GroupAuthorizationFailed)
            assert member.state is MemberState.FAILED
            await member.start()
            await until(settled((member, reader)))
            assert len(reader.errors) == 1

    run(main())


def test_an_assignor_or_owner_that_raises_is_no_silent_end() -> None:
    def broken(_members: object, _partitions: object) -> dict[str, list[tuple[str, int]]]:
        raise ZeroDivisionError("nobody to share with")

    async def main() -> None:
        async with group() as g:
            _, reader = await g.join(assignors=[custom_assignor("broken", broken)])
            await until(lambda: reader.errors)
            assert "ZeroDivisionError" in str(reader.errors[0])
            await until(lambda: g.sent("LeaveGroup"))  # others need not wait
            member, other = await g.join()
            other.owners = {TopicPartition(TOPIC, 0): reader}
            await until(lambda: other.errors)
            assert "owned twice" in str(other.errors[0])
            assert member.state is MemberState.FAILED

    run(main())


def test_heartbeats_go_on_while_the_owner_takes_its_time() -> None:
    async def main() -> None:
        async with group() as g:
            first = await g.join()
            await until(settled(first))
            first[1].gate = asyncio.Event()
            second = await g.join()
            await until(lambda: first[0]._telling)
            before = len(g.sent("Heartbeat"))
            await until(lambda: len(g.sent("Heartbeat")) > before + 2)
            first[1].gate.set()
            await until(settled(first, second))
            assert first[1].heard("revoked") == [parts(0, 1, 2, 3)]

    run(main())


def test_leaving_ends_a_join_that_is_held_and_waits_for_the_owner() -> None:
    async def main() -> None:
        async with group() as g:
            first = await g.join()
            await until(settled(first))
            gate = first[1].gate = asyncio.Event()
            second = await g.join()
            await until(lambda: first[0]._telling)
            await until(lambda: second[0].state is MemberState.JOINING)
            await asyncio.wait_for(second[0].close(), 2)
            closing = asyncio.create_task(first[0].close())
            await asyncio.sleep(0.1)
            assert not closing.done()
            gate.set()
            await closing
            assert first[1].heard("revoked") == [parts(0, 1, 2, 3)]
            assert first[1].begun == 1  # and was not cut off
            assert {first[0].state, second[0].state} == {MemberState.LEFT}
            assert len(g.sent("LeaveGroup")) == 2

    run(main())


def test_leaving_that_is_cancelled_still_leaves() -> None:
    async def main() -> None:
        async with group() as g:
            member, reader = await g.join()
            await until(settled((member, reader)))
            reader.gate = asyncio.Event()
            closing = asyncio.create_task(member.close())
            await asyncio.sleep(0.05)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert member.state is MemberState.LEFT
            assert reader.heard("lost") == [parts(0, 1, 2, 3)]
            assert len(g.sent("LeaveGroup")) == 1

    run(main())


def test_a_refused_commit_counts_only_in_its_generation() -> None:
    async def main() -> None:
        async with group() as g:
            member, reader = await g.join()
            await until(settled((member, reader)))
            member.refused(errors.UnknownMemberId(), GroupMetadata(GROUP, 0, "other"))
            assert reader.owned()
            member.refused(errors.IllegalGeneration(), member.metadata())
            assert not reader.owned()
            assert not member.has_session
            await until(settled((member, reader)))
            assert reader.heard("lost") == [parts(0, 1, 2, 3)]

    run(main())


def test_a_commit_of_a_generation_that_has_just_passed_may_be_made_again() -> None:
    """The broker begins the next one before its members hear of it; nothing is lost by that."""

    async def main() -> None:
        async with group() as g:
            member, reader = await g.join()
            await until(settled((member, reader)))
            now = member.metadata()
            before = GroupMetadata(GROUP, now.generation - 1, now.member_id)
            assert member.refused(errors.IllegalGeneration(), before)
            assert not member.refused(errors.UnknownMemberId(), before)
            other = GroupMetadata(GROUP, now.generation - 1, "other")
            assert not member.refused(errors.IllegalGeneration(), other)
            assert (reader.owned(), member.metadata()) == (parts(0, 1, 2, 3), now)
            member.state = MemberState.JOINING
            assert member.refused(errors.IllegalGeneration(), now)
            member.state = MemberState.STABLE

    run(main())


@contextlib.asynccontextmanager
async def held_join(g: EmbeddedGroup) -> AsyncIterator[Pair]:
    """A cooperative member that owns partitions, and whose join another one holds up."""
    first = await g.join()
    await until(settled(first))
    second = await g.join()
    await until(lambda: len(g.owners) == 4 and settled(first, second)())
    gate = second[1].gate = asyncio.Event()
    second[1].topics = frozenset({"other"})
    try:
        second[0].rejoin("it gives up everything, and takes its time")
        await until(lambda: second[0]._telling)
        first[0].rejoin("to see")
        await until(lambda: first[0].state is MemberState.JOINING)
        yield first
    finally:
        gate.set()


def test_who_keeps_partitions_is_heard_of_while_its_join_is_held() -> None:
    async def main() -> None:
        async with (
            group(assignors="cooperative-sticky") as g,
            held_join(g) as (member, reader),
        ):
            had = reader.owned()
            for _ in range(3):
                heard_at = member._heard_at
                await until(lambda before=heard_at: member._heard_at > before)  # type: ignore[misc]
            assert member.state is MemberState.JOINING
            assert member.session_ends == pytest.approx(member._heard_at + 10.0)
            assert reader.owned() == had
            assert not reader.heard("lost")

    run(main())


def test_who_is_dropped_during_a_join_that_keeps_partitions_loses_them_and_begins_anew() -> None:
    async def main() -> None:
        async with (
            group(assignors="cooperative-sticky") as g,
            held_join(g) as (member, reader),
        ):
            old, had = member.member_id, reader.owned()
            g.broker.fail("Heartbeat", "UNKNOWN_MEMBER_ID", times=2)
            await until(lambda: reader.heard("lost"))
            assert reader.heard("lost") == [had]
            assert not member.has_session
            await until(lambda: member.member_id not in ("", old))

    run(main())


@pytest.mark.parametrize("error", [errors.UnknownMemberId(), errors.FencedInstanceId()])
def test_a_refused_commit_counts_during_a_join(error: errors.KarrowError) -> None:
    async def main() -> None:
        async with (
            group(assignors="cooperative-sticky") as g,
            held_join(g) as (member, reader),
        ):
            had = reader.owned()
            member.refused(errors.IllegalGeneration(), member.metadata())  # it may just have ended
            member.refused(error, GroupMetadata(GROUP, member.generation, "other"))
            assert reader.owned() == had
            member.refused(error, member.metadata())
            assert not reader.owned()
            assert not member.has_session
            joins = len(g.sent("JoinGroup"))
            is_over = isinstance(error, errors.FencedInstanceId)
            await until(lambda: reader.errors if is_over else len(g.sent("JoinGroup")) > joins)

    run(main())


def test_a_join_whose_answer_is_lost_costs_what_was_kept_after_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with group(assignors="cooperative-sticky") as g:
            clock = Clock()
            monkeypatch.setattr(module, "time", clock)
            member, reader = await g.join()
            await until(settled((member, reader)))
            generation = member.generation
            g.broker.drop("JoinGroup", when="after")
            member.rejoin("to see")
            beats = len(g.sent("Heartbeat"))
            # The broker is in the next generation; that alone does not say that others own it.
            await until(lambda: len(g.sent("Heartbeat")) > beats + 3)
            assert member.state is MemberState.JOINING
            assert member.generation == generation
            assert reader.owned() == parts(0, 1, 2, 3)
            clock.ahead = 10.5
            assert not member.has_session
            await until(lambda: reader.heard("lost"))
            await until(settled((member, reader)))
            assert not reader.heard("revoked")

    run(main())


def test_a_join_that_is_answered_after_the_session_costs_what_was_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that was stopped finds the answer, and knows nothing of what came after it."""
    join = Membership._join_group
    clock = Clock()

    async def stopped(*wish: Any) -> Any:
        answer = await join(*wish)
        clock.ahead += 10.5
        return answer

    async def main() -> None:
        async with group(assignors="cooperative-sticky") as g:
            monkeypatch.setattr(module, "time", clock)
            member, reader = await g.join()
            await until(settled((member, reader)))
            with monkeypatch.context() as patch:
                patch.setattr(Membership, "_join_group", stopped)
                member.rejoin("to see")
                await until(lambda: reader.heard("lost"))
            await until(settled((member, reader)))
            assert [what for what, _ in reader.news][:3] == ["assigned", "lost", "assigned"]

    run(main())


def test_a_leader_understands_what_members_offer_and_passes_over_the_rest() -> None:
    ((name, data),) = offered([CooperativeSticky()], {"u", TOPIC}, parts(1, 0), 7, "r")
    assert name == "cooperative-sticky"
    said = understood(GroupMember("m", data, "one"))
    owned = tuple(sorted(parts(0, 1)))
    assert said == Subscription((TOPIC, "u"), owned, b"\0\0\0\7", 7, "r", "one")
    for broken in (b"", b"\0", data[:9], b"\xff" * 20):
        assert understood(GroupMember("m", broken)) == Subscription(())
    assert received(b"").partitions == ()
