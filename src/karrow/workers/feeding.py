"""Takes records out of the consumer and gives them to workers.

Rules:
- A partition whose worker has enough is paused; it goes on when the worker takes up what waits, or,
  with ``fetch_interval``, some time after it is through.
- The consumer is asked all the time, so that its group sees a member that is alive. A callback that
  takes longer than ``max_poll_interval`` makes it a member that is stuck, as in a loop without
  workers: it leaves, nothing is asked any more, and it joins again when the callback is through.
  One that waits for a thread is not stuck; if anybody is, then those that have the threads.
- What the consumer has passed over because nobody is to see it counts as handled when its worker
  has nothing to do.
- What comes of another log than what came before goes to a new worker (``renew``). So it is looked
  at which log it is before records are given, and before a partition is told where to go on.
- A partition may be gone a moment before its worker hears of it: StateError says so then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import aclosing, suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

from karrow import events
from karrow.errors import CorruptRecordError, StateError
from karrow.types import TopicPartition
from karrow.workers.mailbox import Batch, Damage

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.aio.consumer import AsyncConsumer
    from karrow.config import WorkerConfig
    from karrow.records import Record
    from karrow.workers.actor import Actor
    from karrow.workers.storing import Storing

# How long the consumer is asked at once at most; its group hears nothing of it meanwhile.
POLL = 0.5
POLL_SHARE = 1 / 4
# How often a stuck worker is looked at.
STUCK_PAUSE = 0.1
# How often it is looked for what was passed over.
PASSING = 0.5
# The columns that tell where a batch is from.
PLACE = ("topic", "partition", "offset")
_place = attrgetter("topic", "partition")


class Workers(Protocol):
    """The group of workers, as the feed sees it."""

    @property
    def actors(self) -> Mapping[TopicPartition, Actor]:
        """Those that have a partition."""

    def about(self) -> dict[str, Any]:
        """What events say of the group."""

    def match(self) -> None:
        """Have a worker for every partition."""

    def renew(self, partition: TopicPartition) -> None:
        """Have another worker for a partition that has another log."""

    def busy(self) -> Iterable[Actor]:
        """Those that may be in a callback, also those that have no partition any more."""


class Feed:
    """The way of records to the workers of one group."""

    def __init__(
        self,
        config: WorkerConfig,
        consumer: AsyncConsumer,
        storing: Storing,
        workers: Workers,
        *,
        in_batches: bool,
    ) -> None:
        self._config = config
        self._consumer = consumer
        self._storing = storing
        self._ledger = storing.ledger
        self._workers = workers
        self._in_batches = in_batches
        self._poll_time = min(POLL, POLL_SHARE * config.max_poll_interval)
        self._paused: set[TopicPartition] = set()
        self._pass_at = 0.0
        # Those that were told of: since when they are in their callback.
        self._stuck: dict[Actor, float | None] = {}

    async def repeat(self) -> None:
        """Feed the workers, for ever."""
        while True:
            self._workers.match()
            await self._until_unstuck()
            try:
                if self._in_batches:
                    await self._feed_batches()
                else:
                    await self._feed_records()
            except CorruptRecordError as error:
                self._give_damage(error)
            self._pass_over()

    # ---- records

    async def _feed_records(self) -> None:
        records = await self._consumer.poll(self._poll_time, self._config.batch_records)
        found: dict[TopicPartition, list[Record]] = {}
        for place, run in groupby(records, _place):
            found.setdefault(TopicPartition(*place), []).extend(run)
        for partition, some in found.items():
            self._give(partition, some, len(some), some[0].offset, some[-1].offset)

    async def _feed_batches(self) -> None:
        wanted = self._config.columns
        columns = None if wanted is None else [*dict.fromkeys((*wanted, *PLACE))]
        batches = self._consumer.batches(
            self._config.batch_records, self._config.batch_bytes, self._poll_time, columns
        )
        async with aclosing(batches):  # type: ignore[type-var]
            async for batch in batches:
                self._give_batch(batch)
                if self._find_stuck() and self._consumer.membership is not None:
                    return

    def _give_batch(self, batch: pa.RecordBatch) -> None:
        topic, number = batch["topic"][0].as_py(), batch["partition"][0].as_py()
        offsets = batch["offset"]
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        wanted = self._config.columns
        shown = batch if wanted is None else batch.select(list(wanted))
        self._give(TopicPartition(topic, number), shown, batch.num_rows, first, last)

    def _give(
        self, partition: TopicPartition, data: object, count: int, first: int, last: int
    ) -> None:
        actor = self._worker_for(partition, first)
        if actor is None:
            return
        self._ledger.given(partition, first)
        position, epoch = self._place(partition)
        next_offset = last + 1 if position is None else max(last + 1, position)
        self._ledger.reached(partition, next_offset, epoch)
        actor.mailbox.give(Batch(data, count, next_offset, (first, last)))
        if actor.mailbox.is_full:
            self._pause(partition)

    def _give_damage(self, error: CorruptRecordError) -> None:
        partition = TopicPartition(error.context["topic"], error.context["partition"])
        position, _ = self._place(partition)
        actor = self._worker_for(partition, position)
        if actor is None:
            return
        if position is not None:
            self._ledger.given(partition, position)
        actor.mailbox.give(Damage(error))

    def _worker_for(self, partition: TopicPartition, offset: int | None) -> Actor | None:
        """Who is given what begins at an offset; None if the partition went back this moment."""
        if partition not in self._workers.actors:
            self._workers.match()
        if self._storing.has_another_log(partition, offset):
            self._workers.renew(partition)
        return self._workers.actors.get(partition)

    def is_elsewhere(self, partition: TopicPartition) -> bool:
        """Whether the consumer stands in another log than that of what its worker was given."""
        position, _ = self._place(partition)
        return self._storing.has_another_log(partition, position)

    def _place(self, partition: TopicPartition) -> tuple[int | None, int | None]:
        """The offset that comes next, and the leader's epoch of the one before."""
        engine = self._consumer.engine
        with engine.lock:
            engine.settle()
            if partition not in engine.positions:
                return None, None
            cursor = engine.positions[partition]
            return cursor.position, cursor.position_epoch

    def _pass_over(self) -> None:
        now = time.monotonic()
        if now < self._pass_at:
            return
        self._pass_at = now + PASSING
        for partition, actor in list(self._workers.actors.items()):
            if actor.is_clear:
                self._pass_over_in(partition)

    def _pass_over_in(self, partition: TopicPartition) -> None:
        position, epoch = self._place(partition)
        if position is None:
            return
        if self._storing.has_another_log(partition, position):
            self._workers.renew(partition)
        else:
            self._ledger.reached(partition, position, epoch)
            self._ledger.done(partition, position)

    # ---- back-pressure

    def _pause(self, partition: TopicPartition) -> None:
        self._paused.add(partition)
        with suppress(StateError):
            self._consumer.pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Go on with a partition, if it is here and paused."""
        if partition in self._paused and partition in self._workers.actors:
            self._paused.discard(partition)
            with suppress(StateError):
                self._consumer.resume(partition)

    def taken(self, actor: Actor) -> None:
        """A worker has begun with records that waited."""
        if not self._config.fetch_interval:
            self.resume(actor.partition)

    def handled(self, actor: Actor) -> None:
        """A worker is through with records."""
        interval = self._config.fetch_interval
        if interval:
            asyncio.get_running_loop().call_later(interval, self._rested, actor)

    def _rested(self, actor: Actor) -> None:
        if self._workers.actors.get(actor.partition) is actor:
            self.resume(actor.partition)

    def go_back(self, partition: TopicPartition) -> None:
        """Read a partition again from what is committed, or from where its workers began.

        Raises StateError if it is gone.
        """
        place = self._ledger.go_back(partition)
        if place is not None:
            self._consumer.seek(partition, place)
        interval = self._config.fetch_interval
        if interval and partition in self._paused:
            asyncio.get_running_loop().call_later(interval, self.resume, partition)
        else:
            self.resume(partition)

    def hold(self, partition: TopicPartition) -> None:
        """Read nothing of a partition until it is told where to go on."""
        self._pause(partition)

    def forget(self, partition: TopicPartition) -> None:
        """A partition is gone."""
        self._paused.discard(partition)

    # ---- workers that are stuck

    async def _until_unstuck(self) -> None:
        while self._find_stuck() and self._consumer.membership is not None:  # noqa: ASYNC110 - a look
            await asyncio.sleep(STUCK_PAUSE)

    def _find_stuck(self) -> list[Actor]:
        now, most = time.monotonic(), self._config.max_poll_interval
        found = {actor: actor.since for actor in self._workers.busy() if actor.busy_for(now) > most}
        for actor, since in found.items():
            if self._stuck.get(actor) != since:
                self._give_up_on(actor, now)
        self._stuck = found
        return list(found)

    def _give_up_on(self, actor: Actor, now: float) -> None:
        if self._consumer.membership is not None:
            self._consumer.membership.idle()
        topic, partition = actor.partition
        events.emit(
            "worker.stuck",
            {"duration": actor.busy_for(now)},
            **self._workers.about(),
            topic=topic,
            partition=partition,
            callback=actor.callback,
        )

    @property
    def stuck(self) -> Iterable[Actor]:
        """Workers whose callback takes too long."""
        return tuple(self._stuck)
