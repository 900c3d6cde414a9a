"""One connection through the proxy: two streams of frames, and what is to go wrong with them."""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from dataclasses import field as fresh
from typing import Any, Literal, NamedTuple

from karrow import wire
from karrow.errors import KarrowError
from karrow.wire.table import schema

Address = tuple[str, int]
Direction = Literal["up", "down"]

CHUNK = 65536
# How much may be on its way before the sender has to wait.
ON_THE_WAY = 4 << 20
RESET = struct.pack("ii", 1, 0)
HEAD = struct.Struct(">hhi")
TLS_RECORDS = b"\x16\x15\x17"


class Seen(NamedTuple):
    """A request as it came in; ``at`` is monotonic time."""

    api: str
    version: int
    correlation_id: int
    at: float


class Step:
    """One thing that happens to one request or answer: wait for it, then let it go."""

    def __init__(
        self, kind: Literal["hold", "reset", "stall"], api: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.kind = kind
        self.api = wire.api(api).name
        self.discarded = False
        self._loop = loop
        self._happened = threading.Event()
        self.released = asyncio.Event()

    def happen(self) -> None:
        """Called by the proxy when it meets the frame."""
        self._happened.set()

    def wait(self, timeout: float = 10.0) -> None:
        """Wait until the frame has come."""
        if not self._happened.wait(timeout):
            raise TimeoutError(f"no {self.api} came in {timeout:g} s")

    @property
    def happened(self) -> bool:
        """Whether the frame has come."""
        return self._happened.is_set()

    def release(self) -> None:
        """Let a held request go on to the broker."""
        self._loop.call_soon_threadsafe(self.released.set)

    def discard(self) -> None:
        """Drop a held request; what follows goes on."""
        self.discarded = True
        self.release()


@dataclass(eq=False)
class Cut:
    """A connection is to end in the middle of something."""

    left: int
    direction: Direction
    how: Literal["reset", "close", "stall"]
    done: threading.Event = fresh(default_factory=threading.Event)


@dataclass
class Faults:
    """What is wrong with a proxy, now."""

    rewrite: dict[Address, Address]
    latency: float = 0.0
    rate: float | None = None
    open: asyncio.Event = fresh(default_factory=asyncio.Event)
    steps: list[Step] = fresh(default_factory=list)
    cuts: list[Cut] = fresh(default_factory=list)
    seen: list[Seen] = fresh(default_factory=list)

    def __post_init__(self) -> None:
        self.open.set()

    def take(self, api: str, *, hold: bool) -> Step | None:
        """The first step that waits for such a request."""
        for step in self.steps:
            if step.api == api and (step.kind == "hold") is hold:
                self.steps.remove(step)
                return step
        return None


class _Asked(NamedTuple):
    api: wire.Api
    version: int
    step: Step | None


class Link:
    """One client's connection and the one to the broker that belongs to it."""

    def __init__(
        self, faults: Faults, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._faults = faults
        self._client = reader, writer
        self._outlets: dict[Direction, _Outlet] = {"down": _Outlet(faults, self, writer, "down")}
        self._asked: dict[int, _Asked] = {}
        self._tasks: list[asyncio.Future[None]] = []

    async def run(self, target: Address) -> None:
        """Carry both ways until both are done."""
        reader, writer = self._client
        try:
            broker, to_broker = await asyncio.open_connection(*target)
        except OSError:
            self.reset()
            return
        self._outlets["up"] = _Outlet(self._faults, self, to_broker, "up")
        work = [outlet.run() for outlet in self._outlets.values()]
        work += [self._carry(reader, "up"), self._carry(broker, "down")]
        self._tasks = [asyncio.ensure_future(part) for part in work]
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        finally:
            for task in self._tasks:
                task.cancel()
            writer.close()
            to_broker.close()

    def reset(self) -> None:
        """RST to both sides."""
        for outlet in self._outlets.values():
            outlet.reset()
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        """FIN to both sides, once what is on its way has arrived."""
        for outlet in self._outlets.values():
            outlet.writer.close()

    def half_close(self, direction: Direction) -> None:
        """FIN one way."""
        if direction in self._outlets and self._outlets[direction].writer.can_write_eof():
            self._outlets[direction].writer.write_eof()

    async def _carry(self, reader: asyncio.StreamReader, direction: Direction) -> None:
        outlet = self._outlets[direction]
        handle = self._request if direction == "up" else self._answer
        try:
            async for piece in _pieces(reader):
                if isinstance(piece, bytes):
                    await outlet.put(piece)
                elif (passed := await handle(piece)) is not None:
                    await outlet.put(passed)
        except (ConnectionError, KarrowError):
            # No frame, or a reset. A broker that met one would not do what it was asked before;
            # a client may see it as it is.
            outlet.ends_with_reset = direction == "down"
        await outlet.put(None)

    async def _request(self, frame: memoryview) -> bytes | None:
        found = _head(frame)
        if found is None:
            return _framed(frame)
        api, version, correlation_id = found
        self._faults.seen.append(Seen(api.name, version, correlation_id, time.monotonic()))
        step = self._faults.take(api.name, hold=True)
        if step is not None:
            step.happen()
            await step.released.wait()
            if step.discarded:
                return None
        lost = self._faults.take(api.name, hold=False)
        self._asked[correlation_id] = _Asked(api, version, lost)
        return _framed(frame)

    async def _answer(self, frame: memoryview) -> bytes | None:
        asked = self._asked.pop(int.from_bytes(frame[:4], "big"), None)
        if asked is None:
            return _framed(frame)
        if asked.step is not None:
            asked.step.happen()
            if asked.step.kind == "reset":
                self.reset()
            else:
                self._outlets["down"].stalled = True
            return None
        return _rewritten(frame, asked, self._faults.rewrite)


class _Outlet:
    """One way out: late, slow, shut or cut as the faults say."""

    def __init__(
        self, faults: Faults, link: Link, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        self.writer = writer
        self.stalled = False
        self.ends_with_reset = False
        self._faults = faults
        self._link = link
        self._direction = direction
        self._queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue()
        self._waiting = 0
        self._room = asyncio.Event()

    async def put(self, data: bytes | None) -> None:
        """Send this when it is time; None is the end."""
        self._queue.put_nowait((time.monotonic() + self._faults.latency, data))
        self._waiting += len(data or b"")
        while self._waiting > ON_THE_WAY:
            self._room.clear()
            await self._room.wait()

    async def run(self) -> None:
        """Send what is due until the end comes."""
        while True:
            due, data = await self._queue.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await self._faults.open.wait()
            if data is None:
                break
            try:
                await self._send(data)
            except (ConnectionError, RuntimeError):
                # The receiver is gone; what it would have got is swallowed.
                self.stalled = True
            self._waiting -= len(data)
            self._room.set()
        if self.ends_with_reset:
            self.reset()
        elif not self.stalled and not self.writer.is_closing():
            self.writer.write_eof()

    def reset(self) -> None:
        """RST instead of FIN."""
        connection: socket.socket | None = self.writer.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.writer.transport.abort()

    async def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self.stalled:
            piece = rest[: self._step()]
            cut = self._cut(len(piece))
            if cut is not None:
                piece = piece[: cut.left]
            self.writer.write(piece)
            await self.writer.drain()
            rest = rest[len(piece) :]
            if cut is not None:
                self._end(cut)
            elif self._faults.rate is not None:
                await asyncio.sleep(len(piece) / self._faults.rate)

    def _step(self) -> int:
        """Small enough that a rate is smooth: fifty pieces a second."""
        return CHUNK if self._faults.rate is None else max(1, int(self._faults.rate / 50))

    def _cut(self, count: int) -> Cut | None:
        """The cut that falls into the next so many bytes, if any; others come that much nearer."""
        for cut in self._faults.cuts:
            if cut.direction == self._direction:
                if cut.left <= count:
                    self._faults.cuts.remove(cut)
                    return cut
                cut.left -= count
        return None

    def _end(self, cut: Cut) -> None:
        if cut.how == "stall":
            self.stalled = True
        elif cut.how == "close":
            self._link.close()
        else:
            self._link.reset()
        cut.done.set()


async def _pieces(reader: asyncio.StreamReader) -> AsyncIterator[memoryview | bytes]:
    """Frames as views; bytes where the stream is not Kafka's."""
    frames = wire.FrameReader()
    data = await reader.read(CHUNK)
    if data[:1] and data[:1] in TLS_RECORDS and data[1:2] == b"\x03":
        while data:
            yield data
            data = await reader.read(CHUNK)
    while data:
        for frame in frames.feed(data):
            yield frame
        data = await reader.read(CHUNK)


def _head(frame: memoryview) -> tuple[wire.Api, int, int] | None:
    """API, version and correlation id; None for a bare SASL token."""
    if len(frame) < HEAD.size:
        return None
    key, version, correlation_id = HEAD.unpack_from(frame)
    try:
        api = wire.api(key)
    except KarrowError:
        return None
    return (api, version, correlation_id) if version in api.versions else None


def _framed(frame: memoryview | bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _rewritten(frame: memoryview, asked: _Asked, addresses: dict[Address, Address]) -> bytes:
    """The answer with other addresses of brokers in it, where it has some."""
    data = bytes(frame)
    hosts = {host.encode() for host, _ in addresses}
    message_name = f"{asked.api.name}Response"
    if not _has_addresses(message_name) or not any(host in data for host in hosts):
        return _framed(data)
    header = 4 + (asked.api.response_header_version(asked.version) and 1)
    message = wire.decode(message_name, asked.version, data[header:])
    _replace(message, addresses)
    return _framed(data[:header] + wire.encode(message_name, asked.version, message))


@functools.cache
def _has_addresses(name: str) -> bool:
    fields = schema(name).structs.values()
    return any({"host", "port"} <= {field.name for field in struct} for struct in fields)


def _replace(value: Any, addresses: dict[Address, Address]) -> None:
    if isinstance(value, list):
        for item in value:
            _replace(item, addresses)
    elif isinstance(value, wire.Struct):
        names = value.names()
        if "host" in names and "port" in names:
            broker: Any = value
            old = broker.host, broker.port
            broker.host, broker.port = addresses.get(old, old)
        for name in names:
            _replace(getattr(value, name), addresses)
