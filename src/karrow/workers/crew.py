"""The workers of a group: hired with a partition, restarted when they crash, let go with it.

Rules:
- A partition that is read has one worker. It is given back only when its worker has finished, or
  its time is up; what it is done with is committed before it is torn down. Of a partition that is
  lost nothing is committed.
- Who wants a partition back whose worker is ending already, because the group stops, waits for it
  too: else others would have the partition while its last callback runs.
- A partition whose log is another one by now, because its topic was made again or it was cut, was
  lost and has come back: with a new worker, which goes by nothing that was known of the old one.
- A worker whose callback outlives its partition is kept until the callback is through.
- Whoever ends the group first says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from karrow import events
from karrow.errors import StateError
from karrow.workers.actor import Actor
from karrow.workers.ending import Ending, EndReason, ending_for
from karrow.workers.feeding import Feed
from karrow.workers.handler import Handler, Stop, reads_batches
from karrow.workers.restarts import Restarts
from karrow.workers.storing import Storing
from karrow.workers.threads import Threads

if TYPE_CHECKING:
    from karrow.aio.consumer import AsyncConsumer
    from karrow.config import WorkerConfig
    from karrow.types import TopicPartition

# Records that may wait for a worker beside those it is working on.
ROOM = 1

_log = logging.getLogger("karrow.workers")


class Crew:
    """All workers of one group, and what feeds them (``Supervisor``, ``Workers``)."""

    def __init__(
        self,
        kind: type[Handler],
        arguments: Mapping[str, Any],
        config: WorkerConfig,
        consumer: AsyncConsumer,
        end: Callable[[Ending], None],
    ) -> None:
        self.actors: dict[TopicPartition, Actor] = {}
        self.threads = Threads(config.threads)
        self.storing = Storing(config, consumer, end)
        self.feed = Feed(config, consumer, self.storing, self, in_batches=reads_batches(kind))
        # How a worker has crashed that has done nothing since.
        self.crashes: dict[TopicPartition, str] = {}
        self._kind = kind
        self._arguments = arguments
        self._config = config
        self._consumer = consumer
        self._end = end
        self._restarts = Restarts(config.max_restarts, config.max_seconds)
        self._leaving: set[Actor] = set()
        # Set when all of that is done for which a partition is to be waited for.
        self._partings: dict[TopicPartition, asyncio.Event] = {}
        self._is_over = False

    # ---- partitions come and go

    def match(self) -> None:
        """Have a worker for every partition that is read without the group's say."""
        if self._consumer.membership is None:
            wanted = self._consumer.assignment
            if len(wanted) != len(self.actors):
                self.hire(wanted)

    def hire(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions have come."""
        for partition in partitions:
            if partition in self.actors or self._is_over:
                continue
            self.storing.add(partition)
            self.actors[partition] = Actor(
                partition,
                kind=self._kind,
                arguments=self._arguments,
                group=self._config.group,
                supervisor=self,
                room=ROOM,
            )

    async def let_go(
        self, partitions: Sequence[TopicPartition], seconds: float, *, is_lost: bool = False
    ) -> None:
        """Partitions go: finish, commit, and tear down."""
        gone = [self.actors.pop(one) for one in partitions if one in self.actors]
        self._leaving.update(gone)
        if is_lost:
            wanted = set(partitions)
            for actor in [one for one in self._leaving if one.partition in wanted]:
                self._lose(actor)
            return
        others = [self._partings[one] for one in partitions if one in self._partings]
        parting = asyncio.Event()
        self._partings.update({actor.partition: parting for actor in gone})
        try:
            await self._part_with(gone, seconds)
        finally:
            parting.set()
            for actor in gone:
                self._partings.pop(actor.partition, None)
        for other in others:
            await other.wait()

    async def _part_with(self, gone: Sequence[Actor], seconds: float) -> None:
        try:
            await asyncio.gather(*(actor.finish(seconds) for actor in gone))
            if gone:
                await self.storing.at_last([actor.partition for actor in gone])
        except asyncio.CancelledError:  # the group waits no longer: others may have them by now
            for actor in gone:
                actor.let_be()
            raise
        finally:
            for actor in gone:
                self._forget(actor.partition)
        await asyncio.gather(*(actor.release(seconds) for actor in gone))

    def renew(self, partition: TopicPartition) -> None:
        """A partition has another log: have another worker for it."""
        _log.warning("%s: its log was made again, or cut: a new worker begins", partition)
        self.feed.resume(partition)
        actor = self.actors.pop(partition, None)
        if actor is not None:  # else it is going anyway
            self._leaving.add(actor)
            self._lose(actor)
            self.hire([partition])

    def _lose(self, actor: Actor) -> None:
        actor.let_be()
        self._forget(actor.partition)

    def _forget(self, partition: TopicPartition) -> None:
        self.storing.ledger.remove(partition)
        self.feed.forget(partition)
        self.crashes.pop(partition, None)

    def busy(self) -> Iterator[Actor]:
        """Those that may be in a callback, also those that have no partition any more."""
        self._leaving = {actor for actor in self._leaving if not actor.has_ended}
        yield from self.actors.values()
        yield from self._leaving

    async def close(self, seconds: float) -> None:
        """Let everybody go."""
        self._is_over = True
        await self.let_go(list(self.actors), seconds)
        self.threads.close()

    def drop(self) -> None:
        """End without anything."""
        self._is_over = True
        for actor in list(self.busy()):
            actor.cancel()
        self.threads.close()

    # ---- what workers ask and tell

    def about(self) -> dict[str, Any]:
        """What events say of the group."""
        return {"client_id": self._config.client_id, "group": self._config.group}

    def taken(self, actor: Actor) -> None:
        """A worker has begun with records that waited."""
        self.feed.taken(actor)

    def handled(self, actor: Actor) -> None:
        """A worker is through with records."""
        self.feed.handled(actor)

    def done(self, partition: TopicPartition, offset: int, count: int) -> None:
        """Everything before an offset is handled."""
        self.crashes.pop(partition, None)
        self.storing.done(partition, offset, count)

    async def store(self, actor: Actor, offset: int) -> None:
        """Commit an offset now; returns when that is done, or the worker is gone."""
        await self.storing.until(actor, offset)

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """Go on behind what cannot be read."""
        if self.feed.is_elsewhere(partition):
            self.renew(partition)
            return
        with contextlib.suppress(StateError):  # the partition is gone
            self._consumer.seek(partition, offset)

    def stopped(self, stop: Stop, *, is_refusal: bool) -> None:
        """A callback wants the group to end."""
        reason = EndReason.REFUSED if is_refusal else EndReason.HANDLER
        self._end(Ending(reason, stop.reason))

    def failed(self, error: Exception) -> None:
        """Something of our own raised."""
        self._end(ending_for(error))

    async def crashed(self, actor: Actor, callback: str, error: Exception) -> bool:
        """A callback raised: whether to go on with a new handler, for which all is prepared."""
        self._report(actor, callback, error)
        if not self._restarts.allow(time.monotonic()):
            self._end(Ending(EndReason.CRASH_LOOP, f"{callback} of {actor.place}", error))
            return False
        partition = actor.partition
        self.crashes[partition] = f"{actor.place} was restarted after {error!r}"
        try:
            self.feed.hold(partition)
            await self.storing.at_last([partition])
            if actor.is_ending:
                return False
            if self.feed.is_elsewhere(partition):
                self.renew(partition)
                return False
            actor.mailbox.drop_data()
            self.feed.go_back(partition)
        except StateError:  # the partition is gone, which the crew is about to hear
            return False
        return True

    def _report(self, actor: Actor, callback: str, error: Exception) -> None:
        topic, partition = actor.partition
        first, last = actor.offsets or (None, None)
        _log.error("%s: %s raised", actor.place, callback, exc_info=error)
        events.emit(
            "worker.crash",
            {"count": 1},
            **self.about(),
            topic=topic,
            partition=partition,
            first_offset=first,
            last_offset=last,
            callback=callback,
            kind=type(error).__name__,
            reason=str(error),
            error=error,
        )
