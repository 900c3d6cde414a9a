"""Cuts a coroutine off: its task is cancelled at a suspension that is counted, not timed.

Three ways: *waiting*, while it waits; *late*, when what it waited for has just happened and the
task has not heard of it, so that the outcome is lost on the way; *twice*, while it waits and once
more when it waits for the first time after that, in what it does to clean up.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, Literal

Way = Literal["waiting", "late", "twice"]
WAYS: tuple[Way, ...] = ("waiting", "late", "twice")


class Cut:
    """Runs a coroutine up to a suspension, counted from 0."""

    def __init__(self, place: int, way: Way) -> None:
        self.place = place
        self.way = way
        self.is_made = False
        """Whether the coroutine came that far."""

    async def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Come to the cut, or to the end; a cut must not go unheard."""
        task = asyncio.create_task(self._counted(coroutine))
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
            assert not self.is_made, "the coroutine went on although it was cancelled"

    async def _counted(self, coroutine: Coroutine[Any, Any, None]) -> None:
        await self._stepping(coroutine)

    @types.coroutine
    def _stepping(self, coroutine: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
        left = self.place
        step, argument = coroutine.send, None
        while True:
            try:
                waiting = step(argument)
            except StopIteration:
                return
            if left == 0 or (left == -1 and self.way == "twice"):
                self._cut(waiting)
            left -= 1
            try:
                step, argument = coroutine.send, (yield waiting)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the coroutine's
                step, argument = coroutine.throw, error

    def __repr__(self) -> str:
        return f"<Cut at {self.place}, {self.way}>"

    def _cut(self, waiting: asyncio.Future[Any] | None) -> None:
        self.is_made = True
        task = asyncio.current_task()
        assert task is not None
        if self.way == "late" and waiting is not None:
            waiting.add_done_callback(lambda _: task.cancel())  # told before the task is
        else:
            task.cancel()
