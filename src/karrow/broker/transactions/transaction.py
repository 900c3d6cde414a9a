"""One transactional id: who may use it, and how far its transaction is.

Rules (KIP-98, KIP-360, KIP-588, KIP-890):
- Empty, CompleteCommit and CompleteAbort are at rest. The first partition makes it Ongoing. Its end
  is decided in PrepareCommit or PrepareAbort, and complete when every partition has its marker.
- Whoever asks for a producer id gets the next epoch, so that older producers are refused. Epoch
  32767 is never given to anybody: it is left for fencing. Before it comes a new producer id.
- Whoever names its old id and epoch (KIP-360) is refused if another one was given in between; if
  only the answer was lost, it gets what it was given.
- Transaction version 1: the end keeps the epoch; Empty cannot be ended; ending again is fine if the
  outcome is the same.
- Transaction version 2: the end begins a new epoch, which the answer names. The epoch tells a
  second try (one behind) from the next end. An abort is fine without any partition.
- A transaction that is aborted from outside, by time or by a new producer, gets a new epoch too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from karrow import errors
from karrow.broker.producers import MAX_EPOCH

NONE = -1
# The last epoch that producers get.
LAST_EPOCH = MAX_EPOCH - 1

TopicPartition = tuple[str, int]


class State(StrEnum):
    """Where a transaction stands, as ListTransactions names it."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    # Kafka passes through these two without ever staying; they can be asked for.
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


ENDING = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Identity(NamedTuple):
    """A producer."""

    producer_id: int
    epoch: int


NOBODY = Identity(NONE, NONE)


@dataclass(slots=True)
class Transaction:
    """What is known of a transactional id."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    epoch: int = NONE
    last_epoch: int = NONE
    previous_producer_id: int = NONE
    next_producer_id: int = NONE
    state: State = State.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    started_ms: int = NONE
    updated_ms: int = NONE
    version: int = 0

    @property
    def identity(self) -> Identity:
        """The producer that may use it."""
        return Identity(self.producer_id, self.epoch)

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no more epochs to give."""
        return self.epoch >= LAST_EPOCH

    @property
    def commits(self) -> bool:
        """Whether what is ending, or has ended, is a commit."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    # Changes. Each notes the time and the producer id that was before it.

    def admit(self, timeout_ms: int, new_id: int | None, expected: Identity | None) -> None:
        """Give the id to the next producer; ``new_id`` is for when epochs have run out."""
        if new_id is not None:
            last = self.epoch if expected else NONE
            self._take_id(new_id)
            self.epoch, self.last_epoch = 0, last
        elif expected is None or self.epoch in (NONE, expected.epoch):
            self._take_id(self.producer_id)
            last = self.epoch if expected else NONE
            self.epoch, self.last_epoch = self.epoch + 1, last
        elif expected.epoch == self.last_epoch:
            self._take_id(self.producer_id)  # the answer was lost
        else:
            raise errors.ProducerFenced(f"epoch {self.epoch} has begun")
        self.state = State.EMPTY
        self.timeout_ms = timeout_ms
        self.partitions = set()
        self.started_ms = NONE

    def add(self, partitions: Iterable[TopicPartition], now: int) -> None:
        """Let partitions take part, which begins it."""
        if self.state is not State.ONGOING:
            self.started_ms = now
            self.partitions = set()
        self._take_id(self.producer_id)
        self.state = State.ONGOING
        self.partitions |= set(partitions)

    def prepare(self, *, commit: bool, version: int, next_id: int | None, now: int) -> None:
        """Decide how it ends."""
        if self.state is not State.ONGOING:
            self.started_ms = now
        self._take_id(self.producer_id)
        self.state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        self.version = version
        self.next_producer_id = NONE if next_id is None else next_id
        if version >= 2:
            self.last_epoch = self.epoch
            self.epoch = min(self.epoch + 1, MAX_EPOCH)

    def complete(self) -> None:
        """Every partition has its marker."""
        self._take_id(self.producer_id if self.next_producer_id == NONE else self.next_producer_id)
        if self.next_producer_id != NONE:
            self.epoch = 0
            self.next_producer_id = NONE
        commit = self.state is State.PREPARE_COMMIT
        self.state = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        self.partitions = set()

    def _take_id(self, producer_id: int) -> None:
        self.previous_producer_id, self.producer_id = self.producer_id, producer_id

    # Checks.

    def check_producer(self, producer: Identity) -> None:
        """Refuse anybody but the producer that has it."""
        if producer.producer_id != self.producer_id:
            raise errors.InvalidProducerIdMapping("the transactional id has another producer id")
        if producer.epoch != self.epoch:
            raise errors.ProducerFenced(f"epoch {self.epoch} has begun")

    def check_rest(self) -> None:
        """Refuse what must wait for markers."""
        if self.state in ENDING:
            raise errors.ConcurrentTransactions("the last transaction is being completed")

    def may_continue(self, expected: Identity) -> bool:
        """Whether a producer that names what it had (KIP-360) may be this one."""
        return (
            self.epoch == NONE
            or expected.producer_id == self.producer_id
            or (expected.producer_id == self.previous_producer_id and expected.epoch >= LAST_EPOCH)
        )

    def is_retry(self, producer: Identity) -> bool:
        """Whether a producer ends again what has ended, in transaction version 2."""
        if producer.producer_id == self.producer_id:
            return producer.epoch + 1 == self.epoch
        return (
            producer == Identity(self.previous_producer_id, LAST_EPOCH)
            and self.epoch == 0
            and self.state not in ENDING
        )

    # For the store.

    def row(self) -> dict[str, Any]:
        """Everything but the id, as JSON can hold it."""
        return {
            "producer_id": self.producer_id,
            "timeout_ms": self.timeout_ms,
            "epoch": self.epoch,
            "last_epoch": self.last_epoch,
            "previous_producer_id": self.previous_producer_id,
            "next_producer_id": self.next_producer_id,
            "state": self.state.value,
            "partitions": sorted(self.partitions),
            "started_ms": self.started_ms,
            "updated_ms": self.updated_ms,
            "version": self.version,
        }


def from_row(transactional_id: str, row: dict[str, Any]) -> Transaction:
    """What a row was made of."""
    partitions = {(str(topic), int(index)) for topic, index in row["partitions"]}
    fields = {**row, "state": State(row["state"]), "partitions": partitions}
    return Transaction(transactional_id, **fields)
