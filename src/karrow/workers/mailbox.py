"""What waits for a worker: messages from outside, and records.

Rules:
- Messages come before records, in the order in which they were posted; records in their own.
- There is room for a few records and for many messages. Who gives records asks first (``is_full``);
  who posts a message that finds no room is told so.
- Once it is shut nothing comes out any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from karrow.errors import BufferFull, CorruptRecordError, StateError

MAX_MESSAGES = 10_000


@dataclass(slots=True, eq=False)
class Message:
    """Something that was said to a worker; ``answer`` is what a caller waits for."""

    kind: Literal["call", "cast", "info"]
    body: Any
    answer: asyncio.Future[Any] | None = None

    def reply(self, value: object) -> None:
        """Answer the caller, if one still waits."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(value)

    def fail(self, error: Exception) -> None:
        """Raise at the caller, if one still waits."""
        if self.answer is None or self.answer.done():
            return
        if isinstance(error, StopIteration):  # no future takes it
            error = RuntimeError(f"handle_call raised {error!r}")
        self.answer.set_exception(error)
        self.answer.exception()  # who asked may leave before it is seen: then it is nobody's


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition, as the handler wants them; ``next_offset`` is behind them.

    ``offsets`` are the first and the last.
    """

    data: Any
    count: int
    next_offset: int
    offsets: tuple[int, int]


@dataclass(slots=True, eq=False)
class Damage:
    """In place of records that cannot be read."""

    error: CorruptRecordError


class Mailbox:
    """What waits for one worker."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._messages: deque[Message] = deque()
        self._data: deque[Batch | Damage] = deque()
        self._changed = asyncio.Event()
        self.is_shut = False

    @property
    def is_full(self) -> bool:
        """Whether no more records should be given."""
        return len(self._data) >= self._room

    @property
    def has_data(self) -> bool:
        """Whether records wait."""
        return bool(self._data)

    def post(self, message: Message) -> None:
        """Say something to the worker."""
        if self.is_shut:
            raise StateError("the worker is ending")
        if len(self._messages) >= MAX_MESSAGES:
            raise BufferFull(f"{MAX_MESSAGES} messages wait for the worker already")
        self._messages.append(message)
        self._changed.set()

    def give(self, data: Batch | Damage) -> None:
        """Have records handled."""
        self._data.append(data)
        self._changed.set()

    def drop_data(self) -> None:
        """Forget the records that wait: they will be read again."""
        self._data.clear()

    async def take(self) -> Message | Batch | Damage | None:
        """The next thing to do; None when it is shut."""
        while not self.is_shut:
            if self._messages:
                return self._messages.popleft()
            if self._data:
                return self._data.popleft()
            self._changed.clear()
            await self._changed.wait()
        return None

    def shut(self) -> None:
        """Let nothing out any more."""
        self.is_shut = True
        self._data.clear()
        self._changed.set()

    def refuse(self, error: StateError) -> None:
        """Tell callers that nobody will answer."""
        while self._messages:
            self._messages.popleft().fail(error)
