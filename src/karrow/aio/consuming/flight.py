"""A fetch under way, and those that follow it by themselves on the same connection.

Rules:
- The connection tells of an answer in its own read. What came is kept there and then, and if
  nothing but data has changed since it was found out what to ask for, the next fetch leaves right
  there: no turn of the loop stands between a record and its reader.
- As soon as anything else is to be looked at, the worker that waits for ``outcome`` goes on: a
  partition or a leader that is another, no more room, an answer with an error or without news,
  a signal, the time.
- Who stops waiting ends it: an answer that still comes is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from karrow import events
    from karrow.aio._fetch import FetchCodec
    from karrow.aio.consuming.positions import Fetch
    from karrow.aio.consuming.requests import Session
    from karrow.net.connection import Connection
    from karrow.types import TopicPartition


class Ground(NamedTuple):
    """What the choice of partitions rests on, and how long that holds without a change."""

    positions: int
    metadata: int
    until: float


class Flight:
    """One fetch after the other; ``outcome`` says whether the last of them had news."""

    __slots__ = (
        "_on_answer",
        "broker_id",
        "codec",
        "connection",
        "ground",
        "limit",
        "outcome",
        "session",
        "span",
        "version",
        "wanted",
    )

    def __init__(
        self,
        connection: Connection,
        broker_id: int,
        session: Session,
        wanted: dict[TopicPartition, Fetch],
        *,
        ground: Ground | None,
        on_answer: Callable[[Flight, Any], bool | None],
    ) -> None:
        self.connection = connection
        self.broker_id = broker_id
        self.session = session
        self.wanted = wanted
        self.ground = ground
        self.version = 0
        self.limit = 0.0
        self.codec: FetchCodec | None = None
        self.span: events.Span | None = None
        self.outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._on_answer = on_answer

    def done(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.outcome.done()

    def set_result(self, result: Any, /) -> None:
        """An answer has come; another fetch may be under way after this."""
        try:
            is_news = self._on_answer(self, result)
        except Exception as error:  # noqa: BLE001 - it belongs to who waits, not to the connection
            self.set_exception(error)
        else:
            if is_news is not None and not self.outcome.done():
                self.outcome.set_result(is_news)

    def set_exception(self, exception: BaseException, /) -> None:
        """There will be no answer, or nothing can be made of it."""
        if not self.outcome.done():
            self.outcome.set_exception(exception)
