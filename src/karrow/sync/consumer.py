"""The consumer without await.

The AsyncConsumer behind it fetches on karrow's own loop; what has come is taken and decoded in the
caller's thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from karrow.aio._reading import UNLIMITED, Iteration
from karrow.aio.consumer import AsyncConsumer
from karrow.errors import StateError
from karrow.sync.client import Client
from karrow.sync.loop import run

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.config import ConsumerConfig, Servers
    from karrow.config.options import ConsumerOptions
    from karrow.records import Record
    from karrow.types import OffsetLike, TopicPartition

T = TypeVar("T")


class Consumer(Iteration):
    """Reads topics.

    Without a group it reads every partition of its topics, from ``start`` on, and commits nothing.
    One thread at a time may use it.

    Example::

        with Consumer("localhost:9092", "orders", start="earliest") as consumer:
            for record in consumer:
                print(record.offset, record.value)
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | Client | None = None,
        *topics: str,
        config: ConsumerConfig | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        servers = bootstrap.twin if isinstance(bootstrap, Client) else bootstrap
        self._twin = AsyncConsumer(servers, *topics, config=config, **options)
        self._engine = self._twin.engine
        self._taker = self._twin.taker
        self._taker.inline_bytes = UNLIMITED
        self._iterate_over(self._taker)
        self._user: int | None = None

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run(coroutine, "AsyncConsumer")

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def there() -> T:
            return call()

        return self._run(there())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse two threads at once: each would get a part of the records."""
        here = threading.get_ident()
        if self._user not in (None, here):
            raise StateError("a Consumer is used by two threads at once", hint="make one for each")
        before, self._user = self._user, here
        try:
            yield
        finally:
            self._user = before

    @property
    def config(self) -> ConsumerConfig:
        """The options in use."""
        return self._twin.config

    # ---- the assignment and the places in it

    def assign(
        self, partitions: Iterable[tuple[str, int]] | Mapping[tuple[str, int], OffsetLike]
    ) -> None:
        """Read these partitions and no others; a mapping says where each begins."""
        self._run(self._twin.assign(partitions))

    def seek(self, partition: tuple[str, int], place: OffsetLike) -> None:
        """Go on at an offset, "earliest", "latest", a time, or an age such as "-1h"."""
        self._on_loop(lambda: self._twin.seek(partition, place))

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out nothing of these for now."""
        self._on_loop(lambda: self._twin.pause(*partitions))

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Go on with these where they were."""
        self._on_loop(lambda: self._twin.resume(*partitions))

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return self._twin.assignment

    def position(self, partition: tuple[str, int]) -> int | None:
        """The offset that comes next; None while it is not known."""
        return self._twin.position(partition)

    def lag(self) -> dict[TopicPartition, int | None]:
        """How many offsets are in front of every position."""
        return self._twin.lag()

    def skip_damaged(self) -> tuple[TopicPartition, ...]:
        """Go on behind damage that was raised; gives the partitions that had stopped at it."""
        return self._on_loop(self._twin.skip_damaged)

    # ---- three ways to read

    def poll(self, timeout: float | None = 1.0, max_records: int | None = None) -> list[Record]:
        """Up to ``max_records`` records, as soon as there are any; empty when the time passes."""
        self._begin()
        most = self.config.max_poll_records if max_records is None else max_records
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._alone():
            while not (found := self._taker.records(most)):
                if not self._wait(deadline):
                    break
        return found

    def _more(self) -> None:
        """Have a record for iteration."""
        self._begin()
        with self._alone():
            while not self._taker.refill():
                self._wait(None)

    def batches(
        self,
        max_records: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches, each of one partition; ends when ``timeout`` passes without data."""
        import pyarrow as pa  # noqa: PLC0415 - only this needs it

        self._begin()
        while True:
            deadline = None if timeout is None else time.monotonic() + timeout
            with self._alone():
                while (rows := self._taker.columns(columns, max_records, max_bytes)) is None:
                    if not self._wait(deadline):
                        return
            yield pa.record_batch(rows)

    def _begin(self) -> None:
        if not self._twin.is_ready:
            self._run(self._twin.ready())

    def _wait(self, deadline: float | None) -> bool:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        self._engine.inbox.wait(left)
        return True

    # ---- the end

    def close(self) -> None:
        """Stop reading; more than once does no harm."""
        self._run(self._twin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config.client_id!r} of {self.config.bootstrap}>"
