"""Functions called with records: how they end their group, and where it begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import karrow
from karrow import Commit, EndReason, Stop
from karrow.broker.threaded import Broker
from tests.embedded.working import GROUP, TOPIC, Notes, committed, put, until


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic(TOPIC, 1)
    return shared


def plain(answer: Callable[[int], object]) -> Callable[..., object]:
    return lambda _id, _topic, _partition, offset, *_: answer(offset)


def awaited(answer: Callable[[int], object]) -> Callable[..., object]:
    async def function(_id: Any, _topic: str, _partition: int, offset: int, *_: Any) -> object:
        return answer(offset)

    return function


def half_awaited(answer: Callable[[int], object]) -> Callable[..., object]:
    """A plain function that gives something to be awaited."""
    function = awaited(answer)

    def plainly(*given: Any) -> object:
        return function(*given)

    return plainly


@pytest.mark.parametrize("kind", [plain, awaited, half_awaited])
@pytest.mark.parametrize(("commit", "stored"), [(None, 2), (Commit.SYNC, 3), (Commit.ASYNC, 3)])
def test_a_stop_from_the_function_ends_the_group(
    broker: Broker, kind: Callable[..., Any], commit: Commit | None, stored: int
) -> None:
    """What was handled before it is stored; its own record is if it says so."""
    put(broker, range(5))
    seen: list[int] = []

    def answer(offset: int) -> Stop | None:
        seen.append(offset)
        return Stop("enough", commit=commit) if offset == 2 else None

    group = karrow.start_consumer(
        broker.bootstrap, GROUP, kind(answer), topics=[TOPIC], fetch_interval=0.0, fetch_size=5
    )
    assert group.wait(10) == karrow.Ending(EndReason.HANDLER, "enough")
    assert seen == [0, 1, 2]
    assert committed(broker) == {(TOPIC, 0): stored}


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({}, 0),
        ({"config": karrow.WorkerConfig(threads=3)}, 0),
        ({"config": karrow.WorkerConfig(start="latest"), "start": 3}, 3),
    ],
)
def test_a_new_group_begins_at_start_whatever_other_options_say(
    broker: Broker, notes: Notes, more: dict[str, Any], first: int
) -> None:
    put(broker, range(5))
    group = karrow.start_consumer(
        broker.bootstrap,
        GROUP,
        lambda *given: notes.add("offset", given[3]),
        topics=[TOPIC],
        fetch_interval=0.0,
        **more,
    )
    until(lambda: 4 in notes.of("offset"))
    group.stop()
    assert notes.of("offset") == list(range(first, 5))
