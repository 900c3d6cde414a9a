"""Out of the engine and into the application's hands: records, lists of records, Arrow batches.

Both consumers take through here, each in its own thread; decoding happens in the thread that takes.

Rules:
- Asking for more means that everything handed out before is done with (``asked_for_more``).
- A chunk that is not used up stays in hand for the next call; data in hand counts like data in the
  inbox, so a seek or a revocation makes it worthless.
- Damage is raised after everything in front of it was handed out, names where it is, and stops its
  partition: ``skip_damaged`` or a seek goes on behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from karrow.errors import CorruptRecordError

if TYPE_CHECKING:
    from karrow.aio.consuming.chunk import Chunk
    from karrow.aio.consuming.engine import Engine
    from karrow.records import Record
    from karrow.records._export import RecordColumns


class Taker:
    """Takes data out of one consumer's engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._chunk: Chunk | None = None

    def _current(self) -> Chunk | None:
        """The chunk in hand, or the next one; None when nothing is there."""
        chunk = self._chunk
        if chunk is not None and self._engine.may_go_on(chunk):
            return chunk
        if chunk is not None:
            self._engine.lay_back(chunk)
        self._chunk = self._engine.take()
        return self._chunk

    def records(self, most: int) -> list[Record]:
        """Up to so many records that are there, without waiting."""
        self._engine.asked_for_more()
        found: list[Record] = []
        while len(found) < most:
            chunk = self._current()
            if chunk is None:
                break
            taken = self._some(chunk, most - len(found))
            found += taken
        return found

    def _some(self, chunk: Chunk, most: int) -> list[Record]:
        """Records of one chunk; a chunk that is through is put away."""
        taken: list[Record] = []
        reader = chunk.reader
        is_through = False
        try:
            while len(taken) < most:
                taken.append(next(reader))
        except StopIteration:
            is_through = True
        except CorruptRecordError as error:
            if not taken:
                self._damaged(chunk, error)
        return taken if self._hand_out(chunk, reader.next_offset, is_through=is_through) else []

    def columns(
        self,
        names: Sequence[str] | None,
        max_records: int | None,
        max_bytes: int | None,
    ) -> RecordColumns | None:
        """Rows of one partition that are there, as Arrow columns; None when there are none."""
        self._engine.asked_for_more()
        while (chunk := self._current()) is not None:
            reader = chunk.reader
            try:
                rows = reader.read_arrow(
                    columns=names, max_records=max_records, max_bytes=max_bytes
                )
            except CorruptRecordError as error:
                self._damaged(chunk, error)
                continue
            is_through = len(rows) == 0 or reader.next_offset >= chunk.next_offset
            if self._hand_out(chunk, reader.next_offset, is_through=is_through) and len(rows):
                return rows
        return None

    def _hand_out(self, chunk: Chunk, next_offset: int, *, is_through: bool) -> bool:
        if is_through:
            next_offset = chunk.next_offset
            self._chunk = None
        return self._engine.hand_out(chunk, next_offset, is_through=is_through)

    def _damaged(self, chunk: Chunk, error: CorruptRecordError) -> None:
        """Raise, unless the damage is in data that nobody wants any more."""
        self._chunk = None
        if self._engine.stop(chunk):
            topic, partition = chunk.partition
            error.context = {"topic": topic, "partition": partition, **error.context}
            raise error

    def lay_down(self) -> Any:
        """Give back what is in hand, for instance before another way of reading begins."""
        if self._chunk is not None:
            self._engine.lay_back(self._chunk)
            self._chunk = None
