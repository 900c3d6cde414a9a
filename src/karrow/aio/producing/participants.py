"""The partitions that take part in a transaction.

Rules:
- In transactions of version 1 a partition is noted first, and takes part when the coordinator has
  been told: all that are noted meanwhile in one request.
- A topic that takes part and is made anew has lost records of the transaction.
- What the coordinator refuses is forgotten with everything that was noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from karrow.errors import KarrowError, UnknownTopicOrPartition
from karrow.net.sharing import cancelled

if TYPE_CHECKING:
    from karrow.types import TopicPartition


class Participants:
    """Partitions that were added, and those that will be.

    ``add`` tells the coordinator; ``on_added`` and ``on_refused`` hear what it said.
    """

    def __init__(
        self,
        add: Callable[[set[TopicPartition]], Awaitable[None]],
        on_added: Callable[[], object],
        on_refused: Callable[[KarrowError], object],
    ) -> None:
        self.added: set[TopicPartition] = set()
        self._add = add
        self._on_added = on_added
        self._on_refused = on_refused
        self._noted: set[TopicPartition] = set()
        self._adder: asyncio.Task[None] | None = None

    def lost(self, topic: str) -> KarrowError | None:
        """What to say of a topic that was made anew: if it takes part, records are gone."""
        if all(one.topic != topic for one in self.added):
            return None
        return UnknownTopicOrPartition(
            "the topic was made anew within the transaction: what was written to it is gone",
            topic=topic,
        )

    def note(self, partition: TopicPartition) -> None:
        """Have a partition added soon."""
        self._noted.add(partition)
        if self._adder is None or self._adder.done():
            self._adder = asyncio.create_task(self._add_noted())

    def forget_noted(self) -> None:
        """Add none of those that were noted."""
        self._noted.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.added.clear()
        self._noted.clear()

    async def wait(self) -> None:
        """Until nothing is being added."""
        if self._adder is not None:
            await asyncio.wait([self._adder])

    async def close(self) -> None:
        """End what runs in the background."""
        await cancelled(self._adder)

    async def _add_noted(self) -> None:
        while self._noted:
            noted = set(self._noted)
            try:
                await self._add(noted)
            except KarrowError as error:
                self._noted.clear()
                self._on_refused(error)
                return
            self.added |= noted
            self._noted -= noted
            self._on_added()
