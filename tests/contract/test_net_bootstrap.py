"""Where a client finds its cluster: bootstrap addresses, first and again, and who is there."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Coroutine
from typing import Any

import pytest

import karrow
from karrow import errors, events
from karrow.net.cluster import Cluster
from karrow.net.dial import Dialer
from karrow.types import Node
from tests.contract.scripted import SILENCE, Answer, ScriptedBroker

QUICK: Any = {"api_timeout": 5.0, "request_timeout": 0.2, "connect_timeout": 0.5}


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


def test_another_cluster_on_the_same_address_is_refused() -> None:
    async def main() -> None:
        async with (
            ScriptedBroker() as broker,
            karrow.AsyncClient(broker.bootstrap, **QUICK) as client,
        ):
            await client.brokers()
            broker.cluster_id = "another"
            seen: list[events.Event] = []
            with (
                events.subscribe(seen.append, "connection.close", "metadata.update.exception"),
                pytest.raises(errors.InconsistentClusterId, match=r"'another'.*'scripted'"),
            ):
                await client.metadata()
            closed = [event.fields["reason"] for event in seen if "reason" in event.fields]
            failed = [event.fields["kind"] for event in seen if "kind" in event.fields]
            assert "metadata_update" in closed
            assert failed == ["InconsistentClusterId"]
            broker.cluster_id = "scripted"
            await client.metadata()

    run(main())


def test_brokers_that_moved_are_found_by_bootstrapping_again() -> None:
    async def main() -> None:
        places: list[str] = []
        async with ScriptedBroker() as first:
            places[:] = [first.bootstrap]
            client = karrow.AsyncClient(
                lambda: places, api_timeout=5.0, request_timeout=1.0, connect_timeout=0.5
            )
            await client.brokers()
        async with ScriptedBroker() as second, client:
            places[:] = [second.bootstrap]
            assert [broker.port for broker in await client.brokers()] == [second.port]

    run(main())


def test_broker_may_demand_a_new_bootstrap() -> None:
    async def main() -> None:
        async with ScriptedBroker() as old, ScriptedBroker() as new:
            places = [old.bootstrap]
            async with karrow.AsyncClient(lambda: places, api_timeout=5.0) as client:
                await client.brokers()
                old.always("Metadata", {"error_code": 129})
                places[:] = [new.bootstrap]
                assert [broker.port for broker in await client.brokers()] == [new.port]

    run(main())


def test_broker_may_demand_it_while_it_is_connected_to() -> None:
    """KIP-1242: from ApiVersions 5 on the broker is told whom we expect."""

    async def main() -> None:
        async with ScriptedBroker() as old, ScriptedBroker() as new:
            places = [old.bootstrap]
            async with karrow.AsyncClient(lambda: places, api_timeout=5.0) as client:
                await client.brokers()
                truth = old.handlers["ApiVersions"]

                def refuse(request: Any) -> Answer:
                    if request.version < 5:
                        return truth(request)
                    assert request.body.cluster_id == "scripted"
                    assert request.body.node_id == 1
                    return {"error_code": 129}

                old.handlers["ApiVersions"] = refuse
                old.drop_connections()
                await asyncio.sleep(0.05)
                places[:] = [new.bootstrap]
                assert [broker.port for broker in await client.brokers()] == [new.port]

    run(main())


def test_all_addresses_of_a_name_are_tried() -> None:
    async def main() -> None:
        asked: list[str] = []

        async def resolve(host: str, port: int) -> list[Any]:
            asked.append(host)
            good = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))
            return [(*good[:4], ("127.0.0.9", 1)), good]

        async with ScriptedBroker() as broker:
            config = karrow.ClientConfig(bootstrap=f"kafka.example:{broker.port}")
            cluster = Cluster(config, Dialer(config, resolve=resolve))
            found = await cluster.refresh(())
            assert list(found.brokers) == [1]
            assert asked == ["kafka.example"]
            await cluster.pool.reset("reconnecting")
            cluster.cache.forget_brokers()
            await cluster.refresh(())
            assert asked == ["kafka.example"] * 2  # its addresses may have changed
            await cluster.close()

    run(main())


# ---- known brokers that are there, but of no use


def test_address_that_is_given_up_while_it_is_dialled_fails_no_request() -> None:
    """Another one has answered first, so that the brokers are known by their own addresses."""

    async def main() -> None:
        async with karrow.AsyncBroker(2) as broker:
            late, quick = broker.bootstrap.split(",")
            broker.delay("ApiVersions", 0.3, broker=1)
            places = iter([[late], [quick]])
            async with karrow.AsyncClient(lambda: next(places)) as client:
                waiting = asyncio.create_task(client.cluster.any_connection())
                await asyncio.sleep(0.1)
                await client.metadata()
                assert not waiting.done()
                connection = await waiting
                version = connection.versions.choose("ListGroups")
                assert (await connection.request("ListGroups", version, {})).error_code == 0

    run(main())


async def ports(client: karrow.AsyncClient) -> list[int]:
    return [broker.port for broker in await client.brokers()]


def test_known_broker_that_gives_no_metadata_is_given_up_in_time() -> None:
    async def main() -> None:
        async with ScriptedBroker() as old, ScriptedBroker() as new:
            places = [old.bootstrap]
            async with karrow.AsyncClient(lambda: places, rebootstrap_after=0.7, **QUICK) as client:
                await client.brokers()
                old.always("Metadata", SILENCE)
                places[:] = [new.bootstrap]
                start = time.monotonic()
                assert await ports(client) == [new.port]
                assert 0.7 <= time.monotonic() - start < 2.0
                assert old.seen.count("Metadata") > 2

    run(main())


def test_known_broker_is_kept_while_the_time_is_not_up() -> None:
    async def main() -> None:
        async with ScriptedBroker() as old, ScriptedBroker() as new:
            places = [old.bootstrap]
            options: Any = {**QUICK, "api_timeout": 0.6, "rebootstrap_after": 1.1}
            async with karrow.AsyncClient(lambda: places, **options) as client:
                await client.brokers()
                truth = old.handlers["Metadata"]
                places[:] = [new.bootstrap]
                for _ in range(2):  # together longer than the time, but answered in between
                    old.always("Metadata", SILENCE)
                    with pytest.raises(errors.RequestTimeout):
                        await client.brokers()
                    old.handlers["Metadata"] = truth
                    assert await ports(client) == [old.port]
                # Nothing else needs the metadata meanwhile.
                old.always("Metadata", SILENCE)
                await client.request("DescribeCluster", {}, to=Node.id(1))
            assert new.connections == 0

    run(main())


def test_time_without_metadata_counts_from_call_to_call() -> None:
    async def main() -> None:
        async with ScriptedBroker() as old, ScriptedBroker() as new:
            places = [old.bootstrap]
            options: Any = {**QUICK, "api_timeout": 0.3, "rebootstrap_after": 0.7}
            async with karrow.AsyncClient(lambda: places, **options) as client:
                await client.brokers()
                old.always("Metadata", SILENCE)
                places[:] = [new.bootstrap]
                with pytest.raises(errors.RequestTimeout):
                    await client.brokers()
                await asyncio.sleep(0.5)
                assert await ports(client) == [new.port]

    run(main())


@pytest.mark.parametrize("trouble", ["gone", "silent", "sent back"])
def test_recovery_may_be_forbidden(trouble: str) -> None:
    async def main() -> None:
        async with ScriptedBroker() as old, ScriptedBroker() as new:
            places = [old.bootstrap]
            options: Any = {**QUICK, "api_timeout": 0.6, "rebootstrap_after": 0.1}
            async with karrow.AsyncClient(
                lambda: places, metadata_recovery="none", **options
            ) as client:
                await client.brokers()
                places[:] = [new.bootstrap]
                if trouble == "gone":
                    await old.stop()
                else:
                    old.always("Metadata", SILENCE if trouble == "silent" else {"error_code": 129})
                kinds = (errors.NetworkError, errors.RequestTimeout, errors.RebootstrapRequired)
                with pytest.raises(kinds):
                    await client.brokers()
            assert new.connections == 0

    run(main())


def test_connections_are_closed_when_one_of_several_brokers_sends_us_back() -> None:
    async def main() -> None:
        async with ScriptedBroker() as one, ScriptedBroker(node_id=2) as two:
            one.brokers = two.brokers = [one.me, two.me]
            async with ScriptedBroker(node_id=3) as new:
                places = [one.bootstrap]
                client = karrow.AsyncClient(lambda: places, **QUICK)
                await client.brokers()
                places[:] = [new.bootstrap]
                for broker in (one, two):
                    answer = broker.handlers["ApiVersions"]
                    broker.handlers["ApiVersions"] = lambda request, answer=answer: (  # type: ignore[misc]
                        answer(request) if request.version < 5 else {"error_code": 129}
                    )
                    broker.drop_connections()
                await asyncio.sleep(0.05)
                assert await ports(client) == [new.port]
                await client.close()
                await asyncio.sleep(0.05)
                assert not [broker for broker in (one, two, new) if broker._writers]

    run(main())
