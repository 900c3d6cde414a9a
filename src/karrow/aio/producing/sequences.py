"""Who a producer's batches are from and in which order: producer id, epoch and sequences. No I/O.

Every batch of a partition has the sequence after its predecessor's, so that a broker can tell a
repetition from a gap. The rules are those of Kafka's own client:

- A batch keeps its sequence when it is sent again. While one is, nothing behind it in the partition
  is sent that was not sent before, and those that were follow in their order.
- A broker takes any first sequence from a producer that it does not know. So the first batch of a
  producer in a partition goes alone: nothing behind it can be written while it is not.
- Batches are numbered anew only when none of them is under way. There is a gap before them then, so
  none of them can have been written. If the gap is a batch that was given up in doubt, a copy of it
  may still come on a connection that was closed, with copies of those that were sent behind it.
  So the first one after it is given up as well if it has been sent without an answer. One that
  has no such copy keeps out all that follow it.
- OUT_OF_ORDER_SEQUENCE: not the next one in line, so one before it failed: again, in order. The
  next one in line: there is a gap; the epoch is raised, the line numbered from 0, and sent again.
- UNKNOWN_PRODUCER_ID: the broker has forgotten us, with its records or without: raised, again.
- A batch that fails for good leaves a gap behind it: raised, and the rest goes on.
- A batch whose time ran out after it was sent may have been written. The partition takes nothing
  new until everything under way is answered; then its last acknowledged sequence tells, or the
  epoch is raised (KIP-360).
- Raising the epoch needs no broker, except at its end, 32767: then a new producer id is asked for.
  Other partitions go over to the new epoch when nothing of the old one is under way there.
- In transactions the coordinator owns the epoch: instead of raising it, the transaction fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from karrow.config.producer import MAX_IDEMPOTENT_IN_FLIGHT
from karrow.errors import (
    KarrowError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
)
from karrow.net.retry import is_transient

if TYPE_CHECKING:
    from karrow.aio._accumulator import Partition
    from karrow.aio._batch import Batch

MAX_EPOCH = 0x7FFF
SEQUENCES = 0x7FFFFFFF
NO_ID = -1

Verdict = Literal["again", "fail"]


class Progress:
    """How far a partition has come."""

    __slots__ = (
        "acked_offset",
        "acked_sequence",
        "epoch",
        "is_known",
        "lost_since",
        "next_sequence",
        "number",
        "producer_id",
        "retry_at",
        "sent",
        "unacked",
        "unresolved",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.producer_id = NO_ID
        self.epoch = -1
        self.next_sequence = 0
        self.acked_sequence = -1
        self.acked_offset = -1
        # Batches that have a sequence and no outcome, in order; ``sent`` counts those under way.
        self.unacked: list[Batch] = []
        self.sent = 0
        # The sequence after a batch that was given up, while it is not known what became of it.
        self.unresolved: int | None = None
        # Whether the broker has a batch of this producer id here.
        self.is_known = False
        self.retry_at = 0.0

    def restart(self, producer_id: int, epoch: int) -> None:
        """Count from 0 under another epoch; what has no outcome yet is numbered anew."""
        self.is_known = self.is_known and producer_id == self.producer_id
        self.producer_id, self.epoch = producer_id, epoch
        self.acked_sequence = -1
        self.unresolved = None
        sequence = 0
        for batch in self.unacked:
            batch.producer_id, batch.producer_epoch = producer_id, epoch
            batch.sequence = sequence
            batch.is_reset = True
            batch.is_doubtful = False
            sequence = (sequence + batch.count) & SEQUENCES
        self.next_sequence = sequence

    def is_next(self, sequence: int) -> bool:
        """Whether a sequence follows the last one that was acknowledged."""
        return sequence == (self.acked_sequence + 1) & SEQUENCES


class Sequences:
    """Producer id, epoch, and the progress of every partition."""

    def __init__(self, *, transactional: bool) -> None:
        self.producer_id = NO_ID
        self.epoch = -1
        self._transactional = transactional
        self._progress: list[Progress] = []
        self._to_restart: list[Progress] = []

    def progress(self, partition: Partition) -> Progress:
        """The notes on a partition."""
        found: Progress | None = partition.progress
        if found is None:
            found = partition.progress = Progress(len(self._progress))
            self._progress.append(found)
        return found

    # ---- the identity

    @property
    def is_identified(self) -> bool:
        """Whether there is a producer id."""
        return self.producer_id != NO_ID

    def take_identity(self, producer_id: int, epoch: int) -> None:
        """Be this producer from now on."""
        self.producer_id, self.epoch = producer_id, epoch
        for progress in [one for one in self._to_restart if not one.sent]:
            progress.restart(producer_id, epoch)
            self._to_restart.remove(progress)

    def restart_all(self, producer_id: int, epoch: int) -> None:
        """Be this producer from now on, in every partition at once: a transaction has ended."""
        self._to_restart.clear()
        self.producer_id, self.epoch = producer_id, epoch
        for progress in self._progress:
            progress.restart(producer_id, epoch)

    def restart(self, partition: Partition) -> None:
        """Raise the epoch before anything more is sent to a partition."""
        progress = self.progress(partition)
        if progress not in self._to_restart:
            self._to_restart.append(progress)

    def forgotten(self, partition: Partition) -> None:
        """The broker knows nothing of us in a partition: begin there as the first time."""
        self.progress(partition).is_known = False
        self.restart(partition)

    def raise_epoch(self) -> None:
        """Do what ``restart`` has asked for; at the last epoch the producer id is given up."""
        ready = [progress for progress in self._to_restart if not progress.sent]
        if not ready or not self.is_identified:
            return
        # A partition that has not used this epoch yet can have it.
        mine = (self.producer_id, self.epoch)
        if all((one.producer_id, one.epoch) != mine for one in ready):
            self.take_identity(self.producer_id, self.epoch)
        elif self.epoch >= MAX_EPOCH:
            self.producer_id = NO_ID
        else:
            self.take_identity(self.producer_id, self.epoch + 1)

    # ---- a batch out

    def may_send(self, progress: Progress, batch: Batch) -> bool:
        """Whether a batch at the head of its line may go."""
        if progress in self._to_restart:
            return False
        if batch.sequence >= 0:
            # It is sent again: only as the first that has no outcome.
            return progress.unacked[0] is batch
        if progress.unresolved is not None or not self.is_identified:
            return False
        if len(progress.unacked) >= MAX_IDEMPOTENT_IN_FLIGHT:
            return False  # the leader has moved, so that the connection's own limit does not hold
        is_stale = (progress.producer_id, progress.epoch) != (self.producer_id, self.epoch)
        return not progress.unacked or (progress.is_known and not is_stale)

    def number(self, progress: Progress, batch: Batch) -> None:
        """Give a batch its place in line, unless it has one."""
        if batch.sequence >= 0:
            return
        if (progress.producer_id, progress.epoch) != (self.producer_id, self.epoch):
            progress.restart(self.producer_id, self.epoch)
        batch.producer_id, batch.producer_epoch = self.producer_id, self.epoch
        batch.sequence = progress.next_sequence
        progress.next_sequence = (batch.last_sequence + 1) & SEQUENCES
        progress.unacked.append(batch)

    def divide(self, progress: Progress, batch: Batch, parts: tuple[Batch, ...]) -> None:
        """Let the parts of a batch share its sequences."""
        sequence = batch.sequence
        for part in parts:
            part.producer_id, part.producer_epoch = batch.producer_id, batch.producer_epoch
            part.sequence, part.is_reset = sequence, batch.is_reset
            sequence = (sequence + part.count) & SEQUENCES
        if batch in progress.unacked:
            place = progress.unacked.index(batch)
            progress.unacked[place : place + 1] = parts

    # ---- its outcome

    def acked(self, progress: Progress, batch: Batch, last_offset: int | None) -> None:
        """The broker has a batch."""
        is_ours = (batch.producer_id, batch.producer_epoch) == (
            progress.producer_id,
            progress.epoch,
        )
        if is_ours and self._is_later(batch.last_sequence, progress.acked_sequence):
            progress.acked_sequence = batch.last_sequence
            progress.is_known = True
        if last_offset is not None:
            progress.acked_offset = max(progress.acked_offset, last_offset)
        self._forget(progress, batch)

    @staticmethod
    def _is_later(sequence: int, than: int) -> bool:
        return than < 0 or (sequence - than) & SEQUENCES < SEQUENCES // 2

    def judge(
        self, partition: Partition, batch: Batch, error: KarrowError, log_start: int
    ) -> Verdict:
        """Whether a batch that met an error is sent again."""
        progress = self.progress(partition)
        if isinstance(error, UnknownProducerId):
            return self._judge_unknown(partition, progress, batch, log_start)
        if isinstance(error, OutOfOrderSequenceNumber):
            return self._judge_disorder(partition, progress, batch)
        return "again" if is_transient(error) else "fail"

    def _judge_unknown(
        self, partition: Partition, progress: Progress, batch: Batch, log_start: int
    ) -> Verdict:
        """The broker does not know us; if its log begins after our last record, no wonder."""
        if log_start < 0 or batch.is_reset:
            return "again"
        if not self._transactional:
            self.forgotten(partition)
            return "again"
        if progress.acked_offset < log_start:
            progress.is_known = False
            progress.restart(self.producer_id, self.epoch)
            return "again"
        return "fail"

    def _judge_disorder(self, partition: Partition, progress: Progress, batch: Batch) -> Verdict:
        is_resolved = progress.unresolved is None
        if is_resolved and (batch.is_reset or not progress.is_next(batch.sequence)):
            return "again"
        if self._transactional:
            return "fail"
        if is_resolved:
            self.restart(partition)
        elif batch.sequence == progress.unresolved:
            if batch.is_doubtful:
                return "fail"
            self.restart(partition)
        return "again"

    def failed(self, partition: Partition, batch: Batch, error: KarrowError) -> None:
        """A batch is given up and was surely not written: close the gap that it leaves."""
        progress = self.progress(partition)
        had_sequence = batch.sequence >= 0
        self._forget(progress, batch)
        if not had_sequence:
            return
        if not self._transactional:
            self.restart(partition)
        elif isinstance(error, UnknownProducerId):
            progress.restart(self.producer_id, self.epoch)

    def given_up(self, progress: Progress, batch: Batch) -> None:
        """A batch is given up that was sent and may have been written."""
        self._forget(progress, batch)
        after = (batch.last_sequence + 1) & SEQUENCES
        if progress.unresolved is None or self._is_later(after, progress.unresolved):
            progress.unresolved = after

    def resolve(self, partition: Partition) -> bool:
        """Close the case of batches given up, once nothing is under way; False if it stays open.

        In transactions that is for the caller to draw the conclusion from.
        """
        progress = self.progress(partition)
        if progress.unresolved is None:
            return True
        if progress.unacked or progress.sent:
            return False
        if progress.is_next(progress.next_sequence):
            progress.unresolved = None
            return True
        if self._transactional:
            return False
        progress.unresolved = None
        self.restart(partition)
        return True

    @staticmethod
    def _forget(progress: Progress, batch: Batch) -> None:
        if batch in progress.unacked:
            progress.unacked.remove(batch)
