"""Threads for callbacks: how many, what comes out of them, and their end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from karrow.workers.threads import Dropped, Threads


def test_results_and_errors_come_back() -> None:
    async def main() -> None:
        threads = Threads(2)
        assert await threads.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        threads.close()

    asyncio.run(main())


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(1), asyncio.CancelledError()])
def test_errors_that_no_future_takes(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def main() -> None:
        threads = Threads(1)
        with pytest.raises(RuntimeError, match=f"a callback raised {type(error).__name__}"):
            await threads.run(fail)
        assert await threads.run(lambda: 1) == 1
        threads.close()

    asyncio.run(main())


def test_threads_are_made_when_needed_and_no_more_than_allowed() -> None:
    async def main() -> None:
        threads = Threads(3)
        names = [await threads.run(lambda: threading.current_thread().name) for _ in range(5)]
        assert len(set(names)) == 1
        barrier = threading.Barrier(3)
        await asyncio.gather(*(threads.run(lambda: barrier.wait(5)) for _ in range(3)))
        together = await asyncio.gather(*(threads.run(_name_slowly) for _ in range(12)))
        assert len(set(together)) <= 3
        threads.close()

    asyncio.run(main())


def _name_slowly() -> str:
    time.sleep(0.005)
    return threading.current_thread().name


def test_threads_end() -> None:
    async def main() -> list[threading.Thread]:
        threads = Threads(2)
        used = await asyncio.gather(*(threads.run(threading.current_thread) for _ in range(2)))
        threads.close()
        return used

    for thread in asyncio.run(main()):
        thread.join(5)
        assert not thread.is_alive()
        assert thread.daemon


def test_who_comes_late_is_served() -> None:
    async def main() -> None:
        threads = Threads(1)
        go_on = threading.Event()
        waiting = asyncio.create_task(threads.run(lambda: go_on.wait(5)))
        await asyncio.sleep(0.01)
        threads.close()
        late = await threads.run(threading.current_thread)
        go_on.set()
        assert await waiting
        late.join(5)
        assert not late.is_alive()

    asyncio.run(main())


def test_result_after_the_loop_is_gone_is_dropped() -> None:
    go_on = threading.Event()
    threads = Threads(1)

    async def main() -> None:
        task = asyncio.create_task(threads.run(lambda: go_on.wait(5)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    go_on.set()
    threads.close()


def test_result_that_nobody_waits_for_is_dropped() -> None:
    async def main() -> None:
        threads = Threads(1)
        go_on = threading.Event()
        task = asyncio.create_task(threads.run(lambda: go_on.wait(5)))
        await asyncio.sleep(0.01)
        task.cancel()
        go_on.set()
        assert await threads.run(lambda: 2) == 2
        threads.close()

    asyncio.run(main())


def test_function_that_is_dropped_before_its_turn_is_never_called() -> None:
    async def main() -> None:
        threads = Threads(1)
        go_on, calls = threading.Event(), list[int]()
        first = threads.begin(lambda: go_on.wait(20))
        second = threads.begin(lambda: calls.append(2))
        third = threads.begin(lambda: calls.append(3))
        while first.since is None:  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        assert second.since is None
        first.drop()  # too late
        second.drop()
        with pytest.raises(Dropped):
            await second.result()
        go_on.set()
        assert await first.result()
        await third.result()
        assert calls == [3]
        assert third.since is not None
        threads.close()

    asyncio.run(main())


def test_function_that_nobody_waits_for_any_more_is_not_called() -> None:
    async def main() -> None:
        threads = Threads(1)
        go_on, calls = threading.Event(), list[int]()
        first = threads.begin(lambda: go_on.wait(20))
        waiting = asyncio.create_task(threads.run(lambda: calls.append(2)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        go_on.set()
        assert await first.result()
        assert await threads.run(lambda: list(calls)) == []
        threads.close()

    asyncio.run(main())
