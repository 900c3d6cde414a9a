"""What members of both kinds of groups have in common: their states, their rounds, their end.

States and what moves a member between them:

    UNJOINED   no generation: before the first join, after a setback, and while nobody polls
    JOINING    a join is under way
    SYNCING    in a generation of a classic group; the leader's assignment is awaited
    STABLE     has its assignment, though the owner may still be taking it over
    LEAVING    on the way out
    LEFT       out; ``start`` begins anew
    FAILED     out for a reason that will not pass; ``start`` begins anew

    UNJOINED, STABLE -> JOINING           a reason to join, and what has to be given up is given up
    JOINING -> SYNCING -> STABLE          the broker answers
    JOINING, SYNCING -> UNJOINED          it refuses, or cannot be reached, or the member was
                                          dropped meanwhile; then a pause
    SYNCING, STABLE -> UNJOINED           the member was dropped, or was silent or idle for too long
    any -> LEAVING -> LEFT                ``leave`` or ``close``
    any -> FAILED                         a refusal for good, or a fault of ours or of the owner's

Rules:
- One task goes through the rounds. Beside it another one sends heartbeats for as long as the member
  is one, also while the owner takes its time, and while it joins with partitions that it keeps.
- What is given up is ``revoking``, once and while the member still may commit. What may be others'
  already is ``lost``, at once, but for what the owner is being told about at this moment: of that,
  what it still owns is lost when it is through.
- Who was dropped has lost everything and joins anew. So has who got no answer to a heartbeat for
  ``session_timeout``, counted from when the last answered one was sent. A session that is over is
  seen by ``has_session`` in any thread before the task gets to it: a process that was stopped hands
  out nothing when it goes on.
- Who does not poll for ``max_poll_interval`` loses everything, leaves, and joins again with the
  next poll.
- Refusals that may pass are met with a pause: none after the first for those that ask for another
  join, ``retry_backoff`` where the coordinator moves or loads, and else 1 to 10 s. With
  ``join_attempts`` they are counted, but for those that ask for another join, and a coordinator
  gets the longer pauses too; after so many in a row it is a GroupJoinFailed.
- The owner is told in a task of its own, so that the end of the membership does not cut off what
  the application does there.
- Nothing ends in silence: whatever is not expected reaches ``failed``.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from karrow import events
from karrow.aio.groups.assignment import NO_GENERATION
from karrow.aio.groups.coordinator import CoordinatorCalls
from karrow.errors import (
    AuthorizationError,
    Fenced,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupJoinFailed,
    IllegalGeneration,
    KarrowError,
    NetworkError,
    RebalanceInProgress,
    RequestTimeout,
    StateError,
    UnknownMemberId,
)
from karrow.net.retry import JITTER, backoff_delay, is_consumer_group_retriable, is_coordinator
from karrow.net.sharing import cancelled, duty
from karrow.types import GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster

# The broker's words for: you are no member, or not in this generation.
DROPPED = (UnknownMemberId, IllegalGeneration, FencedMemberEpoch, GroupIdNotFound)
# What it means by them also to somebody on the way in, whose last generation may just have ended.
GONE = (UnknownMemberId, FencedInstanceId)
JOIN_PAUSE = 1.0
LONGEST_JOIN_PAUSE = 10.0
# How long a farewell may take; a group does without it after the session.
FAREWELL = 5.0
# A heartbeat may take this part of the session, so that there is time for others.
HEARTBEAT_SHARE = 1 / 3


class Owner(Protocol):
    """The consumer, as its membership sees it.

    What it raises ends the membership.
    """

    def subscription(self) -> frozenset[str]:
        """The topics it wants now."""

    def pattern(self) -> str | None:
        """The pattern by which the broker is to choose topics, instead of ``subscription``.

        Only groups whose partitions the broker divides are asked for it.
        """

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


OUT = (MemberState.LEAVING, MemberState.LEFT, MemberState.FAILED)


class AnyMembership(CoordinatorCalls, ABC):
    """One member of one group, of whatever kind.

    ``trouble`` is what keeps it from being a member, None while nothing does. ``failures`` counts
    the joins in a row that were refused; ``join_attempts``, which may be set before ``start``, is
    how many are enough. Everything but ``polled``, ``has_session``, ``session_ends`` and
    ``metadata`` belongs to the loop's thread.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        owner: Owner,
        *,
        join_attempts: int | None = None,
    ) -> None:
        super().__init__(config, cluster)
        self.state = MemberState.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol: str | None = None
        self.leader_id = ""
        self.trouble: KarrowError | None = None
        self.failures = 0
        self._owner = owner
        self.join_attempts = join_attempts
        # Rounds in a row that came to nothing, whatever the reason.
        self._setbacks = 0
        # How many partitions the member has by all that was told of rebalances.
        self._noted = 0
        # What is to be acted on: why to join again, why not to go on, nobody polls.
        self._reason: str | None = None
        self._refusal: KarrowError | None = None
        self._is_idle = False
        self._wake = asyncio.Event()
        # How long until the next heartbeat, unless there is something to say at once; and what is
        # amiss although heartbeats are answered.
        self._interval = config.heartbeat_interval
        self._hurry = asyncio.Event()
        self._lack: KarrowError | None = None
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
        return self.session_ends > self._now()

    @property
    def session_ends(self) -> float:
        """Until when they are, unless the broker hears of it before; from any thread."""
        if self.generation < 0:
            return -inf
        return self._now() + self._session_left()

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
            self.failures = self._setbacks = 0
            self._reason, self._refusal, self._is_idle = None, None, False
            self._polled_at = self._now()
            self._rounds = duty(self._run(), f"karrow member of {self.group}", self._failed_at_once)

    @abstractmethod
    def rejoin(self, reason: str) -> None:
        """The subscription has changed, or something else that the group must know."""

    def polled(self) -> None:
        """The application has asked for data; from any thread."""
        self._polled_at = self._now()
        if self._awaits_poll and self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake.set)

    def idle(self) -> None:
        """The application is stuck: be no member until it polls, as after max_poll_interval."""
        self._polled_at = -inf
        self._is_idle = True
        self._wake.set()

    def refused(self, error: KarrowError, asked_as: GroupMetadata) -> bool:
        """A commit was refused; it counts if it was made as what the member still is.

        True means that it may be made again in a moment, as who ``metadata`` names then.
        """
        if self.state in OUT:
            return False
        if isinstance(error, IllegalGeneration) and self._has_moved_on(asked_as):
            return True
        if asked_as != self.metadata():
            return False
        is_stable = self.state is MemberState.STABLE
        if isinstance(error, RebalanceInProgress) and is_stable:
            self.rejoin("a commit met a rebalance")
        elif isinstance(error, (*DROPPED, FencedInstanceId) if is_stable else GONE):
            self._refuse(error)
        return False

    def _has_moved_on(self, asked_as: GroupMetadata) -> bool:
        """Whether the group was in a round when somebody asked: what is kept over it stays ours."""
        is_newer = asked_as.generation < self.generation
        is_member = self.generation >= 0 and asked_as.member_id == self.member_id
        return is_member and (is_newer or self.state is not MemberState.STABLE)

    async def leave(self, reason: str, *, for_good: bool = False) -> None:
        """Give everything back and leave; a static member gives up its place with ``for_good``."""
        async with self._ending:
            if self.state in (MemberState.LEFT, MemberState.FAILED):
                await self._ended(self._rounds)
                return
            self.state = MemberState.LEAVING
            telling = self._telling
            try:
                await self._stop(self._rounds)
                await self._finish(telling)
                self._catch_up(reason)
                await self._return_everything(reason)
            finally:
                await self._depart(reason, for_good=for_good)

    async def _ended(self, rounds: asyncio.Task[None] | None) -> None:
        """Let somebody who has failed say goodbye."""
        if rounds is not None and rounds is not asyncio.current_task():
            await asyncio.wait({rounds}, timeout=FAREWELL)
            await self._stop(rounds)

    async def close(self) -> None:
        """Leave, with a static member's place kept, and end."""
        await self.leave("the consumer was closed")

    # ---- the rounds

    async def _run(self) -> None:
        try:
            while True:
                await self._make_way()
                try:
                    await self._enter()
                except KarrowError as error:
                    await self._set_back(error)
                else:
                    self.failures = self._setbacks = 0
                    await self._stay()
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            await self._fail(error)

    @abstractmethod
    async def _make_way(self) -> None:
        """Act on what has happened, and give up what must not be owned in a join."""

    @abstractmethod
    async def _enter(self) -> None:
        """Become a member."""

    @abstractmethod
    async def _stay(self) -> None:
        """Be one, until there is a reason for another round."""

    def _is_over(self) -> bool:
        """Whether the member cannot go on as it is."""
        return self._refusal is not None or self._is_idle

    async def _set_back(self, error: KarrowError) -> None:
        """A round has failed: draw the conclusions and wait, or raise it."""
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
        pause = self._pause_after(error)
        self._setbacks += 1
        if not isinstance(error, (*DROPPED, RebalanceInProgress)):
            self._count(error)
        await asyncio.sleep(pause)

    def _count(self, error: KarrowError) -> None:
        self.failures += 1
        if self.failures == self.join_attempts:
            text = f"{self.failures} attempts to join failed, the last one with: {error}"
            raise GroupJoinFailed(text, group=self.group) from error

    def _pause_after(self, error: KarrowError) -> float:
        made = self._setbacks
        if isinstance(error, (*DROPPED, RebalanceInProgress)):
            return self._pause(made - 1) if made else 0.0
        if is_coordinator(error) and self.join_attempts is None:
            return self._pause(made)
        pause = backoff_delay(made, JOIN_PAUSE, LONGEST_JOIN_PAUSE, jitter=JITTER)
        return min(max(pause, JOIN_PAUSE), LONGEST_JOIN_PAUSE)

    # ---- beside the rounds

    async def _beat(self) -> None:
        """Heartbeats, until the member is dropped, or its session or the patience is over."""
        failures = 0
        pause = self._interval
        while True:
            await self._until_due(pause)
            if self._session_left() <= 0:
                self._refuse(self._silence())
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
                pause = min(self._pause(failures), self._interval)
                failures += 1
            except TimeoutError:
                pause = 0.0  # the session is over
            else:
                pause, failures, self.trouble = self._interval, 0, self._lack

    def _silence(self) -> KarrowError:
        text = f"no heartbeat was answered for {self._config.session_timeout} s"
        return RequestTimeout(text, api="Heartbeat", group=self.group)

    async def _until_due(self, pause: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._hurry.wait()
        self._hurry.clear()

    async def _beat_once(self) -> None:
        sent_at = self._now()
        limit = min(self._config.request_timeout, self._config.session_timeout * HEARTBEAT_SHARE)
        with self._span("heartbeat", generation=self.generation):
            async with asyncio.timeout(self._session_left()):
                await self._be_heard(limit)
        self._heard_at = sent_at

    @abstractmethod
    async def _be_heard(self, limit: float) -> None:
        """Send a heartbeat, which may take ``limit`` seconds, and act on the answer."""

    def _run_beside(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = duty(work, f"karrow {name} of {self.group}", self._failed_beside)
        self._beside.add(task)
        task.add_done_callback(self._done_beside)

    def _done_beside(self, task: asyncio.Task[None]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed_beside(error)

    def _failed_beside(self, error: BaseException) -> None:
        self._refusal = _known(error)
        self._wake.set()

    async def _stop_beside(self) -> None:
        await cancelled(*self._beside)

    # ---- times

    def _now(self) -> float:
        return time.monotonic()

    def _session_left(self) -> float:
        return self._heard_at + self._config.session_timeout - self._now()

    def _is_overdue(self) -> bool:
        return self._now() - self._polled_at > self._config.max_poll_interval

    # ---- setbacks

    def _refuse(self, error: KarrowError) -> None:
        """The generation is over for this member: nothing of it counts any more."""
        if self._refusal is None:
            self._refusal = error
        self.generation = NO_GENERATION
        if self.state in (MemberState.SYNCING, MemberState.STABLE):
            self.state = MemberState.UNJOINED
        self._wake.set()
        self._drop(self._owner.owned() - self._told, error.message)

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
        self._drop(self._owner.owned(), error.message)

    def _drop(self, gone: frozenset[TopicPartition], reason: str) -> None:
        if gone:
            self._owner.lost(gone)
            self._note(reason, lost=len(gone))

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
        self._failed_at_once(error)
        await self._stop_beside()
        if not isinstance(error, (Fenced, NetworkError, AuthorizationError)):
            await self._say_goodbye("failed")  # the others need not wait for the session's end

    def _failed_at_once(self, error: Exception) -> None:
        known = _known(error)
        self.state = MemberState.FAILED
        self.trouble = known
        self.generation = NO_GENERATION
        try:
            self._drop(self._owner.owned(), known.message)
        finally:
            self._owner.failed(known)

    # ---- the owner

    async def _tell(
        self, news: Coroutine[Any, Any, None], about: frozenset[TopicPartition]
    ) -> None:
        """Let the owner act, and go on when it is through, or when nobody polls any more."""
        self._told = about
        telling = asyncio.create_task(news, name=f"karrow owner in {self.group}")
        self._telling = telling
        telling.add_done_callback(self._is_told)
        await self._wait(telling, unless=lambda: self._is_idle)
        if telling.done():
            telling.result()

    async def _wait(self, task: asyncio.Task[Any], *, unless: Callable[[], bool]) -> None:
        """Wait for a task; what else has woken the member meanwhile is still to be looked at."""
        was_woken = False
        while not (task.done() or unless()):
            self._wake.clear()
            waking = asyncio.create_task(self._wake.wait())
            try:
                await asyncio.wait({task, waking}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waking.cancel()
            was_woken |= waking.done()
        if was_woken:
            self._wake.set()

    def _is_told(self, telling: asyncio.Task[None]) -> None:
        if telling is self._telling:
            self._telling = None
            self._told = frozenset()

    # ---- telemetry

    def _span(self, name: events.SpanName, **more: Any) -> events.Span:
        client_id = self._config.client_id
        return events.span(
            name, client_id=client_id, group=self.group, member_id=self.member_id, **more
        )

    def _note(self, reason: str, *, added: int = 0, revoked: int = 0, lost: int = 0) -> None:
        """Tell of partitions that have come or gone."""
        self._noted += added - revoked - lost
        events.emit(
            "rebalance",
            {"count": 1, "added": added, "revoked": revoked, "lost": lost},
            client_id=self._config.client_id,
            group=self.group,
            member_id=self.member_id,
            generation=self.generation,
            reason=reason,
        )

    def _catch_up(self, reason: str) -> None:
        """Tell of what has come or gone in a round that was cut short."""
        missed = len(self._owner.owned()) - self._noted
        if missed:
            self._note(reason, added=max(missed, 0), revoked=max(-missed, 0))

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

    async def _return_everything(self, reason: str) -> None:
        owned = self._owner.owned()
        if not owned or self._refusal is not None or not self.has_session:
            return
        self._told = owned
        try:
            await self._owner.revoking(owned)
        finally:
            self._told = frozenset()
        self._note(reason, revoked=len(owned))

    async def _depart(self, reason: str, *, for_good: bool) -> None:
        try:
            await self._stop_beside()
            self._drop(self._owner.owned(), reason)  # what could not be given back
            await self._say_goodbye(reason, for_good=for_good)
        finally:
            self.generation = NO_GENERATION
            self.leader_id = ""
            self.state = MemberState.LEFT

    async def _say_goodbye(self, reason: str, *, for_good: bool = False) -> None:
        """Leave the group, if that can be had quickly."""
        if not self.member_id:
            return
        with contextlib.suppress(KarrowError, TimeoutError), self._span("leave", reason=reason):
            async with asyncio.timeout(FAREWELL):
                await self._attempts(
                    lambda: self._resign(reason, for_good=for_good),
                    retryable=is_consumer_group_retriable,
                )
        self.member_id = ""

    @abstractmethod
    async def _resign(self, reason: str, *, for_good: bool) -> None:
        """Tell the group that the member leaves, once."""

    async def _stop(self, task: asyncio.Task[None] | None) -> None:
        if task is not None and task is not asyncio.current_task() and not task.done():
            await cancelled(task)


def _known(error: BaseException) -> KarrowError:
    """An error of ours, or one of ours that names it."""
    if isinstance(error, KarrowError):
        return error
    found = StateError(f"the membership ended unexpectedly: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
