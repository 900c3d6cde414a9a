"""Producer ids, epochs and sequences: the rules, one by one."""

from __future__ import annotations

import pytest

from karrow.aio._accumulator import Accumulator, Partition
from karrow.aio._batch import Batch
from karrow.aio.producing.sequences import MAX_EPOCH, SEQUENCES, Progress, Sequences
from karrow.errors import (
    InvalidTimestamp,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from tests.unit.aio.accumulating import filled_batch, new_accumulator

PID = 70


class Line:
    """One partition, and batches of two records in it."""

    def __init__(self, *, transactional: bool = False, epoch: int = 3) -> None:
        self.accumulator: Accumulator = new_accumulator({"t": 2})
        self.sequences = Sequences(transactional=transactional)
        self.sequences.take_identity(PID, epoch)
        self.partition: Partition = self.accumulator.add_topic("t", 2).partitions[0]
        self.progress: Progress = self.sequences.progress(self.partition)

    def batch(self) -> Batch:
        return filled_batch(self.accumulator, "t", 0)

    def send(self, batch: Batch | None = None) -> Batch:
        batch = batch or self.batch()
        assert self.sequences.may_send(self.progress, batch)
        self.sequences.number(self.progress, batch)
        self.progress.sent += 1
        return batch

    def answer(self, batch: Batch, *, offset: int | None = None) -> None:
        self.progress.sent -= 1
        self.sequences.acked(self.progress, batch, offset)

    def refuse(self, batch: Batch, error: type[Exception], log_start: int = 0) -> str:
        self.progress.sent -= 1
        return self.sequences.judge(self.partition, batch, error(), log_start)  # type: ignore[arg-type]

    def known(self) -> None:
        """Have a batch acknowledged, so that the broker knows the producer."""
        self.answer(self.send(), offset=1)


def identity(batch: Batch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.sequence


def test_sequences_follow_each_other() -> None:
    line = Line()
    line.known()
    assert [line.send().sequence for _ in range(3)] == [2, 4, 6]


def test_first_batch_goes_alone() -> None:
    line = Line()
    first = line.send()
    assert not line.sequences.may_send(line.progress, line.batch())
    line.answer(first)
    line.send()
    line.send()


def test_nothing_is_sent_without_a_producer_id() -> None:
    sequences = Sequences(transactional=False)
    line = Line()
    assert not sequences.may_send(Progress(0), line.batch())


def test_sequence_wraps_at_its_end() -> None:
    line = Line()
    line.known()
    line.progress.next_sequence = SEQUENCES
    line.progress.acked_sequence = SEQUENCES - 1
    around = line.send()
    assert (around.sequence, around.last_sequence) == (SEQUENCES, 0)
    assert line.send().sequence == 1
    line.answer(around)
    assert line.progress.acked_sequence == 0
    assert line.progress.is_next(1)


def test_batch_sent_again_keeps_its_sequence_and_its_turn() -> None:
    line = Line()
    line.known()
    first, second = line.send(), line.send()
    assert line.refuse(first, NotLeaderOrFollower) == "again"
    assert line.refuse(second, OutOfOrderSequenceNumber) == "again"
    assert not line.sequences.may_send(line.progress, second)
    assert line.send(first).sequence == 2
    line.answer(first)
    assert line.send(second).sequence == 4


def test_gap_at_the_head_raises_the_epoch() -> None:
    line = Line()
    line.known()
    first, second = line.send(), line.send()
    assert line.refuse(first, OutOfOrderSequenceNumber) == "again"
    line.sequences.raise_epoch()
    assert line.sequences.epoch == 3  # the second is still under way
    assert not line.sequences.may_send(line.progress, first)
    assert line.refuse(second, OutOfOrderSequenceNumber) == "again"
    line.sequences.raise_epoch()
    assert identity(first) == (PID, 4, 0)
    assert identity(second) == (PID, 4, 2)
    assert line.progress.next_sequence == 4
    assert line.send(first).is_reset


def test_failed_batch_leaves_no_gap() -> None:
    line = Line()
    line.known()
    first, second = line.send(), line.send()
    assert line.refuse(first, InvalidTimestamp) == "fail"
    line.sequences.failed(line.partition, first, InvalidTimestamp())
    assert line.refuse(second, OutOfOrderSequenceNumber) == "again"
    line.sequences.raise_epoch()
    assert identity(second) == (PID, 4, 0)


def test_other_partition_goes_over_to_the_epoch_when_it_is_done() -> None:
    line = Line()
    line.known()
    other = line.accumulator.add_topic("t", 2).partitions[1]
    progress = line.sequences.progress(other)
    mine = filled_batch(line.accumulator, "t", 1)
    line.sequences.number(progress, mine)
    line.sequences.acked(progress, mine, 1)
    under_way = filled_batch(line.accumulator, "t", 1)
    line.sequences.number(progress, under_way)

    line.sequences.restart(line.partition)
    line.sequences.raise_epoch()

    following = filled_batch(line.accumulator, "t", 1)
    assert identity(under_way) == (PID, 3, 2)
    assert not line.sequences.may_send(progress, following)
    line.sequences.acked(progress, under_way, 3)
    assert line.sequences.may_send(progress, following)
    line.sequences.number(progress, following)
    assert identity(following) == (PID, 4, 0)


def test_partition_behind_the_epoch_needs_no_new_one() -> None:
    line = Line()
    line.known()
    batch = line.send()
    line.sequences.take_identity(PID, 9)
    assert line.refuse(batch, OutOfOrderSequenceNumber) == "again"
    line.sequences.raise_epoch()
    assert line.sequences.epoch == 9
    assert identity(batch) == (PID, 9, 0)


def test_last_epoch_gives_up_the_producer_id() -> None:
    line = Line(epoch=MAX_EPOCH)
    line.known()
    batch = line.send()
    assert line.refuse(batch, OutOfOrderSequenceNumber) == "again"
    line.sequences.raise_epoch()
    assert not line.sequences.is_identified
    line.sequences.take_identity(71, 0)
    assert identity(batch) == (71, 0, 0)
    assert not line.progress.is_known


def test_unknown_producer_starts_again() -> None:
    line = Line()
    line.known()
    batch = line.send()
    assert line.refuse(batch, UnknownProducerId, log_start=500) == "again"
    line.sequences.raise_epoch()
    assert identity(batch) == (PID, 4, 0)
    assert line.refuse(line.send(batch), UnknownProducerId, log_start=500) == "again"
    line.sequences.raise_epoch()
    assert line.sequences.epoch == 4  # it was numbered anew already


def test_unknown_producer_without_an_offset_is_tried_again() -> None:
    line = Line()
    line.known()
    assert line.refuse(line.send(), UnknownProducerId, log_start=-1) == "again"
    line.sequences.raise_epoch()
    assert line.sequences.epoch == 3


def test_given_up_batch_holds_its_partition() -> None:
    line = Line()
    line.known()
    first, second = line.send(), line.send()
    line.sequences.given_up(line.progress, first)
    line.progress.sent -= 1
    assert not line.sequences.may_send(line.progress, line.batch())
    assert not line.sequences.resolve(line.partition)
    line.answer(second)  # so the first was written too
    assert line.sequences.resolve(line.partition)
    line.sequences.raise_epoch()
    assert line.sequences.epoch == 3
    assert line.send().sequence == 6


def test_given_up_batch_that_was_not_written_raises_the_epoch() -> None:
    line = Line()
    line.known()
    first, second = line.send(), line.send()
    line.sequences.given_up(line.progress, first)
    line.progress.sent -= 1
    assert line.refuse(second, OutOfOrderSequenceNumber) == "again"
    line.sequences.raise_epoch()
    assert identity(second) == (PID, 4, 0)
    assert line.progress.unresolved is None


def test_everything_given_up_raises_the_epoch() -> None:
    line = Line()
    line.known()
    batch = line.send()
    line.sequences.given_up(line.progress, batch)
    line.progress.sent -= 1
    assert line.sequences.resolve(line.partition)
    line.sequences.raise_epoch()
    assert line.sequences.epoch == 4


def test_copies_may_still_come_behind_a_batch_that_was_given_up() -> None:
    line = Line()
    line.known()
    first, second, third = line.send(), line.send(), line.send()
    for batch in (first, second):
        batch.is_doubtful = True
    line.sequences.given_up(line.progress, first)
    line.progress.sent -= 1
    assert line.refuse(third, OutOfOrderSequenceNumber) == "again"
    # Its copy would be taken if that of the first one came before it was numbered anew.
    assert line.refuse(second, OutOfOrderSequenceNumber) == "fail"
    assert second.is_doubtful
    line.sequences.given_up(line.progress, second)
    assert line.send(third).producer_epoch == 3
    # The third has none, so nothing behind it can be taken either.
    assert line.refuse(third, OutOfOrderSequenceNumber) == "again"
    line.sequences.raise_epoch()
    assert identity(third) == (PID, 4, 0)


def test_parts_share_the_sequences_of_the_whole() -> None:
    line = Line()
    line.known()
    first, second = line.send(), line.send()
    parts = first.divide()
    line.sequences.divide(line.progress, first, parts)
    assert [part.sequence for part in parts] == [2, 3]
    assert line.progress.unacked == [*parts, second]


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumber, UnknownProducerId])
def test_in_a_transaction_a_gap_is_a_failure(error: type[Exception]) -> None:
    line = Line(transactional=True)
    line.known()
    batch = line.send()
    line.progress.acked_offset = 900
    assert line.refuse(batch, error, log_start=500) == "fail"


def test_in_a_transaction_lost_records_are_no_gap() -> None:
    line = Line(transactional=True)
    line.known()
    batch = line.send()
    assert line.refuse(batch, UnknownProducerId, log_start=500) == "again"
    assert identity(batch) == (PID, 3, 0)


def test_in_a_transaction_unresolved_stays_so() -> None:
    line = Line(transactional=True)
    line.known()
    batch = line.send()
    line.sequences.given_up(line.progress, batch)
    line.progress.sent -= 1
    assert not line.sequences.resolve(line.partition)
    line.sequences.restart_all(PID, 8)
    assert line.send().sequence == 0
