"""One connection to one broker on which batches travel: requests out, answers in.

Rules:
- A lane has partitions of its own: a partition's batches are never on two connections at once, so
  they cannot overtake each other on the way.
- A request carries one batch of every partition that is ready. At most ``max_in_flight`` are under
  way.
- It reconnects only while something wants to be sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from karrow.errors import KarrowError
from karrow.net.sharing import cancelled

if TYPE_CHECKING:
    from karrow.aio._batch import Batch
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection
    from karrow.wire import Prepared
    from karrow.wire.messages import ProduceRequest

# How many of the newest answers the latencies of a broker are told from.
SAMPLES = 1000


class Lane:
    """The way of some partitions' batches to their leader."""

    def __init__(
        self,
        broker_id: int,
        number: int,
        owner: int,
        cluster: Cluster,
        on_change: Callable[[Lane, KarrowError | None], object],
    ) -> None:
        self.broker_id = broker_id
        self.number = number
        self._owner = owner
        self.in_flight = 0
        self.requests = 0
        self.bytes_sent = 0
        self.latencies: deque[float] = deque(maxlen=SAMPLES)
        self._cluster = cluster
        self._on_change = on_change
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Lane {self.number} to broker {self.broker_id}, {self.in_flight} in flight>"

    @property
    def connection(self) -> Connection | None:
        """The open connection; if there is none, one is being made."""
        found = self._connection
        if found is not None and not found.is_closed:
            return found
        self._connection = None
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name=f"karrow {self!r}")
        return None

    async def _open(self) -> None:
        error: KarrowError | None = None
        try:
            self._connection = await self._cluster.lane(self.broker_id, self._owner, self.number)
        except KarrowError as failure:
            error = failure
        finally:
            self._opening = None
        self._on_change(self, error)

    async def close(self) -> None:
        """Stop connecting; the connection itself is the cluster's to close."""
        await cancelled(self._opening)


class Flight:
    """A request under way; its connection tells it the outcome without a turn of the loop."""

    __slots__ = (
        "_began",
        "_is_over",
        "_on_end",
        "answer",
        "batches",
        "error",
        "lane",
        "names",
        "version",
    )

    def __init__(
        self,
        lane: Lane,
        batches: list[Batch],
        version: int,
        names: list[bytes],
        on_end: Callable[[Flight], object],
    ) -> None:
        self.lane = lane
        self.batches = batches
        self.version = version
        # How the request names the batches' topics: an id may be another one when it is answered.
        self.names = names
        self.answer: Any = None
        self.error: KarrowError | None = None
        self._on_end = on_end
        self._is_over = False
        self._began = time.monotonic()

    def leave(self, connection: Connection, body: Prepared | ProduceRequest) -> None:
        """Be sent."""
        self.lane.in_flight += 1
        self.lane.requests += 1
        connection.send_into(self, "Produce", self.version, body)

    def done(self) -> bool:
        """Whether it has its outcome."""
        return self._is_over

    def set_result(self, result: Any, /) -> None:
        """The broker has answered; None without acks."""
        self.answer = result
        self.lane.latencies.append(time.monotonic() - self._began)
        self._end()

    def set_exception(self, exception: BaseException, /) -> None:
        """There is no answer."""
        self.error = KarrowError(str(exception))
        if isinstance(exception, KarrowError):
            self.error = exception
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self.lane.in_flight -= 1
        self._on_end(self)
