"""What a consumer cannot go on without ends: it says so, and is dead."""

from __future__ import annotations

from typing import Any

import pytest

import karrow
from karrow.aio.consuming.commits import Commits
from karrow.aio.consuming.health import Watchdog
from karrow.aio.consuming.places import Places
from karrow.aio.consuming.watch import Watch
from karrow.broker.threaded import Broker
from karrow.errors import StateError
from karrow.types import HealthState
from tests.embedded.consuming import TOPIC, fill, reader, take, until


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic(TOPIC, 2)
    return shared


@pytest.mark.parametrize(
    ("owner", "method", "what"),
    [
        (Watch, "_look", "watching topics"),
        (Places, "_answered", "looking for offsets"),
        (Watchdog, "look", "the watchdog"),
        (Commits, "done_with", "committing"),
    ],
)
def test_a_task_that_breaks_is_told_of(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, what: str
) -> None:
    works = getattr(owner, method)
    broken: list[str] = []

    def breaks_once(*given: Any) -> Any:
        if not broken:
            broken.append(method)
            raise ZeroDivisionError("nobody thought of it")
        return works(*given)

    monkeypatch.setattr(owner, method, breaks_once)
    fill(broker, range(5))
    with reader(broker, {}, auto_commit_interval=0.05) as consumer:
        with pytest.raises(StateError, match=f"{what} broke: ZeroDivisionError: nobody") as told:
            until(lambda: consumer.poll(0.05) and None)
        assert isinstance(told.value.__cause__, ZeroDivisionError)
        assert consumer.health().state is HealthState.DEAD
    assert broken == [method]


def test_a_consumer_whose_client_is_closed_is_dead(broker: Broker) -> None:
    fill(broker, range(5))
    with karrow.Client(broker.bootstrap) as client:
        consumer = karrow.Consumer(client, TOPIC, start="earliest")
        assert len(take(consumer, 10)) == 10
        assert consumer.health().state is HealthState.OK
    health = consumer.health()
    assert (health.state, health.reason) == (
        HealthState.DEAD,
        "the client that it shares is closed",
    )
    with pytest.raises(StateError, match="the client is closed"):
        consumer.poll(5)
    consumer.close()
