"""Fetched data that waits for the application, in the order in which it came.

Rules:
- The loop puts data and errors in; the application takes them out, in its thread or on the loop.
- What may not be had now (a paused partition) is passed over and stays where it is. It gets bytes
  of its own, since it may wait for long, and would keep the whole answer of a broker in memory.
- An error is raised once, after all data that came before it and may be had.
- Whoever found nothing waits for the next change. What happens between the look and the wait
  counts: every change has a number, and who waits has seen one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from karrow.errors import KarrowError

if TYPE_CHECKING:
    from karrow.aio.consuming.chunk import Chunk


class Inbox:
    """Chunks that were not taken yet, and errors that the application has to hear of.

    ``expanded_bytes`` is what is kept decompressed of chunks that were begun with and put back.
    """

    def __init__(self) -> None:
        self._items: deque[Chunk | KarrowError] = deque()
        self._waiters: list[Callable[[], object]] = []
        self.expanded_bytes = 0
        self._changes = 0
        self._seen = -1

    def __len__(self) -> int:
        return len(self._items)

    def put(self, chunk: Chunk) -> None:
        """Data has come; whoever puts the last of it nudges."""
        self._items.append(chunk)

    def put_back(self, chunk: Chunk) -> None:
        """There is more in a chunk that was taken."""
        self._put_in_front(chunk)

    def _put_in_front(self, item: Chunk | KarrowError) -> None:
        self._items.appendleft(item)
        if not isinstance(item, KarrowError):
            self.expanded_bytes += item.expanded_bytes

    def fail(self, error: KarrowError) -> None:
        """Have the application hear of an error, once, after what came before it."""
        self._items.append(error)
        self.nudge()

    def take(
        self, may_have: Callable[[Chunk], bool | None], *, raises: bool = True
    ) -> Chunk | None:
        """The first chunk that may be had, or None; an error that comes first is raised.

        ``may_have`` gives None for a chunk that is worthless, which is dropped. Without ``raises``
        an error stays, and so does everything behind it.
        """
        self._seen = self._changes
        if not self._items:
            return None
        passed: list[Chunk | KarrowError] = []
        try:
            while self._items:
                item = self._items.popleft()
                if isinstance(item, KarrowError):
                    if raises:
                        raise item
                    passed.append(item)
                    return None
                self.expanded_bytes -= item.expanded_bytes
                verdict = may_have(item)
                if verdict:
                    return item
                if verdict is False:
                    item.keep()
                    passed.append(item)
            return None
        finally:
            for item in reversed(passed):
                self._put_in_front(item)

    # ---- waiting

    def nudge(self) -> None:
        """Wake whoever waits."""
        self._changes += 1
        waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    def look(self) -> None:
        """Have seen everything that has changed so far."""
        self._seen = self._changes

    @property
    def has_news(self) -> bool:
        """Whether something has changed since the application looked last."""
        return self._seen != self._changes

    def wait(self, timeout: float | None) -> None:
        """Block until something has changed since the last look, or the time is up."""
        lock = threading.Lock()
        lock.acquire()

        self._waiters.append(lock.release)
        try:
            if self._seen == self._changes:
                lock.acquire(timeout=-1 if timeout is None else max(timeout, 0.0))
        finally:
            if self._waiters:
                self._forget(lock.release)

    async def wait_on_loop(self, timeout: float | None) -> None:  # noqa: ASYNC109 - as ``wait``
        """As ``wait``, for the loop that puts things in."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        self._waiters.append(wake)
        try:
            if not self.has_news:
                async with asyncio.timeout(timeout):
                    await future
        except TimeoutError:
            pass
        finally:
            self._forget(wake)

    def _forget(self, wake: Callable[[], object]) -> None:
        if wake in self._waiters:
            self._waiters.remove(wake)
