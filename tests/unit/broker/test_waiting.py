from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import cast

from karrow import records
from karrow.broker import handlers as _handlers  # noqa: F401 - registers every handler
from karrow.broker.call import HANDLERS, Call
from karrow.broker.clock import ManualClock
from karrow.broker.cluster import Cluster, Endpoint
from karrow.broker.releases import release
from karrow.broker.session import Session
from karrow.broker.store import MemoryStore
from karrow.wire.messages import FetchRequest, FetchResponse


def new_cluster() -> Cluster:
    cluster = Cluster(
        clock=ManualClock(), store=MemoryStore(), seed=1, release=release(None, HANDLERS)
    )
    cluster.nodes[1] = Endpoint(1, "127.0.0.1", 9092)
    cluster.create_topic("orders")
    return cluster


def fetch(cluster: Cluster, max_wait_ms: int = 500) -> Awaitable[FetchResponse]:
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)
    body = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchRequest.FetchTopic(topic="orders", partitions=[partition])],
    )
    call = Call(cluster, 1, Session(cluster.users, cluster.clock), "Fetch", 6, None)
    return cast("Awaitable[FetchResponse]", HANDLERS["Fetch"](call, body))


def append(cluster: Cluster) -> None:
    builder = records.BatchBuilder()
    builder.append(None, b"value", timestamp_ms=1)
    data = bytearray(builder.build())
    cluster.partition("orders", 0).append(data, records.batches(data)[0], now=1)


def test_a_fetch_sees_what_came_before_it_began_to_wait() -> None:
    async def main() -> None:
        cluster = new_cluster()
        waiting = fetch(cluster)
        append(cluster)  # another connection's, before the first one's task has run at all
        answer = await asyncio.wait_for(waiting, 5)
        assert answer.responses[0].partitions[0].records

    asyncio.run(main())


def test_a_fetch_is_woken_by_what_it_waits_for() -> None:
    async def main() -> None:
        cluster = new_cluster()
        waiting = asyncio.ensure_future(fetch(cluster))
        await asyncio.sleep(0)
        assert not waiting.done()
        append(cluster)
        answer = await asyncio.wait_for(waiting, 5)
        assert answer.responses[0].partitions[0].records

    asyncio.run(main())


def test_a_fetch_ends_when_its_time_is_over() -> None:
    async def main() -> None:
        cluster = new_cluster()
        waiting = asyncio.ensure_future(fetch(cluster, 500))
        await asyncio.sleep(0)
        cast(ManualClock, cluster.clock).advance(0.4)
        await asyncio.sleep(0)
        assert not waiting.done()
        cast(ManualClock, cluster.clock).advance(0.1)
        answer = await asyncio.wait_for(waiting, 5)
        assert answer.responses[0].partitions[0].records == b""

    asyncio.run(main())
