"""Classic groups: who waits, for how long, and what happens then."""

from __future__ import annotations

import asyncio

from karrow import errors
from karrow.broker.groups.members import Joined
from tests.unit.broker.groups.coordinating import GROUP, Coordinating, looped, outcome, refused


def pair(kafka: Coordinating) -> tuple[Joined, Joined]:
    """A stable group of two, in generation 2."""
    first = kafka.settle()
    second = kafka.enter()
    assert not second.done()
    leader = kafka.join(first.member_id).result()
    follower = second.result()
    waiting = kafka.sync(follower)
    kafka.sync(leader, **{follower.member_id: b"theirs"})
    assert waiting.result().assignment == b"theirs"
    return leader, follower


@looped
async def test_the_first_member_waits_for_nobody() -> None:
    kafka = Coordinating()
    kafka.new_id()
    joined = kafka.enter().result()
    assert (joined.generation, joined.leader) == (1, joined.member_id)


@looped
async def test_an_id_that_nobody_joins_with_holds_a_rebalance_up_for_its_session() -> None:
    kafka = Coordinating()
    first = kafka.settle(session_timeout=20.0)
    kafka.new_id(session_timeout=15.0)
    again = kafka.join(first.member_id, session_timeout=20.0)
    kafka.clock.advance(14.9)
    assert not again.done()
    kafka.clock.advance(0.2)
    assert again.result().generation == 2


@looped
async def test_an_id_that_has_expired_is_unknown() -> None:
    kafka = Coordinating()
    member_id = kafka.new_id(session_timeout=10.0)
    kafka.clock.advance(10)
    assert outcome(kafka.join, member_id) == "UNKNOWN_MEMBER_ID"
    assert kafka.state == "Empty"


@looped
async def test_silence_ends_a_session() -> None:
    kafka = Coordinating()
    leader, follower = pair(kafka)
    for _ in range(3):
        kafka.clock.advance(9)
        assert kafka.heartbeat(leader) == ""
        assert kafka.heartbeat(follower) == ""
    kafka.clock.advance(9)
    assert kafka.heartbeat(leader) == ""
    kafka.clock.advance(1)
    assert kafka.state == "PreparingRebalance"
    assert kafka.heartbeat(leader) == "REBALANCE_IN_PROGRESS"
    assert kafka.heartbeat(follower) == "UNKNOWN_MEMBER_ID"


@looped
async def test_a_commit_prolongs_a_session() -> None:
    kafka = Coordinating()
    joined = kafka.settle()
    kafka.clock.advance(9)
    kafka.groups.check_commit(
        GROUP, joined.member_id, None, joined.generation, places=[], knows_epochs=True
    )
    kafka.clock.advance(9)
    assert kafka.heartbeat(joined) == ""


@looped
async def test_the_last_member_leaves_an_empty_group() -> None:
    kafka = Coordinating()
    kafka.settle()
    kafka.clock.advance(10)
    assert kafka.state == "Empty"
    assert kafka.settle().generation == 3


@looped
async def test_who_waits_does_not_expire() -> None:
    kafka = Coordinating()
    first = kafka.settle(session_timeout=60.0, rebalance_timeout=60.0)
    second = kafka.enter(rebalance_timeout=60.0)
    kafka.clock.advance(30)  # longer than its session
    kafka.join(first.member_id)
    assert second.result().generation == 2


@looped
async def test_a_new_member_waits_five_minutes_at_most() -> None:
    kafka = Coordinating()
    first = kafka.settle(rebalance_timeout=1000.0)
    second = kafka.enter()
    for _ in range(60):
        kafka.clock.advance(5)
        kafka.heartbeat(first)
    assert refused(second) == "UNKNOWN_MEMBER_ID"


@looped
async def test_who_does_not_rejoin_in_time_is_removed() -> None:
    kafka = Coordinating()
    leader, follower = pair(kafka)
    again = kafka.join(leader.member_id)
    for _ in range(5):
        kafka.clock.advance(5)
        assert kafka.heartbeat(follower) == "REBALANCE_IN_PROGRESS"
    kafka.clock.advance(5)
    assert again.result().generation == 3
    assert kafka.heartbeat(follower) == "UNKNOWN_MEMBER_ID"


@looped
async def test_another_one_leads_if_the_leader_does_not_rejoin() -> None:
    kafka = Coordinating()
    leader, follower = pair(kafka)
    kafka.new_id(session_timeout=20.0)
    again = kafka.join(follower.member_id, protocols=(("range", b"changed"),))
    kafka.clock.advance(10)
    assert kafka.heartbeat(leader) == "UNKNOWN_MEMBER_ID"
    kafka.clock.advance(10)
    assert again.result().leader == follower.member_id


@looped
async def test_static_members_are_given_their_session_to_rejoin() -> None:
    kafka = Coordinating()
    static = kafka.join(instance_id="i", session_timeout=100.0).result()
    kafka.sync(static)
    second = kafka.enter()
    kafka.clock.advance(30)
    # The rebalance goes on without it, but it is a member still, and gets an assignment.
    joined = second.result()
    assert joined.leader == joined.member_id
    assert {member.id for member in joined.members} == {static.member_id, joined.member_id}
    assert kafka.heartbeat(static) == "ILLEGAL_GENERATION"


@looped
async def test_a_rebalance_that_nobody_joins_begins_anew() -> None:
    kafka = Coordinating()
    static = kafka.join(instance_id="i", session_timeout=100.0).result()
    kafka.sync(static)
    newcomer = kafka.new_id(session_timeout=20.0)
    kafka.join(newcomer).cancel()
    kafka.groups.leave(GROUP, [(newcomer, None)])
    assert kafka.state == "PreparingRebalance"
    kafka.clock.advance(40)
    assert kafka.state == "PreparingRebalance"
    assert kafka.join(static.member_id, instance_id="i").result().generation == 2


@looped
async def test_who_never_asks_for_its_assignment_is_removed() -> None:
    kafka = Coordinating()
    first = kafka.settle(session_timeout=100.0)
    second = kafka.enter(session_timeout=100.0)
    leader = kafka.join(first.member_id, session_timeout=100.0).result()
    kafka.sync(leader)
    kafka.clock.advance(30)
    assert kafka.heartbeat(leader) == "REBALANCE_IN_PROGRESS"
    assert kafka.heartbeat(second.result()) == "UNKNOWN_MEMBER_ID"


@looped
async def test_a_leader_that_never_assigns_is_removed() -> None:
    kafka = Coordinating()
    first = kafka.settle(session_timeout=100.0)
    second = kafka.enter(session_timeout=100.0)
    leader = kafka.join(first.member_id, session_timeout=100.0).result()
    waiting = kafka.sync(second.result())
    kafka.clock.advance(30)
    assert refused(waiting) == "REBALANCE_IN_PROGRESS"
    assert kafka.heartbeat(leader) == "UNKNOWN_MEMBER_ID"


@looped
async def test_a_connection_that_goes_away_leaves_nothing_stuck() -> None:
    kafka = Coordinating()
    first = kafka.settle()
    gone = kafka.enter()
    gone.cancel()
    leader = kafka.join(first.member_id).result()
    assert len(leader.members) == 2
    kafka.sync(leader).cancel()
    kafka.clock.advance(9)
    assert kafka.heartbeat(leader) == ""
    kafka.clock.advance(1)
    assert kafka.state == "PreparingRebalance"
    assert len(kafka.join(first.member_id).result().members) == 1


@looped
async def test_joining_twice_answers_the_first_join() -> None:
    kafka = Coordinating()
    first = kafka.settle()
    kafka.new_id()
    waiting = kafka.join(first.member_id)
    again = kafka.join(first.member_id)
    assert refused(waiting) == "REBALANCE_IN_PROGRESS"
    assert not again.done()


@looped
async def test_a_static_member_is_fenced_while_it_waits() -> None:
    kafka = Coordinating()
    kafka.settle()
    waiting = kafka.join(instance_id="i")
    other = kafka.join(instance_id="i")
    assert refused(waiting) == "FENCED_INSTANCE_ID"
    assert not other.done()


@looped
async def test_a_static_member_that_comes_back_before_the_assignment_makes_a_rebalance() -> None:
    kafka = Coordinating()
    leader = kafka.settle()
    waiting = kafka.join(instance_id="i")
    leader = kafka.join(leader.member_id).result()
    waiting.result()
    back = kafka.join(instance_id="i")
    assert not back.done()
    assert kafka.heartbeat(leader) == "REBALANCE_IN_PROGRESS"
    assert kafka.join(leader.member_id).result().generation == 3
    assert back.result().generation == 3


@looped
async def test_one_vote_per_member() -> None:
    kafka = Coordinating()
    first = kafka.settle(protocols=(("a", b""), ("b", b"")))
    kafka.enter(protocols=(("b", b""), ("a", b"")))
    kafka.enter(protocols=(("c", b""), ("b", b""), ("a", b"")))
    leader = kafka.join(first.member_id, protocols=(("a", b""), ("b", b""))).result()
    assert leader.protocol_name == "b"


@looped
async def test_members_go_on_after_a_restart() -> None:
    kafka = Coordinating()
    leader, follower = pair(kafka)
    kafka.restart()
    assert kafka.state == "Stable"
    assert kafka.heartbeat(leader) == kafka.heartbeat(follower) == ""
    assert kafka.sync(follower).result().assignment == b"theirs"
    assert kafka.join(follower.member_id).result().leader == leader.member_id
    kafka.clock.advance(10)
    assert kafka.state == "Empty"


@looped
async def test_a_generation_that_was_not_assigned_is_forgotten_by_a_restart() -> None:
    kafka = Coordinating()
    first = kafka.settle()
    second = kafka.enter()
    kafka.join(first.member_id)
    assert second.result().generation == 2
    kafka.restart()
    assert kafka.heartbeat(first) == ""
    assert kafka.heartbeat(second.result()) == "UNKNOWN_MEMBER_ID"


@looped
async def test_the_awaited_member_joins_when_all_others_are_gone() -> None:
    kafka = Coordinating()
    first = kafka.settle()
    newcomer = kafka.new_id()
    kafka.groups.leave(GROUP, [(first.member_id, None)])
    assert kafka.state == "PreparingRebalance"
    assert outcome(kafka.join, newcomer, protocols=()) == "INCONSISTENT_GROUP_PROTOCOL"
    other = (("other", b""),)
    assert kafka.join(newcomer, protocols=other).result().protocol_name == "other"


@looped
async def test_sessions_expired_by_hand() -> None:
    kafka = Coordinating()
    leader, follower = pair(kafka)
    assert kafka.groups.expire(GROUP, follower.member_id) == 1
    assert kafka.heartbeat(leader) == "REBALANCE_IN_PROGRESS"
    assert kafka.groups.expire(GROUP) == 1
    assert kafka.state == "Empty"
    assert outcome(kafka.groups.expire, "unknown") == "GROUP_ID_NOT_FOUND"


@looped
async def test_closing_lets_nobody_wait() -> None:
    kafka = Coordinating()
    kafka.settle()
    waiting = kafka.enter()
    kafka.groups.close()
    assert isinstance(waiting.exception(), errors.UnknownMemberId)
    kafka.clock.advance(1000)


@looped
async def test_an_answer_wakes_the_one_who_waits() -> None:
    kafka = Coordinating()
    first = kafka.settle()
    waiting = asyncio.ensure_future(kafka.enter())
    kafka.join(first.member_id)
    assert (await waiting).generation == 2
