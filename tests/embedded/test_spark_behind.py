"""Streams whose brokers are behind: they lack partitions or offsets that were there before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pytest

import karrow
from karrow.aio.client import AsyncClient
from karrow.spark import pool
from karrow.spark.reading.loss import DataLoss
from karrow.spark.reading.places import Resolved
from karrow.spark.reading.planning import Planning
from karrow.spark.reading.topics import Found, Topics
from karrow.types import TopicPartition
from tests.embedded.sourcing import next_values, numbers, put, query, stream


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(seed=1, auto_create_topics=False) as broker:
        broker.create_topic("orders", partitions=2)
        yield broker
        pool.close()


@pytest.fixture
def client(broker: karrow.Broker) -> Iterator[karrow.Client]:
    with karrow.Client(broker.bootstrap) as client:
        yield client


@dataclass
class Behind:
    """Metadata of a broker that does not know of some partitions, so many times."""

    lacks: frozenset[TopicPartition] = frozenset([TopicPartition("orders", 2)])
    times: int = 0
    has_ids: bool = True

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Behind:
        find = Topics.find

        async def found(topics: Topics, client: AsyncClient, *, missing_ok: bool = False) -> Found:
            said = await find(topics, client, missing_ok=missing_ok)
            if not self.has_ids:
                said = replace(said, ids={})
            if self.times <= 0:
                return said
            self.times -= 1
            known = tuple(one for one in said.partitions if one not in self.lacks)
            return replace(said, partitions=known)

        monkeypatch.setattr(Topics, "find", found)
        monkeypatch.setattr("karrow.spark.reading.stream.MISSING_PAUSES", (0.01, 0.01))
        return self


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Behind:
    return Behind().install(monkeypatch)


def add_partition(broker: karrow.Broker) -> None:
    with karrow.Admin(broker.bootstrap) as admin:
        admin.create_partitions({"orders": 3})


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("times", [1, 100])
@pytest.mark.parametrize("has_ids", [True, False])
def test_a_partition_that_a_broker_does_not_know_of_yet_stays_where_it_is(
    broker: karrow.Broker,
    client: karrow.Client,
    behind: Behind,
    fails: str,
    times: int,
    has_ids: bool,
) -> None:
    """Kafka removes no partitions: it is neither lost nor one that was added."""
    behind.has_ids = has_ids
    running = query(broker, startingOffsets="earliest", failOnDataLoss=fails)
    put(client, 3)
    assert next_values(running) == numbers(3)
    add_partition(broker)
    put(client, 7, partition=2)
    assert next_values(running) == numbers(7)
    behind.times = times
    put(client, 3, 5)
    assert next_values(running) == numbers(3, 5)
    assert running.next() is None
    running.restart()
    assert running.repeat(2)
    behind.times = 0
    put(client, 7, 9, partition=2)
    assert next_values(running) == numbers(7, 9)
    assert running.next() is None


def test_a_partition_that_stays_away_is_waited_for_once(
    broker: karrow.Broker,
    client: karrow.Client,
    behind: Behind,
    caplog: pytest.LogCaptureFixture,
) -> None:
    add_partition(broker)
    running = query(broker, startingOffsets="earliest")
    put(client, 3)
    running.next()
    behind.times = 100
    for _ in range(3):
        assert running.next() is None
    assert behind.times == 100 - 3 - 2
    assert caplog.text.count("orders-2 is not named by the broker") == 1


def test_a_partition_that_is_not_known_yet_when_a_stream_begins_at_latest(
    broker: karrow.Broker, client: karrow.Client, behind: Behind
) -> None:
    add_partition(broker)
    put(client, 7, partition=2)
    running = query(broker)
    behind.times = 100
    assert running.next() == []
    behind.times = 0
    put(client, 7, 9, partition=2)
    assert next_values(running) == numbers(7, 9)


def test_available_now_reads_a_partition_that_was_not_known_at_once(
    broker: karrow.Broker, client: karrow.Client, behind: Behind
) -> None:
    add_partition(broker)
    running = query(broker, startingOffsets="earliest")
    put(client, 7, partition=2)
    behind.times = 1
    running.reader.prepareForTriggerAvailableNow()
    assert next_values(running) == numbers(7)
    assert running.next() is None


def test_a_topic_that_was_made_anew_with_fewer_partitions(
    broker: karrow.Broker, client: karrow.Client, behind: Behind
) -> None:
    running = query(broker, startingOffsets="earliest")
    put(client, 3, partition=1)
    running.next()
    client.delete_topic("orders")
    broker.create_topic("orders", partitions=1)
    put(client, 4)
    with pytest.raises(DataLoss, match="of orders-1 are gone with their topic or partition"):
        running.next()
    running.given["failOnDataLoss"] = "false"
    running.log.pop()
    running.restart()
    assert next_values(running) == numbers(4)
    assert running.next() is None


def test_a_partition_that_is_not_assigned_any_more_does_not_stay(
    broker: karrow.Broker, client: karrow.Client, behind: Behind
) -> None:
    running = stream(broker.bootstrap, assign='{"orders": [0, 1]}', startingOffsets="earliest")
    put(client, 3)
    running.next()
    running.given["assign"] = '{"orders": [0]}'
    running.restart()
    with pytest.raises(DataLoss, match="of orders-1 are gone"):
        running.next()


# ---- ends that move back


@dataclass
class Deposed:
    """Ends told by who was the leader and has not heard that it is none any more, so many times."""

    lacks: int = 4
    times: int = 0

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Deposed:
        ends = Planning.ends

        async def told(
            planning: Planning, partitions: Iterable[TopicPartition]
        ) -> dict[TopicPartition, Resolved]:
            said = await ends(planning, partitions)
            if self.times <= 0:
                return said
            self.times -= 1
            return {
                one: end._replace(offset=max(end.offset - self.lacks, 0))
                for one, end in said.items()
            }

        monkeypatch.setattr(Planning, "ends", told)
        monkeypatch.setattr("karrow.spark.reading.stream.SHORT_PAUSES", (0.01, 0.01))
        return self


@pytest.fixture
def deposed(monkeypatch: pytest.MonkeyPatch) -> Deposed:
    return Deposed().install(monkeypatch)


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("times", [1, 2])
def test_an_end_that_moves_back_for_a_moment_is_not_believed(
    broker: karrow.Broker, client: karrow.Client, deposed: Deposed, fails: str, times: int
) -> None:
    running = query(broker, startingOffsets="earliest", failOnDataLoss=fails)
    put(client, 10)
    assert next_values(running) == numbers(10)
    deposed.times = times
    assert running.next() is None
    assert deposed.times == 0
    put(client, 10, 13)
    assert next_values(running) == numbers(10, 13)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_an_end_that_stays_back_is_a_loss(
    broker: karrow.Broker, client: karrow.Client, deposed: Deposed, fails: str
) -> None:
    running = query(broker, startingOffsets="earliest", failOnDataLoss=fails)
    put(client, 10)
    running.next()
    deposed.times = 100
    if fails == "true":
        with pytest.raises(DataLoss, match="offsets 6 to 9 of orders-0 are not there"):
            running.next()
    else:
        assert running.next() == []
        assert running.next() is None
    assert deposed.times >= 100 - 4


def test_available_now_does_not_end_in_front_of_where_the_stream_stands(
    broker: karrow.Broker, client: karrow.Client, deposed: Deposed
) -> None:
    running = query(broker, startingOffsets="earliest")
    put(client, 10)
    running.next()
    running.restart()
    put(client, 10, 12)
    deposed.times = 1
    running.reader.prepareForTriggerAvailableNow()
    assert next_values(running) == numbers(10, 12)
    put(client, 12, 15)
    assert running.next() is None
