"""Stores what workers are done with: soon, or at once, and before a partition is given back.

Rules:
- One commit at a time, of everything that is done by then; who waits for an offset that went along
  with another's has what it wants.
- A commit that fails is made again with the next one. Only what will not pass ends the group.
- Without a group nothing is stored, and what is done counts as stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from karrow.errors import KarrowError
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
                await self.store()

    async def until(self, actor: Actor, offset: int) -> None:
        """Store an offset, however often that has to be tried, unless its worker is ending."""
        pause = FIRST_PAUSE
        while not self.ledger.is_stored(actor.partition, offset) and not actor.is_gone:
            with contextlib.suppress(KarrowError):
                await self.store([actor.partition])
                continue
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

    async def store(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Store what is done, of all partitions or of these."""
        async with self._turn:
            offsets = self.ledger.due(partitions)
            if offsets and self._config.group is not None:
                await self._commit(offsets)
            self.ledger.stored(offsets)

    async def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        try:
            await self._consumer.commit({one: offset for one, offset in offsets.items()})  # noqa: C416 - for other keys' types
        except KarrowError as error:
            self.trouble = error
            if is_final(error):
                self._end(ending_for(error))
            raise
        self.trouble = None
