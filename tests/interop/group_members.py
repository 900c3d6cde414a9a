"""Consumers of other makers, each with the same few methods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

MOMENT = 0.05
SESSION_MS = 6000
HEARTBEAT_MS = 100
# A poll of kafka-python's that ends while it joins begins the join anew with the next one, and with
# it a rebalance for all: it has to be longer than the others need to hear of one.
JOINING_MS = 5 * HEARTBEAT_MS


class Consumer(Protocol):
    """A consumer in a group, subscribed to one topic."""

    def poll(self) -> list[bytes]:
        """Values that have come, after a moment at most."""

    def assigned(self) -> set[int]:
        """The partitions it has."""

    def commit(self) -> None:
        """Store how far it has come."""

    def close(self) -> None: ...


class ConfluentConsumer:
    """librdkafka's, in either protocol."""

    def __init__(
        self, protocol: str, bootstrap: str, group: str, topic: str, instance_id: str | None
    ) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
        if protocol == "classic":
            options |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        if instance_id:
            options["group.instance.id"] = instance_id
        self._consumer = confluent_kafka.Consumer(options)
        self._consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        messages = self._consumer.consume(100, MOMENT)
        for message in messages:
            assert message.error() is None, message.error()
        return [message.value() or b"" for message in messages]

    def assigned(self) -> set[int]:
        return {item.partition for item in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonConsumer:
    """kafka-python's."""

    def __init__(self, bootstrap: str, group: str, topic: str, instance_id: str | None) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=50,
        )
        # Else it may join, and as the leader assign, before it knows the topic's partitions; the
        # delay of a real broker's first rebalance hides that.
        self._consumer.partitions_for_topic(topic)

    def poll(self) -> list[bytes]:
        found = self._consumer.poll(timeout_ms=JOINING_MS)
        return [record.value for records in found.values() for record in records]

    def assigned(self) -> set[int]:
        return {item.partition for item in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AiokafkaConsumer:
    """aiokafka's, on a loop that runs while it is asked something."""

    def __init__(
        self,
        runner: asyncio.Runner,
        bootstrap: str,
        group: str,
        topic: str,
        instance_id: str | None,
    ) -> None:
        self._runner = runner
        self._consumer = runner.run(self._start(bootstrap, group, topic, instance_id))

    async def _start(
        self, bootstrap: str, group: str, topic: str, instance_id: str | None
    ) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=50,
        )
        await consumer.start()
        return consumer

    def poll(self) -> list[bytes]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=int(MOMENT * 1000)))
        return [record.value for records in found.values() for record in records]

    def assigned(self) -> set[int]:
        return {item.partition for item in self._consumer.assignment()}

    def commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())


Open = Callable[..., Consumer]


def maker(kind: str, runner: asyncio.Runner) -> Open:
    """Makes consumers of one kind: ``(bootstrap, group, topic, instance_id)``."""
    makers: dict[str, Open] = {
        "confluent": lambda *args: ConfluentConsumer("classic", *args),
        "confluent-848": lambda *args: ConfluentConsumer("consumer", *args),
        "kafka-python": KafkaPythonConsumer,
        "aiokafka": lambda *args: AiokafkaConsumer(runner, *args),
    }
    return makers[kind]


KINDS = ("confluent", "confluent-848", "kafka-python", "aiokafka")
