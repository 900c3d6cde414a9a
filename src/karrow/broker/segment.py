"""Where a partition's bytes lie: in memory, or in a file of the data directory.

A segment holds whole batches one after the other and knows where each begins, so that a read is
one copy however many batches it spans.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from karrow.errors import CorruptRecordError, KafkaStorageError
from karrow.records import BatchInfo, batches

Buffer = bytes | bytearray | memoryview
# Batches are found again by walking a file in pieces of this size.
SCAN_BYTES = 8 << 20
HEADER_BYTES = 61
# How large the pieces are that small batches are gathered in.
PIECE_BYTES = 1 << 20


class Media(Protocol):
    """Bytes that only grow at their end, or are cut there."""

    def append(self, data: Buffer) -> None:
        """Take data over: it must not be changed any more."""

    def read(self, position: int, length: int) -> bytes: ...

    def cut(self, length: int) -> None: ...

    def remove(self) -> None: ...

    def close(self) -> None: ...


class MemoryMedia:
    """Bytes in memory, in pieces: nothing is copied again because more comes.

    Small appends are gathered in a piece until it is full; a large one is a piece by itself, and
    is kept without a copy.
    """

    def __init__(self) -> None:
        self._pieces: list[bytearray] = []
        self._starts: list[int] = []
        self._size = 0

    def append(self, data: Buffer) -> None:
        if len(data) >= PIECE_BYTES // 4 and isinstance(data, bytearray):
            self._begin(data)
        elif self._pieces and len(self._pieces[-1]) + len(data) <= PIECE_BYTES:
            self._pieces[-1] += data
        else:
            self._begin(bytearray(data))
        self._size += len(data)

    def read(self, position: int, length: int) -> bytes:
        found = []
        end = min(position + length, self._size)
        index = bisect_right(self._starts, position) - 1
        while position < end:
            start, piece = self._starts[index], self._pieces[index]
            with memoryview(piece) as view:
                found.append(bytes(view[position - start : end - start]))
            position = start + len(piece)
            index += 1
        return found[0] if len(found) == 1 else b"".join(found)

    def cut(self, length: int) -> None:
        while self._starts and self._starts[-1] >= length:
            self._starts.pop()
            self._pieces.pop()
        if self._pieces:
            del self._pieces[-1][length - self._starts[-1] :]
        self._size = min(self._size, length)

    def remove(self) -> None:
        self.cut(0)

    def close(self) -> None:
        """Nothing is open."""

    def _begin(self, piece: bytearray) -> None:
        self._starts.append(self._size)
        self._pieces.append(piece)


class FileMedia:
    """Bytes in a file. What was appended survives the end of the process, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._file).st_size

    def append(self, data: Buffer) -> None:
        try:
            write_all(self._file, data)
        except OSError as error:
            os.ftruncate(self._file, self._size)  # what is half written must not stay
            raise KafkaStorageError(f"the batch could not be written: {error}") from error
        self._size += len(data)

    def read(self, position: int, length: int) -> bytes:
        return os.pread(self._file, length, position)

    def cut(self, length: int) -> None:
        os.ftruncate(self._file, length)
        self._size = length

    def remove(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Place(NamedTuple):
    """A batch inside a segment."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    position: int
    end: int


class Segment:
    """Whole batches in the order of their offsets."""

    def __init__(self, base_offset: int, media: Media, created_ms: int) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.created_ms = created_ms
        self._media = media
        self._bases = array("q")
        self._lasts = array("q")
        self._stamps = array("q")
        self._ends = array("q")

    def __len__(self) -> int:
        return len(self._bases)

    @property
    def max_timestamp_ms(self) -> int:
        """The newest time stamp, -1 in an empty segment."""
        return max(self._stamps, default=-1)

    @property
    def last_offset(self) -> int:
        """The offset of the last record, base_offset - 1 in an empty segment."""
        return self._lasts[-1] if self._lasts else self.base_offset - 1

    def append(self, data: Buffer, base_offset: int, last_offset: int, timestamp_ms: int) -> None:
        """Add one batch."""
        self._media.append(data)
        self._note(base_offset, last_offset, timestamp_ms, len(data))

    def places(self, offset: int = 0) -> Iterator[Place]:
        """The batches from the one that holds ``offset``, or the next one after it."""
        for index in range(bisect_left(self._lasts, offset), len(self._bases)):
            yield self._place(index)

    def read(self, offset: int, max_bytes: int, before: int, *, whole: bool) -> bytes:
        """Batches from the one with ``offset`` on that fit; see Log.read."""
        first = bisect_left(self._lasts, offset)
        stop = bisect_left(self._lasts, before, first)
        if first >= stop:
            return b""
        start = self._start(first)
        fit = bisect_right(self._ends, start + max_bytes, first)
        stop = min(stop, max(fit, first + 1) if whole else fit)
        return self._media.read(start, self._ends[stop - 1] - start) if stop > first else b""

    def read_header(self, place: Place) -> bytes:
        """One batch's bytes before its records."""
        return self._media.read(place.position, HEADER_BYTES)

    def read_batch(self, place: Place) -> bytes:
        """One batch's bytes."""
        return self._media.read(place.position, place.end - place.position)

    def cut(self, offset: int) -> None:
        """Forget every batch that has a record at ``offset`` or after."""
        keep = bisect_left(self._lasts, offset)
        if keep == len(self._bases):
            return
        self.size = self._start(keep)
        self._media.cut(self.size)
        for column in (self._bases, self._lasts, self._stamps, self._ends):
            del column[keep:]

    def recover(self, size: int, check: Callable[[bytes, BatchInfo], bool]) -> bool:
        """Find the batches in ``size`` bytes again; False when a torn tail had to be cut off."""
        position = 0
        while position < size:
            piece = self._media.read(position, SCAN_BYTES)
            taken = self._recover_piece(piece, check)
            if taken == 0:
                length = int.from_bytes(piece[8:12], "big") + 12
                if not SCAN_BYTES < length <= size - position:
                    break
                taken = self._recover_piece(self._media.read(position, length), check)
                if taken == 0:
                    break
            position += taken
        self._media.cut(position)
        return position == size

    def remove(self) -> None:
        """Give the bytes back."""
        self._media.remove()

    def close(self) -> None:
        """Let go of the file, if there is one."""
        self._media.close()

    def _recover_piece(self, piece: bytes, check: Callable[[bytes, BatchInfo], bool]) -> int:
        taken = 0
        for info in _sound_batches(piece):
            end = info.position + info.size_bytes
            if info.base_offset <= self.last_offset or not check(piece[info.position : end], info):
                break
            self._note(info.base_offset, info.last_offset, info.max_timestamp_ms, info.size_bytes)
            taken = end
        return taken

    def _note(self, base: int, last: int, stamp: int, size: int) -> None:
        self._bases.append(base)
        self._lasts.append(last)
        self._stamps.append(stamp)
        self.size += size
        self._ends.append(self.size)

    def _start(self, index: int) -> int:
        return self._ends[index - 1] if index else 0

    def _place(self, index: int) -> Place:
        return Place(
            self._bases[index],
            self._lasts[index],
            self._stamps[index],
            self._start(index),
            self._ends[index],
        )


def write_all(file: int, data: Buffer) -> None:
    """Write everything: one call may take a part only."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sound_batches(piece: bytes) -> list[BatchInfo]:
    """The batches before the first one whose header makes no sense."""
    try:
        return batches(piece)
    except CorruptRecordError as error:
        return batches(piece[: error.position])
