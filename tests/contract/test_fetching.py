"""What consumers fetch from every kind of broker: formats, codecs, transactions, sessions."""

from __future__ import annotations

import itertools
import random
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

import karrow
from karrow import wire
from tests.brokers import KafkaCluster
from tests.fix_any import AnyKafka
from tests.proxy import ClusterProxy
from tests.proxy_link import Link

TIMEOUT = 20.0
QUICK: dict[str, Any] = {"start": "earliest", "max_wait": 0.1}
CODECS = ("gzip", "snappy", "lz4", "zstd")


def one_by_one(consumer: karrow.Consumer, count: int) -> list[tuple[int, bytes | None]]:
    return [(one.offset, one.value) for one in itertools.islice(consumer, count)]


def as_lists(consumer: karrow.Consumer, count: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    deadline = time.monotonic() + TIMEOUT
    while len(found) < count and time.monotonic() < deadline:
        found += [(one.offset, one.value) for one in consumer.poll(1.0, 7)]
    return found


def as_batches(consumer: karrow.Consumer, count: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    for batch in consumer.batches(max_records=7, timeout=TIMEOUT):
        found += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
        if len(found) >= count:
            break
    return found


Way = Callable[[karrow.Consumer, int], list[tuple[int, bytes | None]]]
every_way = pytest.mark.parametrize("way", [one_by_one, as_lists, as_batches])


def test_every_codec_of_every_release_is_read(every_kafka: AnyKafka) -> None:
    topic = every_kafka.create_topic()
    codecs = [one for one in CODECS if one != "zstd" or every_kafka.number >= (2, 1)]
    expected: list[tuple[int, bytes | None]] = []
    for codec in (None, *codecs):
        options: dict[str, Any] = {
            "compression": codec,
            "idempotent": every_kafka.number >= (0, 11),
        }
        with karrow.Producer(every_kafka.bootstrap, **options) as producer:
            for _ in range(10):
                value = b"%s %d" % (str(codec).encode(), len(expected)) * 20
                producer.send(topic, value, partition=0)
                expected.append((len(expected), value))
    for way in (one_by_one, as_lists, as_batches):
        with karrow.Consumer(every_kafka.bootstrap, topic, **QUICK) as consumer:
            assert way(consumer, len(expected)) == expected
            assert consumer.position((topic, 0)) == len(expected)


def test_a_record_beyond_every_limit_is_read(every_kafka: AnyKafka) -> None:
    """Row 26: ten megabytes come alone, and so does what is in front of them and behind."""
    size = 10_000_000
    limit = {"max.message.bytes": str(2 * size)}
    topic = every_kafka.create_topic(config=limit)
    values = [b"before", random.Random(0).randbytes(size), b"behind"]
    options: dict[str, Any] = {"max_request_bytes": 2 * size, "batch_bytes": 2 * size}
    options["idempotent"] = every_kafka.number >= (0, 11)
    with karrow.Producer(every_kafka.bootstrap, **options) as producer:
        for value in values:
            producer.send(topic, value, partition=0).result(TIMEOUT)
    limits = {"max_bytes": 20_000, "partition_max_bytes": 10_000, "buffer_bytes": 50_000, **QUICK}
    for way in (one_by_one, as_lists, as_batches):
        with karrow.Consumer(every_kafka.bootstrap, topic, **limits) as consumer:
            assert way(consumer, 3) == list(enumerate(values))


@every_way
def test_aborted_transactions_are_left_out_and_passed(any_kafka: AnyKafka, way: Way) -> None:
    """With read_committed, that is: by default they are read like all others."""
    topic = any_kafka.create_topic()
    name = f"{way.__name__}-{topic}"
    with karrow.Producer(any_kafka.bootstrap, transactional_id=name) as producer:
        for number in range(4):
            producer.begin_transaction()
            for item in range(5):
                producer.send(topic, b"%d-%d" % (number, item), partition=0)
            producer.flush()  # what is not sent yet would never be
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    # Five records and a marker each; only the first and the third were committed.
    expected = [
        (12 * half + item, b"%d-%d" % (2 * half, item)) for half in (0, 1) for item in range(5)
    ]
    options: dict[str, Any] = {**QUICK, "isolation": "read_committed"}
    with karrow.Consumer(any_kafka.bootstrap, topic, **options) as consumer:
        assert way(consumer, 10) == expected
        assert consumer.poll(0.5) == []
        assert consumer.position((topic, 0)) == 24
        assert consumer.lag() == {(topic, 0): 0}
    with karrow.Consumer(any_kafka.bootstrap, topic, **QUICK) as consumer:
        values = [value for _, value in way(consumer, 20)]
        assert values == [b"%d-%d" % (number, item) for number in range(4) for item in range(5)]


def test_an_open_transaction_holds_back_what_follows(any_kafka: AnyKafka) -> None:
    """With read_committed, that is: by default nothing is held back."""
    topic = any_kafka.create_topic()
    options: dict[str, Any] = {**QUICK, "isolation": "read_committed"}
    with (
        karrow.Producer(any_kafka.bootstrap, transactional_id=f"open-{topic}") as producer,
        karrow.Consumer(any_kafka.bootstrap, topic, **options) as consumer,
        karrow.Consumer(any_kafka.bootstrap, topic, **QUICK) as hasty,
        karrow.Client(any_kafka.bootstrap) as client,
    ):
        client.produce(topic, [b"before"], partition=0)
        producer.begin_transaction()
        producer.send(topic, b"inside", partition=0).result(TIMEOUT)
        client.produce(topic, [b"after"], partition=0)
        assert [value for _, value in as_lists(consumer, 1)] == [b"before"]
        assert consumer.poll(0.3) == []
        expected = [b"before", b"inside", b"after"]
        assert [value for _, value in as_lists(hasty, 3)] == expected
        producer.commit_transaction()
        assert [value for _, value in as_lists(consumer, 2)] == [b"inside", b"after"]


@pytest.mark.parametrize("way", ["start", "seek"])
def test_latest_is_in_front_of_an_open_transaction(any_kafka: AnyKafka, way: str) -> None:
    """With read_committed, that is: what is committed later comes then, and nothing is skipped."""
    topic = any_kafka.create_topic()
    start = "latest" if way == "start" else "earliest"
    options: dict[str, Any] = {"max_wait": 0.1, "start": start, "isolation": "read_committed"}
    with (
        karrow.Producer(any_kafka.bootstrap, transactional_id=f"open-{topic}") as producer,
        karrow.Consumer(any_kafka.bootstrap, topic, **options) as consumer,
        karrow.Client(any_kafka.bootstrap) as client,
    ):
        client.produce(topic, [b"before"], partition=0)
        producer.begin_transaction()
        producer.send(topic, b"inside", partition=0).result(TIMEOUT)
        client.produce(topic, [b"after"], partition=0)
        if way == "seek":
            assert [value for _, value in as_lists(consumer, 1)] == [b"before"]
            consumer.seek((topic, 0), "latest")
        assert consumer.poll(0.3) == []
        assert consumer.position((topic, 0)) == 1
        producer.commit_transaction()
        assert [value for _, value in as_lists(consumer, 2)] == [b"inside", b"after"]


@pytest.mark.parametrize("sessions", [True, False])
def test_sessions_and_full_fetches_read_the_same(any_kafka: AnyKafka, *, sessions: bool) -> None:
    topic = any_kafka.create_topic(partitions=3)
    with karrow.Client(any_kafka.bootstrap) as client:
        for partition in range(3):
            for _ in range(10):
                client.produce(topic, [bytes(300)] * 3, partition=partition)
        options: dict[str, Any] = {**QUICK, "fetch_sessions": sessions, "partition_max_bytes": 1000}
        with karrow.Consumer(any_kafka.bootstrap, topic, **options) as consumer:
            assert len(as_lists(consumer, 90)) == 90
            consumer.pause((topic, 0))
            for partition in range(3):
                client.produce(topic, [b"more"], partition=partition)
            assert len(as_lists(consumer, 2)) == 2
            consumer.resume((topic, 0))
            consumer.seek((topic, 1), 29)
            assert sorted(as_lists(consumer, 3)) == [(29, bytes(300)), (30, b"more"), (30, b"more")]


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What goes to brokers through proxies: every request to fetch."""
    found: list[Any] = []
    api = wire.api("Fetch")
    passed_on = Link._request

    async def noted(self: Link, frame: memoryview) -> bytes | None:
        key, version, _, size = struct.unpack_from(">hhih", frame)
        if key == api.key:
            head = 10 + size + (version in api.flexible)
            found.append(wire.decode("FetchRequest", version, bytes(frame[head:])))
        return await passed_on(self, frame)

    monkeypatch.setattr(Link, "_request", noted)
    return found


def named(topics: Any) -> list[int]:
    """The partitions that a fetch speaks of."""
    return [getattr(one, "partition", one) for topic in topics for one in topic.partitions]


# The first release with sessions, the last that fetches by the names of topics, and by ids.
@pytest.mark.parametrize("kafka_version", ["1.1.1", "2.8.2", "4.3.1"], indirect=True)
def test_a_broker_is_told_in_its_session_what_has_changed_and_nothing_else(
    kafka_version: KafkaCluster, fetches: list[Any]
) -> None:
    topic = kafka_version.create_topic(partitions=3)
    with (
        ClusterProxy(kafka_version) as proxy,
        karrow.Client(kafka_version.bootstrap()) as client,
        karrow.Consumer(proxy.bootstrap, topic, **QUICK) as consumer,
    ):
        for number in range(5):
            client.produce(topic, [b"%d" % number], partition=1)
            assert as_lists(consumer, 1) == [(number, b"%d" % number)]
        assert consumer.poll(0.5) == []
        consumer.pause((topic, 2))
        assert consumer.poll(0.5) == []
    first, *later = fetches
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert sorted(named(first.topics)) == [0, 1, 2]
    # A broker that refused one of these would be asked for everything again.
    (session,) = {one.session_id for one in later}
    assert session != 0
    assert [one.session_epoch for one in later] == list(range(1, len(later) + 1))
    assert [named(one.topics) for one in later if one.topics] == [[1]] * 5
    assert [named(one.forgotten_topics_data) for one in later if one.forgotten_topics_data] == [[2]]
