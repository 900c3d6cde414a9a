"""One client's connection: frames in, answers out, one request at a time.

Rules:
- Requests are answered in the order they came; the next one is taken up when the last is answered,
  as Kafka's own server does. While one waits, nothing more is read.
- A request that cannot be understood ends the connection; only ApiVersions in an unknown version is
  answered.
- An answer is not written while the peer does not read: the next request waits for that too.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from karrow.broker.call import Call, Damaged, Ending, Raw, Throttled
from karrow.broker.dispatch import flip
from karrow.errors import LocalProtocolError, RemoteProtocolError
from karrow.wire.framing import Request, ServerFraming, UnsupportedRequest

if TYPE_CHECKING:
    from karrow.broker.cluster import Cluster
    from karrow.broker.session import Session

_log = logging.getLogger(__name__)

Dispatch = Callable[[Call, Any], Any]
# Where an answer's body begins: after its length and correlation id.
BODY_AT = 8


class Connection(asyncio.BufferedProtocol):
    """The server's end of a connection."""

    def __init__(
        self,
        cluster: Cluster,
        node_id: int,
        *,
        framing: ServerFraming,
        session: Session,
        dispatch: Dispatch,
        on_lost: Callable[[Connection], object],
    ) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._framing = framing
        self._session = session
        self._dispatch = dispatch
        self._on_lost = on_lost
        self._waiting: deque[memoryview] = deque()
        self._task: asyncio.Task[None] | None = None
        self._may_write = True
        self._is_silent = False
        self._is_aborted = False
        self.lost = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._is_aborted:
            self._transport.abort()
        peer = transport.get_extra_info("peername")
        self._session.host = peer[0] if peer else "?"

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._framing.frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._waiting.extend(self._framing.frames.advance(nbytes))
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        self._go_on()

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
        self._on_lost(self)
        self.lost.set()

    # What the node calls.

    def abort(self) -> None:
        """End the connection without waiting for anything, also while it is being made."""
        self._is_aborted = True
        if self._transport is not None:
            self._transport.abort()

    # Requests.

    def _go_on(self) -> None:
        """Take up requests until one has to wait."""
        while self._waiting and self._task is None and self._may_write and not self._is_silent:
            if self._transport is None:
                return
            self._take_up(self._waiting.popleft())
        if self._transport is not None:
            busy = bool(self._waiting)
            (self._transport.pause_reading if busy else self._transport.resume_reading)()

    def _take_up(self, frame: memoryview) -> None:
        try:
            if self._session.takes_tokens:
                self._answer_token(frame)
                return
            request = self._framing.receive(frame)
        except RemoteProtocolError as error:
            self._refuse(error)
            return
        self._run(request)

    def _run(self, request: Request | UnsupportedRequest) -> None:
        name = request.api.name if request.api is not None else ""
        if isinstance(request, UnsupportedRequest) and name != "ApiVersions":
            self._refuse(f"API {request.head.key} version {request.head.version} is not spoken")
            return
        body = request.body if isinstance(request, Request) else None
        call = Call(
            self._cluster,
            self._node_id,
            self._session,
            name,
            request.head.version,
            request.head.client_id,
        )
        outcome = self._dispatch(call, body)
        if inspect.isawaitable(outcome):
            waiting = self._finish_later(request, outcome)
            self._task = asyncio.get_running_loop().create_task(waiting)
            if inspect.iscoroutine(outcome):
                # A task that is cancelled before its first step has not begun to await it.
                self._task.add_done_callback(lambda _: outcome.close())
        else:
            self._finish(request, outcome)

    async def _finish_later(
        self, request: Request | UnsupportedRequest, outcome: Awaitable[Any]
    ) -> None:
        try:
            self._finish(request, await outcome)
        finally:
            self._task = None
        self._go_on()

    def _finish(self, request: Request | UnsupportedRequest, outcome: Any) -> None:
        if outcome is None or self._transport is None:
            return
        try:
            self._write(request, outcome, self._transport)
        except LocalProtocolError:
            _log.exception("an answer to API %d cannot be sent", request.head.key)
            self.abort()
        if self._session.has_failed and self._transport is not None:
            self._transport.close()  # after what was written

    def _write(
        self,
        request: Request | UnsupportedRequest,
        outcome: Any,
        transport: asyncio.Transport,
    ) -> None:
        if isinstance(outcome, Ending):
            self._end(outcome)
        elif isinstance(outcome, Raw):
            transport.write(outcome.data)
        elif isinstance(outcome, Damaged):
            frame = b"".join(self._framing.respond(request, outcome.body))
            transport.write(flip(frame, outcome.bit, start=BODY_AT))
        elif isinstance(outcome, Throttled):
            transport.writelines(self._framing.respond(request, outcome.body))
            self._rest(outcome.seconds)
        else:
            transport.writelines(self._framing.respond(request, outcome))

    def _end(self, ending: Ending) -> None:
        if ending is Ending.HANGUP:
            self.abort()
        else:
            self._is_silent = True

    def _rest(self, seconds: float) -> None:
        """Take up nothing for a while."""
        self._is_silent = True

        def resume() -> None:
            self._is_silent = False
            self._go_on()

        self._cluster.clock.call_later(seconds, resume)

    def _answer_token(self, frame: memoryview) -> None:
        answer = self._session.answer_token(bytes(frame))
        if answer is None or self._transport is None:
            self.abort()
            return
        self._transport.write(len(answer).to_bytes(4, "big") + answer)

    def _refuse(self, why: object) -> None:
        _log.debug("connection of %s closed: %s", self._session.host, why)
        self._waiting.clear()
        self.abort()
