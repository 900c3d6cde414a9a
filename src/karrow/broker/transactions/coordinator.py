"""All transactional ids: producers are admitted, transactions begin, end, and time out.

A change is in the store before it is answered. A decided transaction is completed at once, or as
soon as every partition that takes part has a leader again; one that is found decided at the start
is completed then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.producers import MAX_EPOCH, Marker
from karrow.broker.topic import NO_LEADER, Partition
from karrow.broker.transactions.transaction import (
    ENDING,
    NOBODY,
    NONE,
    Identity,
    State,
    TopicPartition,
    Transaction,
    from_row,
)

if TYPE_CHECKING:
    from karrow.broker.clock import Timer
    from karrow.broker.cluster import Cluster

TABLE = "transactions"
# What stands for a group that takes part, as in Kafka, where it is a partition's log.
OFFSETS_TOPIC = "__consumer_offsets"
# transaction.max.timeout.ms, transactional.id.expiration.ms and how often that is looked at.
MAX_TIMEOUT_MS = 900_000
EXPIRATION_MS = 7 * 86_400_000
SWEEP_SECONDS = 3600.0


class Transactions:
    """The transaction coordinators of all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, Transaction] = {}
        self._timers: dict[str, Timer] = {}
        self._sweeping: Timer | None = None
        self._epoch = int(cluster.store.load("counters").get("coordinator_epoch", NONE)) + 1
        # Seconds between a decision and its markers, for tests of what clients do meanwhile.
        self.marker_delay = 0.0

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._known.values())

    # The life of the broker.

    def start(self) -> None:
        """Take up what an earlier run has left, once topics are there."""
        self._cluster.store.put("counters", "coordinator_epoch", self._epoch)
        for key, row in self._cluster.store.load(TABLE).items():
            self._known[key] = from_row(key, row)
        for transaction in tuple(self._known.values()):
            if transaction.state in ENDING:
                self._write_markers(transaction)
            elif transaction.state is State.ONGOING:
                self._time_out_later(transaction)
        self._sweep_later()

    def close(self) -> None:
        """Stop every timer."""
        for timer in self._timers.values():
            timer.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()

    # Producers.

    def init_producer(
        self, transactional_id: str | None, timeout_ms: int, expected: Identity | None = None
    ) -> Identity:
        """A producer id and epoch; without a transactional id a new one, no questions asked."""
        if transactional_id is None:
            return Identity(self._cluster.next_producer_id(), 0)
        if not transactional_id:
            raise errors.InvalidRequest("a transactional id must not be empty")
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            raise errors.InvalidTransactionTimeout(f"at most {MAX_TIMEOUT_MS} ms are allowed")
        transaction = self._known.get(transactional_id)
        if transaction is None:
            new_id = self._cluster.next_producer_id()
            transaction = Transaction(transactional_id, new_id, timeout_ms)
            self._known[transactional_id] = transaction
        self._admit(transaction, timeout_ms, expected)
        return transaction.identity

    def _admit(self, transaction: Transaction, timeout_ms: int, expected: Identity | None) -> None:
        if expected is not None and not transaction.may_continue(expected):
            raise errors.ProducerFenced("another producer has the transactional id")
        transaction.check_rest()
        if transaction.state is State.ONGOING:
            self._fence(transaction)
            # Asking again brings the epoch after the one that fences.
            raise errors.ConcurrentTransactions("the open transaction is being aborted")
        new_id = None
        if transaction.is_exhausted:
            if expected is not None and expected.epoch != transaction.epoch:
                raise errors.UnknownServerError("the producer id has no more epochs")
            new_id = self._cluster.next_producer_id()
        transaction.admit(timeout_ms, new_id, expected)
        self._keep(transaction)

    # What takes part.

    def add(
        self,
        transactional_id: str | None,
        producer: Identity,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Let partitions take part in a producer's transaction."""
        transaction = self._of(transactional_id)
        transaction.check_producer(producer)
        transaction.check_rest()
        if transaction.state is State.ONGOING and transaction.partitions.issuperset(partitions):
            return
        begins = transaction.state is not State.ONGOING
        transaction.add(partitions, self._cluster.clock.time_ms())
        self._keep(transaction)
        if begins:
            self._time_out_later(transaction)

    def add_group(self, transactional_id: str | None, producer: Identity, group_id: str) -> None:
        """Let a group's offsets take part."""
        self.add(transactional_id, producer, [self._group_partition(group_id)])

    def verify(
        self, transactional_id: str | None, producer: Identity, partition: TopicPartition
    ) -> None:
        """Refuse a partition that does not take part (KIP-890)."""
        transaction = self._of(transactional_id)
        transaction.check_producer(producer)
        transaction.check_rest()
        if partition not in transaction.partitions:
            raise errors.TransactionAbortable("the partition does not take part")

    def verify_group(self, transactional_id: str | None, producer: Identity, group_id: str) -> None:
        """Refuse a group whose offsets do not take part."""
        self.verify(transactional_id, producer, self._group_partition(group_id))

    def check_epoch(self, transactional_id: str, producer: Identity) -> None:
        """Refuse a producer that was replaced; brokers before 3.6 look at nothing else."""
        known = self._known.get(transactional_id)
        if known is None or producer.producer_id != known.producer_id:
            return
        if producer.epoch < known.epoch:
            raise errors.ProducerFenced(f"epoch {known.epoch} has begun")

    def _group_partition(self, group_id: str) -> TopicPartition:
        return OFFSETS_TOPIC, self._cluster.slot_of(group_id)

    # The end.

    def end(
        self, transactional_id: str | None, producer: Identity, *, commit: bool, version: int
    ) -> Identity:
        """Commit or abort; from transaction version 2 on this gives the producer's next identity.

        Doing it again has the same outcome.
        """
        transaction = self._of(transactional_id)
        if version >= 2:
            return self._end_with_bump(transaction, producer, commit=commit)
        transaction.check_producer(producer)
        if transaction.state is State.ONGOING:
            self._decide(transaction, commit=commit, version=0)
            return NOBODY
        self._check_same_end(transaction, commit=commit)
        return NOBODY

    def _end_with_bump(
        self, transaction: Transaction, producer: Identity, *, commit: bool
    ) -> Identity:
        if transaction.state not in (State.ONGOING, State.EMPTY) and transaction.is_retry(producer):
            self._check_same_end(transaction, commit=commit)
            return transaction.identity
        transaction.check_producer(producer)
        if transaction.state in ENDING:
            raise errors.ProducerFenced("the epoch has no transaction yet")
        if commit and transaction.state is not State.ONGOING:
            raise errors.InvalidTxnState("there is nothing to commit")
        return self._decide(transaction, commit=commit, version=2)

    def _check_same_end(self, transaction: Transaction, *, commit: bool) -> None:
        if transaction.state is State.EMPTY or transaction.commits is not commit:
            raise errors.InvalidTxnState(f"the transaction is {transaction.state}")
        transaction.check_rest()

    def _fence(self, transaction: Transaction) -> None:
        """Abort from outside, so that the producer that had it is refused from now on."""
        version = self._cluster.release.transaction_version
        if version < 2:
            transaction.epoch = min(transaction.epoch + 1, MAX_EPOCH)
            transaction.last_epoch = NONE
        self._decide(transaction, commit=False, version=version)

    def _decide(self, transaction: Transaction, *, commit: bool, version: int) -> Identity:
        """Begin the end; gives who the producer is after it."""
        rotates = version >= 2 and transaction.is_exhausted
        transaction.prepare(
            commit=commit,
            version=version,
            next_id=self._cluster.next_producer_id() if rotates else None,
            now=self._cluster.clock.time_ms(),
        )
        self._keep(transaction)
        self._stop_timer(transaction)
        after = Identity(transaction.next_producer_id, 0) if rotates else transaction.identity
        if self.marker_delay:
            self._timers[transaction.transactional_id] = self._cluster.clock.call_later(
                self.marker_delay, lambda: self._write_markers(transaction)
            )
        else:
            self._write_markers(transaction)
        return after

    def _write_markers(self, transaction: Transaction) -> None:
        """Write the markers that can be written; complete it when none is left."""
        leaderless = None
        for key in sorted(transaction.partitions):
            if key[0] == OFFSETS_TOPIC:
                groups = self._cluster.groups
                groups.complete_transaction(transaction.producer_id, transaction.commits)
            elif (partition := self._find(*key)) is not None:
                if partition.leader == NO_LEADER:
                    leaderless = partition
                    continue
                self._mark(transaction, partition)
            transaction.partitions.discard(key)
        if leaderless is not None:
            self._retry(transaction, leaderless)
            return
        transaction.complete()
        self._keep(transaction)

    def _mark(self, transaction: Transaction, partition: Partition) -> None:
        marker = Marker(transaction.commits, self._epoch)
        now = self._cluster.clock.time_ms()
        try:
            partition.append_marker(*transaction.identity, marker, now, transaction.version)
        except errors.InvalidProducerEpoch:
            return  # somebody has ended it there by hand (KIP-664)

    def _retry(self, transaction: Transaction, partition: Partition) -> None:
        """Go on when the partition changes: it may have a leader then."""

        def again() -> None:
            partition.unwatch(again)
            if transaction.state in ENDING:
                self._write_markers(transaction)

        partition.watch(again)

    def _find(self, topic: str, index: int) -> Partition | None:
        try:
            return self._cluster.partition(topic, index)
        except errors.UnknownTopicOrPartition:
            return None  # the topic was deleted meanwhile

    # Time.

    def _time_out_later(self, transaction: Transaction) -> None:
        passed = self._cluster.clock.time_ms() - transaction.started_ms
        left = max(0, transaction.timeout_ms - passed) / 1000
        timer = self._cluster.clock.call_later(left, lambda: self._fence(transaction))
        self._timers[transaction.transactional_id] = timer

    def _stop_timer(self, transaction: Transaction) -> None:
        timer = self._timers.pop(transaction.transactional_id, None)
        if timer is not None:
            timer.cancel()

    def _sweep_later(self) -> None:
        self._sweeping = self._cluster.clock.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Forget transactional ids that nobody has used for a week."""
        old = self._cluster.clock.time_ms() - EXPIRATION_MS
        for key, transaction in tuple(self._known.items()):
            at_rest = transaction.state is not State.ONGOING and transaction.state not in ENDING
            if at_rest and transaction.updated_ms <= old:
                del self._known[key]
                self._cluster.store.put(TABLE, key, None)
        self._sweep_later()

    # The table.

    def find(self, transactional_id: str) -> Transaction | None:
        """A transactional id that is known."""
        return self._known.get(transactional_id)

    def _of(self, transactional_id: str | None) -> Transaction:
        if not transactional_id:
            raise errors.InvalidRequest("a transactional id must not be empty")
        found = self._known.get(transactional_id)
        if found is None:
            raise errors.InvalidProducerIdMapping("the transactional id is not known")
        return found

    def _keep(self, transaction: Transaction) -> None:
        transaction.updated_ms = self._cluster.clock.time_ms()
        self._cluster.store.put(TABLE, transaction.transactional_id, transaction.row())
