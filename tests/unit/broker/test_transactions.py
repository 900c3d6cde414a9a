"""The coordinator by itself: what a real broker does too late, too rarely or too slowly to test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from karrow import errors
from karrow.broker.clock import ManualClock
from karrow.broker.disk import DiskStore
from karrow.broker.producers import MAX_EPOCH, Aborted
from karrow.broker.topic import NO_LEADER
from karrow.broker.transactions.coordinator import EXPIRATION_MS, SWEEP_SECONDS
from karrow.broker.transactions.transaction import LAST_EPOCH, Identity, State, Transaction
from karrow.records import BatchBuilder
from tests.unit.broker.bare import Bare

TX = "tx"
TIMEOUT_MS = 10_000


@pytest.fixture
def bare() -> Bare:
    found = Bare()
    found.cluster.create_topic("t", 2)
    return found


def init(bare: Bare, expected: Identity | None = None) -> Identity:
    return bare.cluster.transactions.init_producer(TX, TIMEOUT_MS, expected)


def begin(bare: Bare, producer: Identity, *partitions: int) -> None:
    """Put a record into each partition; they join by themselves."""
    for index in partitions or (0,):
        assert produce(bare, producer, index) == 0


def produce(bare: Bare, producer: Identity, partition: int = 0, sequence: int = 0) -> int:
    builder = BatchBuilder()
    builder.append(None, b"x", timestamp_ms=bare.clock.time_ms())
    data = builder.build(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    body = {
        "transactional_id": TX,
        "acks": -1,
        "timeout_ms": 1000,
        "topic_data": [{"name": "t", "partition_data": [{"index": partition, "records": data}]}],
    }
    answer = bare.ask("Produce", body, 12)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def end(bare: Bare, producer: Identity, *, commit: bool, version: int = 2) -> Identity:
    return bare.cluster.transactions.end(TX, producer, commit=commit, version=version)


def known(bare: Bare) -> Transaction:
    found = bare.cluster.transactions.find(TX)
    assert found is not None
    return found


def stable(bare: Bare, index: int = 0) -> tuple[int, int]:
    partition = bare.cluster.partition("t", index)
    return partition.last_stable_offset, partition.high_watermark


# Epochs run out.


def test_last_epoch_is_followed_by_a_new_producer_id(bare: Bare) -> None:
    first = init(bare)
    known(bare).epoch = LAST_EPOCH - 1
    last = init(bare)
    assert last == (first.producer_id, LAST_EPOCH)
    new = init(bare)
    assert new.epoch == 0
    assert new.producer_id != first.producer_id


def test_producer_that_goes_on_gets_the_new_id_twice(bare: Bare) -> None:
    first = init(bare)
    known(bare).epoch = LAST_EPOCH
    last = Identity(first.producer_id, LAST_EPOCH)
    new = init(bare, last)
    assert new.epoch == 0
    assert init(bare, last) == new  # the answer was lost
    assert init(bare, new) == (new.producer_id, 1)
    with pytest.raises(errors.ProducerFenced):
        init(bare, last)


def test_exhausted_id_is_given_to_nobody_with_another_epoch(bare: Bare) -> None:
    first = init(bare)
    known(bare).epoch = LAST_EPOCH
    with pytest.raises(errors.UnknownServerError):
        init(bare, Identity(first.producer_id, 3))


@pytest.mark.parametrize("commit", [True, False])
def test_end_in_the_last_epoch_brings_a_new_producer_id(bare: Bare, *, commit: bool) -> None:
    first = init(bare)
    known(bare).epoch = LAST_EPOCH
    last = Identity(first.producer_id, LAST_EPOCH)
    begin(bare, last)
    new = end(bare, last, commit=commit)
    assert new.epoch == 0
    assert new.producer_id != first.producer_id
    # The marker has the epoch that nobody gets.
    (producer,) = bare.cluster.partition("t", 0).producers
    assert (producer.producer_id, producer.epoch) == (first.producer_id, MAX_EPOCH)
    assert end(bare, last, commit=commit) == new
    with pytest.raises(errors.InvalidTxnState):
        end(bare, last, commit=not commit)
    begin(bare, new)
    with pytest.raises(errors.InvalidProducerIdMapping):
        end(bare, last, commit=commit)
    assert end(bare, new, commit=True) == (new.producer_id, 1)


def test_producer_with_the_last_epoch_can_be_fenced(bare: Bare) -> None:
    first = init(bare)
    known(bare).epoch = LAST_EPOCH
    begin(bare, Identity(first.producer_id, LAST_EPOCH))
    with pytest.raises(errors.ConcurrentTransactions):
        init(bare)
    assert stable(bare) == (2, 2)
    new = init(bare)
    assert new.producer_id != first.producer_id


# Completion takes a while.


def test_nothing_begins_before_the_markers_are_written(bare: Bare) -> None:
    bare.cluster.transactions.marker_delay = 0.5
    producer = init(bare)
    begin(bare, producer, 0, 1)
    after = end(bare, producer, commit=True)
    assert known(bare).state is State.PREPARE_COMMIT
    assert stable(bare) == (0, 1)
    for identity in (producer, after):
        with pytest.raises((errors.ConcurrentTransactions, errors.ProducerFenced)):
            end(bare, identity, commit=True)
    with pytest.raises(errors.InvalidTxnState):
        end(bare, producer, commit=False)
    with pytest.raises(errors.ConcurrentTransactions):
        init(bare)
    with pytest.raises(errors.ConcurrentTransactions):
        bare.cluster.transactions.add(TX, after, [("t", 0)])
    assert produce(bare, after) == errors.ConcurrentTransactions.code
    bare.clock.advance(0.5)
    assert known(bare).state is State.COMPLETE_COMMIT
    assert stable(bare) == stable(bare, 1) == (2, 2)
    assert end(bare, producer, commit=True) == after
    begin(bare, after)


def test_partition_without_leader_gets_its_marker_later(bare: Bare) -> None:
    producer = init(bare)
    begin(bare, producer, 0, 1)
    bare.cluster.partition("t", 1).lead(NO_LEADER)
    end(bare, producer, commit=False)
    assert known(bare).state is State.PREPARE_ABORT
    assert known(bare).partitions == {("t", 1)}
    assert stable(bare) == (2, 2)
    bare.cluster.partition("t", 1).lead(NO_LEADER)
    assert known(bare).state is State.PREPARE_ABORT
    bare.cluster.partition("t", 1).lead(1)
    assert known(bare).state is State.COMPLETE_ABORT
    assert stable(bare, 1) == (2, 2)


def test_deleted_topic_does_not_hold_up_the_end(bare: Bare) -> None:
    producer = init(bare)
    begin(bare, producer)
    bare.cluster.delete_topic("t")
    end(bare, producer, commit=True)
    assert known(bare).state is State.COMPLETE_COMMIT


def test_partition_that_was_ended_by_hand_does_not_hold_up_the_end(bare: Bare) -> None:
    producer = init(bare)
    begin(bare, producer, 0, 1)
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": 5,
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": "t", "partition_indexes": [0]}],
    }
    bare.ask("WriteTxnMarkers", {"markers": [marker]})
    end(bare, producer, commit=True)
    assert known(bare).state is State.COMPLETE_COMMIT
    assert bare.cluster.partition("t", 0).producers.aborted_between(0, 9) == [
        Aborted(producer.producer_id, 0, 1)
    ]


# Time.


@pytest.mark.parametrize(("version", "epoch"), [("4.3", 1), ("3.9", 1)])
def test_time_is_counted_from_the_first_partition(version: str, epoch: int) -> None:
    bare = Bare(version=version)
    bare.cluster.create_topic("t", 2)
    producer = init(bare)
    bare.clock.advance(60)
    bare.cluster.transactions.add(TX, producer, [("t", 0)])
    bare.clock.advance(6)
    bare.cluster.transactions.add(TX, producer, [("t", 1)])
    bare.clock.advance(3.999)
    assert known(bare).state is State.ONGOING
    bare.clock.advance(0.001)
    assert known(bare).state is State.COMPLETE_ABORT
    assert known(bare).epoch == epoch
    with pytest.raises(errors.ProducerFenced):
        bare.cluster.transactions.add(TX, producer, [("t", 0)])


def test_ended_transaction_does_not_time_out(bare: Bare) -> None:
    producer = init(bare)
    begin(bare, producer)
    after = end(bare, producer, commit=True)
    bare.clock.advance(9)
    begin(bare, after)
    bare.clock.advance(9)
    assert known(bare).state is State.ONGOING
    bare.clock.advance(1)
    assert known(bare).state is State.COMPLETE_ABORT


def test_unused_ids_are_forgotten_after_a_week(bare: Bare) -> None:
    producer = init(bare)
    begin(bare, producer)
    end(bare, producer, commit=True)
    bare.clock.advance(EXPIRATION_MS / 1000 - SWEEP_SECONDS)
    assert bare.cluster.transactions.find(TX) is not None
    bare.clock.advance(2 * SWEEP_SECONDS)
    assert bare.cluster.transactions.find(TX) is None
    with pytest.raises(errors.InvalidProducerIdMapping):
        bare.cluster.transactions.add(TX, producer, [("t", 0)])


# Restarts.


class Disk:
    """Clusters on the same data directory, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = ManualClock()

    def start(self) -> Bare:
        return Bare(store=DiskStore(self._folder), clock=self._clock)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_open_transaction_survives_a_restart(disk: Disk) -> None:
    bare = disk.start()
    bare.cluster.create_topic("t", 2)
    producer = init(bare)
    begin(bare, producer)
    before = known(bare)
    bare.clock.advance(4)
    bare.cluster.close()
    bare = disk.start()
    assert known(bare) == before
    assert stable(bare) == (0, 1)
    bare.clock.advance(5.999)
    assert known(bare).state is State.ONGOING
    bare.clock.advance(0.001)
    assert known(bare).state is State.COMPLETE_ABORT
    assert stable(bare) == (2, 2)
    bare.cluster.close()


def test_decided_transaction_is_completed_at_the_start(disk: Disk) -> None:
    bare = disk.start()
    bare.cluster.create_topic("t", 2)
    producer = init(bare)
    begin(bare, producer, 0, 1)
    bare.cluster.transactions.marker_delay = 60
    after = end(bare, producer, commit=True)
    bare.cluster.close()
    bare = disk.start()
    assert known(bare).state is State.COMPLETE_COMMIT
    assert stable(bare) == stable(bare, 1) == (2, 2)
    assert end(bare, producer, commit=True) == after
    begin(bare, after)
    bare.cluster.close()


def test_coordinator_of_a_later_run_has_a_later_epoch(disk: Disk) -> None:
    epochs = []
    for _ in range(2):
        bare = disk.start()
        if not bare.cluster.topics:
            bare.cluster.create_topic("t")
        producer = init(bare)
        begin(bare, producer)
        end(bare, producer, commit=True)
        (state,) = bare.cluster.partition("t", 0).producers
        epochs.append(state.coordinator_epoch)
        bare.cluster.close()
    assert epochs == [0, 1]


# Several nodes.


def test_only_the_coordinator_answers() -> None:
    bare = Bare(3)
    bare.cluster.create_topic("t")
    mine = bare.cluster.coordinator_of(TX, 1).node_id
    other = mine % 3 + 1
    bodies: dict[str, dict[str, Any]] = {
        "InitProducerId": {"transactional_id": TX, "transaction_timeout_ms": 1000},
        "AddOffsetsToTxn": {"transactional_id": TX, "group_id": "g"},
        "EndTxn": {"transactional_id": TX},
    }
    for api, body in bodies.items():
        answer = bare.ask(api, body, node_id=other)
        assert answer.error_code == errors.NotCoordinator.code, api
    topics = [{"name": "t", "partitions": [0]}]
    body = {"v3_and_below_transactional_id": TX, "v3_and_below_topics": topics}
    answer = bare.ask("AddPartitionsToTxn", body, 3, node_id=other)
    (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code == errors.NotCoordinator.code
    assert bare.ask("InitProducerId", bodies["InitProducerId"], node_id=mine).error_code == 0
    for node_id, listed in ((mine, 1), (other, 0)):
        found = bare.ask("ListTransactions", {}, node_id=node_id).transaction_states
        assert len(found) == listed
    described = bare.ask("DescribeTransactions", {"transactional_ids": [TX]}, node_id=other)
    assert described.transaction_states[0].error_code == errors.NotCoordinator.code


def test_deleted_records_free_the_last_stable_offset(bare: Bare) -> None:
    producer = init(bare)
    begin(bare, producer)
    assert stable(bare) == (0, 1)
    bare.cluster.partition("t", 0).delete_before(1)
    assert stable(bare) == (1, 1)
    assert produce(bare, producer, sequence=1) == 0
    assert stable(bare) == (1, 2)
    end(bare, producer, commit=True)
    assert stable(bare) == (3, 3)
