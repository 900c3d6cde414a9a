"""Fixtures that several tests of the embedded broker share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from karrow.broker.threaded import Broker
from tests.embedded.consuming import KINDS, NODES, TOPIC
from tests.embedded.working import Notes


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    """A broker for all tests of a file, which reset it."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def trio() -> Iterator[Broker]:
    """Three nodes, and a topic of two partitions that all of them have."""
    with Broker(brokers=NODES, heartbeat_interval=0.1) as broker:
        broker.create_topic(TOPIC, 2, NODES)
        yield broker


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How a group shares its partitions."""
    return KINDS[request.param]


@pytest.fixture
def notes() -> Notes:
    """What workers were told."""
    return Notes()
