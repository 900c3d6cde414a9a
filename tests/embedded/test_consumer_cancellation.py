"""Calls of consumers that are cancelled at every single point where they may wait: row 40."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from tests.embedded.consuming import (
    GROUP,
    QUICK,
    TIMEOUT,
    TOPIC,
    everything,
    fill,
    group_of,
    members_of,
    places,
)

COUNT = 20
MOST_STEPS = 60


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(heartbeat_interval=0.1) as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


class CutOff:
    """Runs a coroutine and cancels the task at the given suspension, counted from 1."""

    def __init__(self, work: Coroutine[Any, Any, Any], at: int) -> None:
        self._work = work
        self._left = at

    @property
    def is_through(self) -> bool:
        """Whether it ended by itself before."""
        return self._left > 0

    def __await__(self) -> Generator[Any, None, Any]:
        steps = self._work.__await__()
        error: BaseException | None = None
        while True:
            try:
                waited_for = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            self._left -= 1
            if self._left == 0:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            error = None
            try:
                yield waited_for
            except BaseException as thrown:  # noqa: BLE001 - handed on
                error = thrown


async def cut(work: Coroutine[Any, Any, Any], at: int) -> tuple[bool, Any]:
    """Whether the work ended before it could be cut off there, and what it gave."""

    async def inside() -> Any:
        return await cutting

    cutting = CutOff(work, at)
    task = asyncio.create_task(inside())
    outcome: Any = (await asyncio.gather(task, return_exceptions=True))[0]
    if isinstance(outcome, asyncio.CancelledError):
        return False, None
    if isinstance(outcome, BaseException):
        raise outcome
    return cutting.is_through, outcome


async def rest(consumer: karrow.AsyncConsumer, seen: list[tuple[int, int]], count: int) -> None:
    """Read what is left."""
    async with asyncio.timeout(TIMEOUT):
        while len(seen) < count:
            seen += places(await consumer.poll(0.2))


async def expect_no_tasks(before: set[asyncio.Task[Any]]) -> None:
    """Nothing is left behind."""
    for _ in range(200):
        if not asyncio.all_tasks() - before:
            return
        await asyncio.sleep(0.01)
    raise AssertionError([task.get_name() for task in asyncio.all_tasks() - before])


Call = Callable[[karrow.AsyncConsumer], Coroutine[Any, Any, None]]
Reading = Callable[[karrow.AsyncConsumer], Awaitable[list[tuple[int, int]]]]


async def by_poll(consumer: karrow.AsyncConsumer) -> list[tuple[int, int]]:
    return places(await consumer.poll(TIMEOUT, max_records=3))


async def by_iteration(consumer: karrow.AsyncConsumer) -> list[tuple[int, int]]:
    return places([await anext(aiter(consumer))])


async def by_batch(consumer: karrow.AsyncConsumer) -> list[tuple[int, int]]:
    batches = consumer.batches(max_records=3)
    rows = (await anext(batches)).to_pylist()
    return [(row["partition"], row["offset"]) for row in rows]


@pytest.mark.parametrize("kind", ["alone", "cooperative", "served"])
@pytest.mark.parametrize("read", [by_poll, by_iteration, by_batch])
def test_reading_that_is_cut_off_anywhere_loses_nothing(
    broker: Broker, kind: str, read: Reading
) -> None:
    """Row 40: at the first, second, third ... suspension; then all comes, once and in order."""
    fill(broker, range(COUNT))

    async def main() -> None:
        before = asyncio.all_tasks()
        for at in range(1, MOST_STEPS):
            options = {**QUICK, **group_of(kind, at), "auto_commit": False}
            consumer = karrow.AsyncConsumer(broker.bootstrap, TOPIC, **options)
            seen: list[tuple[int, int]] = []
            is_through, found = await cut(read(consumer), at)  # type: ignore[arg-type]
            seen += found or []
            await rest(consumer, seen, 2 * COUNT)
            for partition in range(2):
                mine = [place for place in seen if place[0] == partition]
                assert mine == [(partition, number) for number in range(COUNT)], at
            await consumer.close()
            if is_through:
                break
        await expect_no_tasks(before)

    asyncio.run(main())


def test_large_batches_that_are_cut_off_anywhere_are_read_again(broker: Broker) -> None:
    """Row 40: decoding beside the loop is given up, and begun again."""
    with karrow.Producer(broker.bootstrap, linger=1.0, batch_bytes=900_000) as producer:
        for number in range(9):
            producer.send(TOPIC, b"%d" % number * 100_000, partition=0)

    async def main() -> None:
        for read in (by_poll, by_iteration, by_batch):
            consumer = karrow.AsyncConsumer(broker.bootstrap, TOPIC, **QUICK)
            seen: list[tuple[int, int]] = []
            at = 1
            async with asyncio.timeout(TIMEOUT):
                while len(seen) < 9:
                    is_through, found = await cut(read(consumer), at)
                    seen += found or []
                    at = 1 if is_through else at + 1
            assert seen == everything(9, 1)
            await consumer.close()

    asyncio.run(main())


async def committing(consumer: karrow.AsyncConsumer) -> None:
    await consumer.commit()


async def asking(consumer: karrow.AsyncConsumer) -> None:
    await consumer.committed()
    await consumer.lag()
    await consumer.watermarks((TOPIC, 0))
    assert await consumer.partitions_for("other") == 1
    assert await consumer.offsets_for_times({(TOPIC, 0): "-1h"})


async def leaving(consumer: karrow.AsyncConsumer) -> None:
    await consumer.unsubscribe()


async def changing(consumer: karrow.AsyncConsumer) -> None:
    await consumer.subscribe(TOPIC, "other")


async def matching(consumer: karrow.AsyncConsumer) -> None:
    await consumer.subscribe(f"^{TOPIC}")


@pytest.mark.parametrize("kind", ["cooperative", "served"])
@pytest.mark.parametrize("call", [committing, asking, leaving, changing, matching])
def test_calls_that_are_cut_off_anywhere_leave_the_consumer_usable(
    broker: Broker, kind: str, call: Call
) -> None:
    """Row 40: the call is made again, all is read, commits in the background go on, it closes."""
    broker.create_topic("other", 1)
    fill(broker, range(COUNT))

    async def main() -> None:
        before = asyncio.all_tasks()
        for at in range(1, MOST_STEPS):
            # Who is cut off while it joins may leave somebody behind that the group waits for.
            options = {**QUICK, **group_of(kind, at), "auto_commit_interval": 0.02}
            options |= {"session_timeout": 6.0, "rebalance_timeout": 6.0}
            async with karrow.AsyncConsumer(broker.bootstrap, TOPIC, **options) as consumer:
                seen = places(await consumer.poll(TIMEOUT, max_records=3))
                is_through, _ = await cut(call(consumer), at)
                async with asyncio.timeout(TIMEOUT):
                    await call(consumer)
                    if call is leaving:
                        await consumer.subscribe(TOPIC)
                    # What was handed out may come again where it could not be committed.
                    wanted = set(everything(COUNT))
                    while set(seen) < wanted:
                        seen += places(await consumer.poll(0.2))
                    await consumer.poll(0.0)
                    while True:
                        found = await consumer.committed([(TOPIC, 0), (TOPIC, 1)])
                        if {it.offset for it in found.values()} == {COUNT}:
                            break
                        await consumer.poll(0.01)
            if is_through:
                break
        await expect_no_tasks(before)

    asyncio.run(main())


async def assigning(consumer: karrow.AsyncConsumer) -> None:
    await consumer.assign([(TOPIC, 1)])


async def adding(consumer: karrow.AsyncConsumer) -> None:
    await consumer.assign({(TOPIC, 1): "earliest"}, keep=True)


async def giving_up(consumer: karrow.AsyncConsumer) -> None:
    await consumer.unassign([(TOPIC, 0)])


# Where what is left to read begins in each partition that is still assigned after three records.
ASSIGNED: dict[Call, dict[int, int]] = {assigning: {1: 0}, adding: {0: 3, 1: 0}, giving_up: {}}


@pytest.mark.parametrize("call", ASSIGNED)
def test_assignments_that_are_cut_off_anywhere_can_be_made_again(
    broker: Broker, call: Call
) -> None:
    """Row 40: what was done with is stored, and each partition read from where it was."""
    fill(broker, range(COUNT))
    begins = ASSIGNED[call]

    async def main() -> None:
        before = asyncio.all_tasks()
        for at in range(1, MOST_STEPS):
            group = f"{GROUP}-{at}"
            async with karrow.AsyncConsumer(broker.bootstrap, group=group, **QUICK) as consumer:
                await consumer.assign([(TOPIC, 0)])
                assert len(await consumer.poll(TIMEOUT, max_records=3)) == 3
                consumer.pause((TOPIC, 0))
                assert await consumer.poll(0.0) == []  # done with them
                is_through, _ = await cut(call(consumer), at)
                async with asyncio.timeout(TIMEOUT):
                    await call(consumer)
                assert {one.partition for one in consumer.assignment} == set(begins)
                if 0 in begins:
                    consumer.resume((TOPIC, 0))
                else:
                    found = await consumer.committed([(TOPIC, 0)])
                    assert [it.offset for it in found.values()] == [3]
                expected = [(one, n) for one, begin in begins.items() for n in range(begin, COUNT)]
                seen: list[tuple[int, int]] = []
                await rest(consumer, seen, len(expected))
                assert sorted(seen) == expected
            if is_through:
                break
        assert (at > 1) is (call is not adding)  # which has nothing to wait for
        await expect_no_tasks(before)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["alone", "eager", "cooperative", "served"])
def test_close_that_is_cut_off_anywhere_can_be_made_again(broker: Broker, kind: str) -> None:
    """Row 40: after the second close nothing is left, also not in the group."""
    fill(broker, range(COUNT))

    async def main() -> None:
        before = asyncio.all_tasks()
        for at in range(1, MOST_STEPS):
            grouped = group_of(kind, at)
            consumer = karrow.AsyncConsumer(broker.bootstrap, TOPIC, **QUICK, **grouped)
            assert await consumer.poll(TIMEOUT, max_records=3)
            is_through, _ = await cut(consumer.close(), at)
            async with asyncio.timeout(TIMEOUT):
                await consumer.close()
            await expect_no_tasks(before)
            with pytest.raises(errors.StateError, match="closed"):
                await consumer.poll(0.0)
            if grouped:
                assert await asyncio.to_thread(members_of, broker, grouped["group"]) == 0
            if is_through:
                break

    asyncio.run(main())
