"""What a producer has done and what it has before it, as numbers and as events."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karrow.aio._batch import Batch
    from karrow.aio.producing.lane import Lane
    from karrow.aio.producing.sender import Sender
    from karrow.events import Span


@dataclass(frozen=True, slots=True)
class BrokerStats:
    """One broker: requests sent and under way, and how long the newest answers took, in seconds."""

    __module__ = "karrow"

    requests: int
    in_flight: int
    bytes_sent: int
    latency_p50: float | None
    latency_p99: float | None
    latency_max: float | None


@dataclass(frozen=True, slots=True)
class ProducerStats:
    """A producer at one moment.

    Records are *sent* when they were accepted, and then *written* or *failed*; rates are per second
    since the first record.
    """

    __module__ = "karrow"

    records_sent: int
    records_written: int
    records_failed: int
    bytes_written: int
    batches_written: int
    retries: int
    buffered_records: int
    buffered_bytes: int
    buffered_batches: int
    buffer_limit: int
    records_per_second: float
    bytes_per_second: float
    brokers: dict[int, BrokerStats]


class Statistics:
    """Counts what becomes of batches."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._written = 0
        self._failed = 0
        self._bytes = 0
        self._batches = 0
        self._first: float | None = None

    def settled(self, batch: Batch) -> None:
        """A batch has its outcome: count it, and tell those who listen."""
        if batch.span is not None:
            _tell(batch, batch.span)
        if self._first is None:
            self._first = batch.born
        if batch.is_written:
            self._written += batch.count
            self._bytes += batch.charged
            self._batches += 1
        elif batch.parts is None:
            self._failed += batch.count

    def now(self) -> ProducerStats:
        """The numbers as they are."""
        accumulator = self._sender.accumulator
        waiting = list(accumulator.incomplete)
        elapsed = time.monotonic() - self._first if self._first is not None else 0.0
        return ProducerStats(
            records_sent=accumulator.records,
            records_written=self._written,
            records_failed=self._failed,
            bytes_written=self._bytes,
            batches_written=self._batches,
            retries=self._sender.settlement.retries,
            buffered_records=sum(batch.count for batch in waiting),
            buffered_bytes=accumulator.bytes,
            buffered_batches=len(waiting),
            buffer_limit=accumulator.limit,
            records_per_second=self._written / elapsed if elapsed else 0.0,
            bytes_per_second=self._bytes / elapsed if elapsed else 0.0,
            brokers=_by_broker(list(self._sender.lanes.values())),
        )


def _tell(batch: Batch, span: Span) -> None:
    if batch.is_written:
        span.stop(offset=batch.base_offset)
    elif batch.error is not None:
        span.fail(batch.error)
    else:  # its parts go on
        for part in batch.parts or ():
            part.span = span


def _by_broker(lanes: list[Lane]) -> dict[int, BrokerStats]:
    return {
        broker: _stats([lane for lane in lanes if lane.broker_id == broker])
        for broker in sorted({lane.broker_id for lane in lanes})
    }


def _stats(lanes: list[Lane]) -> BrokerStats:
    times = sorted(seconds for lane in lanes for seconds in list(lane.latencies))
    return BrokerStats(
        requests=sum(lane.requests for lane in lanes),
        in_flight=sum(lane.in_flight for lane in lanes),
        bytes_sent=sum(lane.bytes_sent for lane in lanes),
        latency_p50=times[len(times) // 2] if times else None,
        latency_p99=times[len(times) * 99 // 100] if times else None,
        latency_max=times[-1] if times else None,
    )
