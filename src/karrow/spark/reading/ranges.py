"""Ranges of offsets, and how they are divided among tasks.

The numbers are those of Spark's own connector, so that a program has the same tasks with both:
``maxRecordsPerPartition`` cuts each range into as few equal parts as it allows, and
``minPartitions`` then shares out parts by size among those that are large enough for two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from karrow.spark.reading.places import EARLIEST, LATEST
from karrow.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Division", "Range"]


@dataclass(frozen=True)
class Range(InputPartition):
    """What one task reads: from ``start`` up to ``end``, which is not part of it.

    In a batch query either may still be an end of the partition (-2, -1), found when the task runs.
    ``epoch`` is that of the leader which had the range when it was planned.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    epoch: int | None = None

    @property
    def where(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """How many offsets it has."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Division:
    """What limits the size of tasks."""

    min_partitions: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None

    @property
    def is_any(self) -> bool:
        """Whether ranges may have to be divided at all."""
        return not self.min_partitions == self.max_records == self.max_bytes is None

    def concerns(self, ranges: Iterable[Range]) -> bool:
        """Whether ranges of a batch query have to be divided; Spark counts empty ones here."""
        sizes = [one.size for one in ranges]
        return (
            len(sizes) < (self.min_partitions or 0)
            or self.max_bytes is not None
            or any(size > (self.max_records or size) for size in sizes)
        )

    def divided(
        self, ranges: Iterable[Range], bytes_per_offset: Mapping[TopicPartition, float]
    ) -> list[Range]:
        """Ranges for tasks; those without offsets are dropped."""
        whole = [one for one in ranges if one.size > 0]
        if self.max_records is not None:
            whole = [
                part for one in whole for part in _cut(one, math.ceil(one.size / self.max_records))
            ]
        if self.max_bytes is not None:
            whole = [
                part
                for one in whole
                for part in _cut(one, self._parts_by_bytes(one, bytes_per_offset))
            ]
        if self.min_partitions is None or len(whole) >= self.min_partitions:
            return whole
        return _shared(whole, self.min_partitions)

    def _parts_by_bytes(self, one: Range, sizes: Mapping[TopicPartition, float]) -> int:
        expected = one.size * sizes.get(one.where, 0.0)
        return min(max(math.ceil(expected / (self.max_bytes or 1)), 1), one.size)


def late(parts: Iterable[Range], bounds: Mapping[TopicPartition, tuple[int, int]]) -> list[Range]:
    """Ranges whose outer ends are found only when they are read, where they were given so."""
    found = list(parts)
    first: dict[TopicPartition, int] = {}
    last: dict[TopicPartition, int] = {}
    for index, one in enumerate(found):
        first.setdefault(one.where, index)
        last[one.where] = index
    for where, index in first.items():
        if bounds[where][0] == EARLIEST:
            found[index] = replace(found[index], start=EARLIEST)
    for where, index in last.items():
        if bounds[where][1] == LATEST:
            found[index] = replace(found[index], end=LATEST)
    return found


def _shared(ranges: list[Range], wanted: int) -> list[Range]:
    """At least so many tasks, as far as rounding allows: large ranges are cut, small ones not."""
    total = sum(one.size for one in ranges)
    small = {one.where for one in ranges if _parts(one.size, total, wanted) == 1}
    small_ones = [one for one in ranges if _parts(one.size, total, wanted) == 1]
    rest = total - sum(one.size for one in small_ones)
    parts = max(wanted - len(small_ones), 1)
    return [
        part
        for one in ranges
        for part in _cut(one, 1 if one.where in small else _parts(one.size, rest, parts))
    ]


def _parts(size: int, total: int, wanted: int) -> int:
    # Half is rounded up, as Java does.
    return max(math.floor(size / total * wanted + 0.5), 1)


def _cut(one: Range, parts: int) -> list[Range]:
    """Equal parts; the last ones have what is left over."""
    found: list[Range] = []
    start, left = one.start, one.size
    for part in range(parts):
        size = left // (parts - part)
        left -= size
        if size:
            found.append(replace(one, start=start, end=start + size))
        start += size
    return found
