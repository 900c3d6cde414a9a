"""Connections by broker and purpose, opened when needed and opened again when lost.

Rules:
- One link has at most one connection and at most one attempt to make it; everybody who needs it
  waits for the same attempt.
- After a failure the next attempt waits, longer each time (KIP-580). A connection that ends before
  it served a request counts as a failure too, so a broker that hangs up on us is not stormed.
- Nothing happens in the background: a link without callers stays closed and costs nothing.
- A broker that left the cluster or moved loses its links after what is under way is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from karrow.errors import StateError
from karrow.net.connection import Connection, Peer
from karrow.net.retry import JITTER, backoff_delay
from karrow.net.sharing import cancelled, joined

if TYPE_CHECKING:
    from karrow.config import ClientConfig
    from karrow.net.dial import Dialer
    from karrow.types import BrokerInfo

GENERAL = "general"
COORDINATOR = "coordinator"
# Heartbeats, which must not be late because a commit in front of them takes its time.
HEARTBEATS = "heartbeats"
# Requests that a broker may hold for long (fetches, joins); it reads nothing else meanwhile.
WAITING = "waiting"
# Produce requests, which are large: nothing else waits behind them.
LANE = "lane"

# How long a socket may take to close: see Connection, which is a little faster.
CLOSING = 2.0

Place = tuple[int | tuple[str, int], str]


class Link:
    """The way to one broker for one purpose."""

    def __init__(self, peer: Peer, dialer: Dialer, config: ClientConfig) -> None:
        self.peer = peer
        self.failures = 0
        self.error: BaseException | None = None
        self._dialer = dialer
        self._config = config
        self._retry_at = 0.0
        self._is_claimed = False
        self._why_retired: str | None = None
        self._connection: Connection | None = None
        self._attempt: asyncio.Task[Connection] | None = None

    @property
    def connection(self) -> Connection | None:
        """The open connection, if there is one."""
        found = self._connection
        return None if found is None or found.is_closed else found

    @property
    def load(self) -> int:
        """Requests under way and in line."""
        found = self.connection
        return found.in_flight + found.waiting if found else 0

    @property
    def is_muted(self) -> bool:
        """Whether a request would have to wait for the end of a throttled answer's pause."""
        found = self.connection
        return found is not None and found.is_muted

    @property
    def is_free(self) -> bool:
        """Whether a request would be the only one here."""
        return not self._is_claimed and self._attempt is None and self.load == 0

    @contextlib.contextmanager
    def claimed(self) -> Iterator[Link]:
        """Keep it from being given to anybody else."""
        self._is_claimed = True
        try:
            yield self
        finally:
            self._is_claimed = False

    @property
    def is_resting(self) -> bool:
        """Whether an attempt would first have to wait."""
        return self._retry_at > asyncio.get_running_loop().time()

    async def open(self) -> Connection:
        """The connection, made if there is none; raises when this attempt fails."""
        found = self.connection
        if found is not None:
            return found
        if self._attempt is None:
            self._attempt = asyncio.create_task(self._dial(), name=f"karrow dial {self.peer}")
            self._attempt.add_done_callback(self._attempted)
        return await joined(self._attempt)

    async def _dial(self) -> Connection:
        await asyncio.sleep(max(0.0, self._retry_at - asyncio.get_running_loop().time()))
        return await self._dialer.dial(self.peer, attempt=self.failures, on_close=self._closed)

    def _attempted(self, attempt: asyncio.Task[Connection]) -> None:
        self._attempt = None
        if attempt.cancelled():
            return
        self.error = attempt.exception()
        if self.error is not None:
            self._failed()
        else:
            self._connection = attempt.result()
            # Nobody looks after a link that was retired while it was being dialled.
            if self._why_retired is not None:
                self._connection.retire(self._why_retired)

    def _closed(self, connection: Connection) -> None:
        if connection.served:
            self.failures = 0
            self._retry_at = 0.0
        elif self._connection is connection:
            self._failed()

    def _failed(self) -> None:
        first, most = self._config.reconnect_backoff, self._config.reconnect_backoff_max
        pause = backoff_delay(self.failures, first, most, jitter=JITTER)
        self.failures += 1
        self._retry_at = asyncio.get_running_loop().time() + pause

    def retire(self, reason: str) -> None:
        """Close once everything under way is answered."""
        self._why_retired = reason
        if self._connection is not None:
            self._connection.retire(reason)

    async def close(self, reason: str) -> None:
        """Close now."""
        await cancelled(self._attempt)
        if self._connection is not None:
            self._connection.close(reason)
            await asyncio.wait([self._connection.gone], timeout=CLOSING)


class Pool:
    """Every link of one client."""

    def __init__(self, dialer: Dialer, config: ClientConfig) -> None:
        self._dialer = dialer
        self._config = config
        self._links: dict[Place, list[Link]] = {}
        self._closed = False

    def links(self) -> Iterable[Link]:
        """Every link there is."""
        return (link for links in self._links.values() for link in links)

    def link(self, peer: Peer, purpose: str = GENERAL) -> Link:
        """The link to a broker; for waiting requests one of which nobody else makes use."""
        links = self._links.setdefault((_identity(peer), purpose), [])
        if links and links[0].peer != peer:  # the broker has moved
            self._retire(links)
        if purpose == WAITING:
            free = next((link for link in links if link.is_free), None)
            return free or self._add(links, peer)
        return links[0] if links else self._add(links, peer)

    def _add(self, links: list[Link], peer: Peer) -> Link:
        if self._closed:
            raise StateError("the client is closed")
        link = Link(peer, self._dialer, self._config)
        links.append(link)
        return link

    def connected(self) -> list[Link]:
        """General links with an open connection, the least busy first."""
        found = [
            link
            for (_, purpose), links in self._links.items()
            for link in links
            if purpose == GENERAL and link.connection is not None
        ]
        if len(found) > 1:
            found.sort(key=lambda link: link.load)
        return found

    @property
    def trouble(self) -> BaseException | None:
        """Why there is no connection at all; None while there is one, or nobody has tried."""
        links = list(self.links())
        if any(link.connection is not None for link in links):
            return None
        return next((link.error for link in links if link.error is not None), None)

    def adopt(self, peer: Peer, broker: BrokerInfo) -> None:
        """A bootstrap address turned out to be a broker's own: keep its connection as that."""
        place: Place = (broker.id, GENERAL)
        found = self._links.get((_identity(peer), GENERAL))
        if peer.broker_id is not None or not found or place in self._links:
            return
        del self._links[_identity(peer), GENERAL]
        known = Peer(broker.host, broker.port, broker.id)
        for link in found:
            link.peer = known
            if link.connection is not None:
                link.connection.peer = known
        self._links[place] = found

    def update(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Give up what no longer leads to a broker of the cluster, bootstrap addresses included."""
        for place in list(self._links):
            if not _leads_to(brokers, self._links[place][0].peer if self._links[place] else None):
                self._retire(self._links.pop(place))

    def _retire(self, links: list[Link]) -> None:
        for link in links:
            link.retire("metadata_update")
        links.clear()

    async def close(self, reason: str = "shutdown") -> None:
        """Close every connection; no link can be made after that."""
        self._closed = True
        links, self._links = list(self.links()), {}
        await asyncio.gather(*(link.close(reason) for link in links))

    async def close_purposes(self, beginning: str) -> None:
        """Close the links whose purpose begins with that."""
        places = [place for place in self._links if place[1].startswith(beginning)]
        links = [link for place in places for link in self._links.pop(place)]
        await asyncio.gather(*(link.close("shutdown") for link in links))

    async def reset(self, reason: str) -> None:
        """Close every connection, to begin anew."""
        links, self._links = list(self.links()), {}
        await asyncio.gather(*(link.close(reason) for link in links))


def _identity(peer: Peer) -> int | tuple[str, int]:
    return (peer.host, peer.port) if peer.broker_id is None else peer.broker_id


def _leads_to(brokers: Mapping[int, BrokerInfo], peer: Peer | None) -> bool:
    if peer is None or peer.broker_id is None:
        return False
    broker = brokers.get(peer.broker_id)
    return broker is not None and (broker.host, broker.port) == (peer.host, peer.port)
