"""Whom to ask for partitions whose leaders are not known, or not for sure.

Rules:
- One question is under way at a time, about every topic that somebody looks for; after one that
  brought no leaders the next waits (KIP-580), as long as the topic is assigned.
- Why a partition cannot be asked for is noted where the fetcher notes its troubles.
- A partition that the cluster does not have is looked for as long as it is assigned; each time it
  was not found is told (engine.py).
- What may not pass by itself is raised once, and asked again; a login that is refused ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from karrow.aio.consuming.watch import is_refusal
from karrow.errors import KarrowError, LeaderNotAvailable
from karrow.net.cluster import missing
from karrow.net.retry import retry_pause
from karrow.net.sharing import cancelled, duty

if TYPE_CHECKING:
    from karrow.aio.consuming.positions import Positions
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster
    from karrow.types import ClusterMetadata, TopicMetadata, TopicPartition


class Leaders:
    """Looks for the leaders of one consumer's partitions, in the background."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        positions: Positions,
        troubles: dict[TopicPartition, KarrowError],
        *,
        on_change: Callable[[], object],
        on_error: Callable[[KarrowError], object],
        on_missing: Callable[[TopicPartition, KarrowError], object],
        on_refused: Callable[[KarrowError], object],
        on_broken: Callable[[str, Exception], object],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._positions = positions
        self._troubles = troubles
        self._on_change = on_change
        self._on_error = on_error
        self._on_missing = on_missing
        self._on_refused = on_refused
        self._on_broken = on_broken
        self._wanted: set[str] = set()
        self._looking: asyncio.Task[None] | None = None
        self._told: type[KarrowError] | None = None

    def look_for(self, topic: str) -> None:
        """Ask for a topic, unless it is asked for already."""
        self._wanted.add(topic)
        if self._looking is None:
            self._looking = duty(
                self._look(),
                "karrow fetch metadata",
                partial(self._on_broken, "looking for leaders"),
            )

    def give_up(self) -> None:
        """Ask for nothing more."""
        self._wanted.clear()

    async def close(self) -> None:
        """Stop looking."""
        await cancelled(self._looking)

    async def _look(self) -> None:
        failures = 0
        self._told = None
        try:
            while self._wanted:
                asked, self._wanted = self._wanted, set()
                if not await self._ask(asked):
                    break
                self._on_change()
                self._wanted &= {topic for topic, _ in self._positions.assignment}
                if self._wanted:
                    await asyncio.sleep(retry_pause(self._config, failures))
                    failures += 1
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self._on_broken("looking for leaders", error)
        finally:
            self._looking = None

    async def _ask(self, topics: set[str]) -> bool:
        """One question; False if the answer is that nothing may be asked."""
        try:
            said = await self._cluster.refresh(topics)
        except KarrowError as error:
            if is_refusal(error):
                self._on_refused(error)
                return False
            if not error.retriable and type(error) is not self._told:
                self._told = type(error)
                self._on_error(error)
            self._wanted |= topics
            self._hold_up(topics, error)
            return True
        self._told = None
        self._wanted |= {one for one in topics if not _has_leaders(said.topics.get(one))}
        self._hold_up(topics, said)
        return True

    def _hold_up(self, topics: set[str], said: ClusterMetadata | KarrowError) -> None:
        """Note why partitions of topics cannot be asked for: nobody knows whom to ask."""
        for partition in self._positions.assignment:
            known = self._cluster.cache.partition(*partition)
            if partition.topic not in topics or (known is not None and known.leader is not None):
                continue
            if isinstance(said, KarrowError):
                error = said
            elif known is not None:
                error = LeaderNotAvailable("nobody leads it at the moment")
            else:
                error = missing(said, *partition)
                if not error.retriable:
                    self._on_missing(partition, error)
            self._troubles[partition] = error


def _has_leaders(topic: TopicMetadata | None) -> bool:
    """Whether all is known that is to be asked for; of a topic with an error nothing is."""
    return (
        topic is not None
        and topic.error is None
        and bool(topic.partitions)
        and all(partition.leader is not None for partition in topic.partitions.values())
    )
