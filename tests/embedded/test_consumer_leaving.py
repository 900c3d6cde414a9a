"""Consumers that leave: to read something else, because nobody wants them, or for good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from karrow.broker.threaded import Broker
from tests.embedded.consuming import (
    GROUP,
    KINDS,
    TOPIC,
    everything,
    fill,
    places,
    reader,
    stored,
    take,
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(heartbeat_interval=0.1) as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How the group shares its partitions."""
    return KINDS[request.param]


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
