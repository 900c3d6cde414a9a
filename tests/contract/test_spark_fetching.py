"""Ranges of a partition out of brokers that say strange things; see test_fetch_replicas.py."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from karrow import wire
from karrow.aio.client import AsyncClient
from karrow.config import ConsumerConfig
from karrow.errors import RequestTimeout
from karrow.spark.reading.fetching import Fetching
from karrow.types import TopicPartition
from tests.contract.scripted import Answer
from tests.contract.test_fetch_replicas import (
    END,
    FOLLOWER,
    LEADER,
    NOT_LEADER,
    OUT_OF_RANGE,
    STRANGER,
    SUPPORTED,
    TOPIC,
    Replica,
)

NAMES_FOLLOWER = {"preferred_read_replica": FOLLOWER}


async def _read(leader: Replica, others: tuple[Replica, ...], end: int) -> list[int]:
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(one) for one in (leader, *others)]
        for one in brokers:
            one.brokers = [each.me for each in brokers]
            one.add_topic(TOPIC, leader=LEADER)
        config = ConsumerConfig(
            bootstrap=leader.bootstrap,
            rack="here",
            retry_backoff=0.02,
            max_wait=0.01,
            api_timeout=1.0,
        )
        client = await stack.enter_async_context(AsyncClient(config=config))
        fetching = Fetching(config, client.cluster, TopicPartition(TOPIC, 0), end)
        found: list[int] = []
        position = 0
        while position < end:
            answer = await fetching.fetch(position)
            found += [record.offset for record in fetching.reader(answer)]
            position = answer.next_offset
        assert position == end
        return found


def read(leader: Replica, *others: Replica, end: int = END) -> list[int]:
    """The offsets of a range from 0 on, read from a cluster of these brokers."""
    return asyncio.run(asyncio.wait_for(_read(leader, others, end), 20))


def saying(replica: Replica, *says: dict[str, Any] | None) -> None:
    """Have a broker say these things first; None is what it would say anyway."""
    left = list(says)

    def fetch(request: wire.Request) -> Answer:
        replica.says = left.pop(0) if left else None
        return replica.fetch(request)

    replica.handlers["Fetch"] = fetch


def test_a_replica_is_asked_as_long_as_it_has_data() -> None:
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    leader.says = NAMES_FOLLOWER
    assert read(leader, follower) == list(range(END))
    assert leader.offsets == [0]
    assert follower.offsets == list(range(END))


@pytest.mark.parametrize("error", [OUT_OF_RANGE, NOT_LEADER])
def test_a_replica_that_refuses_gives_way_to_the_leader(error: int) -> None:
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    saying(leader, NAMES_FOLLOWER)
    follower.says = {"error_code": error}
    assert read(leader, follower) == list(range(END))
    assert len(follower.offsets) == 1


def test_a_replica_that_nobody_knows() -> None:
    leader = Replica(LEADER)
    saying(leader, {"preferred_read_replica": STRANGER})
    assert read(leader) == list(range(END))


def test_only_the_leader_knows_that_nothing_is_left() -> None:
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    saying(leader, NAMES_FOLLOWER, None, NAMES_FOLLOWER)
    follower.says = {}  # without data, up to the end
    assert read(leader, follower) == list(range(END))


def test_offsets_that_are_missing_at_the_end_are_passed_over() -> None:
    """Compaction has removed them: the leader has offsets beyond, and nothing in front of those."""
    leader = Replica(LEADER)
    saying(leader, None, None, *[{"high_watermark": 100}] * 2)
    assert read(leader, end=100) == [0, 1]
    assert leader.offsets == [0, 1, 2, 2]


def test_an_answer_without_data_is_not_believed_at_once() -> None:
    leader = Replica(LEADER)
    saying(leader, None, {}, None)
    assert read(leader) == list(range(END))


def test_a_throttled_answer_says_nothing() -> None:
    leader = Replica(LEADER)
    left = 3

    def fetch(request: wire.Request) -> Answer:
        nonlocal left
        left -= 1
        if left >= 0:
            return {"throttle_time_ms": 1, "responses": []}
        return leader.fetch(request)

    leader.handlers["Fetch"] = fetch
    assert read(leader) == list(range(END))


def test_a_range_beyond_the_end_fails_in_time() -> None:
    leader = Replica(LEADER)
    with pytest.raises(
        RequestTimeout, match=f"the leader has offsets up to {END}, and {END + 3} was asked"
    ):
        read(leader, end=END + 3)


def test_an_offset_in_remote_storage_is_waited_for() -> None:
    """KIP-405: while it is slow, the leader answers without data, as at the end of a range."""
    leader = Replica(LEADER, {**SUPPORTED, "ListOffsets": (1, 8)})
    saying(leader, None, *[{}] * 5)
    local = {"partition_index": 0, "offset": 10, "timestamp": -1}
    leader.handlers["ListOffsets"] = lambda _: {"topics": [{"name": TOPIC, "partitions": [local]}]}
    assert read(leader) == list(range(END))
