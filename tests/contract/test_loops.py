"""What a client does with sockets, on asyncio's own loop and on uvloop: both must do the same."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

import karrow
from karrow import TLS, Plain, Scram, errors, events
from karrow.sync import loop
from tests.brokers import KafkaCluster
from tests.brokers.users import PASSWORDS
from tests.contract.scripted import CLOSE, SILENCE, ScriptedBroker
from tests.fix_loops import Run

ALICE = Scram("alice", PASSWORDS["alice"])
QUICK: Any = {"api_timeout": 2.0, "request_timeout": 0.3, "connect_timeout": 2.0}
GROUPS = {"groups": ["g"]}


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[ScriptedBroker, karrow.AsyncClient]]:
    """A scripted broker and a client that is connected to it."""
    async with (
        ScriptedBroker() as broker,
        karrow.AsyncClient(broker.bootstrap, **{**QUICK, **options}) as client,
    ):
        await client.brokers()
        yield broker, client


@contextmanager
def reasons() -> Iterator[list[str]]:
    """Why connections were closed."""
    found: list[str] = []
    with events.subscribe(lambda event: found.append(event.fields["reason"]), "connection.close"):
        yield found


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_records_go_and_come(kafka: KafkaCluster, on_loop: Run, listener: str) -> None:
    """More than a socket takes at once, both ways."""
    topic = kafka.create_topic()
    value = bytes(range(256)) * 3500

    async def main() -> None:
        tls = TLS(ca=kafka.tls.ca) if "SSL" in listener else None
        sasl = ALICE if "SASL" in listener else None
        async with karrow.AsyncClient(kafka.bootstrap(listener), tls=tls, sasl=sasl) as client:
            await client.produce_one(topic, value, partition=0)
            assert (await client.fetch(topic, 0, 0)).records[0].value == value

    on_loop(main())


def test_refusals_are_told_alike(kafka: KafkaCluster, on_loop: Run) -> None:
    plain, tls = kafka.bootstrap(), kafka.bootstrap("SSL")
    wrong: list[tuple[str, dict[str, Any], type[Exception], str]] = [
        ("127.0.0.1:1", {}, errors.ConnectError, "refused"),
        ("no-such-host.invalid:1", {}, errors.ConnectError, "cannot be resolved"),
        (plain, {"tls": TLS(ca=kafka.tls.ca)}, errors.NetworkError, "plaintext port"),
        (tls, {"tls": TLS(ca=kafka.tls.stranger)}, errors.AuthenticationError, "refused"),
        (tls, {}, errors.KarrowError, "TLS"),
        (
            kafka.bootstrap("SASL_SSL"),
            {"tls": TLS(ca=kafka.tls.ca), "sasl": Plain("alice", "wrong")},
            errors.AuthenticationError,
            "PLAIN",
        ),
    ]

    async def main() -> None:
        for bootstrap, options, kind, text in wrong:
            async with karrow.AsyncClient(bootstrap, api_timeout=0.5, **options) as client:
                with pytest.raises(kind, match=text):
                    await client.brokers()

    on_loop(main())


def test_time_out_closes_and_the_next_call_connects(on_loop: Run) -> None:
    async def main() -> None:
        async with served() as (broker, client):
            broker.sequence("DescribeGroups", SILENCE, {})
            with reasons() as closed, pytest.raises(errors.RequestTimeout):
                await client.request("DescribeGroups", GROUPS)
            assert closed == ["timeout"]
            await client.request("DescribeGroups", GROUPS)
            assert broker.connections == 2

    on_loop(main())


def test_reset_fails_what_was_under_way(on_loop: Run) -> None:
    async def main() -> None:
        async with served() as (broker, client):
            broker.sequence("DescribeGroups", CLOSE, {})
            with reasons() as closed, pytest.raises(errors.Disconnected):
                await client.request("DescribeGroups", GROUPS)
            assert closed[0] in ("recv_error", "remote_closed")
            await client.request("DescribeGroups", GROUPS)

    on_loop(main())


def test_cancelled_call_leaves_the_connection_in_step(on_loop: Run) -> None:
    async def main() -> None:
        async with served(request_timeout=5.0) as (broker, client):
            for _ in range(20):
                call = asyncio.create_task(client.request("DescribeGroups", GROUPS))
                await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                assert (await client.metadata()).brokers
            assert broker.connections == 1

    on_loop(main())


def test_throttled_connection_is_silent_that_long(on_loop: Run) -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        async with served() as (broker, client):
            broker.sequence("DescribeGroups", {"throttle_time_ms": 400}, {})
            start = clock()
            await client.request("DescribeGroups", GROUPS, to=karrow.Node.id(1))
            await client.request("DescribeGroups", GROUPS, to=karrow.Node.id(1))
            assert clock() - start == pytest.approx(0.4, abs=0.2)

    on_loop(main())


def test_idle_connection_is_closed_and_made_again(on_loop: Run) -> None:
    async def main() -> None:
        async with served(idle_timeout=0.05) as (broker, client):
            await asyncio.sleep(0.2)
            await client.brokers()
            assert broker.connections == 2

    on_loop(main())


@pytest.mark.parametrize("keepalive", [True, False])
def test_sockets_have_their_options(on_loop: Run, keepalive: bool) -> None:
    async def main() -> None:
        async with served(socket_keepalive=keepalive, receive_buffer_bytes=50_000) as (_, client):
            (link,) = client.cluster.pool.connected()
            assert link.connection is not None
            assert link.connection._transport is not None
            found = link.connection._transport.get_extra_info("socket")
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
            assert bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) is keepalive
            assert found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 100_000

    on_loop(main())


def test_sync_client(kafka: KafkaCluster, background: asyncio.AbstractEventLoop) -> None:
    topic = kafka.create_topic()
    tls = TLS(ca=kafka.tls.ca)
    with karrow.Client(kafka.bootstrap("SASL_SSL"), tls=tls, sasl=ALICE) as client:
        client.produce_one(topic, b"v" * 500_000, partition=0)
        assert client.fetch(topic, 0, 0).records[0].value == b"v" * 500_000
        assert client.twin.cluster._home == (os.getpid(), background)


def test_sync_client_in_many_threads(
    kafka: KafkaCluster, background: asyncio.AbstractEventLoop
) -> None:
    found: list[int] = []
    with karrow.Client(kafka.bootstrap()) as client:
        threads = [
            threading.Thread(target=lambda: found.extend(b.id for b in client.brokers()))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [1] * 8


def test_sync_call_inside_a_running_loop(
    kafka: KafkaCluster, background: asyncio.AbstractEventLoop
) -> None:
    async def notebook() -> None:
        with karrow.Client(kafka.bootstrap()) as client:
            assert len(client.brokers()) == 1

    asyncio.run(notebook())


def test_sync_call_on_its_own_loop_is_refused(background: asyncio.AbstractEventLoop) -> None:
    async def inside() -> None:
        with karrow.Client("127.0.0.1:1") as client:
            client.brokers()

    with pytest.raises(errors.StateError, match="use AsyncClient"):
        loop.run(inside(), "AsyncClient")
