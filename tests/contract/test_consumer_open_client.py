"""Consumers and tables over an open client: its connections are shared, and stay open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import karrow
from karrow import errors, events
from karrow.types import TopicPartition
from tests.contract.test_consumer import (
    QUICK,
    TIMEOUT,
    everything,
    filled,
    new_group,
    places,
    take,
)
from tests.fix_any import AnyKafka

NOBODY = "127.0.0.1:1"
READING: dict[str, Any] = {"start": "earliest", **QUICK}


class Once:
    """Bootstrap servers that lead to the cluster only once: a second cluster finds nobody."""

    def __init__(self, kafka: AnyKafka) -> None:
        self._left = [kafka.bootstrap]
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        return self._left.pop() if self._left else NOBODY


@contextmanager
def connections() -> Iterator[list[events.Event]]:
    """What is connected to meanwhile."""
    made: list[events.Event] = []
    with events.subscribe(made.append, "connection.start"):
        yield made


def both_ways(group: str) -> list[dict[str, Any]]:
    """What consumers are told: to read alone, and in a group."""
    return [READING, {**READING, "group": group}]


@pytest.fixture
def once(newest_kafka: AnyKafka) -> Once:
    return Once(newest_kafka)


def test_consumer_shares_the_connections_of_an_open_client(
    newest_kafka: AnyKafka, once: Once
) -> None:
    topic, group = filled(newest_kafka, 5), new_group()
    with karrow.Client(once, client_id="shared", api_timeout=TIMEOUT) as client:
        client.metadata()
        for options in both_ways(group):
            with karrow.Consumer(client, topic, **options) as consumer:
                assert places(take(consumer, 10)) == everything(5)
                assert consumer.config.client_id == "shared"
        with connections() as made:
            assert client.latest_offset(topic, 0) == 5
            stored = client.committed_offsets(group, [topic])
        # What closed the consumers has left the client what it had.
        assert made == []
        assert {one.partition: it.offset for one, it in stored.items()} == {0: 5, 1: 5}
    assert once.asked == 1


def test_asynchronous_consumer_shares_the_connections_of_an_open_client(
    newest_kafka: AnyKafka, once: Once
) -> None:
    topic, group = filled(newest_kafka, 5), new_group()

    async def main() -> None:
        async with karrow.AsyncClient(once, client_id="shared", api_timeout=TIMEOUT) as client:
            await client.metadata()
            for options in both_ways(group):
                found: list[karrow.Record] = []
                async with (
                    asyncio.timeout(TIMEOUT),
                    karrow.AsyncConsumer(client, topic, **options) as consumer,
                ):
                    while len(found) < 10:
                        found += await consumer.poll(0.2)
                assert places(found) == everything(5)
            with connections() as made:
                stored = await client.committed_offsets(group, [topic])
            assert made == []
            assert stored[TopicPartition(topic, 0)].offset == 5

    asyncio.run(main())
    assert once.asked == 1


def test_table_is_read_over_the_connections_of_an_open_client(
    newest_kafka: AnyKafka, once: Once
) -> None:
    topic = filled(newest_kafka, 5)
    with karrow.Client(once, api_timeout=TIMEOUT) as client:
        client.metadata()
        table = karrow.read_arrow(client, topic, columns=["partition", "offset"])
        assert [(row["partition"], row["offset"]) for row in table.to_pylist()] == everything(5)
        with connections() as made:
            assert client.latest_offset(topic, 0) == 5
        assert made == []
        with pytest.raises(errors.ConfigError, match="has its options already: client_id"):
            karrow.read_arrow(client, topic, client_id="mine")
    assert once.asked == 1


def test_client_of_another_event_loop_is_refused(newest_kafka: AnyKafka) -> None:
    """Tasks of one loop must not wait for the connections of another one."""
    topic = filled(newest_kafka, 1)

    async def over(client: karrow.Client) -> None:
        with pytest.raises(errors.ConfigError, match="cannot be a Client"):
            karrow.AsyncConsumer(client, topic)  # type: ignore[arg-type]
        async with karrow.AsyncConsumer(client.twin, topic, **READING) as consumer:
            with pytest.raises(errors.StateError, match="belongs to another event loop"):
                await consumer.poll(TIMEOUT)

    with karrow.Client(newest_kafka.bootstrap) as client:
        client.metadata()
        asyncio.run(over(client))
        assert client.latest_offset(topic, 0) == 1
