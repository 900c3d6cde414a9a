"""Consumers on an event loop that others share, and what is left of them when it or they end."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, NoReturn

import pytest

import karrow
from karrow.broker.threaded import Broker
from karrow.errors import CallbackError, StateError
from karrow.sync.loop import run
from karrow.types import HealthState, TopicPartition
from tests.embedded.consuming import GROUP, KINDS, QUICK, TIMEOUT, TOPIC, fill

Way = Callable[[karrow.AsyncConsumer], AsyncIterator[int]]


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic(TOPIC, 1)
    return shared


async def poll_on(consumer: karrow.AsyncConsumer) -> NoReturn:
    while True:
        await consumer.poll(0.05)


async def by_polls(consumer: karrow.AsyncConsumer) -> AsyncIterator[int]:
    while True:
        yield len(await consumer.poll(TIMEOUT, max_records=1))


async def by_batches(consumer: karrow.AsyncConsumer) -> AsyncIterator[int]:
    async for batch in consumer.batches(max_records=1):
        yield batch.num_rows


@pytest.mark.parametrize("way", [by_polls, by_batches])
def test_every_call_lets_other_tasks_run(broker: Broker, way: Way) -> None:
    fill(broker, range(200), 1)

    async def main() -> list[int]:
        turns, seen = 0, []

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        async with karrow.AsyncConsumer(broker.bootstrap, TOPIC, **QUICK) as consumer:
            async for _ in way(consumer):
                seen.append(turns)
                if len(seen) == 200:
                    break
        other.cancel()
        return seen

    seen = asyncio.run(main())
    assert all(after > before for before, after in itertools.pairwise(seen))


def test_polls_without_patience_get_their_data(broker: Broker) -> None:
    fill(broker, range(3), 1)

    async def main() -> int:
        deadline = time.monotonic() + TIMEOUT
        found = 0
        async with karrow.AsyncConsumer(broker.bootstrap, TOPIC, **QUICK) as consumer:
            while found < 3 and time.monotonic() < deadline:
                found += len(await consumer.poll(0))
        return found

    assert asyncio.run(main()) == 3


class Unexpected(BaseException):
    """What no one expects."""


async def cancelled() -> None:
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task


async def unexpected() -> None:
    raise Unexpected


@pytest.mark.parametrize("trouble", [cancelled, unexpected])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_listener_that_raises_what_is_no_exception_harms_nobody(
    broker: Broker, kind: str, trouble: Callable[[], Awaitable[None]]
) -> None:
    fill(broker, range(3), 1)

    async def on_assigned(_: Iterable[TopicPartition]) -> None:
        await trouble()

    options: dict[str, Any] = {**QUICK, **KINDS[kind], "group": GROUP, "on_assigned": on_assigned}

    async def main() -> tuple[list[CallbackError], int]:
        told: list[CallbackError] = []
        found = 0
        deadline = time.monotonic() + TIMEOUT
        async with karrow.AsyncConsumer(broker.bootstrap, TOPIC, **options) as consumer:
            while found < 3 and time.monotonic() < deadline:
                try:
                    found += len(await consumer.poll(0.1))
                except CallbackError as error:
                    told.append(error)
        return told, found

    told, found = asyncio.run(main())
    assert found == 3
    assert [one.message for one in told] == [
        f"on_assigned raised {'CancelledError' if trouble is cancelled else 'Unexpected'}: "
    ]


@pytest.mark.parametrize("group", [None, GROUP])
def test_another_event_loop_is_refused(broker: Broker, group: str | None) -> None:
    fill(broker, range(3), 1)
    consumer = karrow.AsyncConsumer(broker.bootstrap, TOPIC, group=group, **QUICK)

    async def read() -> int:
        return len(await consumer.poll(TIMEOUT))

    async def close() -> None:
        await consumer.close()

    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(read()) > 0
        with pytest.raises(StateError, match="belongs to another event loop"):
            asyncio.run(read())
        assert consumer.health().state is not HealthState.DEAD
        loop.run_until_complete(close())
    finally:
        loop.close()


def test_blocking_consumer_that_has_begun_is_refused_on_the_loop_that_fetches_for_it(
    broker: Broker,
) -> None:
    """As in a handler of workers: what it waits for could not come while it waits."""
    fill(broker, range(3), 1)
    calls: list[Callable[[karrow.Consumer], object]] = [
        lambda consumer: consumer.poll(1.0),
        lambda consumer: next(consumer.batches(timeout=1.0)),
        next,  # last, since it would wait for ever
    ]
    with karrow.Consumer(broker.bootstrap, TOPIC, **QUICK) as consumer:
        assert len(consumer.poll(TIMEOUT)) == 3

        async def inside() -> None:
            for call in calls:
                with pytest.raises(StateError, match="own loop") as caught:
                    call(consumer)
                assert caught.value.hint == "use AsyncConsumer and await it"

        began = time.monotonic()
        run(inside(), "AsyncConsumer")
        assert time.monotonic() - began < 0.5
        fill(broker, [3], 1)
        assert [one.offset for one in consumer.poll(TIMEOUT)] == [3]


def test_consumer_whose_event_loop_has_ended_is_dead(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, range(3), 1)
    ended = asyncio.new_event_loop()
    ended.close()

    async def main() -> None:
        async with karrow.AsyncConsumer(broker.bootstrap, TOPIC, **QUICK) as consumer:
            assert await consumer.poll(TIMEOUT)
            assert consumer.health().state is HealthState.OK
            with monkeypatch.context() as patch:
                patch.setattr(consumer.engine, "_loop", ended)
                health = consumer.health()
            assert health.state is HealthState.DEAD
            assert health.reason == "the consumer's event loop has ended"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (None, "karrow fetch"),
        (None, "karrow topics"),
        (None, "karrow watchdog"),
        ("eager", "karrow commits"),
        ("eager", "karrow heartbeats"),
        ("eager", "karrow topics of"),
        ("cooperative", "karrow member"),
        ("served", "karrow heartbeats"),
        ("served", "karrow member"),
        ("served", "karrow"),
    ],
)
def test_a_consumer_whose_task_somebody_cancels_is_dead(
    broker: Broker, kind: str | None, name: str
) -> None:
    """Nobody else starts what would be read, committed or heard of by it."""
    fill(broker, range(3), 1)
    options = {} if kind is None else {**KINDS[kind], "group": GROUP}

    async def main() -> None:
        consumer = karrow.AsyncConsumer(broker.bootstrap, TOPIC, **{**QUICK, **options})
        while consumer.health().state is not HealthState.OK:
            await consumer.poll(0.05)
        tasks = [one for one in asyncio.all_tasks() if one.get_name().startswith(name)]
        assert tasks
        for task in tasks:
            task.cancel()
        async with asyncio.timeout(TIMEOUT):
            with pytest.raises(StateError, match="somebody has cancelled its task"):
                await poll_on(consumer)
            assert consumer.health().state is HealthState.DEAD
            await consumer.close()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [None, *KINDS])
def test_a_consumer_that_is_closed_as_its_program_is_cancelled_is_at_peace(
    broker: Broker, kind: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, range(3), 1)
    options = {} if kind is None else {**KINDS[kind], "group": GROUP}

    async def main() -> None:
        async with karrow.AsyncConsumer(broker.bootstrap, TOPIC, **{**QUICK, **options}) as reader:
            while True:
                async for _ in reader:
                    running = asyncio.current_task()
                    assert running is not None
                    running.cancel()

    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert time.monotonic() - began < TIMEOUT
    assert caplog.records == []


def test_closed_consumer_gives_nothing_more_however_often_it_is_asked(broker: Broker) -> None:
    fill(broker, range(5), 1)
    with karrow.Consumer(broker.bootstrap, TOPIC, **QUICK) as consumer:
        assert next(consumer).offset == 0
    for _ in range(3):
        with pytest.raises(StateError, match="the consumer is closed"):
            next(consumer)

    async def main() -> None:
        async with karrow.AsyncConsumer(broker.bootstrap, TOPIC, **QUICK) as consumer:
            assert (await anext(consumer)).offset == 0
        for _ in range(3):
            with pytest.raises(StateError, match="the consumer is closed"):
                await anext(consumer)

    asyncio.run(main())
