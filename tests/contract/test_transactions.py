"""Transactions: one program, the same observations on the embedded broker and on real ones.

New clients end transactions with a new epoch and let partitions join by themselves (KIP-890); old
ones do not. Brokers from 4.0 on know both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.transactional import PATIENCE, Producer, committed, ends, name_of, new_id
from tests.fix_any import AnyKafka

OLD_PRODUCE, ABORTABLE_PRODUCE = 9, 11
OLD_END = 3


@pytest.fixture
def producer(any_kafka: AnyKafka) -> Iterator[Producer]:
    with Producer(any_kafka, new_id("tx")) as producer:
        assert producer.init() == "NONE"
        yield producer


def needs(kafka: AnyKafka, *number: int) -> None:
    if kafka.number < number:
        pytest.skip(f"{kafka.version} does not have it")


def old_transaction(producer: Producer, topic: str, *values: bytes, sequence: int) -> None:
    assert producer.add(topic, 0) == ["NONE"]
    code, _ = producer.produce(topic, *values, sequence=sequence, version=OLD_PRODUCE)
    assert code == "NONE"


# Who may.


def test_every_call_brings_the_next_epoch(any_kafka: AnyKafka, producer: Producer) -> None:
    first = producer.identity
    assert producer.epoch == 0
    assert producer.init() == "NONE"
    assert producer.identity == (first[0], 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_time_out_must_be_allowed(any_kafka: AnyKafka, timeout_ms: int) -> None:
    with Producer(any_kafka, new_id("tx"), timeout_ms) as producer:
        assert producer.init() == "INVALID_TRANSACTION_TIMEOUT"


def test_transactional_id_must_not_be_empty(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with Producer(any_kafka, "") as producer:
        assert producer.init() == "INVALID_REQUEST"
        assert producer.end(commit=True) == "INVALID_REQUEST"
        assert producer.add(topic, 0) == ["INVALID_REQUEST"]


def test_producer_goes_on_from_its_epoch(any_kafka: AnyKafka, producer: Producer) -> None:
    """KIP-360: a lost answer is given again, anybody older is refused."""
    assert producer.init(recover=True) == "NONE"
    assert producer.epoch == 1
    producer.epoch = 0
    assert producer.init(recover=True) == "NONE"
    assert producer.epoch == 1
    assert producer.init() == "NONE"
    assert producer.epoch == 2
    producer.epoch = 1
    assert producer.init(3, recover=True) == "INVALID_PRODUCER_EPOCH"
    assert producer.init(4, recover=True) == "PRODUCER_FENCED"
    producer.id += 1_000_000
    assert producer.init(recover=True) == "PRODUCER_FENCED"
    producer.epoch = -1
    assert producer.init(recover=True) == "INVALID_REQUEST"


def test_unknown_transactional_id_cannot_do_anything(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with Producer(any_kafka, new_id("tx"), id=5, epoch=5) as producer:
        assert producer.add(topic, 0) == ["INVALID_PRODUCER_ID_MAPPING"]
        assert producer.end(commit=True) == "INVALID_PRODUCER_ID_MAPPING"
        if any_kafka.number >= (3, 6):
            assert producer.produce(topic, sequence=0)[0] == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_fenced_producer_hears_it_in_the_words_of_its_version(
    any_kafka: AnyKafka, producer: Producer, version: int
) -> None:
    topic = any_kafka.create_topic()
    producer.epoch += 1
    said = "INVALID_PRODUCER_EPOCH" if version < 2 else "PRODUCER_FENCED"
    assert producer.add(topic, 0, version=version) == [said]
    assert producer.end(commit=True, version=version) == said
    body = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "group_id": "g",
    }
    assert name_of(producer.ask("AddOffsetsToTxn", body, version).error_code) == said


def test_new_producer_ends_the_old_ones_transaction(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    topic = any_kafka.create_topic()
    old_transaction(producer, topic, b"a", sequence=0)
    assert ends(any_kafka, topic) == (0, 1)
    with Producer(any_kafka, producer.transactional_id) as other:
        assert other.init() == "NONE"
        # One epoch was for fencing.
        assert other.identity == (producer.id, 2)
        assert ends(any_kafka, topic) == (2, 2)
        assert committed(any_kafka, topic) == []
        refused = producer.produce(topic, b"b", sequence=1, version=OLD_PRODUCE)
        assert refused == ("INVALID_PRODUCER_EPOCH", -1)
        assert producer.end(commit=True) == "PRODUCER_FENCED"
        assert producer.add(topic, 0) == ["PRODUCER_FENCED"]
        assert producer.init(recover=True) == "PRODUCER_FENCED"
        old_transaction(other, topic, b"c", sequence=0)
        assert other.end(commit=True) == "NONE"


def test_open_transaction_must_be_aborted_before_a_new_epoch(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    topic = any_kafka.create_topic()
    old_transaction(producer, topic, b"a", sequence=0)
    body = {"transactional_id": producer.transactional_id, "transaction_timeout_ms": 60_000}
    answer = producer.connection.request("InitProducerId", body)
    assert name_of(answer.error_code) == "CONCURRENT_TRANSACTIONS"
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    assert producer.init() == "NONE"
    assert producer.epoch == 2


# Version 1 of transactions.


def test_old_transaction_commits_and_aborts(any_kafka: AnyKafka, producer: Producer) -> None:
    topic = any_kafka.create_topic()
    old_transaction(producer, topic, b"a", b"b", sequence=0)
    assert ends(any_kafka, topic) == (0, 2)
    assert committed(any_kafka, topic) == []
    assert producer.end(commit=True, version=OLD_END) == "NONE"
    old_transaction(producer, topic, b"c", sequence=2)
    assert producer.end(commit=False, version=OLD_END) == "NONE"
    old_transaction(producer, topic, b"d", sequence=3)
    assert producer.end(commit=True, version=OLD_END) == "NONE"
    # The next transaction begins when the last one is complete.
    assert producer.add(topic, 0) == ["NONE"]
    assert ends(any_kafka, topic) == (7, 7)
    assert committed(any_kafka, topic) == [b"a", b"b", b"d"]
    assert producer.epoch == 0


def test_old_transaction_ends_only_once_and_only_if_it_began(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    topic = any_kafka.create_topic()
    for commit in (True, False):
        assert producer.end(commit=commit, version=OLD_END) == "INVALID_TXN_STATE"
    for commit, sequence in ((True, 0), (False, 1)):
        old_transaction(producer, topic, b"a", sequence=sequence)
        assert producer.end(commit=commit, version=OLD_END) == "NONE"
        assert producer.end(commit=commit, version=OLD_END) == "NONE"
        assert producer.end(commit=not commit, version=OLD_END) == "INVALID_TXN_STATE"


def test_partitions_are_added_all_or_none(any_kafka: AnyKafka, producer: Producer) -> None:
    topic = any_kafka.create_topic()
    codes = producer.add(topic, 0, 7)
    assert codes == ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert producer.end(commit=True, version=OLD_END) == "INVALID_TXN_STATE"


def test_partition_must_be_in_the_transaction(any_kafka: AnyKafka, producer: Producer) -> None:
    needs(any_kafka, 3, 8)
    topic = any_kafka.create_topic(partitions=2)
    assert producer.add(topic, 1) == ["NONE"]
    refused = producer.produce(topic, sequence=0, version=10)
    assert refused == ("INVALID_TXN_STATE", -1)
    refused = producer.produce(topic, sequence=0, version=ABORTABLE_PRODUCE)
    assert refused == ("TRANSACTION_ABORTABLE", -1)
    assert ends(any_kafka, topic) == (0, 0)


def test_data_without_transactional_id_is_refused(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with Producer(any_kafka) as producer:
        refused = producer.produce(topic, sequence=0, transactional=True)
    assert refused == ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", -1)


def test_other_data_is_refused_while_a_transaction_is_open(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    topic = any_kafka.create_topic()
    old_transaction(producer, topic, b"a", sequence=0)
    refused = producer.produce(topic, sequence=1, transactional=False, version=OLD_PRODUCE)
    assert refused == ("INVALID_TXN_STATE", -1)


# Version 2 of transactions.


def test_new_transaction_begins_with_its_data_and_ends_with_a_new_epoch(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    needs(any_kafka, 4, 0)
    topic = any_kafka.create_topic(partitions=2)
    seen = []
    for index, commit in enumerate((True, False, True)):
        value = str(index).encode()
        assert producer.produce(topic, value, sequence=0)[0] == "NONE"
        assert producer.produce(topic, value, sequence=1)[0] == "NONE"
        assert producer.produce(topic, value, sequence=0, partition=1)[0] == "NONE"
        seen.append(producer.epoch)
        assert producer.end(commit=commit) == "NONE"
    assert producer.settle() == "CompleteCommit"
    assert seen == [0, 1, 2]
    assert committed(any_kafka, topic) == [b"0", b"0", b"2", b"2"]
    assert committed(any_kafka, topic, 1) == [b"0", b"2"]
    assert ends(any_kafka, topic) == (9, 9)


def test_new_transaction_must_begin_with_sequence_zero(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    needs(any_kafka, 4, 0)
    topic = any_kafka.create_topic()
    assert producer.produce(topic, sequence=3) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    # It takes part all the same.
    assert producer.describe().transaction_state == "Ongoing"
    assert producer.end(commit=True) == "NONE"


def test_end_that_is_asked_again_has_the_same_outcome(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    needs(any_kafka, 4, 0)
    topic = any_kafka.create_topic()
    for commit in (True, False):
        assert producer.produce(topic, b"a", sequence=0)[0] == "NONE"
        asked = producer.ending(commit=commit)
        first = producer.ask("EndTxn", asked)
        assert (first.error_code, first.producer_epoch) == (0, producer.epoch + 1)
        again = producer.ask("EndTxn", asked)
        assert (again.producer_id, again.producer_epoch) == (producer.id, first.producer_epoch)
        other = producer.ask("EndTxn", {**asked, "committed": not commit})
        assert name_of(other.error_code) == "INVALID_TXN_STATE"
        producer.epoch = first.producer_epoch


def test_abort_needs_no_partition_but_commit_does(any_kafka: AnyKafka, producer: Producer) -> None:
    needs(any_kafka, 4, 0)
    topic = any_kafka.create_topic()
    assert producer.end(commit=True) == "INVALID_TXN_STATE"
    assert producer.end(commit=False) == "NONE"
    assert producer.epoch == 1
    assert producer.settle() == "CompleteAbort"
    assert producer.end(commit=True) == "INVALID_TXN_STATE"
    assert producer.end(commit=False) == "NONE"
    assert producer.epoch == 2
    assert producer.produce(topic, b"a", sequence=0) == ("NONE", 0)
    assert producer.end(commit=True) == "NONE"
    assert producer.settle() == "CompleteCommit"
    assert producer.end(commit=False) == "NONE"
    assert producer.epoch == 4


def test_late_batch_of_an_ended_transaction_is_refused(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    """What a TV2 transaction left behind cannot join the next one (KAFKA-14402)."""
    needs(any_kafka, 4, 0)
    topic = any_kafka.create_topic()
    assert producer.produce(topic, b"a", sequence=0) == ("NONE", 0)
    old = producer.epoch
    assert producer.end(commit=False) == "NONE"
    assert producer.settle() == "CompleteAbort"
    for version in (OLD_PRODUCE, ABORTABLE_PRODUCE, 12):
        late = producer.produce(topic, b"b", sequence=1, epoch=old, version=version)
        assert late == ("INVALID_PRODUCER_EPOCH", -1)


# Time.


def test_transaction_times_out(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with Producer(any_kafka, new_id("tx"), 600) as producer:
        assert producer.init() == "NONE"
        old_transaction(producer, topic, b"a", sequence=0)
        deadline = time.monotonic() + PATIENCE
        while ends(any_kafka, topic) != (2, 2):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert committed(any_kafka, topic) == []
        assert producer.end(commit=True) in ("PRODUCER_FENCED", "INVALID_TXN_STATE")
        refused = producer.produce(topic, b"b", sequence=1, version=OLD_PRODUCE)
        assert refused == ("INVALID_PRODUCER_EPOCH", -1)
        assert producer.init() == "NONE"
        assert producer.epoch == 2


# Seen from outside.


def test_transactions_are_listed(any_kafka: AnyKafka, producer: Producer) -> None:
    needs(any_kafka, 3, 0)
    topic = any_kafka.create_topic()
    old_transaction(producer, topic, b"a", sequence=0)

    def listed(version: int, **filters: Any) -> Any:
        return producer.connection.request("ListTransactions", filters, version)

    mine = {"producer_id_filters": [producer.id]}
    (found,) = listed(0, **mine).transaction_states
    assert found.transactional_id == producer.transactional_id
    assert (found.producer_id, found.transaction_state) == (producer.id, "Ongoing")
    assert len(listed(0, **mine, state_filters=["Ongoing"]).transaction_states) == 1
    assert listed(0, **mine, state_filters=["Empty"]).transaction_states == []
    answer = listed(0, **mine, state_filters=["Ongoing", "Sleeping"])
    assert answer.unknown_state_filters == ["Sleeping"]
    assert len(answer.transaction_states) == 1
    if any_kafka.number >= (3, 8):
        time.sleep(0.05)  # longer than 0 ms, by a wall clock that may be set meanwhile
        assert len(listed(1, **mine, duration_filter=0).transaction_states) == 1
        assert listed(1, **mine, duration_filter=60_000).transaction_states == []
    if any_kafka.number >= (4, 1):
        assert len(listed(2, **mine, transactional_id_pattern="tx-.*").transaction_states) == 1
        assert listed(2, **mine, transactional_id_pattern="tx").transaction_states == []
        wrong = listed(2, transactional_id_pattern="(").error_code
        assert name_of(wrong) == "INVALID_REGULAR_EXPRESSION"


def test_transactions_are_described(any_kafka: AnyKafka, producer: Producer) -> None:
    needs(any_kafka, 3, 0)
    topic = any_kafka.create_topic(partitions=3)
    found = producer.describe()
    assert (found.transaction_state, found.transaction_start_time_ms) == ("Empty", -1)
    assert producer.add(topic, 2, 0) == ["NONE", "NONE"]
    found = producer.describe()
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert (found.producer_id, found.producer_epoch) == producer.identity
    assert abs(found.transaction_start_time_ms - time.time() * 1000) < 60_000
    assert [(part.topic, sorted(part.partitions)) for part in found.topics] == [(topic, [0, 2])]
    assert producer.end(commit=False, version=OLD_END) == "NONE"
    assert producer.settle() == "CompleteAbort"
    assert producer.describe().topics == []
    body = {"transactional_ids": ["nobody", ""]}
    absent, empty = producer.connection.request("DescribeTransactions", body).transaction_states
    assert name_of(absent.error_code) == "TRANSACTIONAL_ID_NOT_FOUND"
    assert name_of(empty.error_code) == "INVALID_REQUEST"


def write_marker(
    producer: Producer,
    topic: str,
    *,
    epoch: int,
    coordinator: int = 0,
    version: int = 1,
    tv: int = 0,
) -> list[str]:
    marker = {
        "producer_id": producer.id,
        "producer_epoch": epoch,
        "transaction_result": False,
        "coordinator_epoch": coordinator,
        "transaction_version": tv,
        "topics": [{"name": topic, "partition_indexes": [0, 5]}],
    }
    answer = producer.connection.request("WriteTxnMarkers", {"markers": [marker]}, version)
    found = answer.markers[0].topics[0].partitions
    codes = {item.partition_index: name_of(item.error_code) for item in found}
    return [codes[0], codes[5]]


def test_markers_can_be_written_by_hand(any_kafka: AnyKafka, producer: Producer) -> None:
    topic = any_kafka.create_topic()
    producer.init()  # so that there is an older epoch
    old_transaction(producer, topic, b"a", sequence=0)
    absent = "UNKNOWN_TOPIC_OR_PARTITION"
    assert write_marker(producer, topic, epoch=0) == ["INVALID_PRODUCER_EPOCH", absent]
    assert ends(any_kafka, topic) == (0, 1)
    assert write_marker(producer, topic, epoch=1, coordinator=5) == ["NONE", absent]
    assert ends(any_kafka, topic) == (2, 2)
    assert committed(any_kafka, topic) == []
    older = write_marker(producer, topic, epoch=1, coordinator=4)
    assert older == ["TRANSACTION_COORDINATOR_FENCED", absent]
    body = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    answer = producer.connection.request("DescribeProducers", body).topics[0].partitions[0]
    (state,) = answer.active_producers
    assert (state.producer_epoch, state.coordinator_epoch) == (1, 5)
    assert state.current_txn_start_offset == -1


def test_new_markers_need_a_newer_epoch(any_kafka: AnyKafka, producer: Producer) -> None:
    """KIP-1228."""
    needs(any_kafka, 4, 3)
    topic = any_kafka.create_topic()
    assert producer.produce(topic, b"a", sequence=0) == ("NONE", 0)
    refused = write_marker(producer, topic, epoch=0, version=2, tv=2)
    assert refused[0] == "INVALID_PRODUCER_EPOCH"
    assert write_marker(producer, topic, epoch=1, version=2, tv=2)[0] == "NONE"
    assert write_marker(producer, topic, epoch=1, version=2, tv=2)[0] == "NONE"


def test_brokers_ask_for_several_transactions(any_kafka: AnyKafka, producer: Producer) -> None:
    needs(any_kafka, 3, 6)
    topic = any_kafka.create_topic(partitions=2)

    def ask(*, verify: bool, partitions: list[int], epoch: int = 0) -> list[str]:
        transactions = [
            {
                "transactional_id": name,
                "producer_id": producer.id,
                "producer_epoch": epoch,
                "verify_only": verify,
                "topics": [{"name": topic, "partitions": partitions}],
            }
            for name in (producer.transactional_id, "nobody")
        ]
        answer = producer.connection.request(
            "AddPartitionsToTxn", {"transactions": transactions}, 4
        )
        assert answer.error_code == 0
        found = {item.transactional_id: item for item in answer.results_by_transaction}
        (unknown,) = found["nobody"].topic_results
        codes = {item.partition_error_code for item in unknown.results_by_partition}
        assert [name_of(code) for code in codes] == ["INVALID_PRODUCER_ID_MAPPING"]
        (mine,) = found[producer.transactional_id or ""].topic_results
        by_index = {p.partition_index: p.partition_error_code for p in mine.results_by_partition}
        return [name_of(by_index[index]) for index in partitions]

    assert ask(verify=True, partitions=[0]) == ["TRANSACTION_ABORTABLE"]
    assert ask(verify=False, partitions=[0]) == ["NONE"]
    assert ask(verify=True, partitions=[0, 1]) == ["NONE", "TRANSACTION_ABORTABLE"]
    assert ask(verify=True, partitions=[0], epoch=3) == ["PRODUCER_FENCED"]
