"""One node: a listening socket and its connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from karrow.broker.cluster import Cluster, Endpoint
from karrow.broker.connection import Connection, Dispatch
from karrow.wire.framing import ServerFraming

if TYPE_CHECKING:
    from karrow.broker.session import Session

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
BACKLOG = 128


class Node:
    """A broker of the cluster, up or down; it keeps its port while it is down."""

    def __init__(
        self,
        cluster: Cluster,
        node_id: int,
        port: int,
        *,
        supported: Mapping[str, tuple[int, int]],
        dispatch: Dispatch,
        new_session: Callable[[], Session],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.node_id = node_id
        self.port = port
        self._cluster = cluster
        self._supported = supported
        self._dispatch = dispatch
        self._new_session = new_session
        self._tls = tls
        self._listening: socket.socket | None = None
        # Sockets and tasks on the way to a connection.
        self._accepted: set[socket.socket] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._connections: set[Connection] = set()

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""
        return Endpoint(self.node_id, HOST, self.port)

    async def start(self) -> None:
        """Listen."""
        self._listening = socket.create_server((HOST, self.port), backlog=BACKLOG)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._listening, self._accept, self._listening)

    async def stop(self) -> None:
        """Stop listening and end every connection at once, as a killed process does."""
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        asyncio.get_running_loop().remove_reader(listening)
        listening.close()
        for accepted in self._accepted:
            accepted.close()
        for task in self._opening:
            task.cancel()
        self.hang_up()
        await asyncio.gather(*self._opening, return_exceptions=True)
        await asyncio.gather(*(connection.lost.wait() for connection in self._connections))

    def hang_up(self) -> None:
        """End every connection."""
        for connection in tuple(self._connections):
            connection.abort()

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except OSError as error:  # gone again, or no more files may be open: look again later
            _log.debug("a connection was not accepted: %s", error)
            return
        self._accepted.add(accepted)
        task = asyncio.get_running_loop().create_task(self._open(accepted))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket) -> None:
        """Make a connection of an accepted socket; asyncio's own server loses some as it closes."""
        self._accepted.discard(accepted)
        connection = self._new_connection()
        self._connections.add(connection)
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._tls)
        except OSError as error:  # ssl.SSLError is one
            _log.debug("a connection failed: %s", error)
            self._connections.discard(connection)
            accepted.close()
        except asyncio.CancelledError:
            self._connections.discard(connection)
            raise

    def _new_connection(self) -> Connection:
        return Connection(
            self._cluster,
            self.node_id,
            framing=ServerFraming(self._supported),
            session=self._new_session(),
            dispatch=self._dispatch,
            on_lost=self._connections.discard,
        )
