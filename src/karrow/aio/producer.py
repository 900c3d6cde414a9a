"""The producer: records in, deliveries out."""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, Any, Self, Unpack

from karrow.aio._accumulator import Accumulator, Obstacle, run_callback
from karrow.aio._rows import ArrowRows
from karrow.aio._send import AwaitedSend
from karrow.aio.client import AsyncClient, config_and_cluster
from karrow.aio.producing.bulk import BulkDelivery, cut_short, prepare
from karrow.aio.producing.sender import Sender, settled
from karrow.aio.producing.transaction import AsyncTransaction
from karrow.aio.producing.transactions import Transactions
from karrow.aio.waiting import awaited, deadline_after, seconds_left
from karrow.config import ProducerConfig
from karrow.errors import (
    BufferFull,
    InvalidTopicException,
    KarrowError,
    RequestTimeout,
    StateError,
    UnknownTopicOrPartition,
)
from karrow.net.sharing import joined
from karrow.types import is_topic_name

if TYPE_CHECKING:
    from karrow.aio.producing.stats import ProducerStats
    from karrow.config import Servers
    from karrow.config.options import ProducerOptions
    from karrow.records.typing import ArrowData

# Batches of Arrow data after which other tasks get a turn.
TURN_BATCHES = 4
# The room in a request that is not the batch's own.
REQUEST_OVERHEAD = 1024


class AsyncProducer(AwaitedSend):
    """Puts records into Kafka: batched, compressed, in order, and each exactly once.

    ``await send(...)`` waits only for room in the buffer and gives a Delivery; awaiting that waits
    until the brokers have the record. Making a producer opens no connection.

    Example::

        async with AsyncProducer("localhost:9092") as producer:
            delivery = await producer.send("orders", b"value", key=b"key")
            print((await delivery).offset)
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | AsyncClient | None = None,
        *,
        config: ProducerConfig | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._client = bootstrap if isinstance(bootstrap, AsyncClient) else None
        self.config, self._cluster = config_and_cluster(
            ProducerConfig, bootstrap, config, {**options}
        )
        self.accumulator = new_accumulator(self.config)
        self.accumulator.callback_runner = self._run_callbacks
        self.sender = Sender(self.config, self._cluster, self.accumulator)
        self._transactions: Transactions | None = None
        if self.config.transactional_id is not None:
            self._transactions = Transactions(self.config, self._cluster, self.sender)
            self.sender.transactions = self._transactions
        self._closing: asyncio.Task[None] | None = None

    async def send_arrow(self, topic: str | None, data: ArrowData) -> BulkDelivery:
        """Put the rows of Arrow data on their way: a table, a stream or a record batch.

        Columns: ``value``, and where they are there ``key``, ``headers``, ``timestamp``,
        ``partition`` and ``topic``; what is null in the last two is chosen as for a record, and is
        ``topic``. ``offset`` and ``timestamp_type``, as a consumer gives them, are left out. Waits
        for room, so the data may be larger than the buffer. Wrong data raises at once, and nothing
        of it is sent; BufferFull, after ``max_block`` without room, says how many rows are on their
        way all the same. A call that is cancelled leaves those on their way too.

        Example::

            delivery = await producer.send_arrow("orders", pyarrow.table({"value": [b"a", b"b"]}))
            print((await delivery).records)
        """
        if topic is not None:
            require_topic_name(topic)
        rows = ArrowRows(self.accumulator, topic, data)
        await prepare(self, rows)
        while not rows.step(TURN_BATCHES):
            if rows.is_stuck:
                try:
                    await self._wait_for_room(room_deadline(self.config, None))
                except BufferFull as error:
                    raise cut_short(rows, error) from None
            await asyncio.sleep(0)
        return BulkDelivery(self.accumulator, rows.parts)

    # ---- what send may have to wait for

    async def overcome(
        self, obstacle: Obstacle, topic: str, partition: int | None, deadline: float | None
    ) -> float | None:
        """Do away with what is in the way of a record; ``send`` calls it.

        Gives until when the call may wait for room, for the next time it has to.
        """
        self.sender.start()
        if obstacle == Obstacle.NO_ROOM:
            deadline = room_deadline(self.config, deadline)
            await self._wait_for_room(deadline)
        elif obstacle == Obstacle.NO_TOPIC:
            await self._find_topic(topic)
        else:
            await self._find_partition(topic, partition)
        return deadline

    async def _find_topic(self, topic: str) -> None:
        """Look a topic up; as long as that may take, or as a record may wait."""
        limit = asyncio.timeout(self.config.max_block)
        try:
            async with limit:
                await self.partitions_for(topic)
        except TimeoutError as error:
            if isinstance(error, KarrowError) or not limit.expired():
                raise
            text = f"the topic's partitions were not known within {self.config.max_block:g} s"
            trouble = self._cluster.pool.trouble
            hint = None if trouble is None else str(trouble)
            raise RequestTimeout(text, hint=hint, topic=topic) from trouble

    async def _wait_for_room(self, deadline: float | None) -> None:
        room = self.accumulator
        try:
            async with asyncio.timeout(seconds_left(deadline)):
                await awaited(room.add_room_waiter, room.remove_room_waiter)
        except TimeoutError:
            raise self.buffer_full() from None

    def buffer_full(self) -> BufferFull:
        """The error for a record that has no room."""
        return BufferFull(
            f"{self.accumulator.bytes} of {self.config.buffer_bytes} bytes are taken",
            hint="raise buffer_bytes, or wait with send",
        )

    async def no_room(self, obstacle: Obstacle, topic: str, partition: int | None) -> KarrowError:
        """Why a record is not taken now, for a blocking producer."""
        return self._no_room(obstacle, topic, partition)

    def _no_room(self, obstacle: Obstacle, topic: str, partition: int | None) -> KarrowError:
        """Why a record is not taken now; what is missing is looked for."""
        if obstacle == Obstacle.NO_ROOM:
            return self.buffer_full()
        require_topic_name(topic)
        self.sender.start()
        if obstacle == Obstacle.NO_TOPIC:
            self.sender.leaders.ask(topic)
            return BufferFull(
                "the topic's partitions are not known yet", hint="see partitions_for", topic=topic
            )
        return no_partition(self.accumulator, topic, partition)

    async def _find_partition(self, topic: str, partition: int | None) -> None:
        """The topic may have grown since we heard of it."""
        before = partition_count(self.accumulator, topic)
        said = await self._cluster.refresh([topic])
        if (found := said.topics.get(topic)) is not None and found.partitions:
            self.sender.leaders.learned(found)
        if partition_count(self.accumulator, topic) == before:
            raise no_partition(self.accumulator, topic, partition)

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; waits until that is known."""
        require_topic_name(topic)
        self.sender.start()
        found = await self.sender.look_up(topic)
        self.sender.leaders.learned(found)
        return len(found.partitions)

    # ---- records on their way

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public name
        """Wait until every record sent so far has its outcome; nothing lingers meanwhile.

        Raises RequestTimeout when that takes longer; the records stay on their way. Failed records
        raise nothing here: their deliveries do.
        """
        waiting = list(self.accumulator.incomplete)
        for batch in waiting:
            self.accumulator.urge(batch)
        try:
            async with asyncio.timeout(timeout):
                for batch in waiting:
                    await settled(batch)
        except TimeoutError:
            raise unflushed(self.accumulator, timeout) from None

    def purge(self, *, queued: bool = True, in_flight: bool = False) -> int:
        """Give up records: those that wait, and with ``in_flight`` those under way; how many.

        Their deliveries fail. What is under way may be written all the same, and says so.
        """
        error = StateError("the record was purged")
        return self.sender.purge(error, queued=queued, in_flight=in_flight)

    def stats(self) -> ProducerStats:
        """What waits, what was done and how fast, in all and per broker."""
        return self.sender.statistics.now()

    # ---- transactions

    @property
    def transactions(self) -> Transactions:
        """The state of a producer with a ``transactional_id``."""
        if self._transactions is None:
            raise StateError("the producer has no transactional_id")
        return self._transactions

    def transaction(self) -> AsyncTransaction:
        """A transaction: committed at the end of its block, aborted when the block raises.

        Example::

            async with producer.transaction() as transaction:
                await producer.send("out", b"1")
                await transaction.send_offsets(consumer)
        """
        return AsyncTransaction(self)

    async def init_transactions(self) -> None:
        """Fence older producers with this id and finish what they left open."""
        self.sender.start()
        await self.transactions.init()

    async def begin_transaction(self) -> None:
        """Open a transaction; records are part of it from now on."""
        self.sender.start()
        await self.transactions.begin()

    async def commit_transaction(self) -> None:
        """Make everything of the transaction visible."""
        await self.transactions.commit()

    async def abort_transaction(self) -> None:
        """Undo everything of the transaction."""
        await self.transactions.abort()

    # ---- the end

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - public name
        """Flush for up to ``timeout`` seconds, then end; more than once does no harm.

        Without a time-out that takes no longer than ``delivery_timeout``. What is not written by
        then fails. A call that is cancelled does not stop it, and another one waits for its end.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(timeout), name="karrow producer close")
        await joined(self._closing)

    async def _close(self, timeout: float | None) -> None:  # noqa: ASYNC109 - as above
        limit = self.config.delivery_timeout + self.config.request_timeout
        try:
            if not self.sender.is_over:
                await self.flush(limit if timeout is None else timeout)
        except RequestTimeout:
            pass  # the deliveries tell
        if self._transactions is not None:
            await self._transactions.close()
        await self.sender.close()
        if self._client is None:
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        # The constructor may have failed early; a forked child has none of the parent's sockets.
        sender: Sender | None = getattr(self, "sender", None)
        if sender is None or sender.is_closed or self.accumulator.is_forked:
            return
        if self._cluster.has_connections:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, 2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config.client_id!r} of {self.config.bootstrap}>"

    # ---- callbacks

    def _run_callbacks(self, callbacks: list[tuple[Any, Any]]) -> None:
        loop = asyncio.get_running_loop()
        for delivery, call in callbacks:
            loop.call_soon(run_callback, delivery, call)


def room_deadline(config: ProducerConfig, deadline: float | None) -> float | None:
    """Until when a call may wait for room; None for as long as it takes."""
    return deadline_after(config.max_block) if deadline is None else deadline


def new_accumulator(config: ProducerConfig) -> Accumulator:
    """An accumulator as the options want it."""
    largest = config.max_request_bytes - REQUEST_OVERHEAD
    return Accumulator(
        buffer_bytes=config.buffer_bytes,
        batch_bytes=min(config.batch_bytes, max(largest, 1)),
        record_bytes=config.max_request_bytes,
        partitioner=config.partitioner,
        adaptive=config.adaptive_partitioning,
    )


def require_topic_name(topic: object) -> None:
    """Refuse what no topic can be called."""
    if not is_topic_name(topic):
        raise InvalidTopicException(
            f"{topic!r} is no name of a topic",
            hint="1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
        )


def partition_count(accumulator: Accumulator, topic: str) -> int:
    """How many partitions a topic has, as far as is known."""
    found = accumulator.topic(topic)
    return 0 if found is None else len(found.partitions)


def no_partition(
    accumulator: Accumulator, topic: str, partition: int | None
) -> UnknownTopicOrPartition:
    """The error for a partition that the topic does not have."""
    last = partition_count(accumulator, topic) - 1
    error = UnknownTopicOrPartition(
        f"the topic has partitions 0 to {last}", topic=topic, partition=partition
    )
    error.retriable = False
    return error


def unflushed(accumulator: Accumulator, timeout: float | None) -> RequestTimeout:
    """The error of a flush that took too long."""
    records = sum(batch.count for batch in accumulator.incomplete)
    return RequestTimeout(f"{records} records had no outcome after {timeout:g} s")
