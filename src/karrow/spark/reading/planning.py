"""What batch and stream ask of the cluster before anything is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from karrow.errors import ConfigError
from karrow.spark.reading.fetching import BYTES_PER_OFFSET, Fetching
from karrow.spark.reading.groups import stored_offsets
from karrow.spark.reading.loss import Verdict, report
from karrow.spark.reading.offsets import Offsets
from karrow.spark.reading.places import EARLIEST, LATEST, Place, Resolved, resolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karrow.aio.client import AsyncClient
    from karrow.spark.reading.settings import Settings
    from karrow.types import OffsetSpec, TopicPartition

__all__ = ["Planning", "beginnings"]

SAMPLES_AT_ONCE = 4
# Seconds after which no more samples are begun: a batch should not wait for its size for long.
SAMPLES_FOR = 10.0


async def beginnings(settings: Settings, client: AsyncClient) -> Offsets:
    """Where a new query begins, as offsets."""
    planning = Planning(settings, client)
    topics = await settings.topics.find(client)
    starts = await planning.resolved(await planning.starts(topics.partitions))
    return Offsets(starts, topics.ids, is_initial=True)


class Planning:
    """The questions of one query."""

    def __init__(self, settings: Settings, client: AsyncClient) -> None:
        self._settings = settings
        self._client = client

    async def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to begin, with Spark's numbers for the ends of partitions."""
        found = await self._found_starts(partitions)
        return await self._checked(self._settings.start, found)

    async def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where to begin and to end, with Spark's numbers for the ends of partitions."""
        settings, wanted = self._settings, list(partitions)
        starts = await self._found_starts(wanted)
        ends = await settings.end.find(self._client, settings.config, wanted)
        self._check_order(starts, ends)
        return (
            await self._checked(settings.start, starts),
            await self._checked(settings.end, ends),
        )

    async def _found_starts(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        settings, wanted = self._settings, list(partitions)
        if settings.start.kind == "group":
            group = settings.start_group or ""
            return await stored_offsets(self._client, group, wanted) if wanted else {}
        return await settings.start.find(self._client, settings.config, wanted)

    def _check_order(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        start, end = self._settings.start.option, self._settings.end.option
        for one, offset in starts.items():
            if 0 <= ends[one] < offset:
                raise ConfigError(
                    f"{start} begins at offset {offset} of {one}, after {end} ends at {ends[one]}"
                )

    async def _checked(
        self, place: Place, offsets: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Offsets that somebody has named, inside of what there is; retention may have been."""
        if place.kind not in ("offsets", "group"):
            return offsets
        named = {one: offset for one, offset in offsets.items() if offset >= 0}
        latest = await self.latest(named)
        earliest = await self.earliest(named) if place is self._settings.start else {}
        for one, offset in named.items():
            if offset > latest[one]:
                raise ConfigError(
                    f"{place.option} names offset {offset} of {one}, which ends at {latest[one]}"
                )
            if offset < earliest.get(one, 0):
                lost = Verdict(one, offset, earliest[one], "removed", f"{place.option} names them")
                report(lost, fails=self._settings.fails_on_loss)
                offsets[one] = earliest[one]
        return offsets

    async def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of partitions, as far as the query may read."""
        return await self.resolved(dict.fromkeys(partitions, LATEST))

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The beginnings of partitions."""
        return await self.resolved(dict.fromkeys(partitions, EARLIEST))

    async def resolved(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets with the ends of partitions asked for."""
        found = await resolved(self._client, self._settings.config, offsets)
        return {one: place.offset for one, place in found.items()}

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Resolved]:
        """The ends of partitions, with the epochs of those who have told them."""
        asked = dict.fromkeys(partitions, LATEST)
        return await resolved(self._client, self._settings.config, asked)

    async def since(
        self, time: OffsetSpec | None, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """In front of which offset everything is older than a time; 0 without one."""
        wanted = list(partitions)
        if time is None:
            return dict.fromkeys(wanted, 0)
        isolation = self._settings.config.isolation
        # The end first: what comes in between is newer than it, and must not be passed over.
        ends = await self.latest(wanted)
        found = await self._client.list_offsets(dict.fromkeys(wanted, time), isolation=isolation)
        return {
            one: ends[one] if result.offset is None else result.offset
            for one, result in found.items()
        }

    async def sizes(
        self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        """About how many bytes of Kafka's log an offset takes, seen where each range begins.

        What cannot be seen is taken to be as everywhere else: without a size it had no limit.
        """
        wanted = [one for one, begin in begins.items() if begin < ends.get(one, begin)]
        config, cluster = self._settings.config, self._client.cluster
        # A fetch has a connection for itself.
        few = asyncio.Semaphore(SAMPLES_AT_ONCE)

        clock = asyncio.get_running_loop().time
        deadline = clock() + SAMPLES_FOR

        async def sampled(one: TopicPartition) -> float | None:
            async with few:
                if clock() > deadline:
                    return None
                return await Fetching(config, cluster, one, ends[one]).sample(begins[one])

        found = await asyncio.gather(*map(sampled, wanted))
        seen = [size for size in found if size]
        usual = sum(seen) / len(seen) if seen else BYTES_PER_OFFSET
        sizes = (usual if size is None else size for size in found)
        return dict(zip(wanted, sizes, strict=True))
