"""Fetched data that waits for the application, in the order in which it came.

The loop puts it in; the application takes it out, in its own thread or on the loop. Whoever waits is
woken by data, by an error, and by everything else that may concern it (``nudge``).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karrow.aio.consuming.chunk import Chunk
    from karrow.errors import KarrowError


class Inbox:
    """Chunks that were not taken yet, and errors that the application has to hear of."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._errors: deque[KarrowError] = deque()
        self._waiters: list[Callable[[], object]] = []

    def __len__(self) -> int:
        return len(self._chunks)

    def put(self, chunk: Chunk) -> None:
        """Data has come."""
        self._chunks.append(chunk)
        self.nudge()

    def put_back(self, chunk: Chunk) -> None:
        """There is more in a chunk that was taken."""
        self._chunks.appendleft(chunk)

    def fail(self, error: KarrowError) -> None:
        """Have the application hear of an error, once, after what came before it."""
        self._errors.append(error)
        self.nudge()

    def take(self, may_have: Callable[[Chunk], bool | None]) -> Chunk | None:
        """The first chunk that may be had; None for now, with chunks that may not be had left out.

        ``may_have`` gives None for a chunk that is worthless, which is dropped.
        """
        kept: list[Chunk] = []
        found: Chunk | None = None
        while self._chunks and found is None:
            chunk = self._chunks.popleft()
            verdict = may_have(chunk)
            if verdict:
                found = chunk
            elif verdict is False:
                kept.append(chunk)
        self._chunks.extendleft(reversed(kept))
        return found

    def raise_error(self) -> None:
        """Raise the next error that nobody has heard of."""
        if self._errors and not self._chunks:
            raise self._errors.popleft()

    # ---- waiting

    def nudge(self) -> None:
        """Wake whoever waits."""
        waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    def add_waiter(self, wake: Callable[[], object]) -> None:
        """Call ``wake`` at the next change."""
        self._waiters.append(wake)

    def remove_waiter(self, wake: Callable[[], object]) -> None:
        """Forget a waiter that has gone."""
        if wake in self._waiters:
            self._waiters.remove(wake)

    def wait(self, timeout: float | None, *, unless: Callable[[], bool]) -> None:
        """Block until something has changed, or the time is up, unless something has already."""
        lock = threading.Lock()
        lock.acquire()
        wake = lock.release
        self.add_waiter(wake)
        try:
            if not (self._chunks or self._errors or unless()):
                lock.acquire(timeout=-1 if timeout is None else max(timeout, 0.0))
        finally:
            self.remove_waiter(wake)
