"""Offsets in transactions: the same observations on the embedded broker and on real ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.transactional import PASSING, PATIENCE, Producer, name_of, new_id
from tests.fix_any import AnyKafka

OLD_COMMIT, ABORTABLE_COMMIT, JOINING_COMMIT = 3, 4, 5
OLD_END = 3


@pytest.fixture
def producer(any_kafka: AnyKafka) -> Iterator[Producer]:
    with Producer(any_kafka, new_id("tx")) as producer:
        assert producer.init() == "NONE"
        yield producer


def commit(
    producer: Producer,
    group: str,
    topic: str,
    offset: int,
    *,
    version: int = OLD_COMMIT,
    partitions: tuple[int, ...] = (0,),
    metadata: str | None = "m",
    **member: Any,
) -> list[str]:
    items = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
        for index in partitions
    ]
    body = {
        "transactional_id": producer.transactional_id,
        "group_id": group,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "topics": [{"name": topic, "partitions": items}],
        **member,
    }
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = producer.connection.request("TxnOffsetCommit", body, version)
        found = {p.partition_index: name_of(p.error_code) for p in answer.topics[0].partitions}
        if not set(found.values()) & PASSING:
            return [found[index] for index in partitions]
        assert time.monotonic() < deadline, found
        find_group(producer, group)
        time.sleep(0.01)


def find_group(producer: Producer, group: str) -> None:
    """Have the coordinator's own topic made."""
    body: dict[str, Any] = {"key": group}
    if producer.connection.newest("FindCoordinator") >= 4:
        body = {"coordinator_keys": [group]}
    producer.connection.request("FindCoordinator", body)


def add_group(producer: Producer, group: str) -> str:
    find_group(producer, group)
    body = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "group_id": group,
    }
    version = min(3, producer.connection.newest("AddOffsetsToTxn"))
    return name_of(producer.ask("AddOffsetsToTxn", body, version).error_code)


def stored(producer: Producer, group: str, topic: str, *, stable: bool = False) -> tuple[str, int]:
    """The error and the offset that the group has stored, once the coordinator is there."""
    topics = [{"name": topic, "partition_indexes": [0]}]
    body = {"group_id": group, "topics": topics, "require_stable": stable}
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = producer.connection.request("OffsetFetch", body, 7)
        if name_of(answer.error_code) not in PASSING:
            found = answer.topics[0].partitions[0]
            return name_of(found.error_code or answer.error_code), found.committed_offset
        assert time.monotonic() < deadline
        find_group(producer, group)
        time.sleep(0.01)


def settled(producer: Producer, group: str, topic: str) -> int:
    """The offset once no transaction is open."""
    deadline = time.monotonic() + PATIENCE
    while True:
        code, offset = stored(producer, group, topic, stable=True)
        if code != "UNSTABLE_OFFSET_COMMIT":
            assert code == "NONE"
            return offset
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_offsets_count_when_the_transaction_commits(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    topic, group = any_kafka.create_topic(), new_id("g")
    for offset, decision, after in ((3, True, 3), (5, False, 3), (7, True, 7)):
        before = settled(producer, group, topic)
        assert add_group(producer, group) == "NONE"
        assert commit(producer, group, topic, offset) == ["NONE"]
        assert stored(producer, group, topic) == ("NONE", before)
        assert stored(producer, group, topic, stable=True)[0] == "UNSTABLE_OFFSET_COMMIT"
        assert producer.end(commit=decision, version=OLD_END) == "NONE"
        assert settled(producer, group, topic) == after


def test_group_joins_by_itself(any_kafka: AnyKafka, producer: Producer) -> None:
    if any_kafka.number < (4, 0):
        pytest.skip("transaction version 2")
    topic, group = any_kafka.create_topic(), new_id("g")
    for offset, decision, after in ((3, True, 3), (5, False, 3)):
        assert commit(producer, group, topic, offset, version=JOINING_COMMIT) == ["NONE"]
        (found,) = producer.describe().topics
        assert found.topic == "__consumer_offsets"
        assert producer.end(commit=decision) == "NONE"
        assert settled(producer, group, topic) == after


def test_group_must_be_in_the_transaction(any_kafka: AnyKafka, producer: Producer) -> None:
    if any_kafka.number < (3, 8):
        pytest.skip("brokers did not ask")
    topic, group = any_kafka.create_topic(), new_id("g")
    assert commit(producer, group, topic, 1, version=OLD_COMMIT) == ["INVALID_TXN_STATE"]
    refused = commit(producer, group, topic, 1, version=ABORTABLE_COMMIT)
    assert refused == ["TRANSACTION_ABORTABLE"]
    producer.epoch += 1
    assert commit(producer, group, topic, 1) == ["INVALID_PRODUCER_EPOCH"]
    producer.epoch -= 1
    producer.id += 1_000_000
    assert commit(producer, group, topic, 1) == ["INVALID_PRODUCER_ID_MAPPING"]


def test_partitions_that_do_not_exist_fail_by_themselves(
    any_kafka: AnyKafka, producer: Producer
) -> None:
    topic, group = any_kafka.create_topic(), new_id("g")
    assert add_group(producer, group) == "NONE"
    codes = commit(producer, group, topic, 4, partitions=(0, 5))
    assert codes == ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    long = "m" * 5000
    assert commit(producer, group, topic, 5, metadata=long) == ["OFFSET_METADATA_TOO_LARGE"]
    assert producer.end(commit=True, version=OLD_END) == "NONE"
    assert settled(producer, group, topic) == 4


def test_only_members_may_commit(any_kafka: AnyKafka, producer: Producer) -> None:
    topic, group = any_kafka.create_topic(), new_id("g")
    assert add_group(producer, group) == "NONE"
    stranger: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "somebody"}
    if any_kafka.number >= (4, 0):  # before, a group was made first
        assert commit(producer, group, topic, 1, **stranger) == ["ILLEGAL_GENERATION"]
    assert commit(producer, group, topic, 1) == ["NONE"]
    assert commit(producer, group, topic, 1, **stranger) == ["UNKNOWN_MEMBER_ID"]
    assert producer.end(commit=False, version=OLD_END) == "NONE"


def test_group_must_have_a_name(any_kafka: AnyKafka, producer: Producer) -> None:
    topic = any_kafka.create_topic()
    assert commit(producer, "", topic, 1) == ["INVALID_GROUP_ID"]
