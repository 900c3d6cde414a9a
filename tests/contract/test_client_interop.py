"""Groups and offsets that karrow makes are seen by other clients, and the other way round."""

from __future__ import annotations

import importlib
import uuid
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient

import karrow
from karrow.types import TopicPartition
from tests.fix_any import AnyKafka

# Its own types are not complete.
kafka_python: Any = importlib.import_module("kafka")


def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def confluent_consumer(cluster: AnyKafka, name: str) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def test_offsets_travel_between_clients(any_kafka: AnyKafka) -> None:
    topic, name = any_kafka.create_topic(), group()
    with karrow.Client(any_kafka.bootstrap) as client:
        client.commit_offsets(name, {(topic, 0): (17, "from karrow")})
        theirs = confluent_consumer(any_kafka, name)
        place = confluent_kafka.TopicPartition(topic, 0)
        (seen,) = theirs.committed([place], timeout=20)
        assert seen.offset == 17
        theirs.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 23)], asynchronous=False)
        theirs.close()
        assert client.committed_offsets(name, [topic])[TopicPartition(topic, 0)].offset == 23

        python = kafka_python.KafkaConsumer(
            bootstrap_servers=any_kafka.bootstrap, group_id=name, enable_auto_commit=False
        )
        assert python.committed(kafka_python.TopicPartition(topic, 0)) == 23
        python.close()


def test_groups_are_described_the_same(any_kafka: AnyKafka) -> None:
    topic, name = any_kafka.create_topic(partitions=2), group()
    theirs = confluent_consumer(any_kafka, name)
    theirs.subscribe([topic])
    with karrow.Client(any_kafka.bootstrap) as client:
        while not theirs.assignment():
            theirs.poll(0.2)
        described = client.describe_group(name)
        assert (described.state, len(described.members)) == ("Stable", 1)
        assert described.members[0].assignment == ((topic, 0), (topic, 1))
        assert described.members[0].topics == (topic,)
        theirs.close()

        protocol = client.default_protocol("range", 0, [topic])
        joined = client.join_group(name, [protocol])
        client.sync_group(
            name,
            generation=joined.generation,
            member_id=joined.member_id,
            assignments={joined.member_id: {topic: [1]}},
        )
        admin = AdminClient({"bootstrap.servers": any_kafka.bootstrap})
        found = admin.describe_consumer_groups([name])[name].result(20)
        (member,) = found.members
        assigned = [(one.topic, one.partition) for one in member.assignment.topic_partitions]
        assert (member.member_id, assigned) == (joined.member_id, [(topic, 1)])
        client.leave_group(name, joined.member_id)


def test_records_travel_between_clients(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": any_kafka.bootstrap})
    producer.produce(topic, b"theirs", key=b"k", headers=[("h", b"1")], partition=0)
    producer.flush(20)
    with karrow.Client(any_kafka.bootstrap) as client:
        (record,) = client.fetch(topic, 0, 0).records
        assert (record.key, record.value, record.headers) == (b"k", b"theirs", (("h", b"1"),))
        client.produce_one(topic, b"ours", key=b"o", partition=0, compression="zstd")
    theirs = confluent_consumer(any_kafka, group())
    theirs.assign([confluent_kafka.TopicPartition(topic, 0, 1)])
    message = theirs.poll(20)
    assert (message.key(), message.value()) == (b"o", b"ours")
    theirs.close()
