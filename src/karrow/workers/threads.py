"""Threads for callbacks without async: at most so many, and none that holds up the process.

Those of ``concurrent.futures`` are waited for when the interpreter ends, so a callback that hangs
would keep the process alive; these are daemons.

Rules:
- A function that waits for a thread can be dropped, and is then never called. One that a thread has
  taken up cannot; a lock decides which of the two came first.
- Its time begins when a thread takes it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_numbers = itertools.count(1)


class Dropped(Exception):
    """The function was dropped before a thread took it up."""


class Job:
    """A function that waits for a thread or runs in one, since when; ``since`` is None before."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.since: float | None = None
        self._function: Callable[[], Any] | None = function
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = self._loop.create_future()
        self._lock = threading.Lock()

    async def result(self) -> Any:
        """What the function returns or raises; raises Dropped if it was dropped."""
        try:
            return await self._future
        finally:
            self.drop()  # nobody would hear of it

    def drop(self) -> None:
        """Call the function no more, unless a thread has taken it up."""
        if self._take() is not None:
            _fail(self._future, Dropped())

    def perform(self, then: Callable[[], None] | None = None) -> None:
        """Call the function in this thread, unless it was dropped, and tell who waits."""
        function = self._take(time.monotonic())
        tell = None if function is None else _performed(function, self._future)
        if then is not None:
            then()
        if tell is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(tell)

    def _take(self, since: float | None = None) -> Callable[[], Any] | None:
        """The function, for the first who wants it."""
        with self._lock:
            function, self._function = self._function, None
            if function is not None:
                self.since = since
            return function


class Threads:
    """Runs functions in threads, which start when they are needed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        # Functions that wait or run.
        self._wanted = 0
        self._is_closed = False

    async def run(self, function: Callable[[], Any]) -> Any:
        """What a function returns or raises, in a thread of its own for as long as it runs."""
        return await self.begin(function).result()

    def begin(self, function: Callable[[], Any]) -> Job:
        """Have a function called as soon as there is a thread for it."""
        job = Job(function)
        if self._is_closed:
            _start(job.perform)
            return job
        with self._lock:
            self._wanted += 1
            if self._wanted > self._started and self._started < self._most:
                self._started += 1
                _start(self._main)
        self._queue.put(job)
        return job

    def _main(self) -> None:
        while (job := self._queue.get()) is not None:
            job.perform(self._is_free)
            del job  # or it would keep the last result alive

    def _is_free(self) -> None:
        with self._lock:
            self._wanted -= 1

    def close(self) -> None:
        """End the threads, each after its function; who comes late has a thread for once."""
        self._is_closed = True
        for _ in range(self._started):
            self._queue.put(None)


def _start(main: Callable[[], None]) -> None:
    name = f"karrow-worker-{next(_numbers)}"
    threading.Thread(target=main, name=name, daemon=True).start()


def _performed(function: Callable[[], Any], future: asyncio.Future[Any]) -> Callable[[], None]:
    """Call a function; what tells the loop how that went."""
    try:
        return partial(_settle, future, function())
    except StopIteration as error:  # no future takes it
        return partial(_fail, future, RuntimeError(f"a callback raised {error!r}"))
    except Exception as error:  # noqa: BLE001 - it belongs to who waits
        return partial(_fail, future, error)
    except BaseException as error:  # noqa: BLE001 - sys.exit() ends no thread of ours
        return partial(_fail, future, RuntimeError(f"a callback raised {error!r}"))


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
