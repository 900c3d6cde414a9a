"""Networks and brokers that fail, between the client and a real cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

import karrow
from karrow import errors, events
from karrow.types import Node
from tests.brokers import KafkaCluster
from tests.proxy import ClusterProxy


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 120))


def test_request_sent_in_part_closes_its_connection(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()

    async def main(proxy: ClusterProxy) -> None:
        async with karrow.AsyncClient(proxy.bootstrap, request_timeout=0.5) as client:
            await client.produce_one(topic, b"first", partition=0)
            proxy.node(1).cut_after(20_000, "up", "stall")
            reasons: list[str] = []
            with (
                events.subscribe(lambda e: reasons.append(e.fields["reason"]), "connection.close"),
                pytest.raises(errors.RequestTimeout, match="no answer after"),
            ):
                await client.produce_one(topic, b"x" * 900_000, partition=0, timeout=0.1)
            assert reasons == ["timeout"]
            found = await client.produce_one(topic, b"second", partition=0)
            assert found.offset in (1, 2)
            assert proxy.node(1).accepted >= 2

    with ClusterProxy(kafka) as proxy:
        run(main(proxy))


def test_half_open_connection_is_found_out(kafka: KafkaCluster) -> None:
    async def main(proxy: ClusterProxy) -> None:
        async with karrow.AsyncClient(
            proxy.bootstrap, request_timeout=0.5, connect_timeout=0.5, api_timeout=6.0
        ) as client:
            await client.brokers()
            proxy.node(1).blackhole()
            waiting = asyncio.create_task(client.metadata())
            await asyncio.sleep(1.5)
            assert not waiting.done()
            proxy.node(1).restore()
            assert (await waiting).brokers

    with ClusterProxy(kafka) as proxy:
        run(main(proxy))


def test_reset_connections_are_made_again(kafka: KafkaCluster) -> None:
    async def main(proxy: ClusterProxy) -> None:
        async with karrow.AsyncClient(proxy.bootstrap, api_timeout=10.0) as client:
            for _ in range(10):
                await client.metadata()
                proxy.node(1).reset()

    with ClusterProxy(kafka) as proxy:
        run(main(proxy))


def test_lost_answer_of_a_produce_is_not_repeated(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()

    async def main(proxy: ClusterProxy) -> None:
        async with karrow.AsyncClient(proxy.bootstrap) as client:
            await client.metadata([topic])
            proxy.node(1).drop_answer("Produce")
            with pytest.raises(errors.Disconnected):
                await client.produce_one(topic, b"once", partition=0)
            assert await client.latest_offset(topic, 0) == 1

    with ClusterProxy(kafka) as proxy:
        run(main(proxy))


def test_stopped_broker_does_not_hold_up_the_others(kafka_three: KafkaCluster) -> None:
    topic = kafka_three.create_topic(partitions=6)
    stopped = kafka_three.leader(topic, 0)

    async def main() -> None:
        async with karrow.AsyncClient(
            kafka_three.bootstrap(), request_timeout=1.0, connect_timeout=1.0
        ) as client:
            leaders = (await client.metadata([topic])).topics[topic].partitions
            other = next(number for number, one in leaders.items() if one.leader != stopped)
            await client.produce_one(topic, b"v", partition=other, acks=1)
            stuck = asyncio.create_task(
                client.request("DescribeCluster", {}, to=Node.id(stopped), timeout=1.0)
            )
            await asyncio.sleep(0)
            kafka_three.node(stopped).pause()
            start = time.monotonic()
            # The partition may get a new leader meanwhile; a moment is all it may take.
            await client.produce_one(topic, b"v", partition=other, acks=1)
            assert time.monotonic() - start < 5
            await asyncio.gather(stuck, return_exceptions=True)

    run(main())


def test_slow_broker_delays_nobody_but_its_own_partitions(kafka_three: KafkaCluster) -> None:
    topic = kafka_three.create_topic(partitions=6)
    slow = kafka_three.leader(topic, 0)

    async def main(proxy: ClusterProxy) -> None:
        async with karrow.AsyncClient(proxy.bootstrap) as client:
            partitions = (await client.metadata([topic])).topics[topic].partitions
            others = [number for number, one in partitions.items() if one.leader != slow]
            group = await coordinated_by(client, slow)
            for number in partitions:
                await client.produce_one(topic, b"v", partition=number, acks=1)
            await client.commit_offsets(group, {(topic, 0): 0})
            proxy.node(slow).rate(20_000)
            delayed = asyncio.create_task(
                client.produce_one(topic, bytes(60_000), partition=0, acks=1)
            )
            await asyncio.sleep(0.1)
            start = time.monotonic()
            for number in others:
                await client.produce_one(topic, b"v", partition=number)
                assert (await client.fetch(topic, number, 0)).records
            await client.metadata([topic])
            # What goes to the slow broker's coordinator has a connection of its own.
            await client.commit_offsets(group, {(topic, 0): 1})
            assert time.monotonic() - start < 1.5
            assert not delayed.done()
            assert (await delayed).offset == 1

    with ClusterProxy(kafka_three) as proxy:
        run(main(proxy))


async def coordinated_by(client: karrow.AsyncClient, broker_id: int) -> str:
    """A group, or transactional id, that the broker coordinates."""
    for number in range(100):
        found = await client.find_coordinator(f"slow-{number}")
        if found.broker is not None and found.broker.id == broker_id:
            return found.key
    raise AssertionError(f"broker {broker_id} coordinates nothing")


def test_killed_leader_is_replaced_within_the_call(kafka_three: KafkaCluster) -> None:
    topic = kafka_three.create_topic()
    leader = kafka_three.leader(topic)

    async def main() -> None:
        async with karrow.AsyncClient(kafka_three.bootstrap(), api_timeout=60.0) as client:
            await client.produce_one(topic, b"before", partition=0)
            kafka_three.node(leader).kill()
            found = await client.fetch(topic, 0, 0)
            assert [record.value for record in found.records] == [b"before"]
            after = await client.produce_one(topic, b"after", partition=0)
            assert after.offset == 1
            assert leader not in (await client.metadata()).brokers

    run(main())


def test_killed_coordinator_is_found_again(kafka_three: KafkaCluster) -> None:
    topic = kafka_three.create_topic()

    async def main() -> None:
        async with karrow.AsyncClient(kafka_three.bootstrap(), api_timeout=60.0) as client:
            await client.commit_offsets("killed", {(topic, 0): 1})
            found = await client.find_coordinator("killed")
            assert found.broker is not None
            kafka_three.node(found.broker.id).kill()
            await client.commit_offsets("killed", {(topic, 0): 2})
            stored = await client.committed_offsets("killed", [topic])
            assert [one.offset for one in stored.values()] == [2]
            moved = await client.find_coordinator("killed")
            assert moved.broker is not None
            assert moved.broker.id != found.broker.id

    run(main())


def test_killed_transaction_coordinator_is_found_again(kafka_three: KafkaCluster) -> None:
    async def main() -> None:
        async with karrow.AsyncClient(kafka_three.bootstrap(), api_timeout=60.0) as client:
            body = {"transactional_id": "killed", "transaction_timeout_ms": 60_000}
            first = await client.find_coordinator("killed", "transaction")
            assert first.broker is not None
            kafka_three.node(first.broker.id).kill()
            to = Node.transaction_coordinator("killed")
            deadline = time.monotonic() + 30
            # The new coordinator may have to load its part first, and says so.
            while (await client.request("InitProducerId", body, to=to)).error_code:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
            moved = await client.find_coordinator("killed", "transaction")
            assert moved.broker is not None
            assert moved.broker.id != first.broker.id

    run(main())


def test_topic_that_is_deleted_and_made_again(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=2)

    async def main() -> None:
        async with karrow.AsyncClient(kafka.bootstrap()) as one:
            await one.produce(topic, [b"old"] * 5, partition=0)
            before = (await one.cluster_metadata()).topics[topic].topic_id
            async with karrow.AsyncClient(kafka.bootstrap()) as other:
                await other.delete_topic(topic)
                await other.create_topic(topic, 1, 1)
            assert (await one.produce_one(topic, b"new", partition=0)).offset == 0
            found = await one.fetch(topic, 0, 0)
            assert [record.value for record in found.records] == [b"new"]
            assert (await one.cluster_metadata()).topics[topic].topic_id != before

    run(main())


def test_long_polls_do_not_block_others(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()

    async def main() -> None:
        async with karrow.AsyncClient(kafka.bootstrap()) as client:
            polls = [asyncio.create_task(client.fetch(topic, 0, 0, max_wait=3.0)) for _ in range(3)]
            await asyncio.sleep(0.3)
            start = time.monotonic()
            await client.metadata([topic])
            await client.commit_offsets("polls", {(topic, 0): 0})
            assert time.monotonic() - start < 1.5
            await client.produce_one(topic, b"v", partition=0)
            for found in await asyncio.gather(*polls):
                assert len(found.records) == 1

    run(main())


def test_cancelled_calls_leave_the_client_usable(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic()

    async def main() -> None:
        async with karrow.AsyncClient(kafka.bootstrap()) as client:
            for delay in (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02):
                call = asyncio.create_task(client.fetch(topic, 0, 0, max_wait=0.05))
                await asyncio.sleep(delay)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert (await client.fetch(topic, 0, 0, max_wait=0.0)).high_watermark == 0

    run(main())


@pytest.mark.slow
def test_rolling_restart_reaches_no_caller(kafka_three: KafkaCluster) -> None:
    """Two rounds over all brokers, while calls that may be repeated go on."""
    topic = kafka_three.create_topic(partitions=3)

    async def main() -> None:
        done: dict[str, int] = {"metadata": 0, "fetch": 0, "commit": 0}
        stop = asyncio.Event()

        async def repeat(name: str, call: Callable[[], Awaitable[object]]) -> None:
            while not stop.is_set():
                await call()
                done[name] += 1
                await asyncio.sleep(0.01)

        async with karrow.AsyncClient(kafka_three.bootstrap(), api_timeout=60.0) as client:
            calls = [
                asyncio.create_task(repeat("metadata", lambda: client.metadata([topic]))),
                asyncio.create_task(
                    repeat("fetch", lambda: client.fetch(topic, 1, 0, max_wait=0.0))
                ),
                asyncio.create_task(
                    repeat("commit", lambda: client.commit_offsets("rolling", {(topic, 0): 1}))
                ),
            ]
            for _ in range(2):
                for node in kafka_three.nodes:
                    await asyncio.to_thread(node.kill)
                    await asyncio.sleep(1.0)
                    await asyncio.to_thread(kafka_three.heal)
            before = dict(done)
            await asyncio.sleep(1.0)
            stop.set()
            await asyncio.gather(*calls)
            assert all(done[name] > before[name] > 0 for name in done), done

    run(main())
