from __future__ import annotations

from typing import Any

import pytest

from karrow import errors
from karrow.broker.producers import (
    IDLE_MS,
    MAX_EPOCH,
    MAX_SEQUENCE,
    Aborted,
    Marker,
    Producers,
    marker_batch,
    read_marker,
)
from karrow.records import BatchBuilder, BatchInfo, batches

COMMIT, ABORT = Marker(commit=True, coordinator_epoch=0), Marker(commit=False, coordinator_epoch=0)
NOW = 1_700_000_000_000


def built(
    count: int = 1,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    offset: int = 0,
    timestamp_ms: int = NOW,
) -> bytes:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(None, b"x", timestamp_ms=timestamp_ms)
    return builder.build(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def info(count: int = 1, **options: Any) -> BatchInfo:
    return batches(built(count, **options))[0]


class Partition:
    """Producers, and the offsets that a log would give their batches."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.end = 0

    def append(self, count: int = 1, **options: Any) -> int:
        """The offset of a batch, stored now or before."""
        batch = info(count, **options)
        stored = self.producers.check(batch)
        if stored is not None:
            return stored.base_offset
        base, self.end = self.end, self.end + count
        self.producers.note(batch, base)
        return base

    def mark(
        self, marker: Marker, *, epoch: int = 0, version: int = 0, producer_id: int = 7
    ) -> int:
        self.producers.check_marker(producer_id, epoch, marker, version)
        offset, self.end = self.end, self.end + 1
        self.producers.note_marker(producer_id, epoch, offset, marker, NOW)
        return offset


@pytest.fixture
def partition() -> Partition:
    return Partition()


def test_batches_without_a_producer_are_not_remembered(partition: Partition) -> None:
    assert partition.append(producer_id=-1, epoch=-1, sequence=-1) == 0
    assert partition.append(producer_id=-1, epoch=-1, sequence=-1) == 1
    assert list(partition.producers) == []


@pytest.mark.parametrize("first", [0, 5, MAX_SEQUENCE])
def test_unknown_producer_begins_anywhere(partition: Partition, first: int) -> None:
    assert partition.append(sequence=first) == 0
    assert partition.append(sequence=(first + 1) & MAX_SEQUENCE) == 1


def test_unknown_producer_begins_with_zero_where_partitions_join(partition: Partition) -> None:
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        partition.producers.check(info(sequence=1), begins=True)
    assert partition.producers.check(info(sequence=0), begins=True) is None


def test_batch_that_wraps_is_known_again(partition: Partition) -> None:
    assert partition.append(4, sequence=MAX_SEQUENCE - 1) == 0
    assert partition.append(4, sequence=MAX_SEQUENCE - 1) == 0
    assert partition.append(sequence=2) == 4
    (known,) = partition.producers
    assert known.last_sequence == 2


def test_five_batches_are_remembered(partition: Partition) -> None:
    for sequence in range(6):
        partition.append(sequence=sequence)
    assert [partition.append(sequence=sequence) for sequence in range(1, 6)] == [1, 2, 3, 4, 5]
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        partition.append(sequence=0)


def test_same_sequences_in_another_length_are_no_duplicate(partition: Partition) -> None:
    partition.append(2, sequence=0)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        partition.append(1, sequence=0)


def test_new_epoch_forgets_the_batches_of_the_old(partition: Partition) -> None:
    partition.append(sequence=0)
    partition.append(sequence=1)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        partition.append(sequence=2, epoch=1)
    assert partition.append(sequence=0, epoch=1) == 2
    with pytest.raises(errors.InvalidProducerEpoch):
        partition.append(sequence=1, epoch=0)


def test_marker_with_a_new_epoch_restarts_sequences(partition: Partition) -> None:
    partition.append(sequence=0, transactional=True)
    partition.mark(COMMIT, epoch=1, version=2)
    with pytest.raises(errors.OutOfOrderSequenceNumber):
        partition.append(sequence=1, epoch=1)
    with pytest.raises(errors.InvalidProducerEpoch):
        partition.append(sequence=1, epoch=0)
    assert partition.append(sequence=0, epoch=1) == 2


def test_marker_of_the_same_epoch_keeps_sequences(partition: Partition) -> None:
    partition.append(sequence=0, transactional=True)
    partition.mark(COMMIT)
    assert partition.append(sequence=0, transactional=True) == 0
    assert partition.append(sequence=1, transactional=True) == 2


def test_oldest_open_transaction_is_the_first(partition: Partition) -> None:
    partition.append(producer_id=1, transactional=True)
    partition.append(producer_id=2, transactional=True)
    partition.append(producer_id=1, sequence=1, transactional=True)
    assert partition.producers.first_open == 0
    partition.mark(COMMIT, producer_id=1)
    assert partition.producers.first_open == 1
    partition.append(producer_id=1, sequence=2, transactional=True)
    assert partition.producers.first_open == 1
    partition.mark(ABORT, producer_id=2)
    assert partition.producers.first_open == 4


def test_open_transaction_takes_nothing_else(partition: Partition) -> None:
    partition.append(transactional=True)
    assert partition.producers.has_open(7, 0)
    assert not partition.producers.has_open(7, 1)
    with pytest.raises(errors.InvalidTxnState):
        partition.append(sequence=1)


def test_aborted_transactions_are_listed_by_overlap(partition: Partition) -> None:
    for number in range(3):
        partition.append(sequence=2 * number, transactional=True)
        partition.append(sequence=2 * number + 1, transactional=True)
        partition.mark(ABORT if number != 1 else COMMIT)
    first, last = Aborted(7, 0, 2), Aborted(7, 6, 8)
    between = partition.producers.aborted_between
    assert between(0, 9) == [first, last]
    assert between(2, 6) == [first]
    assert between(3, 6) == []
    assert between(3, 7) == between(8, 9) == [last]
    partition.producers.forget_before(3)
    assert between(0, 9) == [last]


def test_marker_without_transaction_lists_nothing(partition: Partition) -> None:
    partition.mark(ABORT)
    assert partition.producers.aborted_between(0, 9) == []
    assert partition.producers.first_open is None


def test_marker_of_an_older_epoch_or_coordinator_is_refused(partition: Partition) -> None:
    partition.append(epoch=2, transactional=True)
    with pytest.raises(errors.InvalidProducerEpoch):
        partition.mark(ABORT, epoch=1)
    partition.mark(Marker(commit=False, coordinator_epoch=4), epoch=2)
    with pytest.raises(errors.TransactionCoordinatorFenced):
        partition.mark(Marker(commit=False, coordinator_epoch=3), epoch=2)


def test_marker_of_version_two_is_newer_than_the_data(partition: Partition) -> None:
    partition.append(transactional=True)
    with pytest.raises(errors.InvalidProducerEpoch):
        partition.mark(ABORT, version=2)
    partition.mark(ABORT, epoch=1, version=2)
    partition.mark(ABORT, epoch=1, version=2)  # the answer to the first was lost


def test_last_epoch_can_always_be_ended(partition: Partition) -> None:
    partition.append(epoch=MAX_EPOCH, transactional=True)
    partition.mark(ABORT, epoch=MAX_EPOCH, version=2)
    assert partition.producers.first_open is None


def test_idle_producers_are_forgotten(partition: Partition) -> None:
    partition.append(producer_id=1)
    partition.append(producer_id=2, transactional=True)
    partition.append(producer_id=3, timestamp_ms=NOW + 1)
    partition.producers.forget_idle(NOW + IDLE_MS - 1)
    assert [known.producer_id for known in partition.producers] == [1, 2, 3]
    partition.producers.forget_idle(NOW + IDLE_MS)
    assert [known.producer_id for known in partition.producers] == [2, 3]
    assert partition.append(producer_id=1, sequence=50) == 3


def test_state_is_rebuilt_from_the_log() -> None:
    before, log = Partition(), []

    def store(batch: bytes) -> None:
        log.append(batch)
        before.producers.replay(batch, batches(batch)[0])

    store(built(2, producer_id=1, sequence=MAX_SEQUENCE, transactional=True))
    store(built(1, producer_id=2, sequence=4, offset=2))
    store(bytes(marker_batch(1, 1, Marker(commit=False, coordinator_epoch=9), NOW)))
    store(built(1, producer_id=1, epoch=1, offset=4, transactional=True))
    after = Producers()
    for batch in log:
        after.replay(batch, batches(batch)[0])
    assert list(after) == list(before.producers)
    assert after.first_open == 4
    assert after.aborted_between(0, 99) == [Aborted(1, 0, 0)]
    known = after.get(1)
    assert known is not None
    assert (known.epoch, known.coordinator_epoch, known.last_sequence) == (1, 9, 0)


@pytest.mark.parametrize("marker", [COMMIT, Marker(commit=False, coordinator_epoch=1 << 30)])
def test_markers_are_read_back(marker: Marker) -> None:
    batch = bytes(marker_batch(1 << 40, 5, marker, NOW))
    assert read_marker(batch) == marker
    header = batches(batch)[0]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 5, -1)
    assert header.control
    assert header.transactional
