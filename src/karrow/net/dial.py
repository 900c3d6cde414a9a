"""From a host and a port to a connection that is ready for requests.

Rules:
- A name is resolved at every attempt, and all its addresses are tried in order (KIP-302).
- Each address has the set-up time for everything: TCP, TLS, versions, credentials. The time grows
  with the number of failures before, with jitter (KIP-601).
- Refused credentials and certificates end the attempt at once; another address would not help.
- Whatever goes wrong, the socket is closed and one error says which address failed how.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from karrow import events
from karrow.errors import (
    AuthenticationError,
    ConnectError,
    Disconnected,
    KarrowError,
    NetworkError,
    RemoteProtocolError,
    RequestTimeout,
)
from karrow.net.authentication import Authenticator
from karrow.net.connection import Connection, Peer
from karrow.net.handshake import assume_before_negotiation, negotiate
from karrow.net.retry import JITTER, backoff_delay

if TYPE_CHECKING:
    from karrow.config import ClientConfig

Address = tuple[Any, ...]
Resolver = Callable[[str, int], Awaitable[list[Address]]]

CLOSED_PAUSE = 0.05
PLAINTEXT_HINT = "a plaintext port spoken to with TLS does this"


class Dialer:
    """Makes connections that all have the same settings."""

    def __init__(self, config: ClientConfig, *, resolve: Resolver | None = None) -> None:
        self.cluster_id: str | None = None
        self._config = config
        self._tls: ssl.SSLContext | None = None
        self._is_prepared = False
        self._authenticator = None if config.sasl is None else Authenticator(config.sasl)
        self._resolve = resolve or resolve_name

    def _context(self) -> ssl.SSLContext | None:
        """The TLS context: certificates are read when the first connection needs them."""
        if not self._is_prepared:
            self._tls = self._config.ssl_context()
            self._is_prepared = True
        return self._tls

    async def dial(
        self,
        peer: Peer,
        *,
        attempt: int = 0,
        on_close: Callable[[Connection], object] | None = None,
    ) -> Connection:
        """A connection that has negotiated and authenticated."""
        first, most = self._config.connect_timeout, self._config.connect_timeout_max
        limit = backoff_delay(attempt, first, most, jitter=JITTER if attempt else 0.0)
        is_secure = self._context() is not None
        with events.span("connection", host=peer.host, port=peer.port, ssl=is_secure):
            failures: list[KarrowError] = []
            for address in await self._addresses(peer):
                try:
                    return await self._try(peer, address, limit, on_close)
                except (NetworkError, RemoteProtocolError) as error:
                    if isinstance(error, AuthenticationError):
                        raise
                    failures.append(error)
            raise _summed_up(failures, peer)

    async def _addresses(self, peer: Peer) -> list[Address]:
        try:
            host, port = self._mapped(peer)
            return await self._resolve(host, port)
        except OSError as error:
            text = f"the name {peer.host!r} cannot be resolved: {error.strerror or error}"
            raise ConnectError(text, broker=peer) from error

    def _mapped(self, peer: Peer) -> tuple[str, int]:
        """Where to connect; advertised addresses may lead through a tunnel, or be refused."""
        change = self._config.address_map
        if change is None or peer.broker_id is None:
            return peer.host, peer.port
        return change(peer.host, peer.port)

    async def _try(
        self,
        peer: Peer,
        address: Address,
        limit: float,
        on_close: Callable[[Connection], object] | None,
    ) -> Connection:
        try:
            async with asyncio.timeout(limit):
                connection = await self._negotiated(peer, address, on_close)
                await self._authenticated(connection)
        except RequestTimeout as error:  # a TimeoutError too, but not of the whole
            text = f"no connection: {error.message}"
            raise ConnectError(text, hint=error.hint, **error.context) from error
        except TimeoutError as error:
            text = f"no connection within {limit:.1f} s"
            hint = "the port is filtered, or something listens there that does not speak Kafka"
            raise ConnectError(text, hint=hint, broker=peer) from error
        connection.served = 0
        return connection

    async def _negotiated(
        self, peer: Peer, address: Address, on_close: Callable[[Connection], object] | None
    ) -> Connection:
        """A connection whose versions are known, also of a broker that cannot tell them.

        A broker before 0.10 closes when it is asked, and so does one that is just going down:
        only who closes again is taken for the former.
        """
        refusal: Disconnected | None = None
        for prepare in (self._negotiate, self._negotiate, assume_before_negotiation):
            connection = await self._connect(peer, address, on_close)
            with _closing_on_error(connection):
                try:
                    await prepare(connection)
                except Disconnected as error:
                    refusal = refusal or error
                else:
                    return connection
            await asyncio.sleep(CLOSED_PAUSE)
        raise refusal or ConnectError("no connection", broker=peer)

    async def _negotiate(self, connection: Connection) -> None:
        await negotiate(connection, cluster_id=self.cluster_id)

    async def _authenticated(self, connection: Connection) -> None:
        if self._authenticator is not None:
            with _closing_on_error(connection):
                await self._authenticator.authenticate(connection)

    async def _connect(
        self, peer: Peer, address: Address, on_close: Callable[[Connection], object] | None
    ) -> Connection:
        loop = asyncio.get_running_loop()

        def make() -> Connection:
            return Connection(peer, self._config, on_close=on_close)

        family, _, _, _, place = address
        tls = self._context()
        name = None if tls is None else peer.host
        try:
            _, connection = await loop.create_connection(
                make, place[0], place[1], family=family, ssl=tls, server_hostname=name
            )
        except OSError as error:
            raise _connect_error(error, peer, secure=tls is not None) from error
        return connection


@contextlib.contextmanager
def _closing_on_error(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        connection.close("init_error", error if isinstance(error, KarrowError) else None)
        raise


async def resolve_name(host: str, port: int) -> list[Address]:
    """All addresses of a name, as the system's resolver orders them.

    A number needs no resolver, and so no thread for it.
    """
    with contextlib.suppress(ValueError):
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 0, "", (host, port))]
    loop = asyncio.get_running_loop()
    return [*await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _connect_error(error: OSError, peer: Peer, *, secure: bool) -> NetworkError:
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the broker's certificate was refused: {error.verify_message}"
        return AuthenticationError(text, hint=_certificate_hint(error, peer), broker=peer)
    if isinstance(error, ssl.SSLEOFError):
        return ConnectError("the TLS handshake was cut off", hint=PLAINTEXT_HINT, broker=peer)
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        hint = PLAINTEXT_HINT if "wrong version" in reason or "record" in reason else None
        return AuthenticationError(f"the TLS handshake failed: {reason}", hint=hint, broker=peer)
    if secure and isinstance(error, ConnectionResetError):
        return ConnectError("the TLS handshake was cut off", hint=PLAINTEXT_HINT, broker=peer)
    if isinstance(error, ConnectionRefusedError):
        return ConnectError("the connection was refused", hint="nothing listens there", broker=peer)
    return ConnectError(f"no connection: {error.strerror or error}", broker=peer)


def _certificate_hint(error: ssl.SSLCertVerificationError, peer: Peer) -> str | None:
    text = error.verify_message.lower()
    if "mismatch" in text or "not valid for" in text:
        return f"the certificate is not for the name {peer.host!r}"
    if "self-signed" in text or "unable to get local issuer" in text:
        return "name the authority that signed it: tls=TLS(ca=...)"
    return None


def _summed_up(failures: list[KarrowError], peer: Peer) -> KarrowError:
    """One error for all addresses; that of the only one stays as it is."""
    if not failures:
        return ConnectError(f"the name {peer.host!r} has no address", broker=peer)
    if len({str(error) for error in failures}) == 1:
        return failures[0]
    text = "; ".join(dict.fromkeys(error.message for error in failures))
    error = ConnectError(text, hint=failures[-1].hint, broker=peer)
    error.__cause__ = failures[-1]
    return error
