"""A consumer's membership in a classic group: joined, kept alive, and given up when it is over.

States and what moves a member between them:

    UNJOINED   no generation: before the first join, after a setback, and while nobody polls
    JOINING    a join is under way; the broker holds it until all have joined
    SYNCING    in a generation; the leader's assignment is awaited
    STABLE     has its assignment, though the owner may still be taking it over
    LEAVING    on the way out
    LEFT       out; ``start`` begins anew
    FAILED     out for a reason that will not pass; ``start`` begins anew

    UNJOINED, STABLE -> JOINING           a reason to join, and what has to be given up is given up
    JOINING -> SYNCING -> STABLE          the broker answers
    JOINING, SYNCING -> UNJOINED          it refuses, or cannot be reached; then a pause
    SYNCING, STABLE -> UNJOINED           the member was dropped, or was silent or idle for too long
    any -> LEAVING -> LEFT                ``leave`` or ``close``
    any -> FAILED                         a refusal for good, or a fault of ours or of the owner's

Rules:
- One task goes through the rounds. Beside it, from a join's answer to the next join, another one
  sends heartbeats, also while the assignment is awaited and while the owner takes its time. The
  leader has a third one that watches its topics.
- A member is cooperative (KIP-429) only if all its assignors are: the group may choose any of them,
  and an eager one hands out what members have not given up. An eager member gives up everything
  before it joins; a cooperative one only what it does not subscribe to any more, and after the
  sync what the assignment takes away. Then it joins again at once, and others can have it.
- What is given up is ``revoking``, once and while the member still may commit. What may be others'
  already is ``lost``, at once, but for what the owner is being told about at this moment: of that,
  what it still owns is lost when it is through.
- Who was dropped (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION) has lost everything and joins anew. So has
  who got no answer to a heartbeat for ``session_timeout``, counted from when the last answered one
  was sent; while a join is held the broker does not count. A session that is over is seen by
  ``has_session`` in any thread before the task gets to it: a process that was stopped hands out
  nothing when it goes on.
- Who does not poll for ``max_poll_interval`` loses everything, leaves, and joins again with the
  next poll.
- A static member (KIP-345) never leaves by itself: its place is kept for as long as its session.
- The id that a broker gives to a new member (KIP-394) is kept until a broker does not know it.
- Refusals that may pass are met with a pause: none after the first for those that ask for another
  join, ``retry_backoff`` where the coordinator moves or loads, and else 1 to 10 s.
- The owner is told in a task of its own, so that the end of the membership does not cut off what
  the application does there.
- Nothing ends in silence: whatever is not expected reaches ``failed``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, cast

from karrow.aio.groups.assignment import NO_GENERATION, Assignment, Assignor, Remembering
from karrow.aio.groups.assignors import assignor
from karrow.aio.groups.coordinator import CoordinatorCalls, IdGiven
from karrow.aio.groups.leader import Census, agreed, handed, offered, received, understood
from karrow.errors import (
    AuthorizationError,
    Fenced,
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    KarrowError,
    NetworkError,
    RebalanceInProgress,
    RequestTimeout,
    StateError,
    UnknownMemberId,
)
from karrow.net.retry import JITTER, backoff_delay, is_consumer_group_retriable, is_coordinator
from karrow.types import GroupMetadata, JoinedGroup, TopicPartition

if TYPE_CHECKING:
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster

# The broker's words for: you are no member, or not in this generation.
DROPPED = (UnknownMemberId, IllegalGeneration, FencedMemberEpoch)
JOIN_PAUSE = 1.0
LONGEST_JOIN_PAUSE = 10.0
# How long a farewell may take; a group does without it after the session.
FAREWELL = 5.0
# How often the leader asks for topics that do not exist.
MISSING_TOPICS_PAUSE = 5.0
# A heartbeat may take this part of the session, so that there is time for others.
HEARTBEAT_SHARE = 1 / 3


class Owner(Protocol):
    """The consumer, as its membership sees it.

    What it raises ends the membership.
    """

    def subscription(self) -> frozenset[str]:
        """The topics it wants now."""

    def owned(self) -> frozenset[TopicPartition]:
        """The partitions it reads."""

    async def assigned(self, added: frozenset[TopicPartition], generation: int) -> None:
        """A generation has begun; ``added`` are the partitions that are new, perhaps none."""

    async def revoking(self, gone: frozenset[TopicPartition]) -> None:
        """Finish with partitions and commit them: when this returns they are not owned any more.

        It should not take longer than the group's rebalance time.
        """

    def lost(self, gone: frozenset[TopicPartition]) -> None:
        """Stop reading partitions at once: they may belong to others already."""

    def failed(self, error: KarrowError) -> None:
        """The membership is over."""


class MemberState(StrEnum):
    """Where a member is on its way into a group or out of it."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"
    LEFT = "left"
    FAILED = "failed"


class Membership(CoordinatorCalls):
    """One member of one group.

    ``trouble`` is what keeps it from being a member, None while nothing does. Everything but
    ``polled`` and ``has_session`` belongs to the loop's thread.
    """

    def __init__(self, config: ConsumerConfig, cluster: Cluster, owner: Owner) -> None:
        super().__init__(config, cluster)
        self.state = MemberState.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol: str | None = None
        self.leader_id = ""
        self.trouble: KarrowError | None = None
        self._owner = owner
        chosen = cast("tuple[str | Assignor, ...]", config.assignors)
        self._assignors = tuple(map(assignor, chosen))
        self._is_cooperative = all(one.protocol == "cooperative" for one in self._assignors)
        # What is to be acted on: why to join again, why not to go on, nobody polls.
        self._reason: str | None = None
        self._refusal: KarrowError | None = None
        self._is_idle = False
        self._wake = asyncio.Event()
        # When the broker last heard of the member for sure, and when the application last polled.
        self._heard_at = 0.0
        self._polled_at = 0.0
        self._awaits_poll = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rounds: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        # What the owner is being told, and about which partitions.
        self._telling: asyncio.Task[None] | None = None
        self._told: frozenset[TopicPartition] = frozenset()
        self._ending = asyncio.Lock()

    # ---- what others ask

    @property
    def is_leader(self) -> bool:
        """Whether this member divides the partitions."""
        return bool(self.member_id) and self.member_id == self.leader_id

    @property
    def has_session(self) -> bool:
        """Whether its partitions are still its own, as far as can be told; from any thread."""
        if self.generation < 0:
            return False
        return self.state is MemberState.JOINING or self._session_left() > 0

    def metadata(self) -> GroupMetadata:
        """Who this is in the group, for commits."""
        return GroupMetadata(self.group, self.generation, self.member_id, self._config.instance_id)

    # ---- what others tell

    async def start(self) -> None:
        """Join in the background, and stay; does nothing while that is under way."""
        async with self._ending:
            if self.state is MemberState.FAILED:
                await self._stop(self._rounds)  # it may still be saying goodbye
            if self._rounds is not None and not self._rounds.done():
                return
            self._loop = asyncio.get_running_loop()
            self.state = MemberState.UNJOINED
            self._reason, self._refusal, self._is_idle = None, None, False
            self._polled_at = time.monotonic()
            self._rounds = asyncio.create_task(self._run(), name=f"karrow member of {self.group}")

    def rejoin(self, reason: str) -> None:
        """Join again: the subscription has changed, or something else that the leader must know."""
        self._reason = reason
        self._wake.set()

    def polled(self) -> None:
        """The application has asked for data; from any thread."""
        self._polled_at = time.monotonic()
        if self._awaits_poll and self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    def refused(self, error: KarrowError, asked_as: GroupMetadata) -> None:
        """A commit was refused; it counts if it was made in the generation that is still there."""
        if self.state is not MemberState.STABLE or asked_as != self.metadata():
            return
        if isinstance(error, RebalanceInProgress):
            self.rejoin("a commit met a rebalance")
        elif isinstance(error, (*DROPPED, FencedInstanceId)):
            self._refuse(error)

    async def leave(self, reason: str, *, for_good: bool = False) -> None:
        """Give everything back and leave; a static member only says so with ``for_good``."""
        async with self._ending:
            if self.state in (MemberState.LEFT, MemberState.FAILED):
                await self._stop(self._rounds)
                return
            self.state = MemberState.LEAVING
            telling = self._telling
            try:
                await self._stop(self._rounds)
                await self._finish(telling)
                await self._return_everything()
            finally:
                await self._depart(reason, for_good=for_good)

    async def close(self) -> None:
        """Leave, unless static, and end."""
        await self.leave("the consumer was closed")

    # ---- the rounds

    async def _run(self) -> None:
        failures = 0
        try:
            while True:
                await self._make_way()
                try:
                    assignment = await self._new_generation()
                except KarrowError as error:
                    await self._set_back(error, failures)
                    failures += 1
                else:
                    failures = 0
                    await self._take(assignment)
                    await self._until_needed()
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            await self._fail(error)

    async def _make_way(self) -> None:
        """Act on what has happened, and give up what must not be owned in a join."""
        told: frozenset[TopicPartition] = frozenset()
        while True:
            if self._is_idle:
                await self._go_away()
            self._settle_refusal()
            gone = self._to_give_up() - told
            if not gone:
                break
            await self._tell(self._owner.revoking(gone), gone)
            told |= gone
        await self._stop_beside()
        self._settle_refusal()

    def _to_give_up(self) -> frozenset[TopicPartition]:
        owned = self._owner.owned()
        if not self._is_cooperative:
            return owned
        wanted = self._owner.subscription()
        return frozenset(one for one in owned if one.topic not in wanted)

    async def _new_generation(self) -> Assignment:
        """Join and sync."""
        joined = await self._join()
        self._heard_at = time.monotonic()
        self.state = MemberState.SYNCING
        self.member_id, self.generation = joined.member_id, joined.generation
        self.protocol, self.leader_id = joined.protocol, joined.leader_id
        self._run_beside("heartbeats", self._beat())
        assignments = await self._divide(joined) if joined.is_leader else {}
        data = await self._sync_group(joined, assignments)
        if self._refusal is not None:
            error, self._refusal = self._refusal, None
            raise error
        assignment = received(data)
        self.state = MemberState.STABLE
        self.trouble = None
        return assignment

    async def _join(self) -> JoinedGroup:
        self.state = MemberState.JOINING
        reason, self._reason = self._reason or "a new member", None
        while True:
            protocols = offered(
                self._assignors,
                self._owner.subscription(),
                self._owner.owned(),
                self.generation,
                self._config.rack,
            )
            answer = await self._join_group(self.member_id, protocols, reason)
            if not isinstance(answer, IdGiven):
                return answer
            self.member_id = answer.member_id

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
            await self._tell(self._owner.revoking(gone), gone)
        if self._refusal is not None:
            return
        added = given - self._owner.owned()
        await self._tell(self._owner.assigned(added, generation), added)
        if gone:
            self.rejoin(f"gave up {len(gone)} partitions, which others can have now")

    async def _until_needed(self) -> None:
        while self._reason is None and self._refusal is None and not self._is_idle:
            self._wake.clear()
            await self._wake.wait()

    async def _set_back(self, error: KarrowError, failures: int) -> None:
        """A join or sync has failed: draw the conclusions and wait, or raise it."""
        await self._stop_beside()
        self.state = MemberState.UNJOINED
        self.trouble = error
        self._refusal = None
        if isinstance(error, DROPPED):
            self._lose(error)
        elif not (isinstance(error, RebalanceInProgress) or is_consumer_group_retriable(error)):
            raise error
        elif self._session_left() <= 0:
            self._lose(error)
        await asyncio.sleep(self._pause_after(error, failures))

    def _pause_after(self, error: KarrowError, failures: int) -> float:
        if isinstance(error, (*DROPPED, RebalanceInProgress)):
            return self._pause(failures - 1) if failures else 0.0
        if is_coordinator(error):
            return self._pause(failures)
        return backoff_delay(failures, JOIN_PAUSE, LONGEST_JOIN_PAUSE, jitter=JITTER)

    # ---- beside the rounds

    async def _beat(self) -> None:
        """Heartbeats, until the member is dropped, or its session or the patience is over."""
        failures = 0
        pause = self._config.heartbeat_interval
        while True:
            await asyncio.sleep(pause)
            if self._session_left() <= 0:
                text = f"no heartbeat was answered for {self._config.session_timeout} s"
                self._refuse(RequestTimeout(text, api="Heartbeat", group=self.group))
                return
            if self._is_overdue():
                self._is_idle = True
                self._wake.set()
                return
            try:
                await self._beat_once()
            except KarrowError as error:
                if not is_consumer_group_retriable(error):
                    self._refuse(error)
                    return
                self.trouble = error
                pause = min(self._pause(failures), self._config.heartbeat_interval)
                failures += 1
            except TimeoutError:
                pause = 0.0  # the session is over
            else:
                pause, failures, self.trouble = self._config.heartbeat_interval, 0, None

    async def _beat_once(self) -> None:
        # Old brokers speak of a rebalance until the leader's assignment is there.
        was_stable = self.state is MemberState.STABLE
        sent_at = time.monotonic()
        limit = min(self._config.request_timeout, self._config.session_timeout * HEARTBEAT_SHARE)
        try:
            async with asyncio.timeout(self._session_left()):
                await self._heartbeat(self.metadata(), limit)
        except RebalanceInProgress:
            if was_stable:
                self.rejoin("the group is rebalancing")
        self._heard_at = sent_at

    async def _watch(self, census: Census) -> None:
        """The leader's part: join again when topics come, go, or grow."""
        asked_at = time.monotonic()
        while not census.has_changed():
            age = self._config.metadata_max_age
            most = age if census.is_complete else min(age, MISSING_TOPICS_PAUSE)
            if time.monotonic() - asked_at >= most:
                asked_at = time.monotonic()
                with contextlib.suppress(KarrowError):  # next time
                    if await census.take_again():
                        break
            await asyncio.sleep(min(self._config.heartbeat_interval, most))
        self.rejoin("the topics' partitions have changed")

    def _run_beside(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"karrow {name} of {self.group}")
        self._beside.add(task)
        task.add_done_callback(self._done_beside)

    def _done_beside(self, task: asyncio.Task[None]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._refusal = _known(error)
            self._wake.set()

    async def _stop_beside(self) -> None:
        tasks = set(self._beside)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # ---- times

    def _session_left(self) -> float:
        return self._heard_at + self._config.session_timeout - time.monotonic()

    def _is_overdue(self) -> bool:
        return time.monotonic() - self._polled_at > self._config.max_poll_interval

    # ---- setbacks

    def _refuse(self, error: KarrowError) -> None:
        """The generation is over for this member: nothing of it counts any more."""
        if self._refusal is None:
            self._refusal = error
        self.generation = NO_GENERATION
        if self.state in (MemberState.SYNCING, MemberState.STABLE):
            self.state = MemberState.UNJOINED
        self._wake.set()
        self._drop(self._owner.owned() - self._told)

    def _settle_refusal(self) -> None:
        error, self._refusal = self._refusal, None
        if error is None:
            return
        self._lose(error)
        if not (isinstance(error, DROPPED) or is_consumer_group_retriable(error)):
            raise error

    def _lose(self, error: KarrowError) -> None:
        self.trouble = error
        self.generation = NO_GENERATION
        if isinstance(error, UnknownMemberId):
            self.member_id = ""
        self._drop(self._owner.owned())

    def _drop(self, gone: frozenset[TopicPartition]) -> None:
        if gone:
            self._owner.lost(gone)

    async def _go_away(self) -> None:
        """Nobody polls: be no member until somebody does."""
        await self._stop_beside()
        self._is_idle = False
        self.state = MemberState.UNJOINED
        error = StateError(
            f"nobody asked for records for {self._config.max_poll_interval} s",
            hint="take fewer records at a time, or raise max_poll_interval",
            group=self.group,
        )
        self._lose(error)
        await self._say_goodbye(error.message)
        self._awaits_poll = True
        try:
            while self._is_overdue():
                self._wake.clear()
                if self._is_overdue():  # a poll may come from another thread
                    await self._wake.wait()
        finally:
            self._awaits_poll = False

    async def _fail(self, error: Exception) -> None:
        known = _known(error)
        self.state = MemberState.FAILED
        self.trouble = known
        self.generation = NO_GENERATION
        try:
            self._drop(self._owner.owned())
        finally:
            self._owner.failed(known)
        await self._stop_beside()
        if not isinstance(error, (Fenced, NetworkError, AuthorizationError)):
            await self._say_goodbye("failed")  # the others need not wait for the session's end

    # ---- the owner

    async def _tell(
        self, news: Coroutine[Any, Any, None], about: frozenset[TopicPartition]
    ) -> None:
        """Let the owner act, and go on when it is through."""
        self._told = about
        self._telling = asyncio.create_task(news, name=f"karrow owner in {self.group}")
        self._telling.add_done_callback(self._is_told)
        await asyncio.shield(self._telling)

    def _is_told(self, _: asyncio.Task[None]) -> None:
        self._telling = None
        self._told = frozenset()

    # ---- the end

    async def _finish(self, telling: asyncio.Task[None] | None) -> None:
        """Wait for what the owner is doing, unless it is the owner who ends everything."""
        if telling is None or telling is asyncio.current_task():
            return
        _, late = await asyncio.wait({telling}, timeout=self._config.rebalance_time)
        if late:
            await self._stop(telling)
        elif not telling.cancelled() and (error := telling.exception()) is not None:
            self._owner.failed(_known(error))

    async def _return_everything(self) -> None:
        owned = self._owner.owned()
        if not owned or self._refusal is not None or not self.has_session:
            return
        self._told = owned
        try:
            await self._owner.revoking(owned)
        finally:
            self._told = frozenset()

    async def _depart(self, reason: str, *, for_good: bool) -> None:
        try:
            await self._stop_beside()
            self._drop(self._owner.owned())  # what could not be given back
            await self._say_goodbye(reason, for_good=for_good)
        finally:
            self.generation = NO_GENERATION
            self.leader_id = ""
            self.state = MemberState.LEFT

    async def _say_goodbye(self, reason: str, *, for_good: bool = False) -> None:
        """Leave the group, if that can be had quickly."""
        if not self.member_id or (self._config.instance_id is not None and not for_good):
            return
        with contextlib.suppress(KarrowError, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                await self._attempts(
                    lambda: self._leave_group(self.member_id, reason),
                    retryable=is_consumer_group_retriable,
                )
        self.member_id = ""

    async def _stop(self, task: asyncio.Task[None] | None) -> None:
        if task is not None and task is not asyncio.current_task() and not task.done():
            task.cancel()
            await asyncio.wait({task})


def _known(error: BaseException) -> KarrowError:
    """An error of ours, or one of ours that names it."""
    if isinstance(error, KarrowError):
        return error
    found = StateError(f"the membership ended unexpectedly: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
