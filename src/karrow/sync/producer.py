"""The producer without await.

Records go straight into the accumulator, in the caller's thread; the AsyncProducer behind it sends
them on karrow's own loop.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from karrow.aio._accumulator import Obstacle, run_callback
from karrow.aio._rows import ArrowRows
from karrow.aio.producer import (
    AsyncProducer,
    require_topic_name,
    room_deadline,
    unflushed,
)
from karrow.aio.producing.bulk import BulkDelivery, cut_short, find_places
from karrow.aio.waiting import deadline_after, seconds_left
from karrow.sync._send import BlockingSend
from karrow.sync.client import Client
from karrow.sync.loop import at_exit, run
from karrow.sync.transaction import Transaction

if TYPE_CHECKING:
    from karrow.aio._batch import Batch
    from karrow.aio.client import AsyncClient
    from karrow.aio.producing.stats import ProducerStats
    from karrow.config import ProducerConfig, Servers
    from karrow.config.options import ProducerOptions
    from karrow.errors import KarrowError
    from karrow.records.typing import ArrowData

T = TypeVar("T")


class Producer(BlockingSend):
    """Puts records into Kafka: batched, compressed, in order, and each exactly once.

    ``send`` waits only for room in the buffer and gives a Delivery, whose ``result()`` waits until
    the brokers have the record. Threads may share a producer. Making one opens no connection.

    Example::

        with Producer("localhost:9092") as producer:
            delivery = producer.send("orders", b"value", key=b"key")
            print(delivery.result(timeout=5).offset)
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | Client | None = None,
        *,
        config: ProducerConfig | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._arguments: tuple[Any, Any, dict[str, Any]] = (bootstrap, config, {**options})
        self._begin()
        _open_producers.add(self)

    def _begin(self) -> None:
        bootstrap, config, options = self._arguments
        servers = bootstrap.twin if isinstance(bootstrap, Client) else bootstrap
        self._twin = self._new_twin(servers, config, options)
        self.accumulator = self._twin.accumulator
        self._dispatcher = Dispatcher() if self._twin.config.callbacks == "thread" else None
        self.accumulator.callback_runner = (
            None if self._dispatcher is None else self._dispatcher.put
        )
        self._closed = False
        at_exit(_flush_all)

    def _new_twin(
        self, servers: Servers | AsyncClient | None, config: Any, options: dict[str, Any]
    ) -> AsyncProducer:
        return AsyncProducer(servers, config=config, **options)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self.accumulator.is_forked:
            coroutine.close()
            self.accumulator.refuse_fork()
        return run(coroutine, "AsyncProducer")

    @property
    def config(self) -> ProducerConfig:
        """The options in use."""
        return self._twin.config

    @property
    def twin(self) -> AsyncProducer:
        """The AsyncProducer behind it; its coroutines belong to karrow's own loop."""
        return self._twin

    def send_arrow(self, topic: str | None, data: ArrowData) -> BulkDelivery:
        """Put the rows of Arrow data on their way: a table, a stream or a record batch.

        Columns: ``value``, and where they are there ``key``, ``headers``, ``timestamp``,
        ``partition`` and ``topic``; what is null in the last two is chosen as for a record, and is
        ``topic``. ``offset`` and ``timestamp_type``, as a consumer gives them, are left out. Waits
        for room, so the data may be larger than the buffer. Wrong data raises at once, and nothing
        of it is sent; BufferFull, after ``max_block`` without room, says how many rows are on their
        way all the same.

        Example::

            delivery = producer.send_arrow("orders", pyarrow.table({"value": [b"a", b"b"]}))
            print(delivery.result(timeout=30).records)
        """
        if topic is not None:
            require_topic_name(topic)
        rows = ArrowRows(self.accumulator, topic, data)
        rows.check()
        if rows.unknown() or rows.absent() is not None:
            self._run(find_places(self._twin, rows))
        rows.place()
        while not rows.step():
            self.accumulator.run_callbacks()
            if not self.accumulator.wait_for_room(self.config.max_block):
                raise cut_short(rows, self._twin.buffer_full())
        self.accumulator.run_callbacks()
        return BulkDelivery(self.accumulator, rows.parts)

    # ---- what send may have to wait for

    def _overcome(
        self, obstacle: Obstacle, topic: str, partition: int | None, deadline: float | None
    ) -> float | None:
        self.accumulator.run_callbacks()
        if obstacle != Obstacle.NO_ROOM:
            return self._run(self._twin.overcome(obstacle, topic, partition, deadline))
        deadline = room_deadline(self.config, deadline)
        if not self.accumulator.wait_for_room(seconds_left(deadline)):
            raise self._twin.buffer_full()
        return deadline

    def _no_room(self, obstacle: Obstacle, topic: str, partition: int | None) -> KarrowError:
        if obstacle == Obstacle.NO_ROOM:
            return self._twin.buffer_full()
        return self._run(self._twin.no_room(obstacle, topic, partition))

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has; waits until that is known."""
        return self._run(self._twin.partitions_for(topic))

    # ---- records on their way

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent so far has its outcome; nothing lingers meanwhile.

        Raises RequestTimeout when that takes longer; the records stay on their way. Failed records
        raise nothing here: their deliveries do. Callbacks that are due run here.
        """
        self.accumulator.refuse_fork()
        deadline = deadline_after(timeout)
        waiting = list(self.accumulator.incomplete)
        for batch in waiting:
            self.accumulator.urge(batch)
        late = [batch for batch in waiting if not _settled(batch, deadline)]
        self.accumulator.run_callbacks()
        if late:
            raise unflushed(self.accumulator, timeout)

    def poll(self, timeout: float | None = 0) -> int:
        """Run the callbacks that are due, waiting up to ``timeout`` for one; how many ran.

        Nobody has to call it: ``send``, ``flush``, ``result`` and ``close`` run them too.
        """
        count: int = self.accumulator.run_callbacks()
        if not count and timeout != 0:
            self.accumulator.wait_for_callbacks(timeout)
            count = self.accumulator.run_callbacks()
        return count

    def purge(self, *, queued: bool = True, in_flight: bool = False) -> int:
        """Give up records: those that wait, and with ``in_flight`` those under way; how many.

        Their deliveries fail. What is under way may be written all the same, and says so.
        """

        async def purge() -> int:
            return self._twin.purge(queued=queued, in_flight=in_flight)

        count = self._run(purge())
        self.accumulator.run_callbacks()
        return count

    def stats(self) -> ProducerStats:
        """What waits, what was done and how fast, in all and per broker."""
        return self._twin.stats()

    # ---- transactions

    def transaction(self) -> Transaction:
        """A transaction: committed at the end of its block, aborted when the block raises.

        Example::

            with producer.transaction() as transaction:
                producer.send("out", b"1")
                transaction.send_offsets(consumer)
        """
        return Transaction(self)

    def init_transactions(self) -> None:
        """Fence older producers with this id and finish what they left open."""
        self._run(self._twin.init_transactions())

    def begin_transaction(self) -> None:
        """Open a transaction; records are part of it from now on."""
        self._run(self._twin.begin_transaction())

    def commit_transaction(self) -> None:
        """Make everything of the transaction visible."""
        self._run(self._twin.commit_transaction())
        self.accumulator.run_callbacks()

    def abort_transaction(self) -> None:
        """Undo everything of the transaction."""
        self._run(self._twin.abort_transaction())
        self.accumulator.run_callbacks()

    # ---- the end

    def close(self, timeout: float | None = None) -> None:
        """Flush for up to ``timeout`` seconds, then end; more than once does no harm.

        Without a time-out that takes no longer than ``delivery_timeout``. What is not written by
        then fails. Callbacks that are due run here.
        """
        _open_producers.discard(self)
        if self._closed or self.accumulator.is_forked:
            return  # a forked child has nothing to close
        self._closed = True
        self._run(self._twin.close(timeout))
        self.accumulator.run_callbacks()
        if self._dispatcher is not None:
            self._dispatcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config.client_id!r} of {self.config.bootstrap}>"


def _settled(batch: Batch, deadline: float | None) -> bool:
    """Wait until a batch, or what it was divided into, has its outcome: whether it has."""
    if not batch.wait(seconds_left(deadline)):
        return False
    return all(_settled(part, deadline) for part in batch.parts or ())


class Dispatcher:
    """A thread that runs callbacks, so that nobody has to come by for that."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[list[tuple[Any, Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="karrow-callbacks", daemon=True)
        self._thread.start()

    def put(self, callbacks: list[tuple[Any, Any]]) -> None:
        """Have callbacks run."""
        self._queue.put(callbacks)

    def _main(self) -> None:
        while (callbacks := self._queue.get()) is not None:
            for delivery, call in callbacks:
                run_callback(delivery, call)

    def close(self) -> None:
        """Run what is due, then end; from a callback, end without waiting for it."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()


# Those that are open in this process: for the end of the interpreter, and for forks.
_open_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


def _flush_all() -> None:
    """The interpreter ends: records that nobody flushed get a little time."""
    for producer in list(_open_producers):
        producer.close(producer.config.exit_timeout)


def _begin_anew() -> None:
    """In a forked child: those that want to go on there start empty."""
    for producer in list(_open_producers):
        if producer.config.after_fork == "restart":
            producer._begin()  # noqa: SLF001 - its own module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
