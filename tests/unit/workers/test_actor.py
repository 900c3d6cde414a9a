"""A worker by itself, with nobody but a supervisor that lets it do."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

import karrow
from karrow import Commit, Handler, Stop
from karrow.types import TopicPartition
from karrow.workers.actor import Actor, WorkerState
from karrow.workers.mailbox import Batch
from karrow.workers.threads import Threads

PLACE = TopicPartition("orders", 0)


class Supervisor:
    """Lets workers do what they want, and notes it."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = Threads(threads)
        self.noted: list[Any] = []

    def about(self) -> dict[str, Any]:
        return {}

    def taken(self, actor: Actor) -> None:
        self.noted.append("taken")

    def handled(self, actor: Actor) -> None:
        self.noted.append("handled")

    def done(self, partition: TopicPartition, offset: int, count: int) -> None:
        self.noted.append(offset)

    async def store(self, actor: Actor, offset: int) -> None:
        self.noted.append("stored")

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        self.noted.append("skipped")

    def stopped(self, stop: Stop, *, is_refusal: bool) -> None:
        self.noted.append(stop)

    def failed(self, error: Exception) -> None:
        self.noted.append(error)

    async def crashed(self, actor: Actor, callback: str, error: Exception) -> bool:
        self.noted.append(error)
        return False


def actor_of(kind: type[Handler], supervisor: Supervisor, **arguments: Any) -> Actor:
    return Actor(PLACE, kind=kind, arguments=arguments, group=None, supervisor=supervisor, room=1)


def test_callback_that_is_cancelled_before_it_began() -> None:
    class Late(Handler):
        async def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            raise AssertionError("it was to begin no more")

    class Hasty(Supervisor):
        def taken(self, actor: Actor) -> None:
            asyncio.get_running_loop().call_soon(actor.let_be)

    async def main() -> None:
        supervisor = Hasty()
        actor = actor_of(Late, supervisor)
        actor.mailbox.give(Batch([], 1, 1, (0, 0)))
        while not actor.has_ended:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        assert supervisor.noted == []

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert told == []


def test_callback_of_a_worker_that_is_cut_off_is_cancelled_like_any_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may put things in order, and wait for that."""
    noted: list[str] = []

    class Orderly(Handler):
        async def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            try:
                noted.append("begun")
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                noted.append("in order")
                raise
            return Commit.ASYNC

    async def main() -> None:
        actor = actor_of(Orderly, Supervisor())
        actor.mailbox.give(Batch([], 1, 1, (0, 0)))
        while not noted:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        actor.cancel()
        while not (actor.has_ended and len(noted) == 2):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), 20))
    gc.collect()
    assert noted == ["begun", "in order"]
    assert caplog.records == []


class Blocking(Handler):
    """Plain callbacks that last until they are allowed to end."""

    def setup(self, *_: Any, go_on: threading.Event, calls: list[str]) -> None:
        self._go_on = go_on
        self._calls = calls

    def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
        self._calls.append(str(records[0]))
        self._go_on.wait(20)
        return Commit.ASYNC

    def teardown(self) -> None:
        self._calls.append("teardown")


async def two_for_one_thread(
    go_on: threading.Event, calls: list[str]
) -> tuple[Supervisor, Actor, Actor]:
    """Workers of which one has the thread, and the other waits for it with its records."""
    supervisor = Supervisor()
    first = actor_of(Blocking, supervisor, go_on=go_on, calls=calls)
    second = actor_of(Blocking, supervisor, go_on=go_on, calls=calls)
    while not first.state == second.state == WorkerState.WAITING:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    first.mailbox.give(Batch(["first"], 1, 1, (0, 0)))
    while first.since is None:  # noqa: ASYNC110 - a thread sets it
        await asyncio.sleep(0.001)
    second.mailbox.give(Batch(["second"], 1, 1, (0, 0)))
    while second.callback is None:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return supervisor, first, second


def test_time_begins_when_a_thread_takes_the_callback_up() -> None:
    async def main() -> None:
        go_on, calls = threading.Event(), list[str]()
        supervisor, first, second = await two_for_one_thread(go_on, calls)
        later = time.monotonic() + 100
        assert first.busy_for(later) >= 100
        assert second.callback == "handle_records"
        assert second.busy_for(later) == 0
        go_on.set()
        while len(supervisor.noted) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert await first.finish(20)
        assert await second.finish(20)
        assert await first.release(20)
        assert await second.release(20)
        assert calls == ["first", "second", "teardown", "teardown"]

    asyncio.run(main())


@pytest.mark.parametrize("is_lost", [True, False])
def test_callback_that_waits_for_a_thread_is_dropped_at_the_end(is_lost: bool) -> None:
    async def main() -> None:
        go_on, calls = threading.Event(), list[str]()
        supervisor, first, second = await two_for_one_thread(go_on, calls)
        if is_lost:
            second.let_be()
        else:
            assert await second.finish(20)
        go_on.set()
        assert await first.finish(20)
        assert await first.release(20)
        assert await second.release(20)
        assert calls == ["first", "teardown", "teardown"]
        assert supervisor.noted.count(1) == 1

    asyncio.run(main())
