"""Clients that are not ours produce in transactions of the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import aiokafka.errors
import confluent_kafka
import kafka.errors
import pytest

import karrow
from karrow.broker.threaded import Broker
from tests.interop.transactional_producers import KINDS, TransactionalProducer, maker

TOPIC = "orders"
GROUP = "group"
Start = Callable[[str], TransactionalProducer]

FENCED: tuple[type[BaseException], ...] = (
    confluent_kafka.KafkaException,
    aiokafka.errors.KafkaError,
    kafka.errors.KafkaError,
)


@pytest.fixture(params=["4.3", "3.9", "2.8"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(version=request.param) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[karrow.Client]:
    with karrow.Client(broker.bootstrap) as client:
        client.create_topic(TOPIC, partitions=2)
        yield client


@pytest.fixture(params=KINDS)
def start(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Start]:
    """Makes producers, which are closed after the test."""
    made: list[TransactionalProducer] = []
    with asyncio.Runner() as runner:
        make = maker(request.param, runner)

        def begin(name: str) -> TransactionalProducer:
            made.append(make(broker.bootstrap, name))
            return made[-1]

        yield begin
        for producer in made:
            producer.close()


def read(broker: Broker, isolation: str) -> list[bytes]:
    """What librdkafka's consumer sees in partition 0, up to its end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    found = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        while (message := consumer.poll(10)) is not None:
            error = message.error()
            if error is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                break
            found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


def test_committed_data_is_seen_and_aborted_is_not(
    broker: Broker, client: karrow.Client, start: Start
) -> None:
    producer = start("tx")
    for number, commits in enumerate((True, False, True, True, False, True)):
        producer.begin()
        for partition in (0, 1, 0):
            producer.send(TOPIC, b"%d" % number, partition)
        (producer.commit if commits else producer.abort)()
    seen = [b"0", b"0", b"2", b"2", b"3", b"3", b"5", b"5"]
    assert read(broker, "read_committed") == seen
    assert len(read(broker, "read_uncommitted")) == 12


def test_open_transaction_holds_readers_back(
    broker: Broker, client: karrow.Client, start: Start
) -> None:
    producer = start("tx")
    producer.begin()
    producer.send(TOPIC, b"a")
    assert read(broker, "read_committed") == []
    assert read(broker, "read_uncommitted") == [b"a"]
    producer.commit()
    assert read(broker, "read_committed") == [b"a"]


def test_offsets_are_stored_with_the_transaction(client: karrow.Client, start: Start) -> None:
    producer = start("tx")

    def stored() -> int | None:
        found = client.committed_offsets(GROUP, [(TOPIC, 0)])
        return next((stored.offset for stored in found.values()), None)

    for offset, commits, after in ((3, False, None), (5, True, 5), (7, False, 5), (9, True, 9)):
        producer.begin()
        producer.send(TOPIC, b"a")
        producer.send_offset(TOPIC, offset, GROUP)
        (producer.commit if commits else producer.abort)()
        assert stored() == after


def test_new_producer_fences_the_old_one(
    broker: Broker, client: karrow.Client, start: Start
) -> None:
    old = start("tx")
    old.begin()
    old.send(TOPIC, b"old")
    new = start("tx")
    new.begin()
    new.send(TOPIC, b"new")
    with pytest.raises(FENCED):
        old.commit()
    new.commit()
    assert read(broker, "read_committed") == [b"new"]
