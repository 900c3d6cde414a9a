"""The consumer: records, lists of records, and Arrow batches out of topics."""

from __future__ import annotations

import time
import warnings
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from karrow.aio._reading import AwaitedIteration
from karrow.aio.client import AsyncClient
from karrow.aio.consuming.engine import Engine
from karrow.aio.consuming.taking import INLINE_BYTES, Taker
from karrow.config import ConsumerConfig
from karrow.errors import ConfigError, StateError
from karrow.net.cluster import Cluster
from karrow.types import OffsetSpec, TopicPartition, is_topic_name

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.config import Servers
    from karrow.config.options import ConsumerOptions
    from karrow.records import Record
    from karrow.types import OffsetLike


class AsyncConsumer(AwaitedIteration):
    """Reads topics.

    Without a group it reads every partition of its topics, from ``start`` on, and commits nothing.

    Example::

        async with AsyncConsumer("localhost:9092", "orders", start="earliest") as consumer:
            async for record in consumer:
                print(record.offset, record.value)
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | AsyncClient | None = None,
        *topics: str,
        config: ConsumerConfig | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._client = bootstrap if isinstance(bootstrap, AsyncClient) else None
        given: dict[str, Any] = {**options}
        if bootstrap is not None and self._client is None:
            given["bootstrap"] = bootstrap
        self.config = ConsumerConfig.make(config, given)
        if self.config.group is not None:
            raise ConfigError("group: consumer groups are not there yet")
        for topic in topics:
            if not is_topic_name(topic):
                raise ConfigError(f"{topic!r} is no name of a topic")
        self._topics = topics
        self._cluster = Cluster(self.config) if self._client is None else self._client.cluster
        self.engine = Engine(self.config, self._cluster)
        self.taker = Taker(self.engine, inline_bytes=INLINE_BYTES)
        self._iterate_over(self.taker)
        self._is_ready = False
        self._is_closed = False

    @property
    def is_ready(self) -> bool:
        """Whether there is an assignment, and the consumer is open."""
        return self._is_ready and not self._is_closed

    async def ready(self) -> None:
        """Have an assignment: every partition of the topics that were named."""
        if self._is_closed:
            raise StateError("the consumer is closed")
        if self._is_ready:
            return
        self._is_ready = True
        self.engine.start()
        if self._topics:
            await self.assign(await self._partitions(self._topics))

    async def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        await self._cluster.look_up(topics)
        found = []
        for topic in topics:
            known = await self._cluster.topic(topic)
            found += [TopicPartition(topic, number) for number in sorted(known.partitions)]
        return found

    # ---- the assignment and the places in it

    async def assign(
        self,
        partitions: Iterable[tuple[str, int]] | Mapping[tuple[str, int], OffsetLike],
    ) -> None:
        """Read these partitions and no others; a mapping says where each begins."""
        self._is_ready = True
        self.engine.start()
        wanted = [TopicPartition(*one) for one in partitions]
        self.engine.assign(wanted)
        if isinstance(partitions, Mapping):
            for partition, place in partitions.items():
                self.seek(TopicPartition(*partition), place)

    def seek(self, partition: tuple[str, int], place: OffsetLike) -> None:
        """Go on at an offset, "earliest", "latest", a time, or an age such as "-1h"."""
        self.engine.seek(TopicPartition(*partition), OffsetSpec.parse(place))

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand out nothing of these for now."""
        self.engine.pause([TopicPartition(*one) for one in partitions])

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Go on with these where they were."""
        self.engine.resume([TopicPartition(*one) for one in partitions])

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return self.engine.positions.assignment

    def position(self, partition: tuple[str, int]) -> int | None:
        """The offset that comes next; None while it is not known."""
        with self.engine.lock:
            self.taker.settle()
        return self.engine.positions[TopicPartition(*partition)].position

    def lag(self) -> dict[TopicPartition, int | None]:
        """How many offsets are in front of every position."""
        return self.engine.positions.lag()

    def skip_damaged(self) -> tuple[TopicPartition, ...]:
        """Go on behind damage that was raised; gives the partitions that had stopped at it."""
        found = self.taker.damaged()
        for partition, place in found.items():
            self.engine.seek(partition, place)
        return tuple(found)

    # ---- three ways to read

    async def poll(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - public name
        max_records: int | None = None,
    ) -> list[Record]:
        """Up to ``max_records`` records, as soon as there are any; empty when the time passes."""
        await self.ready()
        most = self.config.max_poll_records if max_records is None else max_records
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (found := await self.taker.records_beside(most)):
            if not await self._wait(deadline):
                break
        return found

    async def _more(self) -> None:
        """Have a record for iteration."""
        await self.ready()
        while not await self.taker.refill_beside():
            await self._wait(None)

    async def batches(
        self,
        max_records: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - public name
        columns: Sequence[str] | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Arrow batches, each of one partition; ends when ``timeout`` passes without data."""
        import pyarrow as pa  # noqa: PLC0415 - only this needs it

        await self.ready()
        while True:
            deadline = None if timeout is None else time.monotonic() + timeout
            while (
                rows := await self.taker.columns_beside(columns, max_records, max_bytes)
            ) is None:
                if not await self._wait(deadline):
                    return
            yield pa.record_batch(rows)

    async def _wait(self, deadline: float | None) -> bool:
        """Until there may be more; False when the time is up."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        await self.engine.inbox.wait_on_loop(left)
        return True

    # ---- the end

    async def close(self) -> None:
        """Stop reading; more than once does no harm."""
        if self._is_closed:
            return
        self._is_closed = True
        await self.engine.close()
        self.taker.close()
        if self._client is None:
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True) and self._cluster.has_connections:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, 2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config.client_id!r} of {self.config.bootstrap}>"
