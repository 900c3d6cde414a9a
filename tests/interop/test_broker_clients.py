"""Clients that are not ours on the embedded broker: records in every codec, groups, users."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import karrow
from karrow.broker.threaded import Broker
from tests.interop.futures import TIMEOUT, failure, results

TOPIC, GROUP = "orders", "group"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# Their own types are not complete, or name things otherwise than they export them.
kit: Any = confluent_kafka.admin
kafka_python: Any = importlib.import_module("kafka")
aiokafka: Any = importlib.import_module("aiokafka")

Values = list[tuple[bytes | None, bytes | None]]
Write = Callable[[str, str, Values], None]
Read = Callable[[str, int], Values]


@pytest.fixture(params=["4.3", "3.9", "2.8"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(version=request.param) as broker:
        broker.create_topic(TOPIC, 1)
        yield broker


# Records.


def confluent_write(bootstrap: str, codec: str, values: Values) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    for key, value in values:
        producer.produce(TOPIC, value, key=key, partition=0, headers=[("h", b"1")])
    assert producer.flush(TIMEOUT) == 0


def confluent_read(bootstrap: str, count: int) -> Values:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    found: Values = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT)
        assert message is not None
        assert message.error() is None
        found.append((message.key(), message.value()))
    consumer.close()
    return found


def python_write(bootstrap: str, codec: str, values: Values) -> None:
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
        acks="all",
    )
    sent = [
        producer.send(TOPIC, value, key=key, partition=0, headers=[("h", b"1")])
        for key, value in values
    ]
    producer.flush()
    assert [future.get(TIMEOUT).offset for future in sent] == list(range(len(values)))
    producer.close()


def python_read(bootstrap: str, count: int) -> Values:
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=bootstrap, check_crcs=True)
    place = kafka_python.TopicPartition(TOPIC, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    found: Values = []
    while len(found) < count:
        for records in consumer.poll(timeout_ms=1000).values():
            found += [(record.key, record.value) for record in records]
    assert consumer.beginning_offsets([place]) == {place: 0}
    assert consumer.end_offsets([place]) == {place: count}
    consumer.close()
    return found


def aiokafka_write(bootstrap: str, codec: str, values: Values) -> None:
    async def main() -> None:
        compression = None if codec == "none" else codec
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=compression, linger_ms=20
        ) as producer:
            sent = [
                await producer.send(TOPIC, value, key=key, partition=0, headers=[("h", b"1")])
                for key, value in values
            ]
            await asyncio.gather(*sent)

    asyncio.run(main())


def aiokafka_read(bootstrap: str, count: int) -> Values:
    async def main() -> Values:
        found: Values = []
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            place = aiokafka.TopicPartition(TOPIC, 0)
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            while len(found) < count:
                record = await asyncio.wait_for(consumer.getone(), TIMEOUT)
                found.append((record.key, record.value))
        return found

    return asyncio.run(main())


WRITERS: dict[str, Write] = {
    "confluent": confluent_write,
    "kafka-python": python_write,
    "aiokafka": aiokafka_write,
}
READERS: dict[str, Read] = {
    "confluent": confluent_read,
    "kafka-python": python_read,
    "aiokafka": aiokafka_read,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", list(WRITERS))
def test_records_come_back(broker: Broker, client: str, codec: str) -> None:
    values: Values = [(b"k%d" % number, b"v" * number) for number in range(1, 20)]
    values += [(None, b"without a key"), (b"deleted", None)]
    WRITERS[client](broker.bootstrap, codec, values)
    assert READERS[client](broker.bootstrap, len(values)) == values
    with karrow.Client(broker.bootstrap) as ours:
        records = ours.fetch_all(TOPIC, 0).records
        assert [(record.key, record.value) for record in records] == values
        assert all(record.headers == (("h", b"1"),) for record in records)


def test_clients_read_what_others_wrote(broker: Broker) -> None:
    values: Values = [(None, b"%d" % number) for number in range(50)]
    with karrow.Client(broker.bootstrap) as ours:
        ours.produce(TOPIC, [value for _, value in values], partition=0, compression="lz4")
    for read in READERS.values():
        assert read(broker.bootstrap, len(values)) == values


# Administration.


@pytest.fixture
def admin(broker: Broker) -> Any:
    return kit.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def place(offset: int = -1001) -> Any:
    return confluent_kafka.TopicPartition(TOPIC, 0, offset)


def offsets_of(*places: Any) -> list[Any]:
    return [confluent_kafka.ConsumerGroupTopicPartitions(GROUP, list(places) or None)]


def test_confluent_administers_groups(broker: Broker, admin: Any) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    )
    consumer.subscribe([TOPIC])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[place(3)], asynchronous=False)
    listed = admin.list_consumer_groups().result(TIMEOUT)
    assert [group.group_id for group in listed.valid] == [GROUP]
    (described,) = results(admin.describe_consumer_groups([GROUP]))
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    (member,) = described.members
    assert [part.topic for part in member.assignment.topic_partitions] == [TOPIC]
    assert failure(admin.delete_consumer_groups([GROUP])) == "NON_EMPTY_GROUP"
    consumer.close()

    results(admin.alter_consumer_group_offsets(offsets_of(place(7))))
    (stored,) = results(admin.list_consumer_group_offsets(offsets_of()))
    assert [(part.topic, part.offset) for part in stored.topic_partitions] == [(TOPIC, 7)]
    results(admin.delete_consumer_groups([GROUP]))
    assert failure(admin.delete_consumer_groups([GROUP])) == "GROUP_ID_NOT_FOUND"


def test_confluent_administers_users() -> None:
    with Broker(sasl={"root": "root-secret"}) as broker:
        options = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "root",
            "sasl.password": "root-secret",
        }
        admin = kit.AdminClient(options)
        info = kit.ScramCredentialInfo(kit.ScramMechanism.SCRAM_SHA_256, 8192)
        results(
            admin.alter_user_scram_credentials(
                [kit.UserScramCredentialUpsertion("eve", info, b"pw")]
            )
        )
        users = admin.describe_user_scram_credentials().result(TIMEOUT)
        assert sorted(users) == ["eve", "root"]
        (credential,) = users["eve"].scram_credential_infos
        assert (credential.mechanism, credential.iterations) == (info.mechanism, 8192)
        login = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "eve", "sasl.password": "pw"}
        assert kit.AdminClient({**options, **login}).list_topics(timeout=TIMEOUT).brokers
        deletion = kit.UserScramCredentialDeletion("eve", info.mechanism)
        results(admin.alter_user_scram_credentials([deletion]))
        assert failure(admin.alter_user_scram_credentials([deletion])) == "RESOURCE_NOT_FOUND"


def test_kafka_python_administers(broker: Broker) -> None:
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics({"made": {"num_partitions": 2, "replication_factor": 1}})
    assert {"made", TOPIC} <= set(admin.list_topics())
    (found,) = admin.describe_topics(["made"])
    assert len(found["partitions"]) == 2
    admin.delete_topics(["made"])
    assert "made" not in admin.list_topics()
    admin.close()


def test_aiokafka_administers(broker: Broker) -> None:
    async def main() -> None:
        kit_of_theirs: Any = importlib.import_module("aiokafka.admin")
        admin = kit_of_theirs.AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([kit_of_theirs.NewTopic("made", 2, 1)])
            assert {"made", TOPIC} <= set(await admin.list_topics())
            await admin.delete_topics(["made"])
            assert "made" not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(main())
