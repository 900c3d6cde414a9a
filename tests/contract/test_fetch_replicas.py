"""Replicas that are nearer than the leader (KIP-392), and answers that only a strange broker gives.

The embedded broker has no replicas of its own, so two scripted ones play leader and follower. In
the full run there is a cluster with racks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest

import karrow
from karrow import events, wire
from karrow.records import BatchBuilder
from tests.contract.scripted import Answer, ScriptedBroker
from tests.contract.test_consumer import take
from tests.fix_kafka import NewKafka

TOPIC = "topic"
LEADER, FOLLOWER, STRANGER = 1, 2, 99
OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER = 1, 3, 6
# Fetches go by name: most scripted topics have no ids.
SUPPORTED = {"Fetch": (4, 12), "Metadata": (0, 12), "ApiVersions": (0, 3), "ListOffsets": (1, 6)}
END = 12


def batch(base: int) -> bytes:
    builder = BatchBuilder()
    builder.append(None, b"%d" % base)
    return builder.build(base_offset=base)


class Replica(ScriptedBroker):
    """Gives one record for a fetch, unless it was told to say something else first."""

    def __init__(self, node_id: int, supported: dict[str, tuple[int, int]] | None = None) -> None:
        super().__init__(supported=supported or SUPPORTED, node_id=node_id)
        self.says: dict[str, Any] | None = None
        self.offsets: list[int] = []
        self.racks: set[str] = set()
        self.handlers["Fetch"] = self.fetch

    def fetch(self, request: wire.Request) -> Answer:
        self.racks.add(request.body.rack_id)
        asked = [part for topic in request.body.topics for part in topic.partitions]
        if asked:
            self.offsets.append(asked[0].fetch_offset)
        offset = self.offsets[-1]
        part: dict[str, Any] = {"partition_index": 0, "high_watermark": END}
        if self.says is not None:
            part |= self.says
        elif offset < END:
            part["records"] = batch(offset)
        return {"responses": [{"topic": TOPIC, "partitions": [part]}]}


async def read(rack: str | None, leader: Replica, *others: Replica) -> list[int]:
    """What a consumer reads of a cluster of these brokers."""
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(one) for one in (leader, *others)]
        for one in brokers:
            one.brokers = [each.me for each in brokers]
            one.add_topic(TOPIC, leader=LEADER)
        options: dict[str, Any] = {"retry_backoff": 0.02, "max_wait": 0.05, "fetch_sessions": False}
        consumer = karrow.AsyncConsumer(leader.bootstrap, rack=rack, **options)
        await stack.enter_async_context(consumer)
        await consumer.assign({(TOPIC, 0): 0})
        return [(await anext(consumer)).offset for _ in range(END)]


def run(main: Coroutine[Any, Any, list[int]]) -> list[int]:
    return asyncio.run(asyncio.wait_for(main, 20))


def test_the_replica_that_the_leader_names_is_asked() -> None:
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    leader.says = {"preferred_read_replica": FOLLOWER}
    assert run(read("here", leader, follower)) == list(range(END))
    assert leader.offsets == [0]
    assert follower.offsets[:END] == list(range(END))
    assert leader.racks == {"here"}


def test_a_replica_that_nobody_knows_is_not_asked() -> None:
    leader = Replica(LEADER)
    says = {"preferred_read_replica": STRANGER}

    def name_a_stranger_once(request: wire.Request) -> Answer:
        leader.says = says if not leader.offsets else None
        return leader.fetch(request)

    leader.handlers["Fetch"] = name_a_stranger_once
    assert run(read("here", leader)) == list(range(END))


@pytest.mark.parametrize("error", [OUT_OF_RANGE, NOT_LEADER])
def test_a_replica_that_refuses_gives_way_to_the_leader(error: int) -> None:
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    follower.says = {"error_code": error}

    def name_the_follower_once(request: wire.Request) -> Answer:
        leader.says = None if leader.offsets else {"preferred_read_replica": FOLLOWER}
        return leader.fetch(request)

    leader.handlers["Fetch"] = name_the_follower_once
    assert run(read("here", leader, follower)) == list(range(END))
    assert len(follower.offsets) == 1


def test_without_a_rack_the_leader_is_asked_for_none() -> None:
    leader = Replica(LEADER)
    assert run(read(None, leader)) == list(range(END))
    assert leader.racks == {""}


def test_older_metadata_never_leads_back() -> None:
    """Row 21: brokers that lag behind name the old leader, which still takes itself for one."""
    old, new = Replica(LEADER), Replica(FOLLOWER)
    lagging: list[str] = []

    def name(leader: int, epoch: int) -> None:
        for one in (old, new):
            one.add_topic(TOPIC, leader, epoch)
            one.topics[0]["topic_id"] = UUID(int=1)

    def lag_behind(_: wire.Request) -> Answer:
        lagging.append("unknown" if len(lagging) % 2 else "older")
        said: dict[str, Any] = {"name": TOPIC, "error_code": UNKNOWN_TOPIC, "partitions": []}
        if lagging[-1] == "older":
            said = old.topics[0]
        brokers = [old.me, new.me]
        return {"brokers": brokers, "cluster_id": old.cluster_id, "topics": [said]}

    def lead_on_and_off(request: wire.Request) -> Answer:
        new.says = {"error_code": NOT_LEADER} if len(new.offsets) % 2 else None
        return new.fetch(request)

    async def main() -> list[int]:
        async with old, new:
            old.brokers = new.brokers = [old.me, new.me]
            name(LEADER, 5)
            options: dict[str, Any] = {"retry_backoff": 0.02, "max_wait": 0.05}
            async with karrow.AsyncConsumer(old.bootstrap, fetch_sessions=False, **options) as it:
                await it.assign({(TOPIC, 0): 0})
                found = [(await anext(it)).offset]
                name(FOLLOWER, 6)
                old.says = {"error_code": NOT_LEADER}
                while not new.offsets:
                    found.append((await anext(it)).offset)
                old.says = None
                old.offsets.clear()
                name(LEADER, 5)
                new.handlers["Fetch"] = lead_on_and_off
                old.handlers["Metadata"] = new.handlers["Metadata"] = lag_behind
                found += [(await anext(it)).offset for _ in range(END - len(found))]
                return found

    assert run(main()) == list(range(END))
    assert {"older", "unknown"} <= set(lagging)
    assert old.offsets == []


RACKS = {
    "broker.rack": "rack-{node}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


@pytest.mark.slow
def test_the_replica_in_the_consumers_rack_is_read(new_kafka: NewKafka) -> None:
    """A real cluster; when the replica dies the leader is asked again."""
    cluster = new_kafka(nodes=3, properties=RACKS)
    topic = cluster.create_topic(partitions=1, replicas=3)
    bootstrap = cluster.bootstrap()
    asked: list[int] = []
    with (
        karrow.Producer(bootstrap) as producer,
        karrow.Client(bootstrap) as client,
        events.subscribe(lambda event: asked.append(event.fields["broker_id"]), "fetch.stop"),
    ):
        leader = client.metadata([topic]).topics[topic].partitions[0].leader
        near = next(node for node in (1, 2, 3) if node != leader)
        options: dict[str, Any] = {"start": "earliest", "rack": f"rack-{near}", "max_wait": 0.1}
        with karrow.Consumer(bootstrap, topic, **options) as consumer:
            for number in range(30):
                producer.send(topic, b"%d" % number).result(20)
                assert [one.offset for one in take(consumer, 1)] == [number]
            assert near in asked[-3:]
            cluster.node(near).kill()
            producer.send(topic, b"30").result(30)
            assert [one.offset for one in take(consumer, 1)] == [30]
            assert asked[-1] != near
