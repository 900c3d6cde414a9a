"""Tasks: shared by callers who may leave without spoiling it for the others, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from karrow.errors import StateError

T = TypeVar("T")

# Tasks that we have cancelled ourselves.
_ended: WeakSet[asyncio.Task[Any]] = WeakSet()


def duty(
    work: Coroutine[Any, Any, None], name: str, on_cancelled: Callable[[StateError], object]
) -> asyncio.Task[None]:
    """A task that nobody else may end: programs cancel all tasks of their loop when they stop.

    It would end in silence, and what it does with it. ``on_cancelled`` is told; an error is for the
    work itself to tell.
    """
    task = asyncio.create_task(work, name=name)

    def tell(done: asyncio.Task[None]) -> None:
        if done.cancelled() and done not in _ended:
            hint = "cancel your own tasks only, and close what you have opened"
            on_cancelled(StateError(f"somebody has cancelled its task, {name!r}", hint=hint))

    task.add_done_callback(tell)
    return task


async def joined(task: asyncio.Task[T]) -> T:
    """Wait for a shared task; when it was cancelled, and not the caller, say why."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if task.cancelled() and (caller is None or not caller.cancelling()):
            raise StateError("the client was closed in the meantime") from None
        raise


async def cancelled(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks, where there are any, and wait for their end, whatever it is."""
    running = [task for task in tasks if task is not None]
    _ended.update(running)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


class Sharing(Generic[T]):
    """Tasks by key: while one runs, everybody who asks for the same joins it."""

    def __init__(self) -> None:
        self._tasks: dict[object, asyncio.Task[T]] = {}

    def run(self, key: object, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """What the task for ``key`` gives, started if there is none."""
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(work())
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._done(key, done))
        return joined(task)

    def _done(self, key: object, task: asyncio.Task[T]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # everybody who waited may have left: then it is nobody's

    async def close(self) -> None:
        """End what runs."""
        await cancelled(*self._tasks.values())
