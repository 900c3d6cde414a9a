"""Transactional producers of other makers, each with the same few methods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import aiokafka
import confluent_kafka
import kafka

KINDS = ("confluent-kafka", "aiokafka", "kafka-python")
TIMEOUT = 20.0
TIMEOUT_MS = 20_000


class TransactionalProducer(Protocol):
    """A producer that is ready for its first transaction."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Hand a record over, and wait until the broker has it."""

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        """Let a group's offset in partition 0 be part of the transaction."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentProducer:
    """librdkafka's."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._failed: list[confluent_kafka.KafkaError] = []
        self._producer.init_transactions(TIMEOUT)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)
        assert self._producer.flush(TIMEOUT) == 0
        if self._failed:
            raise confluent_kafka.KafkaException(self._failed.pop())

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        options = {"bootstrap.servers": "127.0.0.1:1", "group.id": group, "log_level": 0}
        consumer = confluent_kafka.Consumer(options)
        try:
            member = consumer.consumer_group_metadata()
            place = confluent_kafka.TopicPartition(topic, 0, offset)
            self._producer.send_offsets_to_transaction([place], member, TIMEOUT)
        finally:
            consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT)

    def close(self) -> None:
        """It ends with its last reference."""

    def _delivered(self, error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is not None:
            self._failed.append(error)


class AioProducer:
    """aiokafka's, on a loop of the test."""

    def __init__(self, runner: asyncio.Runner, bootstrap: str, transactional_id: str) -> None:
        self._runner = runner
        runner.run(self._start(bootstrap, transactional_id))

    async def _start(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
        )
        await self._producer.start()

    def begin(self) -> None:
        self._runner.run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._runner.run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {aiokafka.TopicPartition(topic, 0): offset}
        self._runner.run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._runner.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._runner.run(self._producer.abort_transaction())

    def close(self) -> None:
        self._runner.run(self._producer.stop())


class PlainProducer:
    """kafka-python's."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition).get(timeout=TIMEOUT)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        place = kafka.TopicPartition(topic, 0)
        offsets = {place: kafka.OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


def maker(kind: str, runner: asyncio.Runner) -> Callable[[str, str], TransactionalProducer]:
    """Makes producers of a kind, for a bootstrap address and a transactional id."""
    if kind == "aiokafka":
        return lambda bootstrap, name: AioProducer(runner, bootstrap, name)
    return ConfluentProducer if kind == "confluent-kafka" else PlainProducer
