"""Clients that are not ours consume in groups of the embedded broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

import karrow
from karrow.broker.threaded import Broker
from tests.interop.group_members import KINDS, Consumer, maker

PATIENCE = 30.0
TOPIC = "orders"
GROUP = "group"

Join = Callable[..., Consumer]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(default_partitions=4, heartbeat_interval=0.1) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[karrow.Client]:
    with karrow.Client(broker.bootstrap) as client:
        client.create_topic(TOPIC, partitions=4)
        yield client


@pytest.fixture(params=KINDS)
def join(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Join]:
    """Joins the group; every consumer is closed after the test."""
    joined: list[Consumer] = []
    with asyncio.Runner() as runner:
        make = maker(request.param, runner)

        def start(instance_id: str | None = None) -> Consumer:
            joined.append(make(broker.bootstrap, GROUP, TOPIC, instance_id))
            return joined[-1]

        yield start
        for consumer in joined:
            consumer.close()


def produce(client: karrow.Client, *numbers: int) -> set[bytes]:
    values = {b"%d" % number for number in numbers}
    for number in numbers:
        client.produce(TOPIC, [b"%d" % number], partition=number % 4)
    return values


def until(consumers: list[Consumer], condition: Callable[[], bool]) -> list[bytes]:
    """Let consumers run until the condition holds; what they have read meanwhile."""
    read: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, [consumer.assigned() for consumer in consumers]
        for consumer in consumers:
            read += consumer.poll()
    return read


def read_all(consumers: list[Consumer], wanted: set[bytes]) -> None:
    read: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while set(read) != wanted:
        assert time.monotonic() < deadline, (wanted - set(read), set(read) - wanted)
        for consumer in consumers:
            read += consumer.poll()
    assert len(read) == len(wanted)


def test_members_share_partitions_and_resume(client: karrow.Client, join: Join) -> None:
    values = produce(client, *range(20))
    first = join()
    read_all([first], values)
    first.commit()
    second = join()
    pair = [first, second]
    again = until(pair, lambda: len(first.assigned()) == len(second.assigned()) == 2)
    assert again == []
    assert first.assigned() | second.assigned() == {0, 1, 2, 3}
    read_all(pair, produce(client, *range(20, 40)))
    for consumer in pair:
        consumer.commit()
    second.close()
    assert until([first], lambda: first.assigned() == {0, 1, 2, 3}) == []
    first.close()
    read_all([join()], produce(client, *range(40, 60)))


def test_a_static_member_comes_back_to_its_partitions(client: karrow.Client, join: Join) -> None:
    first, second = join("i1"), join("i2")
    until([first, second], lambda: len(first.assigned()) == len(second.assigned()) == 2)
    had, others = second.assigned(), first.assigned()
    second.close()
    second = join("i2")
    until([first, second], lambda: second.assigned() == had)
    assert first.assigned() == others
    read_all([first, second], produce(client, *range(8)))
