"""A consumer's membership in a classic group, whose members divide the partitions themselves.

The states and the rules of every member are in member.py; the broker holds a join until all have
joined.

Rules:
- From a join's answer to the next join heartbeats are sent, also while the assignment is awaited.
  The leader has another task that watches its topics.
- While a join is held the broker does not count the session. But nobody knows that it is held: it
  may not have got there, or its answer may be lost, and the partitions be others' after a session.
  So who keeps some is heard of meanwhile as what it was. REBALANCE_IN_PROGRESS is as good as yes.
  ILLEGAL_GENERATION says only that the join's answer is on its way, or was: the session counts on.
  Who is not known any more, or has no session, has lost everything, and begins the join anew.
- A join may be held for minutes, by a broker that is there. So somebody is always listening: those
  heartbeats, or a question that any broker answers, from who keeps nothing. After one that was not
  answered in time the coordinator is looked for again, and the join begun anew, with what is kept.
- A member is cooperative (KIP-429) only if all its assignors are: the group may choose any of them,
  and an eager one hands out what members have not given up. An eager member gives up everything
  before it joins; a cooperative one only what it does not subscribe to any more, and after the
  sync what the assignment takes away. Then it joins again at once, and others can have it.
- A static member (KIP-345) never leaves by itself: its place is kept for as long as its session.
- The id that a broker gives to a new member (KIP-394) is kept until a broker does not know it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, cast

from karrow.aio.groups.assignment import Assignment, Assignor, Remembering
from karrow.aio.groups.assignors import assignor
from karrow.aio.groups.coordinator import ClassicCalls, IdGiven
from karrow.aio.groups.leader import Census, agreed, handed, offered, received, understood
from karrow.aio.groups.member import GONE, AnyMembership, MemberState, Owner
from karrow.errors import (
    BrokerError,
    Disconnected,
    KarrowError,
    RebalanceInProgress,
    RequestTimeout,
)
from karrow.net.sharing import cancelled

if TYPE_CHECKING:
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster
    from karrow.types import JoinedGroup, TopicPartition

__all__ = ["AnyMembership", "MemberState", "Membership", "Owner"]

# How often the leader asks for topics that do not exist.
MISSING_TOPICS_PAUSE = 5.0
# How long somebody who leaves waits for the id that it has just asked for.
NAMING = 1.0
# After this part of a request's time it is asked whether the coordinator is there: with the time
# that the answer may take, silence is noticed within two of them.
LISTENING_SHARE = 1 / 2


class Membership(AnyMembership, ClassicCalls):
    """One member of one classic group."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        owner: Owner,
        *,
        join_attempts: int | None = None,
    ) -> None:
        super().__init__(config, cluster, owner, join_attempts=join_attempts)
        chosen = cast("tuple[str | Assignor, ...]", config.assignors)
        self._assignors = tuple(map(assignor, chosen))
        self._is_cooperative = all(one.protocol == "cooperative" for one in self._assignors)
        self._assignment = Assignment()
        # Of the rebalance under way: why it is, and how many partitions were given up for it.
        self._why = ""
        self._given_up = 0

    def rejoin(self, reason: str) -> None:
        """Join again: the subscription has changed, or something else that the leader must know."""
        self._reason = reason
        self._wake.set()

    # ---- the rounds

    async def _make_way(self) -> None:
        told: frozenset[TopicPartition] = frozenset()
        while True:
            if self._is_idle:
                await self._go_away()
            self._settle_refusal()
            gone = self._to_give_up() - told
            if not gone:
                break
            await self._give_up(gone)
            told |= gone
        await self._stop_beside()
        self._settle_refusal()

    def _to_give_up(self) -> frozenset[TopicPartition]:
        owned = self._owner.owned()
        if not self._is_cooperative:
            return owned
        wanted = self._owner.subscription()
        return frozenset(one for one in owned if one.topic not in wanted)

    async def _give_up(self, gone: frozenset[TopicPartition]) -> None:
        await self._tell(self._owner.revoking(gone), gone)
        self._given_up += len(gone)

    async def _enter(self) -> None:
        """Join and sync."""
        sent_at = self._now()
        joined = await self._unless_refused(self._join())
        self._heard_at = max(self._heard_at, sent_at)
        if self._session_left() <= 0:  # its answer may have lain here for long
            self._drop(self._owner.owned(), "a join was answered after the session")
        if not self._owner.owned():
            self._heard_at = self._now()
        self.state = MemberState.SYNCING
        self.member_id, self.generation = joined.member_id, joined.generation
        self.protocol, self.leader_id = joined.protocol, joined.leader_id
        self._run_beside("heartbeats", self._beat())
        with self._span("sync", generation=joined.generation):
            assignments = await self._divide(joined) if joined.is_leader else {}
            data = await self._sync_group(joined, assignments)
        self._raise_refusal()
        self._assignment = received(data)
        self.state = MemberState.STABLE
        self.trouble = None

    async def _unless_refused(self, join: Coroutine[Any, Any, JoinedGroup]) -> JoinedGroup:
        """Join, unless it turns out meanwhile that the member was dropped."""
        joining = asyncio.create_task(join, name=f"karrow join of {self.group}")
        keeps_some = self.generation >= 0 and self._owner.owned()
        self._run_beside("signs of life", self._beat_meanwhile() if keeps_some else self._listen())
        try:
            await self._wait(joining, unless=lambda: self._refusal is not None)
        finally:
            await self._stop_beside()
            await cancelled(joining)
        self._raise_refusal()
        return joining.result()

    def _raise_refusal(self) -> None:
        error, self._refusal = self._refusal, None
        if error is not None:
            raise error

    async def _stay(self) -> None:
        await self._take(self._assignment)
        while self._reason is None and not self._is_over():
            self._wake.clear()
            await self._wake.wait()

    async def _join(self) -> JoinedGroup:
        self.state = MemberState.JOINING
        self._why, self._reason = self._reason or "a new member", None
        with self._span("join", reason=self._why) as span:
            while True:
                protocols = offered(
                    self._assignors,
                    self._owner.subscription(),
                    self._owner.owned(),
                    self.generation,
                    self._config.rack,
                )
                asked = self._join_group(self.member_id, protocols, self._why)
                answer = await asked if self.member_id else await self._be_named(asked)
                if not isinstance(answer, IdGiven):
                    span.set(member_id=answer.member_id, generation=answer.generation)
                    return answer
                self.member_id = answer.member_id

    async def _be_named(
        self, asked: Coroutine[Any, Any, JoinedGroup | IdGiven]
    ) -> JoinedGroup | IdGiven:
        """Ask for an id; who has to leave meanwhile waits for it, to be able to say who leaves."""
        asking = asyncio.create_task(asked, name=f"karrow first join of {self.group}")
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.wait({asking}, timeout=NAMING)
            if asking.done() and not asking.cancelled() and asking.exception() is None:
                self.member_id = asking.result().member_id
            await cancelled(asking)
            raise

    async def _divide(self, joined: JoinedGroup) -> dict[str, bytes]:
        """The leader's part: who gets what."""
        chosen = agreed(self._assignors, joined.protocol)
        members = {one.member_id: understood(one) for one in joined.members}
        census = Census(self._cluster, {one for said in members.values() for one in said.topics})
        await census.take()
        self._run_beside("topics", self._watch(census))
        if joined.skip_assignment:  # a static leader is back, and nothing has changed (KIP-814)
            return {}
        return handed(chosen.assign(census.known, members))

    async def _take(self, assignment: Assignment) -> None:
        """Let the owner have what the leader has given it, and give up what it has not."""
        generation = self.generation
        chosen = agreed(self._assignors, self.protocol)
        if isinstance(chosen, Remembering):
            chosen.assigned(assignment, generation)
        wanted = self._owner.subscription()
        given = frozenset(one for one in assignment.partitions if one.topic in wanted)
        gone = self._owner.owned() - given
        if gone:
            await self._give_up(gone)
        if self._is_over():
            return
        added = given - self._owner.owned()
        await self._tell(self._owner.assigned(added, generation), added)
        self._note(self._why, added=len(added), revoked=self._given_up)
        self._given_up = 0
        if gone:
            self.rejoin(f"gave up {len(gone)} partitions, which others can have now")

    # ---- beside the rounds

    async def _be_heard(self, limit: float) -> None:
        # Old brokers speak of a rebalance until the leader's assignment is there.
        was_stable = self.state is MemberState.STABLE
        try:
            await self._heartbeat(self.metadata(), limit)
        except RebalanceInProgress:
            if was_stable:
                self.rejoin("the group is rebalancing")

    async def _beat_meanwhile(self) -> None:
        """Heartbeats during a join, until the member is not known any more or has no session."""
        while (left := self._session_left()) > 0:
            await asyncio.sleep(min(self._interval, left))
            try:
                await self._beat_once()
            except GONE as error:
                self._refuse(error)
                return
            except RequestTimeout:
                raise
            except (KarrowError, TimeoutError):
                continue  # what it means, the join tells, or else the session's end
            self.trouble = None
        self._refuse(self._silence())

    async def _listen(self) -> None:
        """Signs of life of a broker that holds a join, from which nobody hears otherwise."""
        while True:
            await asyncio.sleep(self._config.request_timeout * LISTENING_SHARE)
            with contextlib.suppress(BrokerError, Disconnected):  # the join tells, or the next time
                await self._ask_for_life()
                self.trouble = None

    async def _watch(self, census: Census) -> None:
        """The leader's part: join again when topics come, go, or grow."""
        age = self._config.metadata_max_age
        pause = min(age, MISSING_TOPICS_PAUSE)
        asked_at = whole_at = self._now()
        while not census.has_changed():
            now = self._now()
            if census.is_whole:
                whole_at = now
            # A topic may be missing for a moment, from a broker that is behind.
            due = asked_at + age if census.is_whole else max(asked_at, whole_at) + pause
            if now >= due:
                asked_at = now
                with contextlib.suppress(KarrowError):  # next time
                    if await census.take_again():
                        break
            await asyncio.sleep(min(self._config.heartbeat_interval, pause))
        self.rejoin("the topics' partitions have changed")

    # ---- the end

    async def _say_goodbye(self, reason: str, *, for_good: bool = False) -> None:
        if self._config.instance_id is None or for_good:
            await super()._say_goodbye(reason, for_good=for_good)

    async def _resign(self, reason: str, *, for_good: bool) -> None:  # noqa: ARG002 - of both kinds
        await self._leave_group(self.member_id, reason)
