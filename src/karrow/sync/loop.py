"""One background event loop per process, for everything that is called without await.

Rules:
- It starts with the first call, never at import. Its thread is a daemon and ends with the process.
- It belongs to one process. A forked child forgets it and starts its own when it needs one; what
  was open in the parent says so when the child uses it (see net.cluster).
- A call from the loop's own thread would wait for itself, so it is refused. A call from inside any
  other running loop, as in a notebook, works and blocks that loop's thread.
- Ctrl-C while waiting cancels the coroutine, waits for it to clean up, and goes on to the caller.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib
import importlib.util
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

from karrow.errors import StateError

T = TypeVar("T")

# How long an interrupted call may take to put its things in order.
CLEAN_UP = 5.0
EXIT_WAIT = 2.0
# How often tasks are told to end: each time ends one thing that they do before they go.
INSISTING = 4


class BackgroundLoop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self._main, name="karrow", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_here(self) -> bool:
        """Whether the caller is on the loop's own thread."""
        return threading.current_thread() is self._thread

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for what it returns."""
        call = _Call(coroutine)
        try:
            self.loop.call_soon_threadsafe(call.start)
            return call.outcome.result()
        except (KeyboardInterrupt, SystemExit):
            self.loop.call_soon_threadsafe(call.cancel)
            wait([call.outcome], CLEAN_UP)
            raise

    def stop(self) -> None:
        """End the loop; what still runs on it is cancelled."""
        if self.loop.is_closed():
            return
        with contextlib.suppress(RuntimeError, TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_all(), self.loop).result(EXIT_WAIT)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(EXIT_WAIT)
        if not self._thread.is_alive():
            self.loop.close()


class _Call(Generic[T]):
    """A coroutine another thread waits for.

    It exists before it is scheduled, so that an interrupt at any moment after has something to
    cancel; ``asyncio.run_coroutine_threadsafe`` leaves a moment in which it has not.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self.outcome: Future[T] = Future()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task is None:
            self._coroutine.close()
            self._set_cancelled()
        else:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._set_cancelled()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())

    def _set_cancelled(self) -> None:
        self.outcome.cancel()
        self.outcome.set_running_or_notify_cancel()  # or ``wait`` would not be told


async def _cancel_all() -> None:
    """Cancel everything, and once more what still takes its time to put things in order."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for _ in range(INSISTING):
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        _, tasks = await asyncio.wait(tasks, timeout=EXIT_WAIT / (2 * INSISTING))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed (the extra ``speed``), else asyncio's own."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    return loop


class _Process:
    """What belongs to this process: the loop, if it has one, and what to do before it ends."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.background: BackgroundLoop | None = None
        # In the order in which they were asked for, each once.
        self.farewells: dict[Callable[[], object], None] = {}


_process = _Process()


def _forget() -> None:
    """In a forked child: the parent's thread does not exist here, nor who held its lock."""
    global _process  # noqa: PLW0603 - one loop per process is the point
    _process = _Process()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def background() -> BackgroundLoop:
    """The loop of this process, started if there is none."""
    process = _process
    found = process.background
    if found is not None:
        return found
    with process.lock:
        if process.background is None:
            process.background = BackgroundLoop()
            atexit.register(_finish, process, os.getpid())
        return process.background


def run(coroutine: Coroutine[Any, Any, T], twin: str) -> T:
    """Run a coroutine from a thread that is not the loop's; ``twin`` is the class to use there."""
    found = background()
    if found.is_here:
        coroutine.close()
        raise StateError(
            "a blocking call on karrow's own loop would wait for itself",
            hint=f"use {twin} and await it",
        )
    return found.run(coroutine)


def at_exit(farewell: Callable[[], object]) -> None:
    """Call ``farewell`` before the loop ends with the process, in the thread that ends it.

    Asking again changes nothing; a forked child has to ask for itself.
    """
    _process.farewells[farewell] = None


def _finish(process: _Process, pid: int) -> None:
    if pid != os.getpid() or process.background is None:
        return
    for farewell in process.farewells:
        with contextlib.suppress(Exception):
            farewell()
    process.background.stop()
