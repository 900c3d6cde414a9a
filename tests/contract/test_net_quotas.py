"""A client over its quota, on a real broker: it is told, falls silent, and holds up nobody else."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import karrow
from karrow import events
from karrow.events import Event
from karrow.types import Node
from tests.brokers import KafkaCluster
from tests.proxy import ClusterProxy

# The broker averages over ten seconds: what is sent at once counts for a tenth a second.
BYTE_RATE = 10_000
BYTES = 112_000


@asynccontextmanager
async def limited(cluster: KafkaCluster, quota: str, value: float) -> AsyncIterator[str]:
    """The id of a client that has this quota."""
    client_id = f"greedy-{uuid.uuid4().hex[:8]}"
    entity = [{"entity_type": "client-id", "entity_name": client_id}]

    async def alter(*, remove: bool) -> None:
        ops = [{"key": quota, "value": value, "remove": remove}]
        body = {"entries": [{"entity": entity, "ops": ops}]}
        answer = await admin.request("AlterClientQuotas", body, to=Node.controller())
        assert [entry.error_code for entry in answer.entries] == [0]

    async def is_known() -> bool:
        component = {"entity_type": "client-id", "match_type": 0, "match": client_id}
        body = {"components": [component], "strict": True}
        return bool((await admin.request("DescribeClientQuotas", body)).entries)

    async with karrow.AsyncClient(cluster.bootstrap()) as admin:
        await alter(remove=False)
        while not await is_known():  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0.01)
        try:
            yield client_id
        finally:
            await alter(remove=True)


def test_throttled_connection_falls_silent_and_others_go_on(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()
    throttled: list[Event] = []

    async def main(proxy: ClusterProxy) -> None:
        async with limited(kafka, "producer_byte_rate", BYTE_RATE) as client_id:
            options: Any = {"client_id": client_id, "request_timeout": 0.5}
            async with karrow.AsyncClient(proxy.bootstrap, **options) as client:
                await client.commit_offsets("greedy", {(topic, 0): 0})
                with events.subscribe(throttled.append, "connection.throttle"):
                    await client.produce_one(topic, bytes(BYTES), partition=0)
                begin = time.monotonic()
                (event,) = throttled
                pause = event.measurements["throttle_time"]
                assert 0.6 < pause < 5
                assert event.fields["operation"] == "Produce"
                assert (event.fields["client_id"], event.fields["muted"]) == (client_id, True)
                # The time of silence is longer than a request's time, and does not count.
                silent = asyncio.create_task(client.request("DescribeCluster", to=Node.id(1)))
                await client.commit_offsets("greedy", {(topic, 0): 1})
                async with karrow.AsyncClient(proxy.bootstrap) as other:
                    await other.metadata()
                assert time.monotonic() - begin < pause / 2
                await silent
        sent = next(seen.at for seen in proxy.node(1).seen if seen.api == "DescribeCluster")
        assert sent - begin > pause - 0.1

    with ClusterProxy(kafka) as proxy:
        asyncio.run(asyncio.wait_for(main(proxy), 60))


def test_any_request_may_be_over_the_share_of_time(kafka: KafkaCluster) -> None:
    throttled: list[Event] = []

    async def main() -> None:
        async with (
            limited(kafka, "request_percentage", 0.01) as client_id,
            karrow.AsyncClient(kafka.bootstrap(), client_id=client_id) as client,
        ):
            with events.subscribe(throttled.append, "connection.throttle"):
                while not throttled:
                    await client.metadata()
            begin = time.monotonic()
            await client.metadata()
            assert time.monotonic() - begin > throttled[0].measurements["throttle_time"] - 0.1

    asyncio.run(asyncio.wait_for(main(), 60))
    assert throttled[0].fields["operation"] in ("Metadata", "ApiVersions")
