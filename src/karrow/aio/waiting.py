"""How a thread or a task waits until it is woken, and until when.

Whoever may be waited for has two methods: one takes a function to call when there is news, or says
False when there is already; the other forgets it.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable

from karrow.errors import ConfigError

Wake = Callable[[], object]
Add = Callable[[Wake], bool]
Remove = Callable[[Wake], object]


def deadline_after(timeout: float | None) -> float | None:
    """When so many seconds, which a caller has named, have passed; None for never."""
    if timeout is None:
        return None
    try:
        deadline = time.monotonic() + timeout
    except TypeError:
        deadline = math.nan
    if math.isnan(deadline):
        raise ConfigError(f"timeout={timeout!r} is not a number of seconds")
    # Locks refuse to wait for longer than they can count, which is some three hundred years.
    return deadline if deadline < threading.TIMEOUT_MAX else None


def seconds_left(deadline: float | None) -> float | None:
    """How long it is until then."""
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


def blocked(add: Add, remove: Remove, timeout: float | None) -> bool:
    """Block this thread until it is woken: whether it was, in time."""
    lock = threading.Lock()
    lock.acquire()
    wake = lock.release
    if not add(wake):
        return True
    try:
        return lock.acquire(timeout=-1 if timeout is None else max(timeout, 0))
    finally:
        remove(wake)


async def awaited(add: Add, remove: Remove) -> None:
    """Wait on the running loop; whoever wakes may be in another thread."""
    loop = asyncio.get_running_loop()
    here = threading.get_ident()
    future: asyncio.Future[None] = loop.create_future()

    def settle() -> None:
        if not future.done():
            future.set_result(None)

    def wake() -> None:
        if threading.get_ident() == here:
            settle()
        else:
            loop.call_soon_threadsafe(settle)

    if not add(wake):
        return
    try:
        await future
    finally:
        remove(wake)
