"""Stores what workers are done with: soon, or at once, and before a partition is given back.

Rules:
- One commit at a time, of everything that is done by then; who waits for an offset that went along
  with another's has what it wants.
- A commit that fails is made again with the next one, soon: a topic that is gone holds up nobody
  else's offsets. Only what will not pass ends the group.
- What was done in a log that is there no more is not stored in the one that has taken its place.
- Without a group nothing is stored, and what is done counts as stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from karrow.errors import CommitFailed, KarrowError
from karrow.types import CommittedOffset
from karrow.workers.ending import ending_for, is_final
from karrow.workers.ledger import Ledger

if TYPE_CHECKING:
    from karrow.aio.consumer import AsyncConsumer
    from karrow.config import WorkerConfig
    from karrow.types import TopicPartition
    from karrow.workers.actor import Actor
    from karrow.workers.ending import Ending

# How long a commit may take that a rebalance or the end waits for.
FAREWELL = 5.0
# How often a commit is tried in a row that another one will follow.
TRIES = 3
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0

_log = logging.getLogger("karrow.workers")


class Storing:
    """The commits of one group of workers.

    ``trouble`` is why the last commit has failed.
    """

    def __init__(
        self, config: WorkerConfig, consumer: AsyncConsumer, end: Callable[[Ending], None]
    ) -> None:
        self.ledger = Ledger()
        self.trouble: KarrowError | None = None
        self._config = config
        self._consumer = consumer
        self._end = end
        self._turn = asyncio.Lock()
        self._much = asyncio.Event()

    def add(self, partition: TopicPartition) -> None:
        """A partition has come."""
        self.ledger.add(partition, self._log(partition))

    def has_another_log(self, partition: TopicPartition, offset: int | None) -> bool:
        """Whether an offset that comes next is of another log than what is known here."""
        return not self._is_here(partition) or self.ledger.is_before(partition, offset)

    def _is_here(self, partition: TopicPartition) -> bool:
        log = self._log(partition)  # one that is not assigned is the consumer's to refuse
        return log is None or self.ledger.is_of(partition, log)

    def _log(self, partition: TopicPartition) -> int | None:
        engine = self._consumer.engine
        with engine.lock:
            return engine.positions.assignments([partition]).get(partition)

    def done(self, partition: TopicPartition, offset: int, count: int) -> None:
        """Everything before an offset is handled."""
        self.ledger.done(partition, offset, count)
        if self.ledger.waiting >= self._config.commit_threshold:
            self._much.set()

    async def repeat(self) -> None:
        """Store what is done, from time to time and whenever that is much."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.commit_interval):
                    await self._much.wait()
            self._much.clear()
            with contextlib.suppress(KarrowError):
                await self.store(retries=TRIES)

    async def until(self, actor: Actor, offset: int) -> None:
        """Store an offset, however often that has to be tried, unless its worker is ending.

        Nor if its log is gone: there is nothing left to be stored then.
        """
        pause = FIRST_PAUSE
        partition = actor.partition
        while self.ledger.is_owed(partition, offset) and not actor.is_gone:
            with contextlib.suppress(KarrowError):
                await self.store([partition], retries=TRIES)
                continue
            if not self._is_here(partition):
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def at_last(self, partitions: Iterable[TopicPartition]) -> bool:
        """Store what is done of partitions that are given back, in bounded time; whether it is."""
        try:
            async with asyncio.timeout(FAREWELL):
                await self.store(partitions)
        except (KarrowError, TimeoutError) as error:
            _log.warning("%s: not committed: %r", self._config.group, error)
            return False
        return True

    async def store(
        self, partitions: Iterable[TopicPartition] | None = None, *, retries: int | None = None
    ) -> None:
        """Store what is done, of all partitions or of these; raises CommitFailed."""
        async with self._turn:
            due = self.ledger.due(partitions)
            offsets = {one: offset for one, offset in due.items() if self._is_here(one)}
            if offsets and self._config.group is not None:
                await self._commit(offsets, retries)
            self.ledger.stored(offsets)
            if not self.ledger.due():  # nothing is left that could fail
                self.trouble = None
        if len(offsets) < len(due):
            raise CommitFailed(
                "the topic was deleted and made again: what was done is of the old one",
                group=self._config.group,
            )

    async def _commit(self, offsets: dict[TopicPartition, int], retries: int | None) -> None:
        epoch = self.ledger.epoch
        try:
            await self._consumer.commits.store(
                {one: CommittedOffset(offset, epoch(one)) for one, offset in offsets.items()},
                retries=retries,
            )
        except KarrowError as error:
            self.trouble = error
            if is_final(error):
                self._end(ending_for(error))
            raise
        self.trouble = None
