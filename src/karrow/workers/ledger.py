"""What workers are done with, and what of it is stored. No I/O, no clock.

Rules:
- An offset is the next to be read. It is *done* when everything before it was handled, *stored*
  when a commit of it has succeeded. Neither ever goes back while its partition is here.
- A worker that crashed goes on at what is done, once that is stored; if it cannot be stored, at
  what is stored; if nothing is, at the first offset that the partition's workers were given.
- A partition that comes back after it was given away begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karrow.types import TopicPartition


@dataclass(slots=True)
class _Entry:
    first: int | None = None
    done: int | None = None
    stored: int | None = None
    waiting: int = 0


class Ledger:
    """The partitions of a group of workers, and how far each is."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, _Entry] = {}

    def add(self, partition: TopicPartition) -> None:
        """A partition has come."""
        self._entries[partition] = _Entry()

    def remove(self, partition: TopicPartition) -> None:
        """A partition is gone."""
        self._entries.pop(partition, None)

    def given(self, partition: TopicPartition, offset: int) -> None:
        """A worker was given records from an offset on."""
        entry = self._entries[partition]
        if entry.first is None:
            entry.first = offset

    def done(self, partition: TopicPartition, offset: int, count: int = 0) -> None:
        """Everything before an offset is handled, ``count`` records more than before."""
        entry = self._entries.get(partition)
        if entry is None or (entry.done is not None and offset <= entry.done):
            return
        entry.done = offset
        entry.waiting += count

    def stored(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets were committed."""
        for partition, offset in offsets.items():
            entry = self._entries.get(partition)
            if entry is None or (entry.stored is not None and offset <= entry.stored):
                continue
            entry.stored = offset
            if entry.done == offset:
                entry.waiting = 0

    def is_stored(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a commit of this offset, or of one behind it, has succeeded."""
        entry = self._entries.get(partition)
        return entry is not None and entry.stored is not None and entry.stored >= offset

    def due(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """What is done and not stored, of all partitions or of some."""
        wanted = self._entries if partitions is None else partitions
        return {
            one: entry.done
            for one in wanted
            if (entry := self._entries.get(one)) is not None
            and entry.done is not None
            and entry.done != entry.stored
        }

    @property
    def waiting(self) -> int:
        """How many handled records wait for a commit."""
        return sum(entry.waiting for entry in self._entries.values())

    def place(self, partition: TopicPartition) -> int | None:
        """Where a new worker goes on; None where the consumer stands."""
        entry = self._entries[partition]
        return entry.first if entry.stored is None else entry.stored
