"""How much of what is there the next micro-batch takes.

The shares of offsets are those of Spark's own connector: each partition gets of the limit what it
has of all that is unread, rounded down, but at least one offset. Bytes are shared the same way, by
what records of a partition take in Kafka where the batch begins. A size of 0 says that there are no
records; one that is not known has to be guessed before (planning.py), or there was no limit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from karrow.types import TopicPartition

if TYPE_CHECKING:
    from karrow.spark.reading.settings import Limits

__all__ = ["Delay", "shared_bytes", "shared_offsets"]

Bounds = Mapping[TopicPartition, int]


def unread(begins: Bounds, ends: Bounds) -> dict[TopicPartition, int]:
    """How many offsets each partition has that were not read; those without any are left out."""
    sizes = {one: end - begins.get(one, end) for one, end in ends.items()}
    return {one: size for one, size in sizes.items() if size > 0}


def shared_offsets(limit: int, begins: Bounds, ends: Bounds) -> dict[TopicPartition, int]:
    """Ends that are ``limit`` offsets away in all."""
    sizes = unread(begins, ends)
    total = sum(sizes.values())
    return {
        one: min(end, begins[one] + _share(limit * (sizes[one] / total))) if one in sizes else end
        for one, end in ends.items()
    }


def shared_bytes(
    limit: int, begins: Bounds, ends: Bounds, sizes: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Ends that are about ``limit`` bytes away in all."""
    expected = {one: offsets * sizes.get(one, 0.0) for one, offsets in unread(begins, ends).items()}
    total = sum(expected.values())
    if total <= limit:
        return dict(ends)
    return {
        one: min(end, begins[one] + _share(limit * (expected[one] / total) / sizes[one]))
        if expected.get(one)
        else end
        for one, end in ends.items()
    }


def _share(share: float) -> int:
    """Whole offsets; small partitions do not starve."""
    return math.ceil(share) if share < 1 else math.floor(share)


class Delay:
    """Holds a micro-batch back until it has enough, or has waited for long enough."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = limits.min_offsets
        self._longest = limits.max_delay
        self._clock = clock
        # As in Spark's own connector, the first batch of a query does not wait.
        self._last: float | None = None

    def holds_back(self, begins: Bounds, ends: Bounds) -> bool:
        """Whether to wait for more."""
        if self._least is None:
            return False
        now = self._clock()
        is_due = self._last is None or now - self._last >= self._longest
        if not is_due and sum(unread(begins, ends).values()) < self._least:
            return True
        self._last = now
        return False
