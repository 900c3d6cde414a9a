"""An accumulator without a sender, for tests of what goes into it and comes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from karrow.aio._accumulator import Accumulator, Obstacle
from karrow.aio._batch import Batch
from karrow.sync._send import BlockingSend


def new_accumulator(
    topics: Mapping[str, int],
    *,
    batch_bytes: int = 10_000,
    buffer_bytes: int = 1_000_000,
    record_bytes: int = 100_000,
    **options: Any,
) -> Accumulator:
    """An accumulator that knows topics; whoever wakes its sender is counted in ``waker.times``."""
    options = {"partitioner": "murmur2", "adaptive": True, **options}
    accumulator = Accumulator(
        buffer_bytes=buffer_bytes, batch_bytes=batch_bytes, record_bytes=record_bytes, **options
    )
    for name, partitions in topics.items():
        accumulator.add_topic(name, partitions)
    accumulator.waker = Waker()
    return accumulator


class Waker:
    """Stands for the sender."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


class Sending(BlockingSend):
    """``send`` over an accumulator of ours; what is in the way is raised."""

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator

    def _overcome(self, obstacle: Obstacle, *_: object) -> float | None:
        raise Stopped(obstacle)

    def _no_room(self, obstacle: Obstacle, *_: object) -> Exception:
        return Stopped(obstacle)


class Stopped(Exception):
    """``send`` cannot go on."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle)
        self.obstacle = obstacle


def filled_batch(
    accumulator: Accumulator, topic: str, partition: int, values: Iterable[bytes] = (b"one", b"two")
) -> Batch:
    """A closed batch with some records, taken out of the line and stamped."""
    sending = Sending(accumulator)
    for value in values:
        sending.send(topic, value, partition=partition, timestamp_ms=1)
    where = accumulator.add_topic(topic, 1).partitions[partition]
    accumulator.close_batch(where)
    batch = where.queue.popleft()
    batch.stamp(False)
    return batch
