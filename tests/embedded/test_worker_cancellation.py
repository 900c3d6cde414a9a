"""Workers whose tasks or calls somebody cancels: none ends in silence, and all can be stopped."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

import karrow
from karrow import EndReason
from karrow.broker.threaded import Broker
from karrow.errors import GroupEnded, StateError
from karrow.types import HealthState
from tests.embedded.consuming import members_of
from tests.embedded.test_consumer_cancellation import MOST_STEPS, CutOff, cut, expect_no_tasks
from tests.embedded.working import (
    GROUP,
    TIMEOUT,
    TOPIC,
    AsyncNoting,
    Notes,
    Talking,
    committed,
    put,
)


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic(TOPIC, 2)
    return shared


def awaited(
    broker: Broker, handler: type[karrow.Handler], notes: Notes, **options: Any
) -> karrow.AsyncWorkerGroup:
    given = {"group": GROUP, "topics": [TOPIC], "start": "earliest", "max_wait": 0.05, **options}
    return karrow.AsyncWorkerGroup(handler, broker.bootstrap, arguments={"notes": notes}, **given)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


async def until_handled(group: karrow.AsyncWorkerGroup, count: int) -> None:
    await until(lambda: sum(worker.records for worker in group.workers) == count)


def cancel(name: str) -> None:
    """What somebody does who cancels tasks that are not theirs."""
    tasks = [one for one in asyncio.all_tasks() if one.get_name().startswith(name)]
    assert tasks
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize(
    "name",
    [
        "karrow worker of orders-0",
        "karrow worker of",
        "karrow feed",
        "karrow commits of workers",
        "karrow watchdog of workers",
        "karrow end of workers",
    ],
)
@pytest.mark.parametrize("kind", [Talking, AsyncNoting])
def test_a_group_whose_task_somebody_cancels_ends_in_order(
    broker: Broker, notes: Notes, name: str, kind: type[karrow.Handler]
) -> None:
    """Nobody else would handle its records, or commit them; what is done is stored."""
    put(broker, range(3))

    async def main() -> None:
        group = awaited(broker, kind, notes, commit_interval=60)
        await group.start()
        await until_handled(group, 3)
        cancel(name)
        with pytest.raises(GroupEnded, match="somebody has cancelled its task") as raised:
            await group.wait(TIMEOUT)
        assert raised.value.reason == EndReason.ERROR
        assert isinstance(raised.value.__cause__, StateError)
        assert group.health().state is HealthState.DEAD

    asyncio.run(main())
    assert committed(broker)[TOPIC, 0] == 3


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_group_that_somebody_cancels_as_a_whole_has_ended(
    broker: Broker, notes: Notes, is_begun: bool
) -> None:
    put(broker, [1])

    async def main() -> None:
        group = awaited(broker, AsyncNoting, notes)
        await group.start()
        if is_begun:
            await until(notes.values)
        cancel("karrow")
        with pytest.raises(GroupEnded, match="cancelled"):
            await group.wait(TIMEOUT)
        assert group.health().state is HealthState.DEAD
        assert (await group.stop()).reason is EndReason.ERROR

    asyncio.run(main())


def test_who_waits_for_the_answer_of_a_worker_that_is_cancelled_is_told(
    broker: Broker, notes: Notes
) -> None:
    class Pondering(AsyncNoting):
        async def handle_call(self, _: object) -> None:
            self.notes.add("asked", 1)
            await asyncio.sleep(60)

    async def main() -> None:
        group = awaited(broker, Pondering, notes, partitions=[(TOPIC, 0)], topics=[])
        await group.start()
        await until(lambda: group.active)
        call = asyncio.create_task(group.call((TOPIC, 0), "?", TIMEOUT))
        await until(lambda: notes.of("asked"))
        cancel("karrow worker of")
        with pytest.raises(StateError, match="the worker of orders-0 has ended"):
            await call
        await group.stop()

    asyncio.run(main())


@pytest.mark.parametrize("is_begun", [True, False])
def test_stop_that_is_cut_off_anywhere_can_be_made_again(
    broker: Broker, notes: Notes, is_begun: bool
) -> None:
    """What is done is stored, the group is left, and nobody is left behind."""
    put(broker, range(3))

    async def main() -> None:
        before = asyncio.all_tasks()
        for at in range(1, MOST_STEPS):
            name = f"{GROUP}-{at}"
            group = awaited(broker, AsyncNoting, notes, group=name, commit_interval=60)
            if is_begun:
                assert await cut(group.start(), 1) == (True, None)
                await until_handled(group, 3)
            is_through, _ = await cut(group.stop(), at)
            async with asyncio.timeout(TIMEOUT):
                assert await group.stop() == karrow.Ending(EndReason.STOPPED)
            await expect_no_tasks(before)
            assert group.state == "ended"
            stored = await asyncio.to_thread(committed, broker, name)
            assert stored.get((TOPIC, 0)) == (3 if is_begun else None)
            if is_through:
                break

    asyncio.run(main())


@pytest.mark.parametrize("kind", [Talking, AsyncNoting])
def test_a_group_that_is_cut_off_anywhere_in_its_end_has_ended(
    broker: Broker, notes: Notes, kind: type[karrow.Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has left the others, and nothing of it is left behind."""
    put(broker, range(3))

    async def cut_off(at: int, before: set[asyncio.Task[Any]]) -> bool:
        group = awaited(broker, kind, notes, group=f"{GROUP}-{at}")
        cutting = CutOff(group._main(), at)

        async def main() -> None:
            await cutting

        monkeypatch.setattr(group, "_main", main)
        await group.start()
        await until_handled(group, 3)
        async with asyncio.timeout(TIMEOUT):
            assert await group.stop() == karrow.Ending(EndReason.STOPPED)
        assert (group.state, group.health().state) == ("ended", HealthState.DEAD)
        await expect_no_tasks(before)
        assert await asyncio.to_thread(members_of, broker, f"{GROUP}-{at}") == 0
        return cutting.is_through

    async def main() -> None:
        before = asyncio.all_tasks()
        at = 2  # the first is where it works
        while not await cut_off(at, before):
            at += 1
        assert at > 5

    asyncio.run(main())


def test_waits_and_calls_that_are_cut_off_anywhere_leave_the_group_at_work(
    broker: Broker, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    class Answering(AsyncNoting):
        async def handle_call(self, message: object) -> object:
            await asyncio.sleep(0.01)
            if isinstance(message, Exception):
                raise message
            return message

    async def main() -> None:
        before = asyncio.all_tasks()
        group = awaited(broker, Answering, notes)
        async with group:
            await until(lambda: len(group.assignments) == 2)
            for at in range(1, MOST_STEPS):
                said = await cut(group.call((TOPIC, 0), 1), at)
                failed = await cut(tried(group.call((TOPIC, 0), ValueError("no"))), at)
                seen = await cut(group.wait(0.01), at)
                assert await group.call((TOPIC, 0), 2) == 2
                if said == (True, 1) and failed == seen == (True, None):
                    break
            await asyncio.to_thread(put, broker, range(3))
            await until(lambda: len(notes.values()) == 3)
        await expect_no_tasks(before)

    asyncio.run(main())
    gc.collect()
    assert caplog.records == []


async def tried(call: Coroutine[Any, Any, object]) -> None:
    with pytest.raises(ValueError, match="no"):
        await call


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_is_cancelled_at_the_end_of_its_time_is_no_failure(
    broker: Broker, notes: Notes, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition that goes, or a group that stops, while its callback lasts."""

    class Lasting(AsyncNoting):
        async def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.note(records)
            await asyncio.sleep(60)

    put(broker, [1])

    async def main() -> None:
        group = awaited(broker, Lasting, notes, shutdown=0.1)
        await group.start()
        await until(notes.values)
        if is_lost:
            await group._lost(group.assignments)
            await asyncio.sleep(0.1)
            assert group.ending is None
        assert await group.stop() == karrow.Ending(EndReason.STOPPED)

    asyncio.run(main())
    assert caplog.records == []
