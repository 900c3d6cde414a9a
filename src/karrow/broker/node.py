"""One node: a listening socket and its connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from karrow.broker.cluster import Cluster, Endpoint
from karrow.broker.connection import Connection, Dispatch
from karrow.wire.framing import ServerFraming

if TYPE_CHECKING:
    from karrow.broker.session import Session

HOST = "127.0.0.1"
TURNS = 1000


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
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens."""
        return Endpoint(self.node_id, HOST, self.port)

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, HOST, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and end every connection at once, as a killed process does."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        self.hang_up()
        for _ in range(TURNS):
            if not self._connections:
                break
            await asyncio.sleep(0)  # a connection's end is told in the loop's next turns
        await server.wait_closed()

    def hang_up(self) -> None:
        """End every connection."""
        for connection in tuple(self._connections):
            connection.abort()

    def _connect(self) -> Connection:
        connection = Connection(
            self._cluster,
            self.node_id,
            framing=ServerFraming(self._supported),
            session=self._new_session(),
            dispatch=self._dispatch,
            on_lost=self._connections.discard,
        )
        self._connections.add(connection)
        return connection
