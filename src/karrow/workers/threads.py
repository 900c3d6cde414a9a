"""Threads for callbacks without async: at most so many, and none that holds up the process.

Those of ``concurrent.futures`` are waited for when the interpreter ends, so a callback that hangs
would keep the process alive; these are daemons.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

_numbers = itertools.count(1)

Work: TypeAlias = tuple[Callable[[], Any], asyncio.AbstractEventLoop, asyncio.Future[Any]]


class Threads:
    """Runs functions in threads, which start when they are needed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = 0
        # Functions that wait or run.
        self._wanted = 0
        self._is_closed = False

    async def run(self, function: Callable[[], Any]) -> Any:
        """What a function returns or raises, in a thread of its own for as long as it runs."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        work = function, loop, future
        if self._is_closed:
            _start(_perform, work)
            return await future
        with self._lock:
            self._wanted += 1
            if self._wanted > self._started and self._started < self._most:
                self._started += 1
                _start(self._main)
        self._queue.put(work)
        return await future

    def _main(self) -> None:
        while (work := self._queue.get()) is not None:
            _perform(work, self._is_free)
            del work  # or it would keep the last records alive

    def _is_free(self) -> None:
        with self._lock:
            self._wanted -= 1

    def close(self) -> None:
        """End the threads, each after its function; who comes late has a thread for once."""
        self._is_closed = True
        for _ in range(self._started):
            self._queue.put(None)


def _start(main: Callable[..., None], *arguments: Any) -> None:
    name = f"karrow-worker-{next(_numbers)}"
    threading.Thread(target=main, args=arguments, name=name, daemon=True).start()


def _perform(work: Work, then: Callable[[], None] | None = None) -> None:
    function, loop, future = work
    tell = _performed(function, future)
    if then is not None:
        then()
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(tell)


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
