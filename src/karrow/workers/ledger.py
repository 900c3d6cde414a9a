"""What workers are done with, and what of it is stored. No I/O, no clock.

Rules:
- An offset is the next to be read. It is *done* when everything before it was handled, *stored*
  when a commit of it has succeeded. Neither ever goes back while its partition is here.
- All that is noted of a partition holds for one log. A topic that was deleted and made again has
  another one, and so has a partition that was cut: what comes is then before what was reached.
  Offsets of the one mean nothing in the other, so it is removed and added again.
- An offset is stored with the leader's epoch of the last that was reached. That may be a newer one
  than its own, which does no harm: whoever cuts the log begins one that is newer still.
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
    log: int | None
    first: int | None = None
    reached: int | None = None
    epoch: int | None = None
    done: int | None = None
    stored: int | None = None
    waiting: int = 0


class Ledger:
    """The partitions of a group of workers, and how far each is."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, _Entry] = {}

    def add(self, partition: TopicPartition, log: int | None = None) -> None:
        """A partition has come; ``log`` stands for what it is at the moment."""
        self._entries[partition] = _Entry(log)

    def remove(self, partition: TopicPartition) -> None:
        """A partition is gone."""
        self._entries.pop(partition, None)

    def given(self, partition: TopicPartition, offset: int) -> None:
        """A worker was given records from an offset on."""
        entry = self._entries[partition]
        if entry.first is None:
            entry.first = offset

    def reached(self, partition: TopicPartition, offset: int, epoch: int | None) -> None:
        """Everything before an offset was given or passed over; ``epoch`` is that of the last."""
        entry = self._entries[partition]
        entry.reached = offset
        if epoch is not None:
            entry.epoch = epoch

    def is_of(self, partition: TopicPartition, log: int | None) -> bool:
        """Whether this is the log that is known here."""
        entry = self._entries.get(partition)
        return entry is None or entry.log == log

    def is_before(self, partition: TopicPartition, offset: int | None) -> bool:
        """Whether an offset that comes next is before what was reached: the log was cut."""
        entry = self._entries.get(partition)
        if entry is None or entry.reached is None:
            return False
        return offset is not None and offset < entry.reached

    def epoch(self, partition: TopicPartition) -> int | None:
        """The leader's epoch that goes with what is done; None where there is none."""
        entry = self._entries.get(partition)
        return None if entry is None else entry.epoch

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

    def is_owed(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a partition is here of which no commit has reached this offset."""
        entry = self._entries.get(partition)
        return entry is not None and (entry.stored is None or entry.stored < offset)

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

    def is_due(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a record is done whose commit has not come about yet."""
        return self.due([partition]).get(partition, 0) > offset and self.is_owed(
            partition, offset + 1
        )

    @property
    def waiting(self) -> int:
        """How many handled records wait for a commit."""
        return sum(entry.waiting for entry in self._entries.values())

    def go_back(self, partition: TopicPartition) -> int | None:
        """Where a new worker goes on, which it is given next; None where the consumer stands."""
        entry = self._entries[partition]
        entry.reached = entry.first if entry.stored is None else entry.stored
        return entry.reached
