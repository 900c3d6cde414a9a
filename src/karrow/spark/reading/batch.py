"""``spark.read``: the ranges of a batch query, found when it is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from karrow.spark import pool
from karrow.spark.reading.planning import Planning
from karrow.spark.reading.ranges import Range, late
from karrow.spark.reading.settings import Settings
from karrow.spark.reading.task import read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from karrow.types import TopicPartition

__all__ = ["BatchReader"]


class BatchReader(DataSourceReader):
    """What Spark asks for the ranges of a batch query, and sends to its tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Texts alone: a configuration has secrets, which do not pickle.
        self._options = dict(options)
        self._settings()

    def _settings(self) -> Settings:
        return Settings.for_batch(self._options)

    def partitions(self) -> list[InputPartition]:
        """The ranges to read, each by a task."""
        settings = self._settings()
        client = pool.inline(settings.config)
        return list(client.run(_plan(settings, client)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; in the task."""
        if isinstance(partition, Range):  # Spark makes one of its own where there are none
            yield from read_range(self._settings(), partition)


async def _plan(settings: Settings, inline: pool.Inline) -> list[Range]:
    planning = Planning(settings, inline.client)
    found = await settings.topics.find(inline.client)
    starts = await planning.starts(found.partitions)
    ends = await planning.ends(found.partitions)
    bounds: dict[TopicPartition, tuple[int, int]] = {
        one: (starts[one], ends[one]) for one in found.partitions
    }
    if not settings.division.is_any:
        return [Range(*one, *bounds[one]) for one in found.partitions]
    first, last = await planning.resolved(starts), await planning.resolved(ends)
    whole = [Range(*one, first[one], last[one]) for one in found.partitions]
    sizes = await planning.sizes(first, last) if settings.division.max_bytes else {}
    return late(settings.division.divided(whole, sizes), bounds)
