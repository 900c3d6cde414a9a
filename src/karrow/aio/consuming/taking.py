"""Out of the engine and into the application's hands: records, lists of records, Arrow batches.

Both consumers take through here, each in its own thread; decoding happens in the thread that takes.
On a loop that would hold up everything else: there (``inline_bytes``) large batches are decoded in
a thread beside it.

Rules:
- One chunk is in hand. Whichever way of reading comes next goes on in it, so that changing between
  them loses and doubles nothing.
- Asking for more means that everything handed out before is done with (``asked_for_more``).
- Iteration moves on without a word to the engine. ``settle`` tells it how far: the record returned
  last is handed out, those in front of it are done with. Whoever looks at positions settles first,
  under the engine's lock; so the chunk in hand changes only under that lock.
- Data in hand counts like data in the inbox: a seek or a revocation makes it worthless. What may
  not be handed out after it was read goes back, to be read again.
- Damage is raised after everything in front of it was handed out, names where it is, and stops its
  partition: ``skip_damaged`` or a seek goes on behind it. It concerns no other partition. So is
  data that leads nowhere, without a whole batch or in front of what was asked for.
- Decoding beside the loop that is cancelled has not happened: the chunk is read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from karrow.aio._reading import UNLIMITED, Hand, load
from karrow.errors import CorruptRecordError, StateError
from karrow.types import OffsetSpec

if TYPE_CHECKING:
    from karrow.aio.consuming.chunk import Chunk
    from karrow.aio.consuming.engine import Engine
    from karrow.records import Record
    from karrow.records._export import RecordColumns
    from karrow.types import TopicPartition

T = TypeVar("T")

# What is decoded faster than other tasks would notice.
INLINE_BYTES = 256 * 1024
# Keys and values of one batch of columns, unless told otherwise. What was fetched may be many times
# larger without its compression, and memory that was used before is faster than new.
COLUMN_BYTES = 4 * 1024 * 1024


class Taker(Hand):
    """Takes data out of one consumer's engine."""

    def __init__(self, engine: Engine, *, inline_bytes: int = UNLIMITED) -> None:
        self.attention = engine.attention
        self.inline_bytes = inline_bytes
        self._engine = engine
        engine.fetcher.expanded_bytes = self._expanded_bytes
        self._chunk: Chunk | None = None
        self._settled = 0
        # Where to go on behind damage, and the epoch in which the partition has stopped at it.
        self._damages: dict[TopicPartition, tuple[int, int]] = {}
        self._threads: ThreadPoolExecutor | None = None

    # ---- one by one

    def refill(self) -> bool:
        """Have records in hand to iterate over; False when none are there."""
        self.done()
        while (chunk := self._current()) is not None:
            if self._has_more(chunk):
                return True
        self._passed_over()
        return False

    async def refill_beside(self) -> bool:
        """As ``refill``, with large batches decoded beside the loop."""
        self.done()
        while (chunk := self._current()) is not None:
            await self._prepare(chunk)
            if self._has_more(chunk):
                return True
        self._passed_over()
        return False

    def _has_more(self, chunk: Chunk) -> bool:
        """Whether there are records in the chunk in hand; if not, it is put away."""
        try:
            if load(chunk.reader):
                return True
        except CorruptRecordError as error:
            self._damaged(chunk, error)
        else:
            self._hand_out(chunk, chunk.next_offset, is_through=True)
        return False

    def settle(self) -> None:
        """Bring the positions to where iteration is; the engine's lock is held."""
        chunk, before, after = self._chunk, self.before, self.after
        if chunk is None or after == self._settled:
            return
        self._settled = after
        positions = self._engine.positions
        if positions.handed_out(chunk.partition, chunk.epoch, before, chunk.leader_epoch):
            positions.asked_for_more()
            positions.handed_out(chunk.partition, chunk.epoch, after, chunk.leader_epoch)

    def done(self) -> None:
        """The application asks for more: it is done with what it was handed."""
        with self._engine.lock:
            self.settle()
            self._engine.asked_for_more()

    def _passed_over(self) -> None:
        """Nothing was handed out but what nobody sees, and that is done with."""
        with self._engine.lock:
            self._engine.positions.asked_for_more()

    # ---- lists

    def records(self, most: int) -> list[Record]:
        """Up to so many records that are there, without waiting."""
        self.done()
        found: list[Record] = []
        while len(found) < most:
            chunk = self._current(raises=not found)
            if chunk is None:
                break
            taken = self.take_list(most - len(found))
            if not taken and self._is_stuck(chunk, found):
                break
            if taken and self._hand_out(chunk, chunk.reader.next_offset):
                found += taken
        if not found:
            self._passed_over()
        return found

    async def records_beside(self, most: int) -> list[Record]:
        """As ``records``, with large batches decoded beside the loop."""
        self.done()
        chunk = self._current(raises=False)
        if chunk is not None:
            await self._prepare(chunk)
        return self.records(most)

    def _is_stuck(self, chunk: Chunk, found: Sequence[Record]) -> bool:
        """Nothing could be taken of a chunk: True if the rest has to wait for the next call."""
        if found and (self.to_load > self.inline_bytes or chunk.reader.is_damaged):
            return True
        self._has_more(chunk)
        return False

    # ---- columns

    def columns(
        self,
        names: Sequence[str] | None,
        max_records: int | None,
        max_bytes: int | None,
    ) -> RecordColumns | None:
        """Rows of one partition that are there, as Arrow columns; None when there are none."""
        self.done()
        while (chunk := self._current()) is not None:
            try:
                rows = _decoding(chunk, names, max_records, max_bytes)()
            except CorruptRecordError as error:
                self._damaged(chunk, error)
                continue
            if self._hand_out_rows(chunk, rows):
                return rows
        self._passed_over()
        return None

    async def columns_beside(
        self,
        names: Sequence[str] | None,
        max_records: int | None,
        max_bytes: int | None,
    ) -> RecordColumns | None:
        """As ``columns``, with large chunks decoded beside the loop."""
        self.done()
        while (chunk := self._current()) is not None and chunk.size > self.inline_bytes:
            try:
                rows = await self._beside(chunk, _decoding(chunk, names, max_records, max_bytes))
            except CorruptRecordError as error:
                self._damaged(chunk, error)
                continue
            if self._hand_out_rows(chunk, rows):
                return rows
        return self.columns(names, max_records, max_bytes)

    def _hand_out_rows(self, chunk: Chunk, rows: RecordColumns) -> bool:
        is_through = len(rows) == 0 or rows.next_offset >= chunk.next_offset
        is_current = self._hand_out(chunk, rows.next_offset, is_through=is_through)
        return is_current and len(rows) > 0

    # ---- the chunk in hand

    def _current(self, *, raises: bool = True) -> Chunk | None:
        """The chunk in hand, or the next one; None when nothing is there."""
        if self.is_beside:
            raise StateError("a consumer is read by two tasks at once", hint="make one for each")
        with self._engine.lock:
            self.settle()
            chunk = self._chunk
            if chunk is not None and not self._engine.may_go_on(chunk):
                self.lay_down()
                chunk = None
            if chunk is None:
                chunk = self._engine.take(raises=raises)
                if chunk is not None and chunk.is_stuck:
                    self._refuse(chunk, raises=raises)
                    return None
                # A list may not hold what could not be committed with the rest of it.
                if chunk is not None and not self._engine.is_asked_for(chunk, is_first=raises):
                    self._engine.lay_back(chunk)
                    return None
                self._hold(chunk)
            return chunk

    def _refuse(self, chunk: Chunk, *, raises: bool) -> None:
        """Raise for a chunk that leads nowhere, or leave that to the next call."""
        if raises:
            self._damaged(chunk, _stuck(chunk))
        else:
            self._engine.lay_back(chunk)

    def _hold(self, chunk: Chunk | None) -> None:
        self._chunk = chunk
        self.reader = None if chunk is None else chunk.reader
        self._settled = self.after

    def _expanded_bytes(self) -> int:
        """What is in hand, or was and is paused, without its compression."""
        reader = self.reader
        in_hand = 0 if reader is None else reader.expanded_bytes
        return in_hand + self._engine.inbox.expanded_bytes

    def lay_down(self) -> None:
        """Give back what is in hand, for instance because its partition is paused."""
        with self._engine.lock:
            self.settle()
            if self._chunk is not None:
                self._engine.lay_back(self._chunk)
            self._hold(None)
        self._engine.freed()

    def _hand_out(self, chunk: Chunk, next_offset: int, *, is_through: bool = False) -> bool:
        with self._engine.lock:
            if is_through:
                next_offset = chunk.next_offset
            is_allowed = self._engine.hand_out(chunk, next_offset, is_through=is_through)
            if not is_allowed:
                chunk.read_again(self._settled)
                self._engine.lay_back(chunk)
            if is_through or not is_allowed:
                self._hold(None)
            else:
                self.moved()
                self._settled = self.after
            return is_allowed

    def _damaged(self, chunk: Chunk, error: CorruptRecordError) -> None:
        """Raise, unless the damage is in data that nobody wants any more."""
        with self._engine.lock:
            self._hold(None)
            if not self._engine.stop(chunk):
                return
            # What a damaged header says may be before the batch, or far behind the end of the log;
            # where not even that is known, the next offset is worth a try.
            begin, said = chunk.reader.next_offset, error.next_offset
            behind = begin + 1 if said is None else max(said, begin + 1)
            cursor = self._engine.positions[chunk.partition]
            marks = cursor.watermarks
            behind = behind if marks is None else min(behind, marks.high)
            self._damages[chunk.partition] = behind, cursor.epoch
            if said is not None:
                error.next_offset = behind
        raise error

    def damaged(self) -> dict[TopicPartition, OffsetSpec]:
        """Where partitions go on that have stopped at damage, each told once."""
        damages, self._damages = self._damages, {}
        positions = self._engine.positions
        with self._engine.lock:
            return {
                partition: OffsetSpec.at(offset)
                for partition, (offset, epoch) in damages.items()
                if positions.is_current(partition, epoch)
            }

    # ---- beside the loop

    async def _prepare(self, chunk: Chunk) -> None:
        """Have the next batch loaded if it is large; damage is found by whoever takes it."""
        if self.to_load > self.inline_bytes:
            with contextlib.suppress(CorruptRecordError):
                await self._beside(chunk, functools.partial(load, chunk.reader))

    async def _beside(self, chunk: Chunk, work: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "karrow-decode")
        self.is_beside = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except asyncio.CancelledError:
            chunk.read_again(self._settled)
            self.reader = chunk.reader
            raise
        finally:
            self.is_beside = False

    def close(self) -> None:
        """End the thread."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _stuck(chunk: Chunk) -> CorruptRecordError:
    """What is wrong with data that leads nowhere; its reader knows best, if it complains."""
    begin = chunk.next_offset
    try:
        load(chunk.reader)
    except CorruptRecordError as error:
        return error
    topic, partition = chunk.partition
    return CorruptRecordError(
        f"{chunk.size} bytes came without a whole batch that reaches this offset",
        hint="they are damaged, or cut off; where the next batch begins is unknown: seek to go on",
        offset=begin,
        topic=topic,
        partition=partition,
    )


def _decoding(
    chunk: Chunk, names: Sequence[str] | None, max_records: int | None, max_bytes: int | None
) -> Callable[[], RecordColumns]:
    return functools.partial(
        chunk.reader.read_arrow,
        columns=names,
        max_records=max_records,
        max_bytes=COLUMN_BYTES if max_bytes is None else max_bytes,
    )
