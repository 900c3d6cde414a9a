"""A function that is called with every record: kafe's way to consume."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from karrow.errors import ConfigError, StateError
from karrow.types import TopicPartition
from karrow.workers.aio import AsyncWorkerGroup
from karrow.workers.group import WorkerGroup
from karrow.workers.manual import AsyncCallbackHandler, CallbackHandler, CommitId, Pending

if TYPE_CHECKING:
    from karrow.config import Servers, WorkerConfig
    from karrow.sync.client import Client
    from karrow.types import OffsetLike
    from karrow.workers.actor import Actor
    from karrow.workers.manual import Callback


class AsyncCallbackGroup(AsyncWorkerGroup):
    """What is behind a CallbackGroup.

    ``known_as`` is the id under which the group may know the member from before.
    """

    known_as: str = ""

    async def _begin(self) -> None:
        await super()._begin()
        membership = self._consumer.membership
        if membership is not None and self.known_as:
            membership.member_id = self.known_as

    async def commit(self, commit_id: CommitId) -> bool:
        """Store the offset behind a record; False while those before it are to be committed.

        Raises StateError for an id that comes before its turn, or is of an earlier life of its
        worker, and CommitFailed if the offset was not stored.
        """
        actor, pending = self._pending(commit_id)
        if not self._crew.storing.ledger.is_due(actor.partition, commit_id.offset):
            offset = pending.settle(commit_id.offset)
            if offset is None:
                return False
            self._crew.done(actor.partition, offset, 1)
        await self._crew.storing.store([actor.partition])
        return True

    def pending_commits(self) -> tuple[CommitId, ...]:
        """The ids that were given out and are not committed."""
        return tuple(
            CommitId(*partition, offset, actor.pending.life)
            for partition, actor in sorted(self._crew.actors.items())
            if actor.pending is not None
            for offset in actor.pending.offsets()
        )

    def _pending(self, commit_id: CommitId) -> tuple[Actor, Pending]:
        if self.config.group is None:
            raise StateError("there is no group to commit for")
        actor = self._actor(TopicPartition(commit_id.topic, commit_id.partition))
        pending = actor.pending
        if pending is None:
            raise StateError(
                "records are committed when the callback returns",
                hint="autocommit=False leaves it to you",
            )
        if pending.life != commit_id.life:
            raise StateError(
                f"the id of offset {commit_id.offset} is of an earlier life of its worker",
                hint="the record is handed out again, with another id",
            )
        return actor, pending


class CallbackGroup(WorkerGroup):
    """A group of workers that call a function with every record; made by ``start_consumer``."""

    __module__ = "karrow"

    _twin: AsyncCallbackGroup
    _twin_kind = AsyncCallbackGroup

    def commit(self, commit_id: CommitId) -> bool:
        """Store the offset behind a record; False while those before it are to be committed.

        Raises StateError for an id that comes before its turn, or is of an earlier life of its
        worker, and CommitFailed if the offset was not stored.
        """
        return self._run(self._twin.commit(commit_id))

    def pending_commits(self) -> tuple[CommitId, ...]:
        """The ids that were given out and are not committed."""
        return self._look(self._twin.pending_commits)

    def join_as(self, member_id: str) -> None:
        """Join with an id that the group may know from before; to be said before the start."""
        self._twin.known_as = member_id


def start_consumer(
    bootstrap: Servers | Client | None,
    group: str,
    callback: Callback,
    *,
    topics: Iterable[str | tuple[str, Iterable[int]]],
    member_id: str = "",
    session_timeout: float | None = None,
    fetch_interval: float = 1.0,
    fetch_size: int = 1,
    max_bytes: int | None = None,
    min_bytes: int | None = None,
    max_wait: float | None = None,
    autocommit: bool = True,
    allow_unordered_commit: bool = False,
    start: OffsetLike = "earliest",
    config: WorkerConfig | None = None,
) -> CallbackGroup:
    """Call a function with (commit id, topic, partition, offset, key, value) of every record.

    Of each partition ``fetch_size`` records are handed over every ``fetch_interval``. A record is
    committed when the function returns, or, without ``autocommit``, by ``commit`` with its id, in
    order unless ``allow_unordered_commit``. A function that raises is called again with the record,
    as often as ``max_restarts`` of the options allows. What it returns is awaited if it can be; a
    Stop ends the group. Where the group has committed nothing it begins at ``start``, whatever
    ``config`` says. A topic with partitions is read without sharing it with other members.

    Example::

        group = start_consumer("localhost:9092", "billing", handle, topics=["orders"])
        ...
        group.stop()
    """
    if not callable(callback):
        raise ConfigError(f"callback={callback!r} cannot be called", hint="give a function")
    given = {
        "session_timeout": session_timeout,
        "max_bytes": max_bytes,
        "partition_max_bytes": max_bytes,
        "min_bytes": min_bytes,
        "max_wait": max_wait,
    }
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    names, partitions = _wanted(topics)

    def pending() -> Pending | None:
        return None if autocommit else Pending(allow_unordered=allow_unordered_commit)

    made = CallbackGroup(
        AsyncCallbackHandler if inspect.iscoroutinefunction(callback) else CallbackHandler,
        bootstrap,
        topics=names,
        partitions=partitions,
        arguments={"callback": callback, "pending": pending},
        config=config,
        group=group,
        fetch_interval=fetch_interval,
        batch_records=fetch_size,
        start=start,
        **options,
    )
    made.join_as(member_id)
    made.start()
    return made


def _wanted(
    topics: Iterable[str | tuple[str, Iterable[int]]],
) -> tuple[list[str], list[TopicPartition]]:
    """Names of topics, or partitions."""
    if isinstance(topics, str):
        raise ConfigError(f"topics={topics!r} is one name", hint="give a list of names")
    names, partitions = [], []
    for topic in topics:
        if isinstance(topic, str):
            names.append(topic)
        else:
            name, numbers = topic
            partitions += [TopicPartition(name, number) for number in numbers]
    if names and partitions:
        raise ConfigError(
            "topics has names with partitions and names without",
            hint="start a consumer for each kind",
        )
    return names, partitions
