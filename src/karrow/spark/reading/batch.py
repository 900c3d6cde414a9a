"""``spark.read``: the ranges of a batch query, found when it is planned."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from karrow.spark import options as spark_options
from karrow.spark import pool
from karrow.spark.arriving import arrive
from karrow.spark.reading.places import EARLIEST, LATEST
from karrow.spark.reading.planning import Planning
from karrow.spark.reading.pushdown import Bounds
from karrow.spark.reading.ranges import Range, late
from karrow.spark.reading.settings import Settings
from karrow.spark.reading.task import read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from karrow.aio.client import AsyncClient
    from karrow.types import TopicPartition

__all__ = ["BatchReader", "FilteredReader", "batch_reader"]


def batch_reader(options: Mapping[str, str]) -> BatchReader:
    """The reader that the options ask for.

    Spark refuses to plan with a reader that could take filters while its own setting
    ``spark.sql.python.filterPushdown.enabled`` is off; so only who asks for it gets one.
    """
    wanted = spark_options.flag(options, "pushdown", default=False)
    return FilteredReader(options) if wanted else BatchReader(options)


class BatchReader(DataSourceReader):
    """What Spark asks for the ranges of a batch query, and sends to its tasks."""

    _bounds = Bounds()

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._settings()

    # Texts alone go to the tasks: a configuration has secrets, which do not pickle.
    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (__name__, batch_reader.__name__, self._options)
        return arrive, arguments, {"_bounds": self._bounds}

    def _settings(self) -> Settings:
        return Settings.for_batch(self._options)

    def partitions(self) -> list[InputPartition]:
        """The ranges to read, each by a task."""
        settings = self._settings()
        client = pool.inline(settings.config)
        return list(client.run(_plan(settings, client.client, self._bounds)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; in the task."""
        if isinstance(partition, Range):  # Spark makes one of its own where there are none
            yield from read_range(self._settings(), partition)


class FilteredReader(BatchReader):
    """A reader that leaves out what filters on partition, offset and timestamp do not want."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Take filters over; gives those that Spark still has to check."""
        self._bounds, left = Bounds().narrowed(filters)
        return left


async def _plan(settings: Settings, client: AsyncClient, bounds: Bounds) -> list[Range]:
    planning = Planning(settings, client)
    found = await settings.topics.find(client)
    wanted = [one for one in found.partitions if bounds.holds(one)]
    starts, ends = await planning.bounds(found.partitions)
    given = [Range(*one, starts[one], ends[one], found.ids.get(one.topic)) for one in wanted]
    if not bounds.is_any and not settings.division.is_any:
        return given
    first, last = await planning.resolved(starts), await planning.resolved(ends)
    if bounds.is_any:
        since = await planning.since(bounds.since, wanted)
        given = [
            bounds.cut(one, first[one.where], last[one.where], since[one.where]) for one in given
        ]
    whole = [
        replace(
            one,
            start=first[one.where] if one.start in (EARLIEST, LATEST) else one.start,
            end=last[one.where] if one.end == LATEST else one.end,
        )
        for one in given
    ]
    if not settings.division.concerns(whole):
        return given
    sizes: dict[TopicPartition, float] = {}
    if settings.division.max_bytes is not None:
        sizes = await planning.sizes(first, last)
    outer = {one.where: (one.start, one.end) for one in given}
    return late(settings.division.divided(whole, sizes), outer)
