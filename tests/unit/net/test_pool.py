from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from karrow.config import ClientConfig
from karrow.errors import ConnectError, StateError
from karrow.net.connection import Connection, Peer
from karrow.net.dial import Dialer
from karrow.net.pool import COORDINATOR, GENERAL, WAITING, Link, Pool
from karrow.types import BrokerInfo
from tests.unit.net.virtual import MemoryTransport, run

PEER = Peer("b1", 9092, 1)
BOOTSTRAP = Peer("b1", 9092)
CONFIG = ClientConfig(reconnect_backoff=0.1, reconnect_backoff_max=1.0)


class FakeDialer:
    """Makes connections in memory, or fails as often as it is told."""

    def __init__(self, failures: int = 0, took: float = 0.0) -> None:
        self.failures = failures
        self.took = took
        self.times: list[float] = []
        self.attempts: list[int] = []

    async def dial(
        self, peer: Peer, *, attempt: int = 0, on_close: Callable[[Connection], object]
    ) -> Connection:
        self.times.append(asyncio.get_running_loop().time())
        self.attempts.append(attempt)
        await asyncio.sleep(self.took)
        if self.failures:
            self.failures -= 1
            raise ConnectError("refused")
        connection = Connection(peer, CONFIG, on_close=on_close)
        connection.connection_made(MemoryTransport(connection))
        return connection


def link_of(dialer: FakeDialer) -> Link:
    return Link(PEER, cast("Dialer", dialer), CONFIG)


def pool_of(dialer: FakeDialer) -> Pool:
    return Pool(cast("Dialer", dialer), CONFIG)


def test_everybody_waits_for_one_attempt() -> None:
    async def main() -> None:
        dialer = FakeDialer(took=1.0)
        link = link_of(dialer)
        found = await asyncio.gather(*(link.open() for _ in range(20)))
        assert len(set(map(id, found))) == 1
        assert len(dialer.times) == 1
        assert await link.open() is found[0]

    run(main())


def test_one_impatient_caller_does_not_spoil_the_attempt() -> None:
    async def main() -> None:
        link = link_of(FakeDialer(took=1.0))
        patient = asyncio.create_task(link.open())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await link.open()
        assert not (await patient).is_closed

    run(main())


def test_attempts_after_failures_wait_longer_each_time() -> None:
    async def main() -> None:
        dialer = FakeDialer(failures=6)
        link = link_of(dialer)
        for _ in range(6):
            with pytest.raises(ConnectError):
                await link.open()
            assert link.is_resting
        await link.open()
        pauses = [b - a for a, b in zip(dialer.times, dialer.times[1:], strict=False)]
        for pause, due in zip(pauses, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0), strict=True):
            assert 0.8 * due <= pause <= 1.2 * due
        assert dialer.attempts == list(range(7))

    run(main())


def test_connection_that_served_nothing_counts_as_a_failure() -> None:
    async def main() -> None:
        dialer = FakeDialer()
        link = link_of(dialer)
        for _ in range(4):
            connection = await link.open()
            connection.close("remote_closed")
        assert link.failures == 4
        assert dialer.times[-1] - dialer.times[0] > 0.5

    run(main())


def test_connection_that_served_is_replaced_at_once() -> None:
    async def main() -> None:
        dialer = FakeDialer(failures=2)
        link = link_of(dialer)
        for _ in range(2):
            with pytest.raises(ConnectError):
                await link.open()
        connection = await link.open()
        connection.served = 1
        connection.close("remote_closed")
        assert link.failures == 0
        assert not link.is_resting
        await link.open()
        assert dialer.times[-1] == dialer.times[-2]

    run(main())


def test_purposes_have_connections_of_their_own() -> None:
    async def main() -> None:
        pool = pool_of(FakeDialer())
        general = pool.link(PEER)
        assert pool.link(PEER, GENERAL) is general
        assert pool.link(PEER, COORDINATOR) is not general
        with pool.link(PEER, WAITING).claimed() as first:
            with pool.link(PEER, WAITING).claimed() as second:
                assert second is not first
            assert pool.link(PEER, WAITING) is second
        assert pool.link(PEER, WAITING) is first
        await pool.close()

    run(main())


def test_bootstrap_address_becomes_its_broker() -> None:
    async def main() -> None:
        pool = pool_of(FakeDialer())
        connection = await pool.link(BOOTSTRAP).open()
        pool.adopt(BOOTSTRAP, BrokerInfo(1, "b1", 9092))
        assert pool.link(PEER).connection is connection
        assert connection.peer == PEER
        pool.update({1: BrokerInfo(1, "b1", 9092)})
        assert not connection.is_closed
        await pool.close()

    run(main())


@pytest.mark.parametrize("brokers", [{}, {1: BrokerInfo(1, "b9", 9092)}], ids=["gone", "moved"])
def test_broker_that_left_or_moved_loses_its_connections(brokers: dict[int, Any]) -> None:
    async def main() -> None:
        pool = pool_of(FakeDialer())
        general = await pool.link(PEER).open()
        other = await pool.link(PEER, COORDINATOR).open()
        pool.update(brokers)
        assert general.closed.result() == other.closed.result() == "metadata_update"
        assert list(pool.links()) == []

    run(main())


def test_broker_at_a_new_address_gets_a_new_link() -> None:
    async def main() -> None:
        pool = pool_of(FakeDialer())
        before = await pool.link(PEER).open()
        after = await pool.link(Peer("b2", 9092, 1)).open()
        assert after is not before
        assert before.closed.result() == "metadata_update"
        await pool.close()

    run(main())


def test_closed_pool_makes_no_links() -> None:
    async def main() -> None:
        pool = pool_of(FakeDialer(took=100.0))
        dialling = asyncio.create_task(pool.link(PEER).open())
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(StateError, match="closed in the meantime"):
            await dialling
        with pytest.raises(StateError):
            pool.link(PEER)

    run(main())
