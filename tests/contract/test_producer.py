"""Records through the producer and back, on every kind of broker."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

import karrow
from karrow import errors
from karrow.aio._delivery import Delivery
from karrow.records import partition_for
from tests.fix_any import AnyKafka

kafka_python: Any = importlib.import_module("kafka")
murmur2: Callable[[bytes], int] = importlib.import_module("kafka.partitioner.default").murmur2

CODECS = [
    (None, None),
    ("none", None),
    ("gzip", None),
    ("gzip", 9),
    ("snappy", None),
    ("lz4", None),
    ("lz4", 9),
    ("zstd", None),
    ("zstd", 19),
]
Fields = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
HEADERS: list[tuple[str, bytes | None]] = [("a", b"1"), ("b", None), ("a", b""), ("ü", b"\xff")]
TIMEOUT = 20.0


def has_headers(kafka: AnyKafka) -> bool:
    return kafka.number >= (0, 11)


def options(kafka: AnyKafka, **more: Any) -> dict[str, Any]:
    """What a producer needs for this release: before 0.11 there is no idempotence."""
    return {"bootstrap": kafka.bootstrap, "idempotent": has_headers(kafka), **more}


def read(kafka: AnyKafka, topic: str, partition: int = 0) -> list[Any]:
    with karrow.Client(kafka.bootstrap) as client:
        return list(client.fetch_all(topic, partition).records)


def values(kafka: AnyKafka, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in read(kafka, topic, partition)]


def fields(record: Any) -> Fields:
    return record.key, record.value, [(name, value) for name, value in record.headers]


def wait_until(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# Records.


@pytest.mark.parametrize(("codec", "level"), CODECS)
def test_records_come_back_in_every_codec(
    every_kafka: AnyKafka, codec: Any, level: int | None
) -> None:
    topic = every_kafka.create_topic()
    headers = HEADERS if has_headers(every_kafka) else []
    sent: list[Fields] = [
        (b"k%d" % number, b"v%d " % number * number, headers) for number in range(40)
    ]
    sent += [(None, None, []), (b"", b"", []), (b"null", None, []), (None, b"x" * 100_000, [])]
    chosen = options(every_kafka, compression=codec, compression_level=level, linger=0.05)
    with karrow.Producer(**chosen) as producer:
        deliveries = [
            producer.send(topic, value, key=key, headers=pairs or None, partition=0)
            for key, value, pairs in sent
        ]
        if codec == "zstd" and every_kafka.number < (2, 1):
            with pytest.raises(errors.UnsupportedVersion, match="zstd"):
                deliveries[0].result(TIMEOUT)
            return
        assert [one.result(TIMEOUT).offset for one in deliveries] == list(range(len(sent)))
    assert [fields(record) for record in read(every_kafka, topic)] == sent


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_other_clients_read_what_was_sent(newest_kafka: AnyKafka, codec: Any) -> None:
    topic = newest_kafka.create_topic()
    sent: list[Fields] = [(b"k%d" % number, b"v" * number, HEADERS) for number in range(30)]
    sent.append((None, None, []))
    with karrow.Producer(newest_kafka.bootstrap, compression=codec, linger=0.05) as producer:
        for key, value, headers in sent:
            producer.send(topic, value, key=key, headers=headers, partition=0)
    assert confluent_read(newest_kafka.bootstrap, topic, len(sent)) == sent
    assert python_read(newest_kafka.bootstrap, topic, len(sent)) == sent


def confluent_read(bootstrap: str, topic: str, count: int) -> list[Fields]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[Fields] = []
    while len(found) < count:
        message: Any = consumer.poll(TIMEOUT)
        assert message is not None
        assert message.error() is None
        found.append((message.key(), message.value(), message.headers() or []))
    consumer.close()
    return found


def python_read(bootstrap: str, topic: str, count: int) -> list[Fields]:
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=bootstrap, check_crcs=True)
    place = kafka_python.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    found: list[Fields] = []
    while len(found) < count:
        for records in consumer.poll(timeout_ms=1000).values():
            found += [(record.key, record.value, list(record.headers)) for record in records]
    consumer.close()
    return found


def test_text_and_anything_with_bytes_can_be_sent(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Producer(newest_kafka.bootstrap) as producer:
        producer.send(topic, "grün", key="schlüssel", headers={"name": "wert"})
        producer.send(topic, bytearray(b"array"), key=memoryview(b"view"), headers=[("n", None)])
        producer.send(topic)
    assert [fields(record) for record in read(newest_kafka, topic)] == [
        ("schlüssel".encode(), "grün".encode(), [("name", b"wert")]),
        (b"view", b"array", [("n", None)]),
        (None, None, []),
    ]


def test_timestamps_are_the_callers_or_now(every_kafka: AnyKafka) -> None:
    topic = every_kafka.create_topic()
    before = int(time.time() * 1000)
    given = before - 60_000
    with karrow.Producer(**options(every_kafka)) as producer:
        past = producer.send(topic, b"past", timestamp_ms=given, partition=0)
        now = producer.send(topic, b"now", partition=0)
        assert past.result(TIMEOUT).timestamp_ms == given
        assert now.result(TIMEOUT).timestamp_ms in range(before, int(time.time() * 1000) + 1)
    found = [record.timestamp_ms for record in read(every_kafka, topic)]
    assert found == [given, now.result().timestamp_ms]


def test_topic_that_stamps_on_append_tells_its_time(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic(config={"message.timestamp.type": "LogAppendTime"})
    with karrow.Producer(newest_kafka.bootstrap) as producer:
        told = producer.send(topic, b"v", timestamp_ms=1).result(TIMEOUT).timestamp_ms
    assert told is not None
    assert told > 1
    assert [record.timestamp_ms for record in read(newest_kafka, topic)] == [told]


def test_headers_for_a_broker_without_them_fail_alone(every_kafka: AnyKafka) -> None:
    topic = every_kafka.create_topic(partitions=2)
    with karrow.Producer(**options(every_kafka, linger=0.1)) as producer:
        producer.send(topic, b"before", partition=0).result(TIMEOUT)
        headed = producer.send(topic, b"headed", headers={"a": b"1"}, partition=0)
        other = producer.send(topic, b"other", partition=1)
        assert other.result(TIMEOUT).offset == 0
        error = headed.exception(TIMEOUT)
        assert (error is None) == has_headers(every_kafka)
        if error is not None:
            assert "0.11" in str(error)
            assert not error.indefinite
        producer.send(topic, b"after", partition=0).result(TIMEOUT)
    expected = [b"before", b"headed", b"after"] if error is None else [b"before", b"after"]
    assert values(every_kafka, topic) == expected


def test_many_records_from_many_threads_keep_each_threads_order(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic(partitions=3)
    with karrow.Producer(newest_kafka.bootstrap, batch_bytes=5_000, linger=0.0) as producer:

        def work(name: int) -> None:
            for number in range(2000):
                producer.send(topic, b"%d %d" % (name, number), partition=number % 3)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(TIMEOUT)
    for partition in range(3):
        pairs = [
            tuple(map(int, (value or b"").split()))
            for value in values(newest_kafka, topic, partition)
        ]
        for name in range(4):
            mine = [number for owner, number in pairs if owner == name]
            assert mine == list(range(partition, 2000, 3))


def test_awaiting_producer_does_the_same(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()

    async def main() -> None:
        async with karrow.AsyncProducer(newest_kafka.bootstrap, compression="zstd") as producer:
            sent = [await producer.send(topic, b"%d" % number) for number in range(3000)]
            found = await asyncio.gather(*sent)
            assert [place.offset for place in found] == list(range(3000))

    asyncio.run(main())
    assert values(newest_kafka, topic) == [b"%d" % number for number in range(3000)]


# Partitions.


def test_keys_go_where_java_puts_them(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic(partitions=7)
    keys = [b"", b"a", b"key", b"\x00\xff", *(b"user-%d" % number for number in range(50))]
    with karrow.Producer(newest_kafka.bootstrap) as producer:
        sent = {key: producer.send(topic, b"v", key=key) for key in keys}
        found = {key: one.result(TIMEOUT).partition for key, one in sent.items()}
    assert found == {key: partition_for(key, 7) for key in keys}
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in keys}


@pytest.mark.parametrize("name", ["murmur2", "murmur2_legacy", "consistent", "fnv1a"])
def test_partitioners_by_name(newest_kafka: AnyKafka, name: str) -> None:
    topic = newest_kafka.create_topic(partitions=5)
    keys = [b"key-%d" % number for number in range(30)]
    with karrow.Producer(newest_kafka.bootstrap, partitioner=name) as producer:
        sent = {key: producer.send(topic, b"v", key=key) for key in keys}
        found = {key: one.result(TIMEOUT).partition for key, one in sent.items()}
    assert found == {key: partition_for(key, 5, name) for key in keys}


def test_random_partitioner_ignores_keys(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic(partitions=4)
    with karrow.Producer(newest_kafka.bootstrap, partitioner="random") as producer:
        sent = [producer.send(topic, b"v", key=b"same") for _ in range(200)]
        assert {one.result(TIMEOUT).partition for one in sent} == {0, 1, 2, 3}


def test_records_without_a_key_stay_together_and_reach_all_partitions(
    newest_kafka: AnyKafka,
) -> None:
    topic = newest_kafka.create_topic(partitions=4)
    with karrow.Producer(newest_kafka.bootstrap, linger=5.0, batch_bytes=2000) as producer:
        sent = [producer.send(topic, b"x" * 100) for _ in range(1000)]
        producer.flush(TIMEOUT)
        found = [one.result(0).partition for one in sent]
    changes = sum(one != two for one, two in itertools.pairwise(found))
    assert set(found) == {0, 1, 2, 3}
    assert changes <= 1000 / (2000 / 120) + 2


def test_partitioner_is_a_function_of_the_producer_or_of_the_call(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic(partitions=3)
    asked: list[tuple[str, bytes | None, int]] = []

    def last(name: str, key: bytes | None, count: int) -> int:
        asked.append((name, key, count))
        return count - 1

    with karrow.Producer(newest_kafka.bootstrap, partitioner=last) as producer:
        assert producer.send(topic, b"v", key="k").result(TIMEOUT).partition == 2
        first = producer.send(topic, b"v", partitioner=lambda *_: 0)
        assert first.result(TIMEOUT).partition == 0
        assert producer.send(topic, b"v", partition=1).result(TIMEOUT).partition == 1
        for wrong in (3, -1, None, "1"):
            with pytest.raises(errors.ConfigError, match="chose"):
                producer.send(topic, b"v", partitioner=lambda *_, wrong=wrong: wrong)
        with pytest.raises(ZeroDivisionError):
            producer.send(topic, b"v", partitioner=lambda *_: 1 // 0)
        assert producer.send(topic, b"v").result(TIMEOUT).partition == 2
    assert asked == [(topic, b"k", 3), (topic, None, 3)]


def test_topic_that_has_grown_is_seen_when_a_new_partition_is_named(
    newest_kafka: AnyKafka,
) -> None:
    topic = newest_kafka.create_topic(partitions=1)
    with (
        karrow.Producer(newest_kafka.bootstrap) as producer,
        karrow.Admin(newest_kafka.bootstrap) as admin,
    ):
        producer.send(topic, b"old").result(TIMEOUT)
        admin.create_partitions({topic: 3})
        wait_until(lambda: _takes(producer, topic, 2))
        assert producer.partitions_for(topic) == 3
        assert producer.send(topic, b"new", partition=2).result(TIMEOUT).partition == 2


def _takes(producer: karrow.Producer, topic: str, partition: int) -> bool:
    try:
        producer.send(topic, b"try", partition=partition)
    except errors.UnknownTopicOrPartition:
        return False
    return True


# Acknowledgements, linger and flush.


@pytest.mark.parametrize("acks", [0, 1, "all", -1])
def test_every_kind_of_acknowledgement(every_kafka: AnyKafka, acks: Any) -> None:
    topic = every_kafka.create_topic()
    chosen = options(every_kafka, acks=acks, idempotent=False)
    with karrow.Producer(**chosen) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(100)]
        offsets = [one.result(TIMEOUT).offset for one in sent]
    assert offsets == ([None] * 100 if acks == 0 else list(range(100)))
    wait_until(lambda: len(values(every_kafka, topic)) == 100)
    assert values(every_kafka, topic) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("partitions", [1, 4])
def test_many_small_batches_that_nobody_acknowledges(
    newest_kafka: AnyKafka, partitions: int
) -> None:
    topic = newest_kafka.create_topic(partitions=partitions)
    chosen: dict[str, Any] = {"acks": 0, "idempotent": False, "batch_bytes": 1, "linger": 0.0}
    with karrow.Producer(newest_kafka.bootstrap, **chosen) as producer:
        producer.partitions_for(topic)
        sent = [
            producer.send(topic, b"%d" % number, partition=number % partitions)
            for number in range(4000)
        ]
        producer.flush(TIMEOUT)
        assert [one.exception(0) for one in sent] == [None] * 4000

    def stored() -> list[list[int]]:
        return [
            [int(value or b"") for value in values(newest_kafka, topic, number)]
            for number in range(partitions)
        ]

    wait_until(lambda: sum(map(len, stored())) >= 4000)
    assert stored() == [list(range(number, 4000, partitions)) for number in range(partitions)]


def test_lingering_records_go_when_flushed(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Producer(newest_kafka.bootstrap, linger=60.0) as producer:
        producer.send(topic, b"first").result(TIMEOUT)
        sent = [producer.send(topic, b"v") for _ in range(10)]
        start = time.monotonic()
        assert not any(one.done() for one in sent)
        producer.flush()
        assert time.monotonic() - start < 5
        assert [one.result(0).offset for one in sent] == list(range(1, 11))
        assert producer.stats().batches_written == 2


def test_full_batches_do_not_linger(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Producer(newest_kafka.bootstrap, linger=60.0, batch_bytes=1000) as producer:
        sent = [producer.send(topic, b"x" * 300) for _ in range(7)]
        wait_until(sent[5].done)
        assert not sent[6].done()


def test_waiting_for_a_record_does_not_linger(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()

    async def main() -> None:
        async with karrow.AsyncProducer(newest_kafka.bootstrap, linger=60.0) as producer:
            delivery = await producer.send(topic, b"v")
            assert (await asyncio.wait_for(delivery.arrived(), TIMEOUT)).offset == 0  # type: ignore[attr-defined]

    asyncio.run(main())


# Callbacks.


def test_callbacks_run_in_the_callers_thread(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    ran: list[tuple[str, int | None]] = []

    def note(delivery: Delivery) -> None:
        ran.append((threading.current_thread().name, delivery.result().offset))

    with karrow.Producer(newest_kafka.bootstrap) as producer:
        for _ in range(3):
            producer.send(topic, b"v").add_done_callback(note)
        assert producer.poll(TIMEOUT) >= 1
        producer.flush()
        done = producer.send(topic, b"v")
        done.result(TIMEOUT)
        done.add_done_callback(note)
        assert producer.poll() == 1
        producer.send(topic, b"v").add_done_callback(note)
    here = threading.current_thread().name
    assert ran == [(here, offset) for offset in range(5)]


def test_callbacks_run_in_a_thread_of_their_own(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    ran: list[tuple[str, int | None]] = []
    called = threading.Event()

    def note(delivery: Delivery) -> None:
        ran.append((threading.current_thread().name, delivery.result().offset))
        called.set()

    with karrow.Producer(newest_kafka.bootstrap, callbacks="thread") as producer:
        producer.send(topic, b"v").add_done_callback(note)
        assert called.wait(TIMEOUT)
        for _ in range(4):
            producer.send(topic, b"v").add_done_callback(note)
    assert ran == [("karrow-callbacks", offset) for offset in range(5)]


def test_callbacks_run_on_the_loop(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ran: asyncio.Future[tuple[bool, int | None]] = loop.create_future()

        def note(delivery: Delivery) -> None:
            is_here = asyncio.get_running_loop() is loop
            ran.set_result((is_here, delivery.result().offset))

        async with karrow.AsyncProducer(newest_kafka.bootstrap) as producer:
            (await producer.send(topic, b"v")).add_done_callback(note)
            assert await asyncio.wait_for(ran, TIMEOUT) == (True, 0)

    asyncio.run(main())


def test_callback_that_raises_harms_nobody(
    newest_kafka: AnyKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Producer(newest_kafka.bootstrap) as producer:
        producer.send(topic, b"v").add_done_callback(lambda _: 1 // 0)
        producer.flush()
        assert producer.send(topic, b"w").result(TIMEOUT).offset == 1
    assert "ZeroDivisionError" in caplog.text


def test_callbacks_may_send(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Producer(newest_kafka.bootstrap) as producer:
        for number in range(3000):
            producer.send(topic, b"%d" % number).add_done_callback(
                lambda _, number=number: producer.send(topic, b"again %d" % number)  # type: ignore[misc]
            )
        producer.flush()
        producer.flush()
    assert len(values(newest_kafka, topic)) == 6000


# Without waiting; giving up.


def test_send_nowait_takes_what_it_can_at_once(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Producer(newest_kafka.bootstrap, buffer_bytes=2000, linger=60.0) as producer:
        with pytest.raises(errors.BufferFull, match="not known yet"):
            producer.send_nowait(topic, b"v")
        assert producer.partitions_for(topic) == 1
        first = producer.send_nowait(topic, b"x" * 1500)
        with pytest.raises(errors.BufferFull, match="of 2000 bytes are taken") as caught:
            producer.send_nowait(topic, b"x" * 1500)
        assert caught.value.retriable
        assert first.result(TIMEOUT).offset == 0
        assert producer.send_nowait(topic, b"x" * 1500).result(TIMEOUT).offset == 1


def test_purged_records_fail_and_are_not_written(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Producer(newest_kafka.bootstrap, linger=60.0) as producer:
        producer.send(topic, b"before").result(TIMEOUT)
        purged = [producer.send(topic, b"purged") for _ in range(5)]
        assert producer.purge() == 5
        for one in purged:
            with pytest.raises(errors.StateError, match="purged") as caught:
                one.result(0)
            assert not caught.value.indefinite
        assert producer.send(topic, b"after").result(TIMEOUT).offset == 1
    assert values(newest_kafka, topic) == [b"before", b"after"]


# Wrong arguments, unknown topics.


def test_unknown_topic_is_named(newest_kafka: AnyKafka) -> None:
    missing = f"missing-{uuid.uuid4().hex[:8]}"
    chosen: dict[str, Any] = {"allow_auto_topic_creation": False, "api_timeout": 1.0}
    with karrow.Producer(newest_kafka.bootstrap, **chosen) as producer:
        with pytest.raises(errors.UnknownTopicOrPartition, match=missing):
            producer.send(missing, b"v")
        with pytest.raises(errors.UnknownTopicOrPartition, match=missing):
            producer.partitions_for(missing)


def test_topic_may_come_into_being_by_being_sent_to(newest_kafka: AnyKafka) -> None:
    topic = f"new-{uuid.uuid4().hex[:8]}"
    with karrow.Producer(newest_kafka.bootstrap) as producer:
        assert producer.send(topic, b"v").result(TIMEOUT).offset == 0
    assert values(newest_kafka, topic) == [b"v"]


@pytest.mark.parametrize("partition", [3, 2**31, 2**70, -1, -5])
def test_partition_out_of_range_is_named(newest_kafka: AnyKafka, partition: int) -> None:
    topic = newest_kafka.create_topic(partitions=3)
    with karrow.Producer(newest_kafka.bootstrap) as producer:
        with pytest.raises(errors.UnknownTopicOrPartition, match="partitions 0 to 2") as caught:
            producer.send(topic, b"v", partition=partition)
        assert not caught.value.retriable
        assert f"partition {partition}" in str(caught.value)


WRONG: dict[str, dict[str, Any]] = {
    "value": {"value": 5},
    "value of floats": {"value": [1.5]},
    "key": {"key": 1.5},
    "header name": {"headers": [(b"name", b"v")]},
    "header value": {"headers": [("name", 5)]},
    "header pair": {"headers": ["name"]},
    "headers": {"headers": 5},
    "timestamp": {"timestamp_ms": -1},
    "timestamp type": {"timestamp_ms": 1.5},
    "timestamp size": {"timestamp_ms": 2**63},
    "partition type": {"partition": "1"},
    "partition bool": {"partition": True},
    "topic": {"topic": "no spaces"},
    "topic empty": {"topic": ""},
    "topic dots": {"topic": ".."},
    "topic long": {"topic": "x" * 250},
    "topic type": {"topic": b"bytes"},
    "topic none": {"topic": None},
    "topic list": {"topic": ["list"]},
    "text": {"value": "\ud800"},
    "partitioner": {"partitioner": 5},
    "too large": {"value": bytes(20 * 1024 * 1024)},
}


@pytest.mark.parametrize("what", list(WRONG))
def test_wrong_argument_concerns_nobody_else(newest_kafka: AnyKafka, what: str) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Producer(newest_kafka.bootstrap, linger=60.0) as producer:
        before = producer.send(topic, b"before")
        arguments = {"topic": topic, "value": b"v", **WRONG[what]}
        with pytest.raises((errors.KarrowError, ValueError, TypeError)):
            producer.send(**arguments)
        with pytest.raises((errors.KarrowError, ValueError, TypeError)):
            producer.send_nowait(**arguments)
        after = producer.send(topic, b"after")
        assert (before.result(TIMEOUT).offset, after.result(TIMEOUT).offset) == (0, 1)
        assert producer.stats().records_sent == 2
    assert values(newest_kafka, topic) == [b"before", b"after"]


# The end.


def test_closed_producer_says_so(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    producer = karrow.Producer(newest_kafka.bootstrap)
    sent = producer.send(topic, b"v")
    producer.close()
    producer.close()
    assert sent.result(0).offset == 0
    for call in (producer.send, producer.send_nowait):
        with pytest.raises(errors.StateError, match="closed"):
            call(topic, b"v")
    producer.flush(1.0)
    assert producer.stats().records_written == 1


def test_producer_closed_before_use_is_closed(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    producer = karrow.Producer(newest_kafka.bootstrap)
    producer.close()
    with pytest.raises(errors.StateError, match="closed"):
        producer.send(topic, b"v")


def test_closed_awaiting_producer_says_so(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()

    async def main() -> None:
        producer = karrow.AsyncProducer(newest_kafka.bootstrap)
        sent = await producer.send(topic, b"v")
        await asyncio.gather(producer.close(), producer.close())
        assert (await sent).offset == 0
        with pytest.raises(errors.StateError, match="closed"):
            await producer.send(topic, b"v")

    asyncio.run(main())


def test_producers_share_a_client(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Client(newest_kafka.bootstrap) as client:
        with karrow.Producer(client) as one, karrow.Producer(client, linger=0.0) as two:
            one.send(topic, b"1").result(TIMEOUT)
            two.send(topic, b"2").result(TIMEOUT)
        assert [record.value for record in client.fetch_all(topic).records] == [b"1", b"2"]
        with pytest.raises(errors.ConfigError, match="client_id"):
            karrow.Producer(client, client_id="another")


def test_closing_a_producer_leaves_others_of_its_client_alone(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Client(newest_kafka.bootstrap) as client:
        two = karrow.Producer(client, idempotent=False, batch_bytes=1, linger=0.0)
        for _ in range(20):
            one = karrow.Producer(client, idempotent=False)
            one.send(topic, b"one", partition=0).result(TIMEOUT)
            sent = [two.send(topic, b"two", partition=0) for _ in range(20)]
            one.close()
            assert [delivery.exception(TIMEOUT) for delivery in sent] == [None] * 20
        two.close()


def test_awaiting_producers_share_a_client(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()

    async def main() -> None:
        async with karrow.AsyncClient(newest_kafka.bootstrap) as client:
            async with karrow.AsyncProducer(client) as producer:
                await (await producer.send(topic, b"1"))
            found = (await client.fetch_all(topic)).records
            assert [record.value for record in found] == [b"1"]

    asyncio.run(main())


def test_statistics_count_what_happened(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with karrow.Producer(newest_kafka.bootstrap, linger=60.0) as producer:
        assert producer.stats().records_sent == 0
        for _ in range(10):
            producer.send(topic, b"x" * 100)
        waiting = producer.stats()
        assert (waiting.records_sent, waiting.buffered_records) == (10, 10)
        assert waiting.buffered_batches == 1
        assert 1000 <= waiting.buffered_bytes <= waiting.buffer_limit
        producer.flush()
        done = producer.stats()
        assert (done.records_written, done.records_failed, done.retries) == (10, 0, 0)
        assert (done.buffered_records, done.buffered_bytes, done.buffered_batches) == (0, 0, 0)
        assert done.batches_written == 1
        assert done.bytes_written >= 1000
        (broker,) = done.brokers.values()
        assert broker.requests == 1
        assert broker.in_flight == 0
        assert 0 < (broker.latency_p50 or 0) <= (broker.latency_max or 0) < TIMEOUT


EXIT = """
import sys, karrow
producer = karrow.Producer(sys.argv[1], linger=60.0)
for number in range(1000):
    producer.send(sys.argv[2], b"%d" % number)
"""


def test_end_of_the_interpreter_flushes(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    command = [sys.executable, "-c", EXIT, newest_kafka.bootstrap, topic]
    done = subprocess.run(
        command, timeout=TIMEOUT, capture_output=True, check=False, env={**os.environ}
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert values(newest_kafka, topic) == [b"%d" % number for number in range(1000)]
