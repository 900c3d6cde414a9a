"""Stores offsets for a consumer: when it says so, in the background, and at the end.

Rules:
- One commit at a time, in the order in which they were asked for: an older one never overwrites a
  newer one.
- A member commits as what it is at the moment, and only what it owns. One without a generation
  commits nothing: the broker would take it for somebody who is in no group.
- What the application has of a partition belongs to the assignment that it has read it in. One
  that was lost and has come back is another one, also if the application has not heard of it.
- An offset belongs to the topic that it was read from. One that was deleted and made again since is
  another topic (KIP-516): nothing is stored for it.
- A rebalance under way, and a generation or epoch that has just passed, are waited for as long as
  the partitions stay with this member. What it has lost meanwhile is not stored.
- Commits in the background store what the application is done with, and never raise; the next one
  says it all again. What will not pass by itself is told to the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from karrow import events
from karrow.aio.calls.commits import CommitCalls
from karrow.aio.consuming.positions import Commit
from karrow.errors import (
    AuthorizationError,
    CommitFailed,
    KarrowError,
    PartialError,
    RebalanceInProgress,
    StateError,
)
from karrow.net.sharing import cancelled, duty
from karrow.types import CommittedOffset, GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from karrow.aio.consuming.engine import Engine
    from karrow.aio.groups.member import AnyMembership
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster

Stored = Mapping[TopicPartition, CommittedOffset]

# How long the end may take for offsets that are still to be stored.
FAREWELL = 5.0


class Commits(CommitCalls):
    """Stores offsets of one consumer.

    ``membership`` is None for who is in a group only by name. ``trouble`` is why the last commit in
    the background has failed. ``loss`` is why something cannot be stored any more that was handed
    out since the application last asked for more.
    """

    _config: ConsumerConfig

    def __init__(self, config: ConsumerConfig, cluster: Cluster, engine: Engine) -> None:
        super().__init__(config, cluster)
        self.default_group = config.group
        self.membership: AnyMembership | None = None
        self.trouble: KarrowError | None = None
        self.loss: KarrowError | None = None
        self._engine = engine
        self._positions = engine.positions
        self._turn = asyncio.Lock()
        self._background: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- what there is to store

    def handed_out(self) -> dict[TopicPartition, CommittedOffset]:
        """Everything that the application was given and that is not stored; raises CommitFailed.

        That is when some of it is lost, or the consumer has ended.
        """
        why = self._engine.fatal or self.loss
        if why is not None:
            raise self._failure(why) from why
        return self.uncommitted()

    def uncommitted(self) -> dict[TopicPartition, CommittedOffset]:
        """What the application was given of the partitions that it still has, and is not stored."""
        with self._engine.lock:
            self._engine.settle()
            return _as_stored(self._positions.to_commit())

    def done_with(self) -> dict[TopicPartition, CommittedOffset]:
        """What it is done with, and is not stored."""
        with self._engine.lock:
            self._engine.settle()
            return _as_stored(self._positions.to_auto_commit())

    # ---- storing

    async def store(self, offsets: Stored, *, retries: int | None = None) -> None:
        """Store offsets as the group's; raises CommitFailed."""
        if not offsets:
            return
        if self._config.group is None:
            raise StateError("there is no group to commit for", hint="set group=")
        noted = self._noted(offsets)
        async with self._turn:
            span = events.span(
                "commit",
                client_id=self._config.client_id,
                group=self._config.group,
                partition_count=len(offsets),
            )
            with span:
                await self._store(offsets, noted, retries)
        self.trouble = None
        with self._engine.lock:
            self._positions.committed(noted)
        self._engine.hurry()

    def _noted(self, offsets: Stored) -> dict[TopicPartition, Commit]:
        """The offsets with the assignments in which they were reached; only what is owned."""
        with self._engine.lock:
            for one in offsets:
                if self.membership is not None and not self._may_store(one):
                    raise CommitFailed(
                        "the partition is not assigned to this consumer, or was lost meanwhile",
                        group=self._config.group,
                        topic=one.topic,
                        partition=one.partition,
                    )
            return {
                one: Commit(
                    stored.offset or 0, stored.leader_epoch, self._positions[one].assignment
                )
                for one, stored in offsets.items()
                if one in self._positions
            }

    def _may_store(self, partition: TopicPartition) -> bool:
        """Whether the application can know of the assignment that a member has of a partition.

        One that has come back since it last asked for records is not the one that it has records
        of: others may be further on.
        """
        if partition not in self._positions:
            return False
        is_known = self._positions[partition].assignment <= self._engine.asked_epoch
        return is_known or self._engine.is_listening

    async def _store(
        self, offsets: Stored, noted: Mapping[TopicPartition, Commit], retries: int | None
    ) -> None:
        deadline = time.monotonic() + self._config.call_timeout
        made = 0
        while True:
            self._require_owned(noted)
            member = self._member()
            try:
                await self.commit_offsets(
                    None,
                    offsets,
                    generation=member.generation,
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    retries=retries,
                )
            except KarrowError as error:
                why = _first(error)
                passes = self._refused(why, member)
                pause = self._pause(made)
                is_late = time.monotonic() + pause >= deadline
                if not passes or is_late or (retries is not None and made >= retries):
                    raise self._failure(why) from error
            else:
                return
            made += 1
            await asyncio.sleep(pause)

    def _topics_read(self) -> dict[str, UUID]:
        known = self._engine.fetcher.topic_ids.items()
        return {topic: found for topic, found in known if found is not None}

    def _refused(self, why: KarrowError, member: GroupMetadata) -> bool:
        """Tell the membership; True if the group is about to settle."""
        if self.membership is None:
            return False
        return self.membership.refused(why, member) or isinstance(why, RebalanceInProgress)

    def _require_owned(self, noted: Mapping[TopicPartition, Commit]) -> None:
        """Refuse what was given back or lost since the commit was asked for."""
        with self._engine.lock:
            for partition, commit in noted.items():
                known = partition in self._positions
                if not known or self._positions[partition].assignment != commit.assignment:
                    raise CommitFailed(
                        "the partition went to another member before its offset was stored",
                        hint="its new owner begins at the last offset that was",
                        group=self._config.group,
                        topic=partition.topic,
                        partition=partition.partition,
                    )

    def _member(self) -> GroupMetadata:
        if self.membership is None:
            return GroupMetadata(self._config.group or "")
        found = self.membership.metadata()
        if found.generation < 0:
            error = CommitFailed("not a member of the group at the moment", group=found.group)
            raise error from self.membership.trouble
        return found

    def _failure(self, why: KarrowError) -> CommitFailed:
        where = {"group": self._config.group, **why.context}
        return CommitFailed(f"the offsets were not stored: {why.message}", **where)

    # ---- in the background

    def start(self) -> None:
        """Commit in the background, if the options say so."""
        if self._background is None and self._config.commits_itself:
            broke = partial(self._engine.broke, "committing")
            self._background = duty(self._repeat(), "karrow commits", broke)

    async def _repeat(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._config.auto_commit_interval)
                await self._in_passing(self.store(self.done_with(), retries=0))
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self._engine.broke("committing", error)

    async def store_in_time(self, offsets: Stored, limit: float) -> None:
        """Store offsets that nobody may store later, if it can be done within ``limit``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._in_passing(self.store(offsets))

    async def store_of(self, gone: Iterable[TopicPartition]) -> None:
        """Store what the application is done with of partitions that it wants to read no more."""
        if self._config.commits_itself:
            done, left = self.done_with(), set(gone)
            mine = {one: stored for one, stored in done.items() if one in left}
            await self.store_in_time(mine, FAREWELL)

    async def _in_passing(self, storing: Coroutine[Any, Any, None]) -> None:
        """Have offsets stored; that it fails is heard of in health and events."""
        try:
            await storing
        except KarrowError as error:
            self.trouble = error
            if _is_refusal(error):
                self._engine.inbox.fail(error)
        else:
            self.trouble = None

    def store_soon(self, offsets: Stored) -> asyncio.Future[None]:
        """Store offsets when it is their turn; an error nobody asks for is seen in health."""
        task = asyncio.create_task(self.store(offsets), name="karrow commit")
        self._tasks.add(task)
        task.add_done_callback(self._stored)
        return task

    def _stored(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()
            self.trouble = error if isinstance(error, KarrowError) else None

    async def store_at_last(self, *, is_done: bool) -> None:
        """Store what the application was handed, or what it is done with, in bounded time."""
        if self._config.commits_itself:
            offsets = self.uncommitted() if is_done else self.done_with()
            await self.store_in_time(offsets, FAREWELL)

    async def close(self) -> None:
        """Commit no more in the background; what is on its way has a moment to get there."""
        task, self._background = self._background, None
        await cancelled(task)
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=FAREWELL)
            for one in late:
                one.cancel()


def _as_stored(found: Mapping[TopicPartition, Commit]) -> dict[TopicPartition, CommittedOffset]:
    return {one: CommittedOffset(it.offset, it.leader_epoch) for one, it in found.items()}


def _is_refusal(error: BaseException) -> bool:
    """Whether the group may not be written to, which will not pass by itself."""
    cause = error.__cause__
    return isinstance(error, AuthorizationError) or (cause is not None and _is_refusal(cause))


def _first(error: KarrowError) -> KarrowError:
    """The error itself, or the first of many."""
    if isinstance(error, PartialError):
        for one in error.errors.values():
            if isinstance(one, KarrowError):
                return one
    return error
