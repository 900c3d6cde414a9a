"""Sequences and epochs: one program, the same observations on the embedded and on real brokers."""

from __future__ import annotations

from tests.contract.transactional import Producer, batch, ends
from tests.fix_any import AnyKafka

LAST = 0x7FFFFFFF


def started(kafka: AnyKafka) -> Producer:
    producer = Producer(kafka)
    assert producer.init() == "NONE"
    assert producer.epoch == 0
    return producer


def test_every_producer_gets_an_id_of_its_own(any_kafka: AnyKafka) -> None:
    with started(any_kafka) as one, started(any_kafka) as other:
        assert one.id != other.id


def test_batches_must_follow_each_other(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with started(any_kafka) as producer:
        assert producer.produce(topic, b"a", b"b", sequence=0) == ("NONE", 0)
        assert producer.produce(topic, b"d", sequence=3) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
        assert producer.produce(topic, b"c", sequence=2) == ("NONE", 2)
        assert producer.produce(topic, b"d", sequence=3) == ("NONE", 3)
    assert ends(any_kafka, topic) == (4, 4)


def test_last_five_batches_are_answered_with_their_first_offset(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with started(any_kafka) as producer:
        for sequence in range(6):
            assert producer.produce(topic, sequence=sequence) == ("NONE", sequence)
        for sequence in range(1, 6):
            assert producer.produce(topic, sequence=sequence) == ("NONE", sequence)
        # The sixth from the end is forgotten, and so is one of another length.
        forgotten = producer.produce(topic, sequence=0)
        longer = producer.produce(topic, b"a", b"b", sequence=4)
    assert forgotten == longer == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert ends(any_kafka, topic) == (6, 6)


def test_sequences_wrap_to_zero(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with started(any_kafka) as producer:
        # Nothing is known of the producer yet, so it may begin anywhere.
        assert producer.produce(topic, b"a", b"b", sequence=LAST - 1) == ("NONE", 0)
        assert producer.produce(topic, sequence=0) == ("NONE", 2)
        assert producer.produce(topic, b"a", b"b", sequence=LAST - 1) == ("NONE", 0)
        assert producer.produce(topic, sequence=1) == ("NONE", 3)


def test_batch_may_wrap_within(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with started(any_kafka) as producer:
        assert producer.produce(topic, b"a", b"b", b"c", sequence=LAST - 1) == ("NONE", 0)
        assert producer.produce(topic, b"a", b"b", b"c", sequence=LAST - 1) == ("NONE", 0)
        assert producer.produce(topic, sequence=1) == ("NONE", 3)


def test_new_epoch_begins_with_zero_and_ends_the_old_one(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with started(any_kafka) as producer:
        assert producer.produce(topic, sequence=0) == ("NONE", 0)
        refused = producer.produce(topic, sequence=1, epoch=1)
        assert refused == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
        assert producer.produce(topic, sequence=0, epoch=1) == ("NONE", 1)
        assert producer.produce(topic, sequence=1, epoch=0) == ("INVALID_PRODUCER_EPOCH", -1)
        assert producer.produce(topic, sequence=0, epoch=0) == ("INVALID_PRODUCER_EPOCH", -1)
        assert producer.produce(topic, sequence=1, epoch=1) == ("NONE", 2)


def test_id_given_back_without_transactions_is_replaced(any_kafka: AnyKafka) -> None:
    """Brokers keep epochs by transactional id; who has none is given a new id (KIP-360)."""
    with started(any_kafka) as producer:
        before = producer.id
        assert producer.init(recover=True) == "NONE"
        assert producer.id != before
        assert producer.epoch == 0


def test_partitions_count_by_themselves(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(partitions=2)
    with started(any_kafka) as producer:
        for partition in (0, 1):
            assert producer.produce(topic, sequence=0, partition=partition) == ("NONE", 0)


def test_producer_is_remembered_after_its_records_are_deleted(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with started(any_kafka) as producer:
        assert producer.produce(topic, b"a", b"b", sequence=0) == ("NONE", 0)
        item = {"partition_index": 0, "offset": -1}
        body = {"topics": [{"name": topic, "partitions": [item]}], "timeout_ms": 10_000}
        trimmed = producer.connection.request("DeleteRecords", body).topics[0].partitions[0]
        assert (trimmed.error_code, trimmed.low_watermark) == (0, 2)
        assert producer.produce(topic, b"a", b"b", sequence=0) == ("NONE", 0)
        assert producer.produce(topic, sequence=5)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert producer.produce(topic, sequence=2) == ("NONE", 2)


def test_batch_with_an_id_needs_a_sequence(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with started(any_kafka) as producer:
        without = batch(b"x", producer=producer.identity, sequence=-1)
        assert producer.send(topic, without)[0] == "INVALID_RECORD"


def test_producers_are_described(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with started(any_kafka) as producer:
        stamp = 1_700_000_000_000
        data = batch(b"a", b"b", producer=producer.identity, sequence=0, timestamp_ms=stamp)
        assert producer.send(topic, data) == ("NONE", 0)
        topics = [
            {"name": topic, "partition_indexes": [0, 1]},
            {"name": "nowhere", "partition_indexes": [0]},
            {"name": "no topic", "partition_indexes": [0]},
        ]
        answer = producer.connection.request("DescribeProducers", {"topics": topics})
        (known, absent), (nowhere,), (illegal,) = (item.partitions for item in answer.topics)
        (found,) = known.active_producers
        assert (found.producer_id, found.producer_epoch, found.last_sequence) == (producer.id, 0, 1)
        assert found.last_timestamp == stamp
        assert (found.coordinator_epoch, found.current_txn_start_offset) == (-1, -1)
        assert (absent.error_code, nowhere.error_code) == (3, 3)
        if any_kafka.number >= (3, 0):
            assert illegal.error_code == 17
