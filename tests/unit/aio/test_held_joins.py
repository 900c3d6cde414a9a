"""Joins that a broker holds, by one that is there and by one that is not any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import pytest

from karrow.aio.calls.base import Request
from karrow.aio.groups.membership import Membership, MemberState
from karrow.errors import ConnectError, RequestTimeout
from tests.membership import EmbeddedGroup, Pair, group, run, settled, until

LIMIT = 0.6


@contextlib.asynccontextmanager
async def held(g: EmbeddedGroup) -> AsyncIterator[tuple[Pair, Pair]]:
    """A member whose join waits for another one, which gives up its partitions in its own time."""
    first = await g.join()
    await until(settled(first))
    gate = first[1].gate = asyncio.Event()
    second = await g.join(request_timeout=LIMIT)
    try:
        # The second one of its joins: the first gave it its id.
        await until(lambda: second[0].member_id and second[0].state is MemberState.JOINING)
        await until(lambda: first[1].begun)
        yield first, second
    finally:
        gate.set()


def test_a_join_may_be_held_for_as_long_as_a_rebalance_takes_and_not_as_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[tuple[int, int]] = []
    send = Membership._send

    async def noted(self: Membership, request: Request) -> Any:
        def body(version: int, connection: Any) -> Any:
            made: Any = request.body(version, connection)
            if request.name == "JoinGroup":
                said.append((made["session_timeout_ms"], made["rebalance_timeout_ms"]))
            return made

        return await send(self, request._replace(body=body))

    async def main() -> None:
        async with group() as g:
            chosen: list[Any] = [{}, {"rebalance_timeout": 45.0}, {"max_poll_interval": 90.0}]
            for options in chosen:
                member = await g.join(session_timeout=12.0, **options)
                await until(settled(member))
                await member[0].close()

    monkeypatch.setattr(Membership, "_send", noted)
    run(main())
    times = [(12_000, 300_000), (12_000, 45_000), (12_000, 90_000)]
    assert list(dict.fromkeys(said)) == times


def test_a_coordinator_that_falls_silent_is_noticed_within_two_requests() -> None:
    async def main() -> None:
        async with group() as g, held(g) as (first, second):
            member = second[0]
            g.broker.delay("ApiVersions", 2 * LIMIT)
            began = monotonic()
            await until(lambda: member.trouble is not None)
            assert monotonic() - began < 2 * LIMIT
            assert isinstance(member.trouble, (RequestTimeout, ConnectError))
            assert first[1].gate is not None
            first[1].gate.set()
            await until(lambda: settled(first, second)() and member.trouble is None)
            assert not second[1].heard("lost")

    run(main())


def test_a_join_is_begun_anew_behind_a_coordinator_that_fell_silent() -> None:
    """It may be another broker's group by now, and nobody would ever answer the first join."""

    async def main() -> None:
        async with group() as g, held(g) as (_, second):
            named = second[0].member_id
            joins = len(g.sent("JoinGroup"))
            looked_for = len(g.sent("FindCoordinator"))
            g.broker.delay("ApiVersions", 2 * LIMIT)
            await until(lambda: len(g.sent("JoinGroup")) > joins)
            assert second[0].member_id == named
            assert len(g.sent("FindCoordinator")) > looked_for

    run(main())


def test_a_coordinator_that_answers_may_hold_a_join_for_as_long_as_it_likes() -> None:
    async def main() -> None:
        async with group() as g, held(g) as (_, second):
            joins = len(g.sent("JoinGroup"))
            asked = len(g.sent("ApiVersions"))
            await until(lambda: len(g.sent("ApiVersions")) > asked + 2)
            assert second[0].state is MemberState.JOINING
            assert second[0].trouble is None
            assert len(g.sent("JoinGroup")) == joins

    run(main())


def test_a_member_that_keeps_partitions_keeps_them_over_a_silence() -> None:
    """Its heartbeats are not answered for a while: it joins anew before its session is over."""

    async def main() -> None:
        async with group(assignors="cooperative-sticky", request_timeout=LIMIT) as g:
            first = await g.join()
            await until(settled(first))
            second = await g.join()
            await until(lambda: len(g.owners) == 4 and settled(first, second)())
            had = first[1].owned()
            gate = second[1].gate = asyncio.Event()
            second[1].topics = frozenset({"other"})
            second[0].rejoin("it gives up everything, and takes its time")
            try:
                await until(lambda: second[1].begun)
                first[0].rejoin("to see")
                await until(lambda: first[0].state is MemberState.JOINING)
                g.broker.delay("Heartbeat", 2 * LIMIT, times=100)
                began = monotonic()
                await until(lambda: first[0].trouble is not None)
                assert monotonic() - began < 2 * LIMIT
                assert first[1].owned() == had
                g.broker.clear_faults()
            finally:
                gate.set()
            await until(lambda: first[0].state is MemberState.STABLE and first[0].trouble is None)
            assert not first[1].heard("lost")

    run(main())


@pytest.mark.parametrize("way", ["fail", "close"])
def test_one_answer_that_says_little_costs_nothing(way: str) -> None:
    async def main() -> None:
        async with group() as g, held(g) as (_, second):
            joins = len(g.sent("JoinGroup"))
            asked = len(g.sent("ApiVersions"))
            await until(lambda: len(g.sent("ApiVersions")) > asked + 1)  # there is a connection now
            asked = len(g.sent("ApiVersions"))
            if way == "fail":
                g.broker.fail("ApiVersions", "UNKNOWN_SERVER_ERROR")
            else:
                g.broker.close("ApiVersions")
            await until(lambda: len(g.sent("ApiVersions")) > asked + 2)
            assert second[0].state is MemberState.JOINING
            assert len(g.sent("JoinGroup")) == joins

    run(main())
