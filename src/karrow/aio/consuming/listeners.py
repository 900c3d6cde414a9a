"""The application's functions for rebalances: on_assigned, on_revoked, on_lost.

Rules:
- They are called one after the other, in the order of what happened.
- An AsyncConsumer calls them on the loop, and awaits what they return. A Consumer calls them in the
  thread of the application, while that polls or closes: until then the rebalance waits.
- Nobody is told of losing what it was not told to have.
- One that raises does not harm the rebalance; the application hears of it when it next polls, or
  from ``close``.
- Nobody waits for ever: not for an application that has gone, which is told nothing more, and in
  ``close`` not for longer than the group's rebalance time.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from karrow.errors import CallbackError, StateError

if TYPE_CHECKING:
    from karrow.aio.consuming.engine import Engine
    from karrow.config import ConsumerConfig
    from karrow.config.consumer import Rebalanced
    from karrow.types import TopicPartition


class Listeners:
    """Tells the application.

    ``in_thread`` has it told in its own thread, by ``run_errands``.
    """

    def __init__(self, config: ConsumerConfig, engine: Engine) -> None:
        self.in_thread = False
        self._raised: CallbackError | None = None
        self._on_assigned = config.on_assigned
        self._on_revoked = config.on_revoked
        self._on_lost = config.on_lost or config.on_revoked
        self._engine = engine
        self._longest = config.rebalance_time
        self._is_closing = False
        self._is_silent = False
        self._turn = asyncio.Lock()
        # What the application was told to have; it is told of losing nothing else.
        self._had: set[TopicPartition] = set()
        # Who is in a listener now.
        self._caller: threading.Thread | asyncio.Task[Any] | None = None
        self._errands: deque[Callable[[], None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions have come."""
        await self._tell("on_assigned", self._on_assigned, partitions)

    async def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are given back."""
        await self._tell("on_revoked", self._on_revoked, partitions)

    def lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are gone; nobody waits for the application here."""
        told = self._tell("on_lost", self._on_lost, partitions)
        task = asyncio.create_task(told, name="karrow on_lost")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(
        self, name: str, listener: Rebalanced | None, partitions: Iterable[TopicPartition]
    ) -> None:
        if listener is None:
            return
        about = sorted(partitions)
        async with self._turn:
            if self.in_thread:
                await self._as_errand(lambda: self._call(name, listener, about))
            else:
                await self._awaited(name, listener, about)

    async def _awaited(self, name: str, listener: Rebalanced, about: list[TopicPartition]) -> None:
        with self._called_by(asyncio.current_task()):
            try:
                answer = self._call(name, listener, about)
                if inspect.isawaitable(answer):
                    await answer
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                self._report(name, error)

    @contextmanager
    def _called_by(self, caller: threading.Thread | asyncio.Task[Any] | None) -> Iterator[None]:
        self._caller = caller
        self._engine.is_listening = True
        try:
            yield
        finally:
            self._caller = None
            self._engine.is_listening = False

    def _call(self, name: str, listener: Rebalanced, about: list[TopicPartition]) -> object:
        if name == "on_assigned":
            self._had.update(about)
        elif self._on_assigned is not None:
            about = [one for one in about if one in self._had]
            self._had.difference_update(about)
            if not about:
                return None
        try:
            return listener(about)
        except Exception as error:  # noqa: BLE001 - the application's own
            self._report(name, error)
            return None

    def _report(self, name: str, error: BaseException) -> None:
        found = CallbackError(f"{name} raised {type(error).__name__}: {error}")
        found.__cause__ = error
        self._complain(found)

    def _complain(self, found: CallbackError) -> None:
        if self._is_closing:
            self._raised = self._raised or found
        else:
            self._engine.inbox.fail(found)

    # ---- in the application's thread

    async def _as_errand(self, call: Callable[[], object]) -> None:
        """Have the application's thread do something, and wait until it has."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def errand() -> None:
            try:
                if not (done.cancelled() or self._is_silent):
                    call()
            finally:
                loop.call_soon_threadsafe(finish)

        self._errands.append(errand)
        self._engine.interrupt()
        if self._is_silent:  # perhaps since a moment ago, in another thread
            self._let_go()
        await done

    def run_errands(self) -> None:
        """Do what waits for the application's thread, which is this one."""
        while self._errands:
            with self._called_by(threading.current_thread()):
                self._errands.popleft()()

    def refuse_here(self, what: str) -> None:
        """Refuse to a listener what would wait for it."""
        here: object = threading.current_thread()
        if not self.in_thread:
            here = asyncio.current_task()
        if self._caller is not None and self._caller is here:
            raise StateError(
                f"a listener cannot {what} its consumer, which waits for it",
                hint="note that it is wanted, and do it after the poll",
            )

    def silence(self) -> None:
        """Tell nobody any more: the application has gone."""
        self._on_assigned = self._on_revoked = self._on_lost = None
        self._is_silent = True
        self._let_go()

    def _let_go(self) -> None:
        """Have nobody wait for what is not done any more."""
        with suppress(IndexError):  # this may happen in two threads at once
            while True:
                self._errands.popleft()()

    def closing(self) -> None:
        """Nobody polls any more: what is raised from now on comes out of ``close``."""
        self._is_closing = True

    async def close(self) -> None:
        """Wait for what the application is told of losses, and raise what it has raised."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=self._longest)
            for one in late:
                one.cancel()
            if late:
                self._complain(CallbackError(f"on_lost did not return for {self._longest} s"))
        error, self._raised = self._raised, None
        if error is not None:
            raise error


def _is_cancelled() -> bool:
    """Whether somebody has cancelled the task that runs, and not only something it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
