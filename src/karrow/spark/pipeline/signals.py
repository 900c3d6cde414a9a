"""SIGINT and SIGTERM as a wish to stop.

Rules:
- The first one is a wish, and everything ends in good order; the second one ends it at once.
- A handler runs between any two steps of the main thread, also while that holds a lock: it may take
  none that is not made for it, such as that of a threading.Event.
- Ctrl-C goes to all processes of a terminal, Spark's workers too, and would fail the batch that is
  to end in good order. What is started with the signal blocked never hears of it.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["StopWish", "deaf_to_interrupts"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopWish:
    """Listens for signals while it is open; in other threads than the main one it hears none."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._wishes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals; once more when somebody else may have taken them, as Spark does."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            before = signal.signal(number, self._hear)
            self._before.setdefault(number, before)

    def wait(self, timeout: float) -> bool:
        """Whether somebody wants it to stop, waiting for that so long."""
        if self.number is None:
            with suppress(queue.Empty):
                self._wishes.get(timeout=timeout)
        return self.number is not None

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        self._wishes.put(number)


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """What is started inside does not hear SIGINT; for this thread it waits until the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
