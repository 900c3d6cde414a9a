"""Records that are committed one by one, by an id that their callback was given.

Rules:
- Ids of a partition are committed in the order of their offsets. One that comes too early is
  refused, or, where that is allowed, waits until those before it are committed.
- An id belongs to one life of its worker. After a crash or a rebalance the records are handed out
  again with other ids, and the old ones are refused.
- Callbacks and commits may be in different threads.
- A function that returns something to be awaited is through when that is. Whether it does, as an
  object with ``async def __call__``, shows only when it is called.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from karrow.errors import StateError
from karrow.workers.handler import Commit, Handled, Handler, Stop

if TYPE_CHECKING:
    from karrow.records import Record

_lives = itertools.count(1)


class CommitId(NamedTuple):
    """What stands for a record when it is committed."""

    topic: str
    partition: int
    offset: int
    life: int


CommitId.__module__ = "karrow"

# Called with commit id, topic, partition, offset, key and value.
Callback: TypeAlias = Callable[[CommitId, str, int, int, bytes | None, bytes | None], object]


class Pending:
    """The ids of one life of a worker that are not committed."""

    def __init__(self, *, allow_unordered: bool) -> None:
        self._allow_unordered = allow_unordered
        self._lock = threading.Lock()
        # Offsets in order; True for those that only wait for the ones before them.
        self._waiting: dict[int, bool] = {}
        self.life = next(_lives)

    @property
    def is_empty(self) -> bool:
        """Whether everything is committed."""
        return not self._waiting

    def offsets(self) -> list[int]:
        """What is not committed, in order."""
        with self._lock:
            return list(self._waiting)

    def add(self, offset: int) -> None:
        """A record is handed out."""
        with self._lock:
            self._waiting[offset] = False

    def settle(self, offset: int) -> int | None:
        """A record is to be committed: the offset to store, None while earlier ones are missing."""
        with self._lock:
            if offset not in self._waiting:
                raise StateError(f"offset {offset} is committed already, or is no one's to commit")
            first = next(iter(self._waiting))
            if offset != first and not self._allow_unordered:
                raise StateError(
                    f"offset {offset} cannot be committed before {first}",
                    hint="commit in order, or allow_unordered_commit=True",
                )
            self._waiting[offset] = True
            return self._advance()

    def _advance(self) -> int | None:
        behind = None
        for offset, is_settled in list(self._waiting.items()):
            if not is_settled:
                break
            del self._waiting[offset]
            behind = offset + 1
        return behind


class CallbackHandler(Handler):
    """Calls a function with every record.

    A record counts as handled when the function returns, or, with ``pending``, when its id is
    committed. One that the function returns a Stop for does not, unless the Stop says so.
    """

    pending: Pending | None = None
    # The record that the function has or had last.
    offset: int | None = None

    def setup(self, *_: Any, callback: Callback, pending: Callable[[], Pending | None]) -> None:
        """Make ready."""
        self._callback = callback
        self.pending = pending()
        self._life = next(_lives) if self.pending is None else self.pending.life

    def handle_records(self, records: Sequence[Record]) -> Handled | Awaitable[Handled]:
        """Hand them over one by one."""
        for number, record in enumerate(records):
            answer = self._hand_over(record)
            if inspect.isawaitable(answer):
                return self._awaited(answer, records[number:])
            if (stop := self._settle(record, answer)) is not None:
                return stop
        return Commit.SYNC

    async def _awaited(self, answer: Any, records: Sequence[Record]) -> Handled:
        """Wait for the answer to the first of them, and hand over the others on the loop too."""
        for number, record in enumerate(records):
            said = self._hand_over(record) if number else answer
            said = await said if inspect.isawaitable(said) else said
            if (stop := self._settle(record, said)) is not None:
                return stop
        return Commit.SYNC

    def _settle(self, record: Record, answer: object) -> Stop | None:
        """The function has returned: the record is handled, or the group is to stop."""
        if not isinstance(answer, Stop):
            self.done(record)
            return None
        if answer.commit is not None:
            self.done(record)
        # What it speaks of is one record, not all that came with it.
        return replace(answer, commit=None)

    def _hand_over(self, record: Record) -> Any:
        where = record.topic, record.partition, record.offset
        self.offset = record.offset
        if self.pending is not None:
            self.pending.add(record.offset)
        return self._callback(CommitId(*where, self._life), *where, record.key, record.value)


class AsyncCallbackHandler(CallbackHandler):
    """The same for a function to be awaited."""

    async def handle_records(self, records: Sequence[Record]) -> Handled:
        """Hand them over one by one."""
        if not records:
            return Commit.SYNC
        return await self._awaited(self._hand_over(records[0]), records)
