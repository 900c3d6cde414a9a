"""An event loop whose time passes only when nothing is left to do, and a transport in memory."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from karrow import wire
from karrow.config import ClientConfig
from karrow.net.connection import Connection, Peer

T = TypeVar("T")

PEER = Peer("b1", 9092, 1)


class _Selector(selectors.SelectSelector):
    """Sleeping costs no time: it only moves the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            ready = super().select(5.0)
            if not ready:
                raise RuntimeError("the test waits for something that cannot happen")
            return ready
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class MemoryTransport(asyncio.Transport):
    """Keeps what is written, and hands over what a test says the peer sent."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.written = bytearray()
        self.is_aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, parts: Any) -> None:
        for part in parts:
            self.written += part

    def abort(self) -> None:
        self.is_aborted = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    close = abort

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_aborted

    def feed(self, data: bytes, portion: int | None = None) -> None:
        """Let the protocol read, in portions of any size."""
        rest = memoryview(data)
        while rest and not self.is_aborted:
            room = self.protocol.get_buffer(-1)
            assert isinstance(room, memoryview)
            count = min(len(room), len(rest), portion or len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            self.protocol.buffer_updated(count)


class Wire:
    """A connection, its transport, and the broker's end of it as requests and answers."""

    def __init__(self, **options: Any) -> None:
        self.config = ClientConfig(**options)
        self.closed: list[Connection] = []
        self.connection = Connection(PEER, self.config, on_close=self.closed.append)
        self.transport = MemoryTransport(self.connection)
        self.connection.connection_made(self.transport)
        self._server = wire.ServerFraming()
        self._read = 0

    def requests(self) -> list[wire.Request]:
        """What was sent since the last look."""
        frames = self._server.frames.feed(bytes(self.transport.written[self._read :]))
        self._read = len(self.transport.written)
        found = [self._server.receive(frame) for frame in frames]
        return [request for request in found if isinstance(request, wire.Request)]

    def answer(
        self, request: wire.Request, body: dict[str, Any], portion: int | None = None
    ) -> None:
        """Answer one of them."""
        self.transport.feed(self.bytes(request, body), portion)

    def bytes(self, request: wire.Request, body: dict[str, Any]) -> bytes:
        """The bytes of an answer."""
        return b"".join(self._server.respond(request, body))


Handler = Callable[[wire.Request], dict[str, Any] | None]
