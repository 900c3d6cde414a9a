"""The broker in a thread of its own, for programs without a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from karrow.broker.embedded import AsyncBroker
from karrow.errors import StateError

T = TypeVar("T")
STOP_TIMEOUT = 10.0


class Broker:
    """A Kafka cluster in this process, on loopback.

    Example::

        with karrow.Broker() as broker, karrow.Client(broker.bootstrap) as client:
            client.produce("orders", [b"1"], partition=0)
    """

    __module__ = "karrow"

    def __init__(self, brokers: int = 1, **options: Any) -> None:
        self._inner = AsyncBroker(brokers, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """What clients are given: "127.0.0.1:PORT", one for each node."""
        return self._inner.bootstrap

    def start(self) -> None:
        """Listen, in a thread of its own."""
        if self._thread is not None:
            raise StateError("the broker is running already")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="karrow-broker", daemon=True
        )
        self._thread.start()
        try:
            self._wait(self._inner.start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every connection and the thread."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._wait(self._inner.close())
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_TIMEOUT)
        loop.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise StateError("the broker is not running")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Run something on the broker's loop, where all its state lives."""

        async def run() -> T:
            return function(*arguments, **options)

        return self._wait(run())
