"""Filters of a batch query that are cheaper to keep than to check: partition, offset, timestamp.

Rules:
- A filter on ``partition`` or ``offset`` chooses what is fetched, exactly, so Spark need not look
  again. One on ``timestamp`` is only a beginning: Kafka finds the first record that is not older,
  and times need not grow with offsets; Spark checks every row that comes.
- Spark gives the filters that must all hold. What is not understood stays with Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from karrow.types import OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karrow.spark.reading.ranges import Range
    from karrow.types import TopicPartition

__all__ = ["Bounds"]

_NEVER_NULL = ("partition", "offset", "topic", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What rows have to be: from ``first`` up to ``end`` in offsets, in these partitions."""

    partitions: frozenset[int] | None = None
    first: int = 0
    end: int | None = None
    since: OffsetSpec | None = None

    def narrowed(self, filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
        """These bounds with filters taken in, and the filters that Spark still has to check."""
        found, left = self, []
        for one in filters:
            inner = found._with(one)
            if inner is None or _is_about("timestamp", one):
                left.append(one)
            found = inner or found
        return found, left

    def _with(self, one: Filter) -> Bounds | None:
        """These bounds with a filter; None where it is not understood."""
        attribute = getattr(one, "attribute", None)
        if isinstance(one, IsNotNull) and attribute in [(name,) for name in _NEVER_NULL]:
            return self
        if attribute == ("partition",):
            return self._in_partitions(one)
        if attribute == ("offset",):
            return self._in_offsets(one)
        if attribute == ("timestamp",):
            return self._since(one)
        return None

    def _in_partitions(self, one: Filter) -> Bounds | None:
        match one:
            case EqualTo(value=int(number)) | EqualNullSafe(value=int(number)):
                wanted = frozenset([number])
            case In(value=numbers):
                wanted = frozenset(number for number in numbers if number is not None)
            case _:
                return None
        known = self.partitions
        return replace(self, partitions=wanted if known is None else known & wanted)

    def _in_offsets(self, one: Filter) -> Bounds | None:
        match one:
            case EqualTo(value=int(number)) | EqualNullSafe(value=int(number)):
                return self._between(number, number + 1)
            case GreaterThan(value=int(number)):
                return self._between(number + 1, None)
            case GreaterThanOrEqual(value=int(number)):
                return self._between(number, None)
            case LessThan(value=int(number)):
                return self._between(0, number)
            case LessThanOrEqual(value=int(number)):
                return self._between(0, number + 1)
        return None

    def _between(self, first: int, end: int | None) -> Bounds:
        # In front of a partition there is nothing, and numbers there have meanings: see places.py.
        ends = [max(one, 0) for one in (self.end, end) if one is not None]
        return replace(self, first=max(self.first, first), end=min(ends, default=None))

    def _since(self, one: Filter) -> Bounds | None:
        match one:
            case EqualTo() | EqualNullSafe() | GreaterThan() | GreaterThanOrEqual():
                time = _time(one.value)
            case _:
                return None
        if time is None:
            return None
        known = self.since
        return self if known and known.value > time.value else replace(self, since=time)

    @property
    def is_any(self) -> bool:
        """Whether they leave anything out."""
        return self != Bounds()

    def holds(self, where: TopicPartition) -> bool:
        """Whether a partition can have rows that are wanted."""
        return self.partitions is None or where.partition in self.partitions

    def cut(self, one: Range, first: int, end: int, since: int) -> Range:
        """A range inside the bounds; where those are wider, its beginning stays as it is.

        So does its end where there is no bound: what comes until a task looks would be too much.
        ``first`` and ``end`` are where the range's ends are now, ``since`` where the time is found.
        """
        begin = max(self.first, since)
        start = begin if begin > first else one.start
        stop = one.end if self.end is None else min(self.end, end)
        return replace(one, start=start, end=stop)


def _is_about(column: str, one: Filter) -> bool:
    return getattr(one, "attribute", None) == (column,) and not isinstance(one, IsNotNull)


def _time(value: Any) -> OffsetSpec | None:
    """Milliseconds of a moment; a time without a zone could be any."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    milliseconds = int(value.timestamp() * 1000)
    return OffsetSpec.at_timestamp_ms(milliseconds) if milliseconds >= 0 else None
