"""The producer while the embedded broker refuses, forgets and ends: rows of the failure table."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.aio._delivery import Delivery
from karrow.aio.producing.sequences import MAX_EPOCH, Progress
from karrow.broker.threaded import Broker
from tests.embedded.producing import (
    QUICK,
    SLOWLY,
    TIMEOUT,
    TOPIC,
    epochs,
    infos,
    offsets,
    on_loop,
    produced,
    producer_for,
    send_many,
    values,
    wait_until,
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(brokers=3) as broker:
        broker.create_topic(TOPIC, 2, 3)
        yield broker


# What the broker says of sequences.


def test_duplicate_sequence_is_a_success_without_a_place(broker: Broker) -> None:
    """Row 6: the broker has it and does not know where any more."""
    with producer_for(broker) as producer:
        broker.fail("Produce", "DUPLICATE_SEQUENCE_NUMBER", topic=TOPIC, partition=0)
        assert offsets(send_many(producer, b"a")) == [None]


def test_gap_at_the_head_of_the_line_raises_the_epoch(broker: Broker) -> None:
    """Row 6: nothing is missing here, so the broker has lost something: on with a new epoch."""
    with producer_for(broker) as producer:
        send_many(producer, b"lost")[0].result(TIMEOUT)
        broker.truncate(TOPIC, 0, 1)
        sent = send_many(producer, *(b"%d" % number for number in range(10)))
        assert offsets(sent) == list(range(1, 11))
        assert set(epochs(broker)) == {0, 1}
    assert values(broker) == [b"first", *(b"%d" % number for number in range(10))]


def test_unknown_producer_goes_on(broker: Broker) -> None:
    """Row 6: the broker has forgotten who we are."""
    with producer_for(broker) as producer:
        broker.fail("Produce", "UNKNOWN_PRODUCER_ID", topic=TOPIC, partition=0, times=2)
        assert offsets(send_many(producer, b"a", b"b", b"c")) == [1, 2, 3]
    assert values(broker) == [b"first", b"a", b"b", b"c"]


def test_records_that_are_deleted_do_not_stop_their_producer(broker: Broker) -> None:
    """Row 6: all its records are gone, and so may be what the broker knew of it."""
    with producer_for(broker) as producer, karrow.Admin(broker.bootstrap) as admin:
        admin.delete_records({(TOPIC, 0): 1})
        assert offsets(send_many(producer, b"a", b"b")) == [1, 2]


def test_damaged_answer_is_asked_for_again(broker: Broker) -> None:
    """Row 2: it was written, and what came back is no answer."""
    with producer_for(broker) as producer:
        broker.raw("Produce", b"\x00\x00\x00\x04junk")
        assert offsets(send_many(producer, b"a", b"b")) == [1, 2]
    assert values(broker) == [b"first", b"a", b"b"]


def test_damaged_answer_without_idempotence_is_told(broker: Broker) -> None:
    """Row 3: it may have been written."""
    with producer_for(broker, idempotent=False) as producer:
        broker.raw("Produce", b"\x00\x00\x00\x04junk")
        failed, other = send_many(producer, b"a", b"b")
        error = failed.exception(TIMEOUT)
        assert error is not None
        assert error.indefinite
        assert other.result(TIMEOUT).offset is not None


# Topics that go.


def test_topic_made_anew_is_written_to(broker: Broker) -> None:
    """Row 22: another topic under the name; sequences begin anew there."""
    with producer_for(broker) as producer, karrow.Client(broker.bootstrap) as client:
        offsets(send_many(producer, b"a", b"b"))
        client.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 2, 3)
        assert offsets(send_many(producer, b"c", b"d", b"e")) == [0, 1, 2]
    assert values(broker) == [b"c", b"d", b"e"]


def test_topic_made_anew_with_fewer_partitions(broker: Broker) -> None:
    """Row 22: records for partitions that are gone fail, later ones go where there is one."""
    with producer_for(broker) as producer, karrow.Client(broker.bootstrap) as client:
        producer.send(TOPIC, b"v", partition=1).result(TIMEOUT)
        client.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 1)
        gone = producer.send(TOPIC, b"gone", partition=1).exception(TIMEOUT)
        assert isinstance(gone, errors.UnknownTopicOrPartition)
        assert not gone.indefinite
        sent = [producer.send(TOPIC, b"v", key=b"%d" % number) for number in range(8)]
        assert offsets(sent) == list(range(8))
        with pytest.raises(errors.UnknownTopicOrPartition, match="0 to 0"):
            producer.send(TOPIC, b"v", partition=1)


def test_topic_made_anew_within_a_transaction_ends_it(broker: Broker) -> None:
    """Row 22: what was written to the first topic is gone, so nothing is committed."""
    with (
        karrow.Producer(broker.bootstrap, transactional_id="t", linger=0.0, **QUICK) as producer,
        karrow.Client(broker.bootstrap) as client,
    ):
        producer.begin_transaction()
        producer.send(TOPIC, b"lost", partition=0).result(TIMEOUT)
        client.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 2, 3)
        producer.send(TOPIC, b"alone", partition=0).exception(TIMEOUT)
        with pytest.raises(errors.StateError, match="made anew within the transaction"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(TOPIC, b"again", partition=0)
        found = client.fetch_all(TOPIC, 0, isolation="read_committed").records
        assert [record.value for record in found] == [b"again"]


def test_topic_that_is_missing_for_a_moment_is_waited_for(broker: Broker) -> None:
    """Row 23: metadata without the topic is not the end of its records."""
    with producer_for(broker) as producer:
        fault = broker.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=TOPIC, times=4)
        broker.fail("Produce", "NETWORK_EXCEPTION", topic=TOPIC, partition=0)
        assert offsets(send_many(producer, b"a", b"b")) == [1, 2]
        assert fault.met == 4


def test_topic_that_stays_away_fails_its_records_alone(broker: Broker) -> None:
    """Row 23: after the time for that, they fail; other topics have gone on meanwhile."""
    broker.create_topic("other", 1)
    with producer_for(broker, topic_propagation=0.5) as producer:
        producer.send("other", b"v").result(TIMEOUT)
        broker.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=TOPIC, times=1000)
        broker.fail("Produce", "UNKNOWN_TOPIC_OR_PARTITION", topic=TOPIC, partition=0, times=1000)
        began = time.monotonic()
        failed = producer.send(TOPIC, b"a", partition=0)
        assert producer.send("other", b"v").result(TIMEOUT).offset == 1
        error = failed.exception(TIMEOUT)
        assert isinstance(error, errors.UnknownTopicOrPartition)
        assert TOPIC in str(error)
        assert 0.4 < time.monotonic() - began < 5
        broker.clear_faults()
        assert offsets(send_many(producer, b"b")) == [1]


# Sizes.


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_record_that_is_too_large_for_its_topic_fails_alone(codec: Any) -> None:
    """Row 27: its batch is split until it is alone; the others arrive, in order."""
    with Broker() as broker:
        broker.create_topic(TOPIC, 1, config={"max.message.bytes": "3000"})
        with karrow.Producer(broker.bootstrap, linger=5.0, compression=codec) as producer:
            large = random.Random(1).randbytes(4000)
            texts = [b"%d" % number for number in range(100)]
            sent = [producer.send(TOPIC, text) for text in texts[:50]]
            alone = producer.send(TOPIC, large)
            sent += [producer.send(TOPIC, text) for text in texts[50:]]
            producer.flush(TIMEOUT)
            assert isinstance(alone.exception(0), errors.MessageTooLarge)
            assert offsets(sent) == list(range(100))
        assert values(broker) == texts


def test_split_behind_a_retry_keeps_the_order(broker: Broker) -> None:
    """Row 27: one is sent again while the next is found to be too large."""
    with producer_for(broker, batch_bytes=1000, linger=5.0) as producer:
        broker.delay("Produce", 0.1)
        broker.fail("Produce", "NOT_ENOUGH_REPLICAS", topic=TOPIC, partition=0)
        broker.fail("Produce", "MESSAGE_TOO_LARGE", topic=TOPIC, partition=0)
        texts = [b"%d" % number + b"x" * 300 for number in range(10)]
        sent = send_many(producer, *texts)
        producer.flush(TIMEOUT)
        assert offsets(sent) == list(range(1, 11))
    assert values(broker) == [b"first", *texts]


def test_batch_that_may_be_written_is_not_split(broker: Broker) -> None:
    """Row 27: its parts would be strangers to a broker that has the whole."""
    with producer_for(broker, batch_bytes=10_000, linger=5.0, **SLOWLY) as producer:
        lost = broker.close("Produce", when="after")
        texts = [b"%d" % number for number in range(10)]
        sent = send_many(producer, *texts)
        threading.Thread(target=producer.flush).start()
        wait_until(lambda: lost.is_spent)
        broker.fail("Produce", "MESSAGE_TOO_LARGE", topic=TOPIC, partition=0)
        for one in sent:
            error = one.exception(TIMEOUT)
            assert isinstance(error, errors.MessageTooLarge)
            assert error.indefinite
        assert offsets(send_many(producer, b"after")) == [11]
    assert values(broker) == [b"first", *texts, b"after"]


def test_record_larger_than_a_request_is_refused_at_once(broker: Broker) -> None:
    """Row 27: without asking anybody."""
    with producer_for(broker, max_request_bytes=10_000) as producer:
        with pytest.raises(errors.MessageTooLarge, match="max_request_bytes is 10000"):
            producer.send(TOPIC, bytes(10_000), partition=0)
        assert produced(broker) == []
        assert offsets(send_many(producer, bytes(9_000))) == [1]


# Numbers that end.


def test_last_epoch_is_followed_by_another_producer_id(broker: Broker) -> None:
    """Row 37: at 32767 a new id is asked for, and the order is kept."""
    producer = karrow.Producer(broker.bootstrap, batch_bytes=1, linger=0.0, **QUICK)
    with producer:
        producer.send(TOPIC, b"other", partition=1).result(TIMEOUT)
        sequences = producer.twin.sender.sequences
        old = sequences.producer_id
        on_loop(lambda: sequences.take_identity(old, MAX_EPOCH))
        assert offsets(send_many(producer, b"a", b"b")) == [0, 1]
        broker.fail("Produce", "INVALID_RECORD", topic=TOPIC, partition=0)
        failed, *others = send_many(producer, b"failed", b"c", b"d")
        assert isinstance(failed.exception(TIMEOUT), errors.InvalidRecord)
        assert offsets(others) == [2, 3]
        producer.send(TOPIC, b"other", partition=1).result(TIMEOUT)
        assert sequences.producer_id != old
    assert values(broker) == [b"a", b"b", b"c", b"d"]
    found = [(info.producer_id == old, info.producer_epoch) for info in infos(broker)]
    assert found == [(True, MAX_EPOCH), (True, MAX_EPOCH), (False, 0), (False, 0)]
    assert [info.producer_id == old for info in infos(broker, 1)] == [True, False]


@pytest.mark.parametrize("lost", [False, True])
def test_sequences_begin_anew_after_their_last(broker: Broker, lost: bool) -> None:
    """Row 38: 2^31 - 1 is followed by 0, between batches and inside of one."""
    with producer_for(broker, batch_bytes=400, linger=0.05) as producer:
        begin_at(producer, 1, 2**31 - 7)
        producer.send(TOPIC, b"known", partition=1).result(TIMEOUT)
        if lost:
            broker.close("Produce", when="after", times=2)
        texts = [b"%d" % number + b"x" * 100 for number in range(30)]
        sent = [producer.send(TOPIC, text, partition=1) for text in texts]
        assert offsets(sent) == list(range(1, 31))
    assert values(broker, 1) == [b"known", *texts]
    assert [epoch for epoch in epochs(broker, 1) if epoch] == []


def begin_at(producer: karrow.Producer, partition: int, sequence: int) -> None:
    """Let the next record of a partition have this sequence."""
    sender = producer.twin.sender

    def set_to() -> None:
        topic = sender.accumulator.topic(TOPIC)
        assert topic is not None
        found = topic.partitions[partition]
        progress: Progress = sender.sequences.progress(found)
        progress.restart(sender.sequences.producer_id, sender.sequences.epoch)
        progress.next_sequence = sequence
        progress.acked_sequence = sequence - 1

    on_loop(set_to)


# The cluster goes.


def test_close_ends_in_time_without_brokers() -> None:
    """Row 40: what could not be written fails, for certain or not."""
    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        producer = producer_for(broker)
        broker.kill_node(1)
        sent = send_many(producer, b"a", b"b")
        began = time.monotonic()
        producer.close(0.5)
        assert time.monotonic() - began < 3
        assert all(isinstance(one.exception(0), errors.StateError) for one in sent)


def test_delivery_time_bounds_close_without_a_time_of_its_own() -> None:
    """Row 40: closing takes no longer than a record may take."""
    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        producer = producer_for(broker, delivery_timeout=0.8)
        broker.kill_node(1)
        sent = send_many(producer, b"a", b"b")
        began = time.monotonic()
        producer.close()
        assert time.monotonic() - began < 4
        assert all(isinstance(one.exception(0), errors.RequestTimeout) for one in sent)


def test_flush_says_what_is_left(broker: Broker) -> None:
    """Row 40: the records stay on their way."""
    with producer_for(broker) as producer:
        broker.delay("Produce", 0.8)
        (late,) = send_many(producer, b"late")
        with pytest.raises(errors.RequestTimeout, match="1 records had no outcome after"):
            producer.flush(0.1)
        with pytest.raises(errors.RequestTimeout, match="still on its way"):
            late.result(0.05)
        producer.flush(TIMEOUT)
        assert late.result(0).offset == 1


def test_purging_what_is_under_way_says_that_it_may_be_written(broker: Broker) -> None:
    """Row 40: giving up does not undo."""
    with producer_for(broker) as producer:
        broker.delay("Produce", 0.5, when="after")
        (gone,) = send_many(producer, b"under way")
        wait_until(lambda: produced(broker))
        assert producer.purge(in_flight=True) == 1
        error = gone.exception(0)
        assert error is not None
        assert error.indefinite
        assert offsets(send_many(producer, b"after")) == [2]
    assert values(broker) == [b"first", b"under way", b"after"]


def test_purging_while_batches_are_compressed_harms_nothing(broker: Broker) -> None:
    """Row 40: threads are at work on what is given up."""
    noise = random.Random(1).randbytes(1_000_000)
    with producer_for(broker, compression="gzip", compression_level=9) as producer:
        for _ in range(3):
            sent = send_many(producer, *[noise] * 6)
            producer.purge(in_flight=True)
            wait_until(lambda sent=sent: all(one.done() for one in sent))  # type: ignore[misc]
        assert offsets(send_many(producer, b"after"))[0] is not None
    assert values(broker)[-1] == b"after"


def test_waiting_for_a_blocking_producers_record_on_a_loop(broker: Broker) -> None:
    """Row 40: a Delivery may be awaited where its producer is not at home."""
    with producer_for(broker) as producer:

        async def main() -> int | None:
            delivery = producer.send(TOPIC, b"a", partition=0)
            return (await asyncio.wait_for(wrapped(delivery), TIMEOUT)).offset

        async def wrapped(delivery: Delivery) -> karrow.RecordMetadata:
            return await delivery

        began = time.monotonic()
        assert asyncio.run(main()) == 1
        assert time.monotonic() - began < TIMEOUT / 2


def test_wake_up_is_never_lost(broker: Broker) -> None:
    """Row 40: records that come while the sender looks elsewhere do not wait for its timer."""
    with producer_for(broker) as producer:
        slowest = [0.0] * 4

        def work(mine: int) -> None:
            for number in range(150):
                began = time.monotonic()
                producer.send(TOPIC, b"v", partition=(mine + number) % 2).result(TIMEOUT)
                slowest[mine] = max(slowest[mine], time.monotonic() - began)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert max(slowest) < 0.9


def test_topic_is_waited_for_no_longer_than_a_record_may_wait() -> None:
    with karrow.Broker() as gone:
        bootstrap = gone.bootstrap
    with karrow.Producer(bootstrap, max_block=0.3) as producer:
        began = time.monotonic()
        with pytest.raises(karrow.errors.RequestTimeout, match=r"within 0\.3 s.*refused"):
            producer.send(TOPIC, b"v")
        assert time.monotonic() - began < 5
