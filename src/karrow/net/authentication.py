"""SASL on a connection, first and again.

Rules:
- SaslHandshake v1 wraps the mechanism's tokens in SaslAuthenticate; v0 sends them as bare frames,
  and a broker then says no by closing.
- A session that the broker limits is authenticated again at nine tenths of its time (KIP-368). The
  line is held meanwhile, but requests under way stay: the broker answers in order, so their answers
  come first and none is lost.
- Refused credentials are an AuthenticationError for everybody on the connection, not a time-out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from karrow import events
from karrow.errors import AuthenticationError, Disconnected, KarrowError, UnsupportedSaslMechanism
from karrow.wire import sasl

if TYPE_CHECKING:
    from karrow.net.connection import Connection
    from karrow.wire.messages import SaslAuthenticateResponse, SaslHandshakeResponse

SESSION_SHARE = 0.9
FIRST_WRAPPED = 1


class Authenticator:
    """Proves who we are on every connection of a client."""

    def __init__(self, mechanism: sasl.Mechanism) -> None:
        self._mechanism = mechanism
        self._tasks: set[asyncio.Task[None]] = set()

    async def authenticate(self, connection: Connection) -> None:
        """Authenticate, and see to it that it happens again before the session is over."""
        host, port, _ = connection.peer
        name = self._mechanism.name
        with events.span("auth", host=host, port=port, mechanism=name):
            exchange = await sasl.session(self._mechanism, host)
            lifetime = await _run(connection, exchange)
        connection.mechanism = name
        if lifetime > 0:
            timer = asyncio.get_running_loop().call_later(
                lifetime * SESSION_SHARE, self._begin_again, connection
            )
            connection.closed.add_done_callback(lambda _: timer.cancel())

    def _begin_again(self, connection: Connection) -> None:
        task = asyncio.create_task(self._again(connection), name=f"karrow auth {connection.peer}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection.closed.add_done_callback(lambda _: task.cancel())

    async def _again(self, connection: Connection) -> None:
        connection.hold()
        try:
            await self.authenticate(connection)
        except KarrowError as error:
            connection.close("init_error", _as_refusal(error, connection))
        else:
            connection.release()


def _as_refusal(error: KarrowError, connection: Connection) -> AuthenticationError:
    """A session that cannot be renewed is an authentication error, whatever went wrong."""
    if isinstance(error, AuthenticationError):
        return error
    text = f"the session could not be renewed: {error.message}"
    return AuthenticationError(text, hint=error.hint, broker=connection.peer)


async def _run(connection: Connection, exchange: sasl.Exchange) -> float:
    """One exchange; the seconds for which the broker lets it count, 0 for ever."""
    version = connection.versions.choose("SaslHandshake")
    await _handshake(connection, exchange, version)
    lifetime = 0.0
    token: bytes | None = exchange.start()
    while token is not None:
        answer = await _send(connection, exchange, token, wrapped=version >= FIRST_WRAPPED)
        lifetime = answer.session_lifetime_ms / 1000
        # A thread: SCRAM may hash for a while.
        token = await asyncio.to_thread(exchange.step, answer.auth_bytes)
    sasl.finish(exchange)
    return lifetime


async def _handshake(connection: Connection, exchange: sasl.Exchange, version: int) -> None:
    answer: SaslHandshakeResponse = await connection.send_past(
        "SaslHandshake", version, {"mechanism": exchange.name}
    )
    if answer.error_code == UnsupportedSaslMechanism.code:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationError(
            f"the broker does not take {exchange.name}",
            hint=f"it offers {offered}",
            broker=connection.peer,
        )
    if answer.error_code:
        raise sasl.refused(exchange, f"error {answer.error_code}", broker=connection.peer)


async def _send(
    connection: Connection, exchange: sasl.Exchange, token: bytes, *, wrapped: bool
) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse
    if not wrapped:
        try:
            answer = await connection.send_token(token)
        except Disconnected as error:
            text = "the broker closed the connection"
            raise sasl.refused(exchange, text, broker=connection.peer) from error
        return answer
    version = connection.versions.choose("SaslAuthenticate")
    answer = await connection.send_past("SaslAuthenticate", version, {"auth_bytes": token})
    if answer.error_code:
        raise sasl.refused(exchange, answer.error_message, broker=connection.peer)
    return answer
