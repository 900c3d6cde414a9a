"""A partition's log: batches in segments, found by offset and by time.

Rules:
- Offsets only grow. A batch is stored as it came, but for what the broker owns in it: base offset,
  leader epoch, and the time where the topic wants the broker's.
- Nothing here is replicated: what is appended is committed, so the high watermark is the end.
- ``start_offset`` only grows, by retention or on demand; batches are removed by whole segments, and
  what is left below it is not readable.
- The epochs' history says with which offset each leader epoch began (KIP-101).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import crc32c

from karrow.broker.segment import MemoryMedia, Place, Segment
from karrow.records import BatchInfo, RecordReader

CRC_AT = 17
ATTRIBUTES_AT = 21
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
EPOCH_AT = 12
LOG_APPEND_TIME = 8


class Shelf(Protocol):
    """Makes and finds a partition's segments."""

    def create(self, base_offset: int, created_ms: int) -> Segment: ...

    def found(self) -> list[Segment]:
        """The segments that were there before, in order."""

    def keep_start(self, offset: int) -> None:
        """Remember where the log starts."""

    def kept_start(self) -> int: ...

    def remove(self) -> None: ...


class MemoryShelf:
    """Segments that end with the process."""

    def create(self, base_offset: int, created_ms: int) -> Segment:
        return Segment(base_offset, MemoryMedia(), created_ms)

    def found(self) -> list[Segment]:
        return []

    def keep_start(self, offset: int) -> None:
        """Nothing outlives the process."""

    def kept_start(self) -> int:
        return 0

    def remove(self) -> None:
        """Memory goes by itself."""


class Found(NamedTuple):
    """A record that was looked for by its time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Limits(NamedTuple):
    """When segments are closed and when they go; -1 means never."""

    segment_bytes: int
    segment_ms: int
    retention_bytes: int
    retention_ms: int


class Log:
    """Batches in the order of their offsets."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._segments = shelf.found()
        self.start_offset = shelf.kept_start()
        self.end_offset = self._segments[-1].last_offset + 1 if self._segments else 0
        self.end_offset = max(self.end_offset, self.start_offset)
        self._epochs: list[tuple[int, int]] = []
        for place, segment in self._places(0):
            self._note_epoch(_epoch_of(segment.read_header(place)), place.base_offset)

    @property
    def size_bytes(self) -> int:
        """What the segments hold."""
        return sum(segment.size for segment in self._segments)

    def segment_starts(self, until_ms: int) -> list[int]:
        """The offsets that segments begin with that were there at a time.

        The first is where the log starts.
        """
        found = [segment for segment in self._segments if segment.created_ms <= until_ms]
        return [self.start_offset, *(segment.base_offset for segment in found[1:])][: len(found)]

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """Leader epochs and the offsets they began with."""
        return list(self._epochs)

    def append(
        self, batch: bytearray, info: BatchInfo, *, epoch: int, limits: Limits, now: int
    ) -> int:
        """Store one batch and give its base offset; ``batch`` is written to.

        It must be of the newest format and have been checked.
        """
        base = self.end_offset
        last = base + info.last_offset - info.base_offset
        struct.pack_into(">q", batch, 0, base)
        struct.pack_into(">i", batch, EPOCH_AT, epoch)
        self._roll(base, len(batch), limits, now)
        self._segments[-1].append(batch, base, last, info.max_timestamp_ms)
        self._note_epoch(epoch, base)
        self.end_offset = last + 1
        return base

    def read(self, offset: int, max_bytes: int, before: int, *, whole: bool) -> bytes:
        """Whole batches from the one with ``offset`` on, all of them below ``before``.

        They fit in ``max_bytes``, except that the first one comes anyway if ``whole`` says so.
        """
        found: list[bytes] = []
        for segment in self._segments[self._segment_of(offset) :]:
            data = segment.read(offset, max_bytes, before, whole=whole and not found)
            if data:
                found.append(data)
                max_bytes -= len(data)
            elif found or segment.last_offset >= offset:
                break
        return found[0] if len(found) == 1 else b"".join(found)

    def batches(self, offset: int = 0) -> Iterator[tuple[Place, bytes]]:
        """Every batch from ``offset`` on, with its bytes."""
        for place, segment in self._places(offset):
            yield place, segment.read_batch(place)

    def find_time(self, timestamp_ms: int, before: int) -> Found | None:
        """The first record at or after a time, below the offset ``before``."""
        for place, data in self._stamped(lambda stamp: stamp >= timestamp_ms):
            for record in RecordReader(data, from_offset=self.start_offset):
                stamp = record.timestamp_ms
                if stamp is not None and stamp >= timestamp_ms and record.offset < before:
                    return Found(record.offset, stamp, _epoch_of(data))
            if place.last_offset >= before:
                break
        return None

    def find_newest(self) -> Found | None:
        """The first record that has the newest time of all (KIP-734)."""
        places = (place for place, _ in self._places(self.start_offset))
        newest = max((place.max_timestamp_ms for place in places), default=-1)
        return self.find_time(newest, self.end_offset) if newest >= 0 else None

    def epoch_end(self, epoch: int, current: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch`` and the offset it ended at; (-1, -1) if unknown.

        ``current`` is the epoch that the partition is in, which may not have written anything.
        """
        entries = self._entries(current)
        if not 0 <= epoch <= current:
            return -1, -1
        index = bisect_right(entries, (epoch, 1 << 63))
        if index == 0:
            return epoch, entries[0][1]
        end = entries[index][1] if index < len(entries) else self.end_offset
        return entries[index - 1][0], end

    def epoch_at_start(self, current: int) -> int:
        """The epoch of the first record, or of the one that will be the first."""
        found = (e for e, start in reversed(self._entries(current)) if start <= self.start_offset)
        return next(found, -1)

    def _entries(self, current: int) -> list[tuple[int, int]]:
        if self._epochs and self._epochs[-1][0] >= current:
            return self._epochs
        return [*self._epochs, (current, self.end_offset)]

    def delete_before(self, offset: int) -> None:
        """Make everything below ``offset`` unreadable; drop the segments that hold only that."""
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self._shelf.keep_start(offset)
        while len(self._segments) > 1 and self._segments[0].last_offset < offset:
            self._segments.pop(0).remove()
        if self._segments and self._segments[0].last_offset < offset == self.end_offset:
            self._segments.pop(0).remove()

    def cut(self, offset: int) -> None:
        """Forget everything from ``offset`` on, as an unclean election does."""
        while self._segments and self._segments[-1].base_offset >= offset:
            self._segments.pop().remove()
        if self._segments:
            self._segments[-1].cut(offset)
        self.end_offset = self._segments[-1].last_offset + 1 if self._segments else 0
        self.end_offset = max(self.end_offset, min(offset, self.start_offset))
        self.start_offset = min(self.start_offset, self.end_offset)
        self._shelf.keep_start(self.start_offset)
        self._epochs = [(epoch, start) for epoch, start in self._epochs if start < self.end_offset]

    def retain(self, limits: Limits, now: int) -> int:
        """Drop the segments that are too old or too much; gives how many."""
        dropped = 0
        while self._segments and self._is_due(self._segments[0], limits, now):
            gone = self._segments.pop(0)
            self.start_offset = max(self.start_offset, gone.last_offset + 1)
            self._shelf.keep_start(self.start_offset)
            gone.remove()
            dropped += 1
        return dropped

    def close(self) -> None:
        """Let go of open files."""
        for segment in self._segments:
            segment.close()

    def remove(self) -> None:
        """Give everything back."""
        for segment in self._segments:
            segment.remove()
        self._segments = []
        self._shelf.remove()

    def _is_due(self, segment: Segment, limits: Limits, now: int) -> bool:
        age = now - (segment.max_timestamp_ms if len(segment) else now)
        if limits.retention_ms >= 0 and age > limits.retention_ms:
            return True
        if limits.retention_bytes < 0 or len(self._segments) == 1:
            return False
        return self.size_bytes - segment.size >= limits.retention_bytes

    def _roll(self, base: int, size: int, limits: Limits, now: int) -> None:
        """See to it that the last segment takes ``size`` more bytes."""
        if self._segments:
            last = self._segments[-1]
            fits = not len(last) or last.size + size <= limits.segment_bytes
            if fits and (limits.segment_ms < 0 or now - last.created_ms < limits.segment_ms):
                return
        self._segments.append(self._shelf.create(base, now))

    def _segment_of(self, offset: int) -> int:
        bases = [segment.base_offset for segment in self._segments]
        return max(0, bisect_right(bases, offset) - 1)

    def _places(self, offset: int) -> Iterator[tuple[Place, Segment]]:
        for segment in self._segments[self._segment_of(offset) :]:
            for place in segment.places(offset):
                yield place, segment

    def _stamped(self, wanted: Callable[[int], bool]) -> Iterator[tuple[Place, bytes]]:
        for place, segment in self._places(self.start_offset):
            if wanted(place.max_timestamp_ms):
                yield place, segment.read_batch(place)

    def _note_epoch(self, epoch: int, base: int) -> None:
        if not self._epochs or self._epochs[-1][0] < epoch:
            self._epochs.append((epoch, base))


def stamp_append_time(batch: bytearray, now: int) -> None:
    """Give the batch the broker's time instead of the producer's."""
    (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_AT)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, now)
    _sign(batch)


def set_times(batch: bytearray, timestamp_ms: int) -> None:
    """Give a batch whose records all have the same time another one."""
    struct.pack_into(">qq", batch, BASE_TIMESTAMP_AT, timestamp_ms, timestamp_ms)
    _sign(batch)


def _sign(batch: bytearray) -> None:
    struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(memoryview(batch)[ATTRIBUTES_AT:]))


def _epoch_of(batch: bytes) -> int:
    epoch: int = struct.unpack_from(">i", batch, EPOCH_AT)[0]
    return epoch
