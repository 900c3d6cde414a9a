"""Consumers that leave: to read something else, because nobody wants them, or for good."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from tests.embedded.consuming import (
    GROUP,
    KINDS,
    QUICK,
    TIMEOUT,
    TOPIC,
    everything,
    fill,
    members_of,
    places,
    poll_until,
    reader,
    stored,
    take,
    until,
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(heartbeat_interval=0.1) as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


def test_who_has_unsubscribed_may_assign(broker: Broker, kind: dict[str, Any]) -> None:
    """No session of the member that it was holds anything back, and nothing lost blocks commits."""
    fill(broker, range(5))
    with reader(broker, kind, auto_commit=False) as consumer:
        take(consumer, 10)
        broker.expire_session(group=GROUP)
        consumer.unsubscribe()
        consumer.assign({(TOPIC, 0): 2, (TOPIC, 1): 3})
        assert places(take(consumer, 5)) == [(0, 2), (0, 3), (0, 4), (1, 3), (1, 4)]
        consumer.commit()
        assert stored(broker) == {0: 5, 1: 5}
        consumer.unsubscribe()
        consumer.subscribe(TOPIC)
        fill(broker, range(5, 8))
        assert places(take(consumer, 6)) == everything(8, begin=5)


@pytest.mark.parametrize("way", ["static", "by hand"])
def test_close_waits_for_commits_on_their_way(broker: Broker, way: str) -> None:
    """Also where no farewell to a group takes its time."""
    fill(broker, range(5))
    options: dict[str, Any] = {"instance_id": "one"} if way == "static" else {}
    consumer = reader(broker, KINDS["eager"], auto_commit=False, **options)
    if way == "by hand":
        consumer.assign({(TOPIC, 0): 0, (TOPIC, 1): 0})
    take(consumer, 10)
    broker.delay("OffsetCommit", 0.3)
    future = consumer.commit_nowait()
    consumer.close()
    future.result(TIMEOUT)
    assert stored(broker) == {0: 5, 1: 5}


def drop(held: list[karrow.Consumer]) -> None:
    """Let go of the last reference to a consumer."""
    held.clear()
    gc.collect()


def test_who_is_dropped_in_a_rebalance_that_waits_for_it_leaves(
    broker: Broker, kind: dict[str, Any]
) -> None:
    """Nobody waits for listeners of an application that has gone."""
    told: list[object] = []
    fill(broker, range(5))
    held = [reader(broker, kind, on_revoked=told.append)]
    take(held[0], 10)
    assert not held[0].poll(0.1)  # it is done with all
    waiting = held[0].twin.listeners._errands
    with reader(broker, kind) as other:
        poll_until(other, lambda: waiting)
        with pytest.warns(ResourceWarning, match="was not closed"):
            drop(held)
        poll_until(other, lambda: len(other.assignment) == 2)
        assert members_of(broker) == 1
    assert told == []


def test_who_is_dropped_while_it_should_hear_of_a_loss_is_closed(
    broker: Broker, kind: dict[str, Any]
) -> None:
    told: list[object] = []
    fill(broker, range(5))
    held = [reader(broker, kind, on_lost=told.append)]
    take(held[0], 10)
    twin = held[0].twin
    broker.expire_session(group=GROUP)
    until(lambda: twin.listeners._errands)
    with pytest.warns(ResourceWarning, match="was not closed"):
        drop(held)
    until(lambda: twin._ending is not None and twin._ending.done())
    assert members_of(broker) == 0
    assert told == []


def test_close_ends_though_a_listener_does_not(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 40: it has the time of a rebalance; then the application hears of it."""
    fill(broker, range(5))

    async def main() -> None:
        lost = asyncio.Event()

        async def on_lost(_: Sequence[object]) -> None:
            lost.set()
            await asyncio.Event().wait()

        options = {**QUICK, "group": GROUP, **kind, "rebalance_timeout": 1.0}
        consumer = karrow.AsyncConsumer(broker.bootstrap, TOPIC, on_lost=on_lost, **options)
        while not consumer.assignment:
            await consumer.poll(0.05)
        broker.expire_session(group=GROUP)
        await asyncio.wait_for(lost.wait(), TIMEOUT)
        with pytest.raises(errors.CallbackError, match="on_lost did not return"):
            await asyncio.wait_for(consumer.close(), TIMEOUT)

    asyncio.run(main())
