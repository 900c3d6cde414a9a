"""Where partitions have their leaders, asked for in the background while records wait.

Rules:
- A leader that an error has put in doubt is asked for before anything more is sent there. One that
  is merely old is asked for while sending goes on.
- One question is under way at a time, about every topic that somebody waits for; after a failure
  the next one waits (KIP-580).
- A topic that the cluster does not know any more may come back in a moment: its records wait for
  ``topic_propagation`` seconds before they fail. What the cluster refuses fails at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from karrow.errors import KarrowError, UnknownTopicOrPartition
from karrow.net.retry import retry_pause
from karrow.net.sharing import cancelled

if TYPE_CHECKING:
    from uuid import UUID

    from karrow.aio._accumulator import Accumulator, Partition
    from karrow.config import ProducerConfig
    from karrow.net.cluster import Cluster
    from karrow.types import ClusterMetadata, TopicMetadata


class Leaders:
    """The leaders of the partitions that a producer writes to."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        *,
        on_change: Callable[[], object],
        on_lost: Callable[[str, KarrowError], object],
        on_recreated: Callable[[str, int], object],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._on_change = on_change
        self._on_lost = on_lost
        self._on_recreated = on_recreated
        self._wanted: set[str] = set()
        self._lost_since: dict[str, float] = {}
        self._ids: dict[str, UUID] = {}
        self._asking: asyncio.Task[None] | None = None
        self._failures = 0

    def of(self, partition: Partition) -> int | None:
        """The broker that leads a partition; None while that has to be found out."""
        name = partition.topic.name
        cache = self._cluster.cache
        age = cache.age_of(name, asyncio.get_running_loop().time())
        known = cache.partition(name, partition.number)
        if age > self._config.metadata_max_age:
            self.ask(name)
        if known is None or known.leader is None or age == float("inf"):
            partition.is_available = False
            self.ask(name)
            return None
        partition.is_available = True
        return known.leader

    def ask(self, topic: str) -> None:
        """Have a topic looked up."""
        self._wanted.add(topic)
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), name="karrow producer metadata")

    def learned(self, topic: TopicMetadata) -> None:
        """Take over what the cluster says of a topic."""
        self._lost_since.pop(topic.name, None)
        count = max(topic.partitions) + 1
        self._accumulator.add_topic(topic.name, count)
        if topic.topic_id is None:
            return
        if self._ids.setdefault(topic.name, topic.topic_id) != topic.topic_id:
            self._ids[topic.name] = topic.topic_id
            self._on_recreated(topic.name, count)

    async def _ask(self) -> None:
        try:
            while self._wanted:
                await asyncio.sleep(self._pause())
                await self._ask_once()
        finally:
            self._asking = None

    def _pause(self) -> float:
        return retry_pause(self._config, self._failures - 1) if self._failures else 0.0

    async def _ask_once(self) -> None:
        asked, self._wanted = self._wanted, set()
        self._failures += 1
        try:
            said = await self._cluster.refresh(asked)
        except KarrowError as error:
            if not error.retriable:
                for topic in asked:
                    self._on_lost(topic, error)
            else:
                self._wanted |= asked
            return
        useless = [topic for topic in sorted(asked) if not self._read(topic, said)]
        if not useless:
            self._failures = 0
        self._on_change()

    def _read(self, name: str, said: ClusterMetadata) -> bool:
        """Whether the answer helps."""
        found = said.topics.get(name)
        if found is not None and found.partitions:
            self.learned(found)
            return all(partition.leader is not None for partition in found.partitions.values())
        error: KarrowError = UnknownTopicOrPartition("the topic does not exist", topic=name)
        if found is not None and found.error is not None:
            error = found.error
        now = time.monotonic()
        lost_for = now - self._lost_since.setdefault(name, now)
        if not error.retriable or lost_for >= self._config.topic_propagation:
            self._lost_since.pop(name)
            self._on_lost(name, error)
        else:
            self._wanted.add(name)
        return False

    async def close(self) -> None:
        """Stop asking."""
        await cancelled(self._asking)
