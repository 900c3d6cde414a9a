"""The producer between real brokers that die, networks that lie, and topics that change.

Rows are those of the failure table; what the embedded broker can do on request is tested in
tests/embedded/test_producer_faults.py, and rows 14 to 17 from end to end in the tests of
transactional producers.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

import karrow
from karrow import errors
from karrow.aio._delivery import Delivery
from karrow.aio.producing.sequences import Progress
from karrow.sync.loop import run
from tests.brokers import KafkaCluster
from tests.chaos.checker import check
from tests.chaos.events import EventLog, Outcome, Payload
from tests.fix_any import AnyKafka
from tests.proxy import ClusterProxy

TIMEOUT = 60.0
ONE_EACH: dict[str, Any] = {"batch_bytes": 1, "linger": 0.0, "retry_backoff": 0.05}


@pytest.fixture
def proxy(kafka: KafkaCluster) -> Iterator[ClusterProxy]:
    with ClusterProxy(kafka) as proxy:
        yield proxy


def opened(bootstrap: str, topic: str, **options: Any) -> karrow.Producer:
    """A producer of one record per batch that has sent one record."""
    producer = karrow.Producer(bootstrap, **{**ONE_EACH, **options})
    producer.send(topic, b"first", partition=0).result(TIMEOUT)
    return producer


def values(bootstrap: str, topic: str, partition: int = 0, **options: Any) -> list[bytes]:
    with karrow.Client(bootstrap) as client:
        found = client.fetch_all(topic, partition, **options).records
        return [record.value or b"" for record in found]


def offsets(deliveries: list[Delivery]) -> list[int | None]:
    return [one.result(TIMEOUT).offset for one in deliveries]


def texts(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def wait_until(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Brokers that die.


def write_through(cluster: KafkaCluster, topic: str, trouble: Callable[[], object]) -> None:
    """Write before, during and after some trouble; everything arrives once and in order."""
    chosen: dict[str, Any] = {"request_timeout": 3.0, "connect_timeout": 1.0}
    with opened(cluster.bootstrap(), topic, **chosen) as producer:
        sent = []
        for number in range(300):
            if number == 100:
                trouble()
            sent.append(producer.send(topic, b"%d" % number, partition=0))
            time.sleep(0.001)
        assert offsets(sent) == list(range(1, 301))
    cluster.heal()
    assert values(cluster.bootstrap(), topic) == [b"first", *texts(300)]


@pytest.mark.slow
def test_leader_is_killed(kafka_three: KafkaCluster) -> None:
    """Row 1: kill -9 of the leader in the middle of writing."""
    topic = kafka_three.create_topic(config={"min.insync.replicas": "2"})
    leader = kafka_three.node(kafka_three.leader(topic))
    write_through(kafka_three, topic, leader.kill)


@pytest.mark.slow
def test_leader_is_stopped_in_good_order(kafka_three: KafkaCluster) -> None:
    """Row 1: it hands over before it ends."""
    topic = kafka_three.create_topic(config={"min.insync.replicas": "2"})
    leader = kafka_three.node(kafka_three.leader(topic))
    write_through(kafka_three, topic, leader.stop)


@pytest.mark.slow
def test_leader_is_paused(kafka_three: KafkaCluster) -> None:
    """Row 1: it takes connections and answers nothing; another one leads after a while."""
    topic = kafka_three.create_topic(config={"min.insync.replicas": "2"})
    leader = kafka_three.node(kafka_three.leader(topic))
    write_through(kafka_three, topic, leader.pause)


# Answers that are lost, and requests that are late.


@pytest.mark.parametrize("how", ["reset", "stall"])
def test_lost_answer_makes_no_second_copy(
    kafka: KafkaCluster, proxy: ClusterProxy, how: Literal["reset", "stall"]
) -> None:
    """Row 2: the broker has appended the batch and its answer is lost on the way."""
    topic = kafka.create_topic()
    with opened(proxy.bootstrap, topic, request_timeout=1.0) as producer:
        lost = proxy.node(1).drop_answer("Produce", how)
        sent = [producer.send(topic, text, partition=0) for text in texts(8)]
        assert offsets(sent) == list(range(1, 9))
        assert lost.happened
        assert producer.stats().retries > 0
    assert values(kafka.bootstrap(), topic) == [b"first", *texts(8)]


def test_request_that_arrives_after_its_repetition_is_dropped(
    kafka: KafkaCluster, proxy: ClusterProxy
) -> None:
    """Row 2: it was held up on the way, sent again, and comes second."""
    topic = kafka.create_topic()
    with opened(proxy.bootstrap, topic, request_timeout=0.5) as producer:
        held = proxy.node(1).hold("Produce")
        sent = [producer.send(topic, text, partition=0) for text in texts(3)]
        assert offsets(sent) == [1, 2, 3]
        held.release()
        assert offsets([producer.send(topic, b"last", partition=0)]) == [4]
        time.sleep(0.2)
    assert values(kafka.bootstrap(), topic) == [b"first", *texts(3), b"last"]


@pytest.mark.parametrize("acks", [1, "all"])
@pytest.mark.parametrize("how", ["reset", "stall"])
def test_lost_answer_without_idempotence_is_told(
    kafka: KafkaCluster, proxy: ClusterProxy, how: Literal["reset", "stall"], acks: Any
) -> None:
    """Row 3: the checker finds nothing doubled and no failure that is there all the same."""
    topic = kafka.create_topic()
    chosen: dict[str, Any] = {"idempotent": False, "acks": acks, "request_timeout": 0.5}
    log = EventLog()
    held: list[tuple[Payload, Delivery]] = []
    with karrow.Producer(proxy.bootstrap, **{**ONE_EACH, **chosen}) as producer:
        for number in range(30):
            if number % 10 == 5:
                proxy.node(1).drop_answer("Produce", how)
            payload = Payload("a", number)
            log.send(payload)
            held.append((payload, producer.send(topic, bytes(payload), partition=0)))
        producer.flush(TIMEOUT)
    for payload, delivery in held:
        error = delivery.exception(0)
        if error is None:
            log.settle(payload, Outcome("ok", 0, delivery.result(0).offset))
        else:
            log.settle(payload, Outcome("indefinite" if error.indefinite else "failed"))
    found = [(offset, value) for offset, value in enumerate(values(kafka.bootstrap(), topic))]
    assert check(log, {0: found}, order="acknowledged") == []
    assert log.counts() == {"ok": 27, "indefinite": 3}


def test_nothing_overtakes_a_batch_that_was_given_up(
    kafka: KafkaCluster, proxy: ClusterProxy
) -> None:
    """Row 4: its request is held up for longer than it may take, and arrives in the end."""
    topic = kafka.create_topic()
    chosen: dict[str, Any] = {"delivery_timeout": 1.0, "request_timeout": 10.0}
    with opened(proxy.bootstrap, topic, **chosen) as producer:
        held = proxy.node(1).hold("Produce")
        late = producer.send(topic, b"late", partition=0)
        held.wait()
        time.sleep(0.7)
        after = producer.send(topic, b"after", partition=0)
        error = late.exception(TIMEOUT)
        assert isinstance(error, errors.RequestTimeout)
        assert error.indefinite
        held.release()
        assert after.result(TIMEOUT).offset == 2
    assert values(kafka.bootstrap(), topic) == [b"first", b"late", b"after"]


def test_batch_that_was_given_up_cannot_come_later(
    kafka: KafkaCluster, proxy: ClusterProxy
) -> None:
    """Row 4: others were written meanwhile, under an epoch that keeps it out."""
    topic = kafka.create_topic()
    chosen: dict[str, Any] = {"delivery_timeout": 1.0, "request_timeout": 2.0}
    with opened(proxy.bootstrap, topic, **chosen) as producer:
        held = proxy.node(1).hold("Produce")
        error = producer.send(topic, b"late", partition=0).exception(TIMEOUT)
        assert error is not None
        assert error.indefinite
        wait_until(lambda: not producer.stats().brokers[1].in_flight)
        assert offsets([producer.send(topic, text, partition=0) for text in texts(3)]) == [1, 2, 3]
        held.release()
        time.sleep(0.3)
    assert values(kafka.bootstrap(), topic) == [b"first", *texts(3)]


def test_request_sent_in_part_ends_its_connection(kafka: KafkaCluster, proxy: ClusterProxy) -> None:
    """Row 7: half of a large batch leaves, then nothing; it goes again on another connection."""
    topic = kafka.create_topic()
    chosen: dict[str, Any] = {"request_timeout": 1.0, "connections_per_broker": 1}
    with opened(proxy.bootstrap, topic, **chosen) as producer:
        before = proxy.node(1).accepted
        proxy.node(1).cut_after(200_000, "up", "stall")
        sent = [producer.send(topic, bytes(900_000), partition=0)]
        sent += [producer.send(topic, text, partition=0) for text in texts(3)]
        assert offsets(sent) == [1, 2, 3, 4]
        assert proxy.node(1).accepted > before
    assert values(kafka.bootstrap(), topic) == [b"first", bytes(900_000), *texts(3)]


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_connection_cut_anywhere_loses_and_doubles_nothing(
    kafka: KafkaCluster,
    proxy: ClusterProxy,
    how: Literal["reset", "close"],
    direction: Literal["up", "down"],
) -> None:
    """Row 2: in the middle of a request or of an answer, again and again."""
    topic = kafka.create_topic()
    with opened(proxy.bootstrap, topic, retry_backoff_max=0.1) as producer:
        sent = []
        for number in range(100):
            if number % 10 == 0:
                proxy.node(1).cut_after(1 + number * 3, direction, how)
            sent.append(producer.send(topic, b"%d" % number, partition=0))
            if number % 10 == 9:
                producer.flush(TIMEOUT)
        assert offsets(sent) == list(range(1, 101))
    assert values(kafka.bootstrap(), topic) == [b"first", *texts(100)]


# Topics that change.


def test_records_that_were_deleted_do_not_stop_their_producer(newest_kafka: AnyKafka) -> None:
    """Row 6: nothing of a producer is left in the log, and it goes on."""
    topic = newest_kafka.create_topic()
    with (
        opened(newest_kafka.bootstrap, topic) as producer,
        karrow.Admin(newest_kafka.bootstrap) as admin,
    ):
        for round_ in range(1, 4):
            admin.delete_records({(topic, 0): round_})
            assert offsets([producer.send(topic, b"v", partition=0)]) == [round_]


def test_topic_made_anew_is_written_to(newest_kafka: AnyKafka) -> None:
    """Row 22: another topic under the name gets what comes, from its offset 0."""
    topic = newest_kafka.create_topic(partitions=2)
    with (
        opened(newest_kafka.bootstrap, topic) as producer,
        karrow.Admin(newest_kafka.bootstrap) as admin,
    ):
        producer.send(topic, b"old", partition=1).result(TIMEOUT)
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics())
        newest_kafka.create_topic(topic, partitions=2)
        sent = [producer.send(topic, text, partition=0) for text in texts(5)]
        assert offsets(sent) == list(range(5))
    assert values(newest_kafka.bootstrap, topic) == texts(5)


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_record_that_is_too_large_for_its_topic_fails_alone(
    newest_kafka: AnyKafka, codec: Any
) -> None:
    """Row 27: its batch is split; its mates arrive."""
    topic = newest_kafka.create_topic(config={"max.message.bytes": "2000"})
    noise = random.Random(1).randbytes(5000)
    chosen: dict[str, Any] = {"linger": 5.0, "compression": codec}
    with karrow.Producer(newest_kafka.bootstrap, **chosen) as producer:
        sent = [producer.send(topic, text, partition=0) for text in texts(30)]
        alone = producer.send(topic, noise, partition=0)
        sent += [producer.send(topic, text, partition=0) for text in texts(30)]
        producer.flush(TIMEOUT)
        error = alone.exception(0)
        assert isinstance(error, errors.MessageTooLarge)
        assert not error.indefinite
        assert offsets(sent) == list(range(60))
    assert values(newest_kafka.bootstrap, topic) == [*texts(30), *texts(30)]


@pytest.mark.parametrize("others", [0, 3])
def test_wrong_time_is_the_concern_of_its_record(newest_kafka: AnyKafka, others: int) -> None:
    """Row 36: INVALID_TIMESTAMP reaches the caller of that record."""
    limits = {"message.timestamp.before.max.ms": "60000"}
    topic = newest_kafka.create_topic(config=limits)
    with karrow.Producer(newest_kafka.bootstrap, linger=5.0) as producer:
        mates = [producer.send(topic, b"mate", partition=0) for _ in range(others)]
        wrong = producer.send(topic, b"old", timestamp_ms=1000, partition=0)
        producer.flush(TIMEOUT)
        error = wrong.exception(0)
        assert isinstance(error, errors.InvalidTimestamp)
        assert not error.indefinite
        for mate in mates:
            said = mate.exception(0)
            assert said is not None
            assert said.retriable
            assert not said.indefinite
        assert offsets([producer.send(topic, b"now", partition=0)]) == [0]
    assert values(newest_kafka.bootstrap, topic) == [b"now"]


@pytest.mark.parametrize("lost", [False, True])
def test_sequences_begin_anew_after_their_last(newest_kafka: AnyKafka, lost: bool) -> None:
    """Row 38: brokers take 0 after 2^31 - 1, between batches and inside of one."""
    topic = newest_kafka.create_topic(partitions=2)
    chosen: dict[str, Any] = {"batch_bytes": 400, "linger": 0.05}
    with opened(newest_kafka.bootstrap, topic, **chosen) as producer:
        begin_at(producer, topic, 1, 2**31 - 7)
        producer.send(topic, b"known", partition=1).result(TIMEOUT)
        large = [text + b"x" * 100 for text in texts(30)]
        sent = [producer.send(topic, text, partition=1) for text in large]
        if lost:
            for lane in producer.twin.sender.lanes.values():
                on_loop(lambda lane=lane: lane.connection and lane.connection.close())  # type: ignore[misc]
        assert offsets(sent) == list(range(1, 31))
        assert producer.twin.sender.sequences.epoch == 0
    assert values(newest_kafka.bootstrap, topic, 1) == [b"known", *large]


def begin_at(producer: karrow.Producer, topic: str, partition: int, sequence: int) -> None:
    """Let the next record of a partition have this sequence."""
    sender = producer.twin.sender

    def set_to() -> None:
        found = sender.accumulator.topic(topic)
        assert found is not None
        progress: Progress = sender.sequences.progress(found.partitions[partition])
        progress.restart(sender.sequences.producer_id, sender.sequences.epoch)
        progress.next_sequence = sequence
        progress.acked_sequence = sequence - 1

    on_loop(set_to)


def on_loop(work: Callable[[], object]) -> None:
    """Do something where the producer's sender runs."""

    async def main() -> None:
        work()

    run(main(), "AsyncProducer")


# Transactions.


def name() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


def committed(kafka: AnyKafka | KafkaCluster, topic: str) -> list[bytes]:
    bootstrap = kafka.bootstrap if isinstance(kafka, AnyKafka) else kafka.bootstrap()
    return values(bootstrap, topic, isolation="read_committed")


def test_older_producer_of_a_name_is_fenced(newest_kafka: AnyKafka) -> None:
    """Row 14: nothing of it is seen, and it does not fight."""
    topic, transactional_id = newest_kafka.create_topic(), name()
    old = karrow.Producer(newest_kafka.bootstrap, transactional_id=transactional_id)
    new = karrow.Producer(newest_kafka.bootstrap, transactional_id=transactional_id)
    with old, new:
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"old", partition=0).result(TIMEOUT)
        new.init_transactions()
        with new.transaction():
            new.send(topic, b"new", partition=0)
        with pytest.raises((errors.ProducerFenced, errors.InvalidProducerEpoch)):
            old.commit_transaction()
        with pytest.raises(errors.KarrowError):
            old.begin_transaction()
        with new.transaction():
            new.send(topic, b"newer", partition=0)
    assert committed(newest_kafka, topic) == [b"new", b"newer"]


@pytest.mark.parametrize("how", ["reset", "stall"])
def test_lost_answer_to_the_end_is_asked_for_again(
    kafka: KafkaCluster, proxy: ClusterProxy, how: Literal["reset", "stall"]
) -> None:
    """Row 15: the same end again, until there is an answer."""
    topic = kafka.create_topic()
    chosen: dict[str, Any] = {"transactional_id": name(), "request_timeout": 1.0}
    with karrow.Producer(proxy.bootstrap, **chosen) as producer:
        producer.init_transactions()
        for number in range(3):
            lost = proxy.node(1).drop_answer("EndTxn", how)
            with producer.transaction():
                producer.send(topic, b"%d" % number, partition=0)
            assert lost.happened
    assert committed(kafka, topic) == texts(3)


def test_late_write_does_not_enter_the_next_transaction(
    kafka: KafkaCluster, proxy: ClusterProxy
) -> None:
    """Row 16: a request is held up, its transaction aborted; it arrives in the next one."""
    topic = kafka.create_topic()
    chosen: dict[str, Any] = {
        "transactional_id": name(),
        "delivery_timeout": 1.0,
        "request_timeout": 1.5,
        "linger": 0.0,
    }
    with karrow.Producer(proxy.bootstrap, **chosen) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"before", partition=0)
        producer.begin_transaction()
        held = proxy.node(1).hold("Produce")
        late = producer.send(topic, b"late", partition=0)
        assert late.exception(TIMEOUT) is not None
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send(topic, b"after", partition=0).result(TIMEOUT)
        held.release()
        time.sleep(0.3)
        producer.commit_transaction()
    assert committed(kafka, topic) == [b"before", b"after"]


def test_transaction_that_took_too_long_says_so(newest_kafka: AnyKafka) -> None:
    """Row 17: the broker has aborted it; the error names the option, and nothing is seen."""
    topic = newest_kafka.create_topic()
    chosen: dict[str, Any] = {"transactional_id": name(), "transaction_timeout": 1.0}
    with karrow.Producer(newest_kafka.bootstrap, **chosen) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"late", partition=0).result(TIMEOUT)
        with karrow.Admin(newest_kafka.bootstrap) as admin:
            wait_until(lambda: is_aborted(admin, chosen["transactional_id"]))
        with pytest.raises(errors.KarrowError, match="transaction_timeout"):
            producer.commit_transaction()
    assert committed(newest_kafka, topic) == []


def is_aborted(admin: karrow.Admin, transactional_id: str) -> bool:
    found = admin.describe_transactions([transactional_id])
    return "abort" in str(found[transactional_id].state).lower()
