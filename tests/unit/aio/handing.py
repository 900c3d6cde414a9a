"""A consumer's engine without sockets: answers to fetches go in, records come out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from karrow.aio._reading import Iteration
from karrow.aio.consuming.engine import Engine
from karrow.aio.consuming.positions import Fetch
from karrow.aio.consuming.taking import Taker
from karrow.config import ConsumerConfig
from karrow.net.cluster import Cluster
from karrow.records import Record
from karrow.types import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Desk(Iteration):
    """Everything of a consumer between an answer and the application; iterating ends."""

    def __init__(self, *partitions: TopicPartition, at: int = 0, **options: Any) -> None:
        config = ConsumerConfig(**options)
        self.engine = Engine(config, Cluster(config))
        self.positions = self.engine.positions
        self.taker = Taker(self.engine)
        self.engine.positions.settle = self.taker.settle
        self._iterate_over(self.taker)
        self.positions.add(partitions or [A])
        for asked in self.positions.to_look_up():
            self.positions.found_committed(asked, at)

    def _more(self) -> None:
        if not self.taker.refill():
            raise StopIteration

    def asked(self, partition: TopicPartition = A) -> Fetch:
        """The next fetch of a partition."""
        fetches = self.positions.to_fetch(time.monotonic())
        return next(one for one in fetches if one.partition == partition)

    def feed(
        self,
        data: bytes,
        partition: TopicPartition = A,
        *,
        end: int = 1000,
        stable: int | None = None,
        aborted: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Have a fetch answered."""
        item = SimpleNamespace(
            error_code=0,
            records=memoryview(data),
            high_watermark=end,
            last_stable_offset=end if stable is None else stable,
            log_start_offset=0,
            preferred_read_replica=-1,
            aborted_transactions=[
                SimpleNamespace(producer_id=producer, first_offset=first)
                for producer, first in aborted
            ],
        )
        with self.engine.lock:
            self.engine.fetcher._read_partition(self.asked(partition), item, (), 1)
        self.engine.inbox.nudge()

    def position(self, partition: TopicPartition = A) -> int | None:
        """The offset that is handed out next."""
        with self.engine.lock:
            self.taker.settle()
            return self.positions[partition].position

    def consumed(self, partition: TopicPartition = A) -> int | None:
        """The offset up to which the application is done."""
        with self.engine.lock:
            self.taker.settle()
            return self.positions[partition].consumed


def values(records: Iterable[Record]) -> list[bytes | None]:
    return [record.value for record in records]
