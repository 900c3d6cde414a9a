"""What a partition knows of its producers: sequences, epochs, open and aborted transactions.

Rules (KIP-98, KIP-360, KIP-890 and Kafka's own broker):
- The last five batches of a producer are remembered. One that comes again, by epoch, first and last
  sequence, is answered with the offset it got the first time, and not stored.
- A batch of the current epoch must begin where the last one ended; after 2^31 - 1 comes 0. A batch
  of a newer epoch must begin with 0, also when it was a marker that brought the epoch. An older
  epoch is refused.
- A producer that is not known, because its records are gone or it was idle for a day, may begin
  anywhere; only where partitions join transactions by themselves it must begin with 0.
- A transaction is open from its first batch to its marker, and takes transactional batches only.
  The last stable offset is the first offset of the oldest open one.
- A marker ends it; an aborted one is listed by producer, first offset and the marker's offset. The
  marker's epoch is the transaction's or newer; from transaction version 2 on it is newer, unless
  the same marker comes again. An older coordinator's marker is refused.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from karrow import errors
from karrow.records import BatchBuilder, BatchInfo

REMEMBERED = 5
MAX_SEQUENCE = 0x7FFFFFFF
MAX_EPOCH = 0x7FFF
ABORT, COMMIT = 0, 1
RECORDS_AT = 61
# producer.id.expiration.ms
IDLE_MS = 86_400_000


class Written(NamedTuple):
    """A batch that a producer has stored."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int


class Aborted(NamedTuple):
    """A transaction whose records must not be seen."""

    producer_id: int
    first_offset: int
    last_offset: int


class Marker(NamedTuple):
    """The end of a transaction, as it stands in the log."""

    commit: bool
    coordinator_epoch: int


@dataclass(slots=True)
class Producer:
    """One producer's state in one partition."""

    producer_id: int
    epoch: int
    written: deque[Written] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    last_timestamp_ms: int = -1
    transaction_start: int | None = None
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 when none is known in this epoch."""
        return self.written[-1].last_sequence if self.written else -1

    def find(self, info: BatchInfo) -> Written | None:
        """The same batch, if it was stored before."""
        if info.producer_epoch != self.epoch:
            return None
        last = last_sequence(info)
        for written in self.written:
            if (written.first_sequence, written.last_sequence) == (info.base_sequence, last):
                return written
        return None


class Producers:
    """All producers of one partition."""

    def __init__(self) -> None:
        self._known: dict[int, Producer] = {}
        # First offsets of open transactions by producer, the oldest first.
        self._open: dict[int, int] = {}
        self._aborted: list[Aborted] = []

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._known.values())

    @property
    def first_open(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open.values()), None)

    def get(self, producer_id: int) -> Producer | None:
        return self._known.get(producer_id)

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open here in this epoch."""
        return producer_id in self._open and self._known[producer_id].epoch == epoch

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Refuse a producer that was replaced by a newer one."""
        known = self._known.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise errors.InvalidProducerEpoch(
                f"epoch {epoch} of producer {producer_id} is over: {known.epoch} has begun"
            )

    def check(self, info: BatchInfo, *, begins: bool = False) -> Written | None:
        """Refuse a batch that does not follow; give the first copy of one that was stored.

        ``begins`` says that the batch may not be in the middle of what nobody remembers.
        """
        if info.producer_id < 0:
            return None
        known = self._known.get(info.producer_id)
        if known is None:
            if begins and info.base_sequence != 0:
                raise errors.OutOfOrderSequenceNumber(
                    f"producer {info.producer_id} is not known here and must begin with 0"
                )
            return None
        found = known.find(info)
        if found is not None:
            return found
        self.check_epoch(info.producer_id, info.producer_epoch)
        if not _follows(known, info):
            raise errors.OutOfOrderSequenceNumber(
                f"producer {info.producer_id} sent sequence {info.base_sequence} after "
                f"{known.last_sequence}"
            )
        if known.transaction_start is not None and not info.transactional:
            raise errors.InvalidTxnState("the producer has a transaction open in the partition")
        return None

    def note(self, info: BatchInfo, base_offset: int) -> None:
        """Take a stored batch into account."""
        producer_id = info.producer_id
        if producer_id < 0:
            return
        producer = self._at_epoch(producer_id, info.producer_epoch)
        written = Written(
            info.base_sequence, last_sequence(info), base_offset, info.max_timestamp_ms
        )
        producer.written.append(written)
        producer.last_timestamp_ms = info.max_timestamp_ms
        if info.transactional and producer.transaction_start is None:
            producer.transaction_start = self._open[producer_id] = base_offset

    def check_marker(self, producer_id: int, epoch: int, marker: Marker, version: int) -> None:
        """Refuse a marker that is not the end of the producer's transaction (KIP-1228)."""
        known = self._known.get(producer_id)
        if known is None:
            return
        again = epoch == known.epoch and known.transaction_start is None
        if epoch < known.epoch or (
            version >= 2 and epoch == known.epoch and not again and epoch < MAX_EPOCH
        ):
            raise errors.InvalidProducerEpoch(
                f"a marker of epoch {epoch} cannot end what producer {producer_id} does in epoch "
                f"{known.epoch}"
            )
        if marker.coordinator_epoch < known.coordinator_epoch:
            raise errors.TransactionCoordinatorFenced(
                f"the coordinator's epoch {marker.coordinator_epoch} is over"
            )

    def note_marker(
        self, producer_id: int, epoch: int, offset: int, marker: Marker, timestamp_ms: int
    ) -> None:
        """Take a stored marker into account."""
        producer = self._at_epoch(producer_id, epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp_ms = timestamp_ms
        producer.transaction_start = None
        start = self._open.pop(producer_id, None)
        if start is not None and not marker.commit:
            self._aborted.append(Aborted(producer_id, start, offset))

    def replay(self, batch: bytes, info: BatchInfo) -> None:
        """Take a batch into account that was found in the log."""
        if not info.control:
            self.note(info, info.base_offset)
            return
        marker = read_marker(batch)
        if marker is not None:
            self.note_marker(
                info.producer_id,
                info.producer_epoch,
                info.base_offset,
                marker,
                info.max_timestamp_ms,
            )

    def aborted_between(self, start: int, end: int) -> list[Aborted]:
        """The aborted transactions with records in [start, end)."""
        # They are in the order of their markers.
        first = bisect_left(self._aborted, start, key=lambda gone: gone.last_offset)
        return [gone for gone in self._aborted[first:] if gone.first_offset < end]

    def forget_before(self, offset: int) -> None:
        """Drop what concerns only records below ``offset``; producers go by their age."""
        self._aborted = self.aborted_between(offset, 1 << 63)

    def forget_idle(self, now: int) -> None:
        """Drop producers that have been silent for long, by the time in their records."""
        idle = [
            known.producer_id
            for known in self._known.values()
            if known.transaction_start is None and now - known.last_timestamp_ms >= IDLE_MS
        ]
        for producer_id in idle:
            del self._known[producer_id]

    def _at_epoch(self, producer_id: int, epoch: int) -> Producer:
        producer = self._known.get(producer_id)
        if producer is None:
            producer = self._known[producer_id] = Producer(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.written.clear()
        return producer


def _follows(known: Producer, info: BatchInfo) -> bool:
    if info.producer_epoch > known.epoch:
        return info.base_sequence == 0
    return is_next(known.last_sequence, info.base_sequence)


def marker_batch(producer_id: int, epoch: int, marker: Marker, now: int) -> bytearray:
    """The control batch that ends a transaction."""
    builder = BatchBuilder()
    key = struct.pack(">hh", 0, COMMIT if marker.commit else ABORT)
    builder.append(key, struct.pack(">hi", 0, marker.coordinator_epoch), timestamp_ms=now)
    return bytearray(
        builder.build(
            producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True
        )
    )


def read_marker(batch: bytes) -> Marker | None:
    """What a control batch says; None if it is not about a transaction's end."""
    # length, attributes, time delta, offset delta, key length: one byte each in what brokers write
    start = RECORDS_AT + 5
    kind, version, coordinator = struct.unpack_from(">xxhxhi", batch, start)
    if kind not in (ABORT, COMMIT) or version < 0:
        return None
    return Marker(kind == COMMIT, coordinator)


def last_sequence(info: BatchInfo) -> int:
    """The sequence of a batch's last record; sequences wrap to 0 after 2^31 - 1."""
    if info.base_sequence < 0:
        return -1
    return (info.base_sequence + info.last_offset - info.base_offset) & MAX_SEQUENCE


def is_next(last: int, following: int) -> bool:
    """Whether a sequence follows another."""
    return following == (last + 1 if last < MAX_SEQUENCE else 0)
