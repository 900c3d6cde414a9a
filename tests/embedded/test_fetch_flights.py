"""Fetches that follow each other by themselves, and what makes the worker look again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import karrow
from karrow import events
from karrow.aio.consuming.fetcher import Fetcher
from karrow.broker.threaded import Broker
from karrow.types import TopicPartition

TOPIC = "topic"
TIMEOUT = 15.0
LONG = 8.0
A, B = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


@pytest.fixture
def producer(broker: Broker) -> Iterator[karrow.Producer]:
    with karrow.Producer(broker.bootstrap) as producer:
        yield producer


@pytest.fixture
def consumer(broker: Broker, producer: karrow.Producer) -> Iterator[karrow.Consumer]:
    """One whose fetches follow each other in a session by now."""
    with karrow.Consumer(broker.bootstrap, start="earliest", max_wait=LONG) as consumer:
        consumer.assign([A, B])
        for _ in range(3):
            send(producer, A)
            assert [one.partition for one in consumer.poll(TIMEOUT)] == [0]
        yield consumer


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The brokers for which a worker has looked what to ask for."""
    seen: list[int] = []
    wanted = Fetcher._wanted

    def counted(self: Fetcher, broker_id: int, now: float) -> Any:
        seen.append(broker_id)
        return wanted(self, broker_id, now)

    monkeypatch.setattr(Fetcher, "_wanted", counted)
    return seen


def send(producer: karrow.Producer, partition: TopicPartition, value: bytes = b"x") -> None:
    producer.send(TOPIC, value, partition=partition.partition).result(TIMEOUT)


def fetched(broker: Broker) -> list[tuple[tuple[str, int | None], ...]]:
    return [seen.partitions for seen in broker.requests if seen.api == "Fetch"]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_fetches_follow_each_other(
    broker: Broker, producer: karrow.Producer, consumer: karrow.Consumer, looks: list[int]
) -> None:
    broker.clear_requests()
    for number in range(20):
        partition = (A, B)[number % 2]
        send(producer, partition, b"%d" % number)
        (record,) = consumer.poll(TIMEOUT)
        assert (record.value, record.partition) == (b"%d" % number, partition.partition)
    assert looks == []
    until(lambda: len(fetched(broker)) >= 20)
    # Each names the one partition that has moved.
    assert all(len(named) == 1 for named in fetched(broker))


def test_a_pause_is_noticed(
    broker: Broker, producer: karrow.Producer, consumer: karrow.Consumer, looks: list[int]
) -> None:
    consumer.pause(B)
    send(producer, A)
    assert [one.partition for one in consumer.poll(TIMEOUT)] == [0]
    until(lambda: looks)
    until(lambda: B not in consumer._engine.fetcher._asked)
    send(producer, B)
    assert consumer.poll(0.2) == []
    consumer.resume(B)
    assert [one.partition for one in consumer.poll(TIMEOUT)] == [1]


def test_a_seek_is_noticed(
    broker: Broker, producer: karrow.Producer, consumer: karrow.Consumer
) -> None:
    consumer.seek(A, 1)
    assert [one.offset for one in consumer.poll(TIMEOUT)] == [1, 2]
    send(producer, A)
    assert [one.offset for one in consumer.poll(TIMEOUT)] == [3]


def test_a_partition_that_comes_is_noticed(
    broker: Broker, producer: karrow.Producer, consumer: karrow.Consumer
) -> None:
    consumer.unassign([B])
    send(producer, A)
    assert [one.partition for one in consumer.poll(TIMEOUT)] == [0]
    send(producer, B)
    assert consumer.poll(0.2) == []
    consumer.assign({A: 4, B: "earliest"})
    assert [one.partition for one in consumer.poll(TIMEOUT)] == [1]


def test_news_of_the_cluster_is_noticed(
    broker: Broker, producer: karrow.Producer, consumer: karrow.Consumer, looks: list[int]
) -> None:
    broker.create_topic("other", 1)
    assert consumer.partitions_for("other") == 1
    looks.clear()
    send(producer, A)
    assert len(consumer.poll(TIMEOUT)) == 1
    until(lambda: looks)


def test_full_buffers_end_it(broker: Broker, producer: karrow.Producer) -> None:
    for number in range(40):
        send(producer, A, b"%0500d" % number)
    options: dict[str, Any] = {"partition_max_bytes": 1000, "buffer_bytes": 4000}
    with karrow.Consumer(broker.bootstrap, start="earliest", max_wait=LONG, **options) as consumer:
        consumer.assign([A])
        assert [one.offset for one in consumer.poll(TIMEOUT, 1)] == [0]
        until(lambda: consumer._engine.fetcher.waits_for_room)
        assert consumer._engine.positions.buffered_bytes <= 4000
        found: list[int] = []
        while len(found) < 39:
            found += [one.offset for one in consumer.poll(TIMEOUT, 3)]
        assert found == list(range(1, 40))


def test_every_fetch_is_told(
    broker: Broker, producer: karrow.Producer, consumer: karrow.Consumer
) -> None:
    heard: list[events.Event] = []
    with events.subscribe(heard.append, "fetch"):
        for _ in range(4):
            send(producer, A)
            assert len(consumer.poll(TIMEOUT)) == 1
        until(lambda: sum(event.name == "fetch.stop" for event in heard) >= 3)
    stops = [event for event in heard if event.name == "fetch.stop"]
    assert all(event.fields["bytes"] > 0 for event in stops)
    assert all(event.fields["partition_count"] == 2 for event in stops)


def test_a_connection_that_breaks_is_made_again(
    broker: Broker, producer: karrow.Producer, consumer: karrow.Consumer
) -> None:
    for number in range(3, 6):
        broker.close("Fetch")
        send(producer, A)
        found: list[int] = []
        while not found:
            found = [one.offset for one in consumer.poll(TIMEOUT)]
        assert found == [number]
