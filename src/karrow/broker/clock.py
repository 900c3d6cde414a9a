"""Time as the broker sees it: the machine's clock, or one that a test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol


class Timer(Protocol):
    """Something that will happen unless it is cancelled."""

    def cancel(self) -> object: ...


class Clock(Protocol):
    """What the broker asks of a clock. Everything happens on the broker's loop."""

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Learn the loop that callbacks run on."""

    def time_ms(self) -> int:
        """The wall clock, in milliseconds since 1970."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Run something after that many seconds."""


class SystemClock:
    """The machine's own clock."""

    _loop: asyncio.AbstractEventLoop

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        return self._loop.call_later(delay, callback)


class ManualClock:
    """A clock that stands still until it is told to go on; for tests of time-outs and retention.

    Example::

        clock = karrow.ManualClock()
        with karrow.Broker(clock=clock) as broker:
            clock.advance(60)   # sessions expire, transactions time out, at once
    """

    __module__ = "karrow"

    def __init__(self, start_ms: int | None = None) -> None:
        # Records come with the time of their producer's clock, so now is a good moment to begin.
        self._now_ms = SystemClock().time_ms() if start_ms is None else start_ms
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._serial = itertools.count()
        self._loop: asyncio.AbstractEventLoop | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def time_ms(self) -> int:
        return self._now_ms

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        timer = _ManualTimer(callback)
        due = self._now_ms + max(0, round(delay * 1000))
        heapq.heappush(self._timers, (due, next(self._serial), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Move on; what falls due on the way happens in its order, before this returns."""
        loop = self._loop
        if loop is None or not loop.is_running() or loop is _running_loop():
            self._advance(seconds)
        else:
            self._advance_from_outside(loop, seconds)

    def _advance_from_outside(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        done: Future[None] = Future()

        def step() -> None:
            self._advance(seconds)
            done.set_result(None)

        loop.call_soon_threadsafe(step)
        done.result()

    def _advance(self, seconds: float) -> None:
        end = self._now_ms + round(seconds * 1000)
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._now_ms = max(self._now_ms, due)
            timer.fire()
        self._now_ms = end


class _ManualTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
