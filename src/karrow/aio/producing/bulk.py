"""Arrow data on its way: what ``send_arrow`` gives back, and what both producers do around it.

Rules:
- The rows are in batches, or in parts of them; a batch that was too large has been divided, and its
  rows are in its parts now.
- One batch is watched at a time, the first without an outcome: when it has one, the next. So
  callbacks run once, after the last.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from karrow.aio._accumulator import Obstacle
from karrow.aio._delivery import wait_for
from karrow.aio._rows import ArrowRows, error_in
from karrow.aio.waiting import deadline_after, seconds_left
from karrow.errors import BufferFull, KarrowError, RequestTimeout, UnknownTopicOrPartition
from karrow.types import SendSummary, TopicPartition

if TYPE_CHECKING:
    from karrow.aio._accumulator import Accumulator
    from karrow.aio._batch import Batch
    from karrow.aio.producer import AsyncProducer

# How many are looked at on the loop itself; that takes about a millisecond.
MANY_ROWS = 100_000
# Some rows of a batch: from which on, and how many.
Part = tuple["Batch", int, int]


class BulkDelivery:
    """Arrow data on its way, all rows together.

    In a blocking producer ``result()`` waits for it; in an AsyncProducer it is awaited. Waiting
    does not wait for ``linger``: the rows leave at once.

    Example::

        delivery = producer.send_arrow("orders", table)
        print(delivery.result(timeout=30).records)
    """

    __module__ = "karrow"

    def __init__(self, accumulator: Accumulator, parts: Iterable[Part]) -> None:
        self._accumulator = accumulator
        self._parts = list(parts)
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[BulkDelivery], object]] = []
        self._watched: Iterator[Batch] | None = None

    def done(self) -> bool:
        """Whether the outcome of every row is known."""
        return all(batch.is_done for batch, _, _ in self._pieces())

    def result(self, timeout: float | None = None) -> SendSummary:
        """Where the rows are; raises the first thing that went wrong, if only for some of them.

        Waits up to ``timeout`` seconds and raises RequestTimeout after that; the rows stay on their
        way, and waiting again is possible. Callbacks that are due run here.
        """
        self.wait(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> KarrowError | None:
        """The first thing that went wrong, None if all was written; waits as ``result`` does."""
        self.wait(timeout)
        return self._failure()

    def summary(self) -> SendSummary:
        """What was written so far; when some rows have failed, the others."""
        partitions: dict[TopicPartition, tuple[int, int | None]] = {}
        for batch, first, count in self._pieces():
            if not batch.is_written:
                continue
            where = TopicPartition(batch.partition.topic.name, batch.partition.number)
            offset = None if batch.base_offset is None else batch.base_offset + first
            before, earliest = partitions.get(where, (0, offset))
            partitions[where] = (before + count, earliest)
        return SendSummary(sum(count for count, _ in partitions.values()), partitions)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the outcome, whatever it is."""
        deadline = deadline_after(timeout)
        self._urge()
        for batch in self._unsettled():
            if not batch.wait(seconds_left(deadline)):
                raise RequestTimeout(
                    f"no outcome within {timeout} s; the rows are still on their way"
                )
        self._accumulator.run_callbacks()

    def add_done_callback(self, call: Callable[[BulkDelivery], object]) -> None:
        """Have ``call(delivery)`` run when the outcome is known, where callbacks of records run."""
        with self._lock:
            self._callbacks.append(call)
            is_first = self._watched is None
            if is_first:
                self._watched = self._unsettled()
        if is_first or self.done():
            self._watch()

    async def arrived(self) -> SendSummary:
        """What awaiting it does."""
        self._urge()
        for batch in self._unsettled():
            await wait_for(batch)
        return self._outcome()

    def __await__(self) -> Generator[Any, Any, SendSummary]:
        return self.arrived().__await__()

    def __repr__(self) -> str:
        rows = sum(count for _, _, count in self._parts)
        state = "on its way"
        if self.done():
            state = "written" if self._failure() is None else "failed"
        return f"<BulkDelivery of {rows} rows, {state}>"

    # ---- its batches

    def _pieces(self) -> Iterator[Part]:
        for part in self._parts:
            yield from _undivided(*part)

    def _unsettled(self) -> Iterator[Batch]:
        """Batches without an outcome; whoever goes on to the next has waited for the last."""
        batches = deque(batch for batch, _, _ in self._parts)
        while batches:
            batch = batches.popleft()
            if not batch.is_done:
                yield batch
            batches.extendleft(reversed(batch.parts or ()))

    def _urge(self) -> None:
        for batch, _, _ in self._pieces():
            if not batch.is_done:
                self._accumulator.urge(batch)

    def _failure(self) -> KarrowError | None:
        """The first error, made for this caller."""
        for batch, first, count in self._pieces():
            error = None if batch.is_written else error_in(batch, first, count)
            if error is not None:
                found = copy.copy(error)
                rows = sum(count for _, _, count in self._parts)
                found.add_note(f"{self.summary().records} of {rows} rows were written")
                return found
        return None

    def _outcome(self) -> SendSummary:
        error = self._failure()
        if error is not None:
            raise error
        return self.summary()

    def _watch(self) -> None:
        """Wait for the next batch without an outcome; after the last, call back."""
        with self._lock:
            for batch in self._watched or ():
                if batch.add_waiter(self._watch):
                    return
            callbacks, self._callbacks = self._callbacks, []
        if callbacks:
            self._accumulator.call_back([(self, call) for call in callbacks])


def _undivided(batch: Batch, first: int, count: int) -> Iterator[Part]:
    """The same rows, in the batches that they are in now."""
    if batch.parts is None:
        yield batch, first, count
        return
    for part in batch.parts:
        inside = min(max(part.count - first, 0), count)
        if inside:
            yield from _undivided(part, first, inside)
        first = max(first - part.count, 0)
        count -= inside


async def prepare(producer: AsyncProducer, rows: ArrowRows) -> None:
    """Look at all rows and decide where they go; many of them in a thread, beside the loop."""
    if rows.count < MANY_ROWS:
        rows.check()
    else:
        await asyncio.to_thread(rows.check)
    await find_places(producer, rows)
    if rows.count < MANY_ROWS or callable(producer.config.partitioner):
        rows.place()
    else:
        await asyncio.to_thread(rows.place)


async def find_places(producer: AsyncProducer, rows: ArrowRows) -> None:
    """Learn the partitions of all topics, and look again for those that rows ask for."""
    for topic in rows.unknown():
        await producer.overcome(Obstacle.NO_TOPIC, topic, None, None)
    while (absent := rows.absent()) is not None:
        topic, partition, row = absent
        try:
            await producer.overcome(Obstacle.NO_PARTITION, topic, partition, None)
        except UnknownTopicOrPartition as error:
            found = UnknownTopicOrPartition(
                f"column 'partition' asks for what is not there (row {row}): {error.message}",
                **error.context,
            )
            found.retriable = False
            raise found from None


def cut_short(rows: ArrowRows, full: BufferFull) -> BufferFull:
    """The error of data that found no room in time; what was taken of it goes on its way."""
    rows.give_up()
    return BufferFull(
        f"{full.message}; the first {rows.taken} of {rows.count} rows are on their way",
        hint="raise buffer_bytes or max_block",
    )
