"""Clients that outlive what Spark asks for: one per process and configuration, kept between tasks.

Rules:
- What is kept belongs to one process: it is made after the fork, and a forked child begins anew.
- Configurations are compared whole: two that differ, be it in a password, share nothing.
- An inline client has no thread: its loop runs only while somebody waits for it. What happened to
  its connections in between is looked at before it is used again.
- Whoever is interrupted while it waits leaves nothing running: the work is cancelled at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.aio.client import AsyncClient
from karrow.errors import PartialError
from karrow.sync.client import Client
from karrow.sync.loop import new_event_loop

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from karrow.config import ClientConfig
    from karrow.net.cluster import Cluster

__all__ = ["Inline", "client", "close", "inline"]

T = TypeVar("T")

# How long cancelled work may take to put its things in order.
CLEAN_UP = 1.0


class _Process:
    """What belongs to this process."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.clients: list[tuple[ClientConfig, Client]] = []
        self.inlines: list[tuple[ClientConfig, Inline]] = []


_process = _Process()


def _forget() -> None:
    """In a forked child: connections and threads are the parent's."""
    global _process  # noqa: PLW0603 - one set per process is the point
    _process = _Process()


os.register_at_fork(after_in_child=_forget)


def client(config: ClientConfig) -> Client:
    """The process's client with this configuration, for calls without await."""
    for known, found in _process.clients:
        if _is_same(known, config):
            return found
    made = Client(config=config)
    _process.clients.append((config, made))
    return made


def inline(config: ClientConfig) -> Inline:
    """The process's client with this configuration that runs in the caller's own thread."""
    for known, found in _process.inlines:
        if _is_same(known, config):
            found.look()
            return found
    if _process.loop is None:
        _process.loop = new_event_loop()
    made = Inline(config, _process.loop)
    _process.inlines.append((config, made))
    return made


def close() -> None:
    """Close everything that is kept; whoever needs a client after that gets a new one."""
    process = _process
    _forget()
    for _, found in process.clients:
        found.close()
    for _, made in process.inlines:
        made.run(made.client.close())
    if process.loop is not None:
        process.loop.close()


def _is_same(one: ClientConfig, other: ClientConfig) -> bool:
    return one is other or (type(one) is type(other) and one == other)


class Inline:
    """A client, and the loop that it runs on while somebody waits."""

    def __init__(self, config: ClientConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.client = AsyncClient(config=config)
        self._loop = loop

    @property
    def cluster(self) -> Cluster:
        """Metadata, routing and connections."""
        return self.client.cluster

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the loop until the work is done; of several errors the first is raised."""
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        except PartialError as error:  # Spark shows texts, and that of a group says little
            raise next(iter(error.errors.values())) from error
        finally:
            self._end(task)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin work that goes on whenever the loop runs; it has to be waited for, or ended."""
        return self._loop.create_task(work)

    def wait(self, task: asyncio.Task[T]) -> T:
        """Run the loop until work that was begun is done."""
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            self._end(task)
            raise

    def end(self, task: asyncio.Task[Any] | None) -> None:
        """Stop work that nobody waits for any more."""
        if task is not None:
            self._end(task)

    def _end(self, task: asyncio.Task[Any]) -> None:
        if task.done():
            if not task.cancelled():
                task.exception()  # has been raised, or is nobody's
            return
        task.cancel()
        with contextlib.suppress(Exception):
            self._loop.run_until_complete(asyncio.wait([task], timeout=CLEAN_UP))

    def look(self) -> None:
        """Let the loop hear of connections that were closed since it last ran."""
        self._loop.run_until_complete(asyncio.sleep(0))
