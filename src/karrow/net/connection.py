"""One connection to one broker: requests out, answers in, and every way it can end.

States: *opening* until the transport is there, *open*, *closed*; there is no way back.

Rules:
- Answers come in the order of the requests. Requests wait in line while the connection is full
  (``max_in_flight``), muted by a throttled answer (KIP-219), held for re-authentication (KIP-368),
  or while the socket takes no more bytes; the line keeps its order.
- A request that was sent and not answered in time closes the connection: its answer may still
  come, and a partly written request must never be followed by another one. Time for which the
  broker muted us does not count.
- What passes the line is answered behind what is under way, and has at least as long as that: a
  join may be held for minutes.
- A peer that breaks the protocol in any way closes the connection. The request whose answer it
  should have been gets the RemoteProtocolError; the others sent are *indefinite* (Disconnected),
  those still in line are known not to have been sent (ConnectError).
- A cancelled caller leaves its request in its place; the answer is dropped when it comes.
- One timer watches all deadlines and the idle time; it is moved only when something is due earlier.
"""

from __future__ import annotations

import asyncio
import copy
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from karrow import events
from karrow.errors import (
    AuthenticationError,
    ConnectError,
    Disconnected,
    KarrowError,
    RemoteProtocolError,
    RequestTimeout,
    StateError,
)
from karrow.net.versions import BrokerVersions, client_pauses, throttle_of
from karrow.records._slab import Slab
from karrow.wire import ClientFraming

if TYPE_CHECKING:
    from karrow.config import ClientConfig
    from karrow.wire import Prepared
    from karrow.wire.codec import Body

KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
NO_DEADLINE = float("inf")
# Below this a timer is not worth moving: it fires early, finds nothing due, and is set again.
TIMER_SLACK = 0.001
# How long a closed connection may take to write what is left of requests without an answer.
FLUSH = 1.0
# Before 3.12 asyncio joins the buffers of writelines, which costs more than another system call.
COPIES_LINES = sys.version_info < (3, 12)
LARGE = 64 * 1024


class Peer(NamedTuple):
    """Who is at the other end; ``broker_id`` is None before the cluster has named it."""

    host: str
    port: int
    broker_id: int | None = None

    def __str__(self) -> str:
        where = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return where if self.broker_id is None else f"{self.broker_id} at {where}"


class Sink(Protocol):
    """What an outcome goes into: a future, or something that is told at once."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, result: Any, /) -> None:
        """The answer has come."""

    def set_exception(self, exception: BaseException, /) -> None:
        """There will be none."""


class Pending:
    """A request in line or under way."""

    __slots__ = ("body", "deadline", "future", "name", "sent_at", "size", "span", "version")

    def __init__(
        self, name: str, version: int, body: Body | Prepared, deadline: float, future: Sink
    ) -> None:
        self.name = name
        self.version = version
        self.body: Body | Prepared | None = body
        self.deadline = deadline
        self.future = future
        self.sent_at = 0.0
        self.size = 0
        self.span: events.Span | None = None

    def fail(self, error: BaseException) -> None:
        """Give the caller an error, unless it has stopped waiting."""
        if self.span is not None:
            self.span.fail(error)
        if not self.future.done():
            self.future.set_exception(error)
            if isinstance(self.future, asyncio.Future):
                # The caller may have gone without a word; its error is no news for the loop's log.
                self.future.exception()


class Connection(asyncio.BufferedProtocol):
    """An open connection to a broker; made by ``dial``."""

    def __init__(
        self,
        peer: Peer,
        config: ClientConfig,
        *,
        on_close: Callable[[Connection], object] | None = None,
    ) -> None:
        self.peer = peer
        self.version_limits = config.api_versions or {}
        self.versions = BrokerVersions({})
        self.mechanism: str | None = None
        self.served = 0
        self.correlation_id = -1
        self.error: KarrowError | None = None
        self._config = config
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self.is_closed = False
        self.closed: asyncio.Future[str] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._framing = ClientFraming(config.client_id, max_frame=config.max_frame_bytes)
        self._frames = self._framing.frames
        self._frames.allocate = Slab
        self._transport: asyncio.Transport | None = None
        self._line: deque[Pending] = deque()
        self._sent: deque[Pending] = deque()
        self._writable = True
        self._held = False
        self._muted_until = 0.0
        self._retired: str | None = None
        self.used_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NO_DEADLINE

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.in_flight} in flight"
        return f"<Connection to {self.peer}, {state}>"

    # ---- what callers see; nothing can be sent once it ``is_closed``, ``closed`` has the reason,
    # ``gone`` is when the socket is closed too

    @property
    def in_flight(self) -> int:
        """Requests sent whose answers have not come."""
        return len(self._sent)

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._line)

    @property
    def is_muted(self) -> bool:
        """Whether a throttled answer has asked for silence that is not over yet."""
        return self._muted_until > self._loop.time()

    async def request(
        self, name: str, version: int, body: Body, *, limit: float | None = None
    ) -> Any:
        """Send a request and wait for its answer; None for a produce request with acks=0."""
        return await self.send(name, version, body, limit=limit)

    def send(
        self, name: str, version: int, body: Body, *, limit: float | None = None
    ) -> asyncio.Future[Any]:
        """Put a request in line; the future gets its answer within ``limit`` seconds, or fails."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._enter(self._pending(name, version, body, limit, future))
        return future

    def send_into(
        self,
        sink: Sink,
        name: str,
        version: int,
        body: Body | Prepared,
        *,
        limit: float | None = None,
    ) -> None:
        """Put a request in line; ``sink`` is told of its outcome as soon as it is here."""
        self._enter(self._pending(name, version, body, limit, sink))

    def _enter(self, pending: Pending) -> None:
        if self.is_closed:
            pending.fail(self._unsent(pending))
        elif not self._line and self._may_send():
            self._send(pending)
        else:
            self._line.append(pending)
            self._watch(pending.deadline)

    def send_past(self, name: str, version: int, body: Body) -> asyncio.Future[Any]:
        """Send at once, past the line: how a connection is authenticated while others wait."""
        future: asyncio.Future[Any] = self._loop.create_future()
        pending = self._pending(name, version, body, None, future)
        pending.deadline = max(one.deadline for one in (pending, *self._sent))
        if self.is_closed:
            pending.fail(self._unsent(pending))
        else:
            self._send(pending)
        return future

    def send_token(self, token: bytes) -> asyncio.Future[Any]:
        """Send a SASL token as a bare frame, which is what SaslHandshake v0 asks for."""
        future: asyncio.Future[Any] = self._loop.create_future()
        pending = self._pending("SaslAuthenticate", 0, {}, None, future)
        if self.is_closed:
            pending.fail(self._unsent(pending))
        else:
            self._sent.append(pending)
            self._write(pending, self._framing.send_token(token))
        return future

    def hold(self) -> None:
        """Keep further requests in line until ``release``."""
        self._held = True

    def release(self) -> None:
        """Let the line move again."""
        self._held = False
        self._advance()

    def retire(self, reason: str) -> None:
        """Close as soon as everything under way and in line is answered."""
        self._retired = reason
        self._close_if_retired()

    def close(self, reason: str = "shutdown", error: KarrowError | None = None) -> None:
        """End the connection now; whatever was under way fails."""
        self._end(reason, error or Disconnected("this client closed it", broker=self.peer))

    # ---- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        # Not isinstance: uvloop's transports are none of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        _tune(transport.get_extra_info("socket"), self._config)
        self._watch(self._idle_at())

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002, D102
        if self.is_closed:
            return memoryview(bytearray(65536))  # TLS may hand over what it had read before
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:  # noqa: D102
        if self.is_closed:
            return
        try:
            for frame in self._frames.advance(nbytes):
                self._receive(frame)
            if self._frames.broken is not None and not self.is_closed:
                raise self._frames.broken  # a broken length came behind good frames
        except RemoteProtocolError as error:
            self._end("recv_error", error)
            return
        self._advance()

    def eof_received(self) -> None:  # noqa: D102
        cut = " in the middle of an answer" if self._frames.pending else ""
        text = f"the broker closed the connection{cut}"
        self._end("remote_closed", Disconnected(text, hint=self._closing_hint(), broker=self.peer))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        if not self.gone.done():
            self.gone.set_result(None)
        if exc is None:
            self.eof_received()
            return
        reason = "send_error" if isinstance(exc, BrokenPipeError) else "recv_error"
        lost = Disconnected(
            f"the connection broke: {str(exc) or type(exc).__name__}",
            hint=self._closing_hint(),
            broker=self.peer,
        )
        lost.__cause__ = exc
        self._end(reason, lost)

    def pause_writing(self) -> None:  # noqa: D102
        self._writable = False

    def resume_writing(self) -> None:  # noqa: D102
        self._writable = True
        self._advance()

    # ---- out

    def _pending(
        self, name: str, version: int, body: Body | Prepared, limit: float | None, future: Sink
    ) -> Pending:
        begin = max(self._loop.time(), self._muted_until)
        deadline = begin + (self._config.request_timeout if limit is None else limit)
        return Pending(name, version, body, deadline, future)

    def _may_send(self) -> bool:
        return (
            len(self._sent) < self._config.max_in_flight
            and self._writable
            and not self._held
            and self._muted_until <= self._loop.time()
        )

    def _advance(self) -> None:
        """Send what waits in line, as far as it may go."""
        while self._line and not self.is_closed:
            if self._line[0].future.done():
                self._line.popleft()
            elif self._may_send():
                self._send(self._line.popleft())
            else:
                return
        if self._retired is not None:
            self._close_if_retired()

    def _send(self, pending: Pending) -> None:
        before = self._framing.in_flight
        body, pending.body = pending.body, None
        try:
            number, parts = self._framing.send(pending.name, pending.version, body or {})
        except KarrowError as error:
            pending.fail(error)
            return
        self.correlation_id = number
        if events.is_heard("request"):
            pending.span = self._span(pending, number)
        is_answered = self._framing.in_flight > before
        if is_answered:
            self._sent.append(pending)
        self._write(pending, parts)
        if not is_answered:
            if pending.span is not None:
                pending.span.stop(bytes_sent=pending.size, bytes_received=0)
            if not pending.future.done():
                pending.future.set_result(None)

    def _span(self, pending: Pending, number: int) -> events.Span:
        host, port, broker_id = self.peer
        return events.span(
            "request",
            operation=pending.name,
            api_version=pending.version,
            correlation_id=number,
            client_id=self._config.client_id,
            broker={"node_id": broker_id, "host": host, "port": port},
        ).start()

    def _write(self, pending: Pending, parts: list[Any]) -> None:
        pending.sent_at = self.used_at = self._loop.time()
        pending.size = sum(map(len, parts))
        if self._transport is None:
            raise StateError("the connection is not open yet")
        if COPIES_LINES and pending.size > LARGE:
            for part in parts:
                self._transport.write(part)
        else:
            self._transport.writelines(parts)
        self._watch(pending.deadline)

    # ---- in

    def _receive(self, frame: memoryview) -> None:
        answer = self._framing.receive(frame)
        pending = self._sent.popleft()
        self.served += 1
        self.used_at = self._loop.time()
        if pending.span is not None:
            pending.span.stop(bytes_sent=pending.size, bytes_received=len(frame))
        if pause := throttle_of(answer.message):
            self._throttled(pending, answer.version, pause)
        if not pending.future.done():
            pending.future.set_result(answer.message)

    def _throttled(self, pending: Pending, version: int, pause: float) -> None:
        """Say that we are over a quota, and pause where the broker leaves that to us."""
        host, port, broker_id = self.peer
        is_muted = client_pauses(pending.name, version)
        events.emit(
            "connection.throttle",
            {"count": 1, "throttle_time": pause},
            host=host,
            port=port,
            node_id=broker_id,
            client_id=self._config.client_id,
            operation=pending.name,
            muted=is_muted,
        )
        if is_muted:
            self._mute(pause)

    def _mute(self, pause: float) -> None:
        """Stay silent, and give everybody that much more time: the broker reads nothing either."""
        self._muted_until = max(self._muted_until, self._loop.time() + pause)
        for pending in (*self._sent, *self._line):
            pending.deadline += pause
        self._loop.call_at(self._muted_until, self._unmute)

    def _unmute(self) -> None:
        # Timers may come a moment early; another throttled answer may have come since.
        if self._muted_until <= self._loop.time() + TIMER_SLACK:
            self._muted_until = 0.0
            self._advance()

    # ---- time

    def _watch(self, deadline: float) -> None:
        if deadline >= self._timer_at - TIMER_SLACK or self.is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        """The timer fired: find what is due, or when to look again."""
        self._timer, self._timer_at = None, NO_DEADLINE
        now = self._loop.time() + TIMER_SLACK
        late = next((pending for pending in self._sent if pending.deadline <= now), None)
        if late is not None:
            self._end("timeout", self._timed_out(late), late)
            return
        self._expire_line(now)
        if not self._sent and not self._line and self._idle_at() <= now:
            self._end("shutdown", Disconnected("the connection was idle", broker=self.peer))
            return
        self._watch(min((p.deadline for p in (*self._sent, *self._line)), default=NO_DEADLINE))
        self._watch(self._idle_at())

    def _expire_line(self, now: float) -> None:
        for pending in [item for item in self._line if item.deadline <= now]:
            self._line.remove(pending)
            text = "the request could not be sent in time: the connection is busy or muted"
            pending.fail(RequestTimeout(text, api=pending.name, broker=self.peer))

    def _timed_out(self, late: Pending) -> RequestTimeout:
        waited = self._loop.time() - late.sent_at
        hint = None if self.served else "the port accepts connections, but nothing answers there"
        text = f"no answer after {waited:.1f} s"
        return RequestTimeout(text, hint=hint, api=late.name, broker=self.peer)

    def _idle_at(self) -> float:
        return self.used_at + self._config.idle_timeout

    # ---- the end

    def _end(self, reason: str, error: KarrowError, blamed: Pending | None = None) -> None:
        """Close; the error goes to the request to blame: by default the one whose turn it was."""
        if self.is_closed:
            return
        self.is_closed = True
        self.closed.set_result(reason)
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._leave(self._transport)
        sent, self._sent = self._sent, deque()
        line, self._line = self._line, deque()
        blamed = blamed or (sent[0] if sent else None)
        for pending in sent:
            pending.fail(self._lost(pending, error, is_blamed=pending is blamed))
        for pending in line:
            pending.fail(self._unsent(pending))
        events.emit(
            "connection.close",
            {"count": 1},
            host=self.peer.host,
            port=self.peer.port,
            reason=reason,
        )
        if self._on_close is not None:
            self._on_close(self)

    def _leave(self, transport: asyncio.Transport) -> None:
        """Close the socket at once, but for requests that nobody waits for: those go out first."""
        if self._sent or self._line or not transport.get_write_buffer_size():
            transport.abort()
        else:
            transport.close()
            timer = self._loop.call_later(FLUSH, transport.abort)
            self.gone.add_done_callback(lambda _: timer.cancel())

    def _close_if_retired(self) -> None:
        if self._retired and not self._sent and not self._line:
            self.close(self._retired)

    def _lost(self, pending: Pending, error: KarrowError, *, is_blamed: bool) -> KarrowError:
        """What a request that was sent gets."""
        if is_blamed or isinstance(error, AuthenticationError):
            return self._about(error, pending)
        return self._about(Disconnected(error.message, hint=error.hint), pending)

    def _unsent(self, pending: Pending) -> KarrowError:
        """What a request that never left gets; refused credentials stay what they are."""
        error = self.error
        if error is None:
            return self._about(ConnectError("the connection is not open"), pending)
        if isinstance(error, AuthenticationError):
            return self._about(error, pending)
        text = f"the request was not sent: {error.message}"
        return self._about(ConnectError(text, hint=error.hint), pending)

    def _about(self, error: KarrowError, pending: Pending) -> KarrowError:
        """An error of its own for a request: each caller may add to it or raise it."""
        found = copy.copy(error)
        found.context = {**error.context, "api": pending.name, "broker": self.peer}
        found.__cause__ = error.__cause__ or (self.error and self.error.__cause__)
        return found

    def _closing_hint(self) -> str | None:
        """What a close without a word may mean, by how far the conversation had come."""
        if self.served:
            return None
        if self.versions:
            refused = "a port that wants SASL does this to clients without it"
            return None if self.mechanism else refused
        return None if self._config.tls else "a TLS port spoken to in plaintext does this"


def _tune(sock: socket.socket | None, config: ClientConfig) -> None:
    """Small requests leave at once; a peer that vanished without a word is found out."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if config.send_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes)
    if config.receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes)
    if config.socket_keepalive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
