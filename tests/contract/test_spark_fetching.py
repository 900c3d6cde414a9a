"""Ranges of a partition out of brokers that say strange things; see test_fetch_replicas.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from karrow import wire
from karrow.aio.client import AsyncClient
from karrow.config import ConsumerConfig
from karrow.errors import RequestTimeout
from karrow.spark.reading.fetching import Fetching, ShortLog
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

OFFSET_NOT_AVAILABLE = 78
NAMES_FOLLOWER = {"preferred_read_replica": FOLLOWER}


@asynccontextmanager
async def fetching_of(
    leader: Replica, others: tuple[Replica, ...], end: int
) -> AsyncIterator[Fetching]:
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
        yield Fetching(config, client.cluster, TopicPartition(TOPIC, 0), end)


async def _read(leader: Replica, others: tuple[Replica, ...], end: int) -> list[int]:
    async with fetching_of(leader, others, end) as fetching:
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


def faithful(leader: Replica) -> None:
    """Have a leader name the follower whenever there is a rack, as Kafka's do."""

    def fetch(request: wire.Request) -> Answer:
        before = leader.says
        leader.says = NAMES_FOLLOWER if request.body.rack_id else before
        answer = leader.fetch(request)
        leader.says = before
        return answer

    leader.handlers["Fetch"] = fetch


def test_a_leader_that_always_names_a_replica_is_asked_itself() -> None:
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    faithful(leader)
    leader.says = {"high_watermark": 100}
    follower.says = {"high_watermark": 100}  # compaction has left nothing
    assert read(leader, follower, end=100) == []


def test_a_log_that_is_too_short_although_a_replica_is_nearer() -> None:
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    faithful(leader)
    ending(leader, END)
    with pytest.raises(ShortLog, match=f"it ends at {END}"):
        read(leader, follower, end=END + 3)
    assert set(range(END)) <= set(follower.offsets)


def sampled(leader: Replica, *others: Replica, end: int = END) -> float | None:
    """What a sample at the beginning of a range says of its records' size."""

    async def sample() -> float | None:
        async with fetching_of(leader, others, end) as fetching:
            return await fetching.sample(0)

    return asyncio.run(asyncio.wait_for(sample(), 20))


def test_sizes_are_known_although_a_replica_is_nearer() -> None:
    leader, follower = Replica(LEADER), Replica(FOLLOWER)
    faithful(leader)
    assert (sampled(leader, follower) or 0) > 0


def test_a_sample_is_repeated_while_nothing_comes() -> None:
    leader = Replica(LEADER)
    saying(leader, {}, {"high_watermark": 0}, {})
    assert (sampled(leader) or 0) > 0
    assert leader.offsets == [0] * 4


def test_a_range_without_records_has_no_size() -> None:
    leader = Replica(LEADER)
    leader.says = {"high_watermark": 100}  # compaction has left nothing
    assert sampled(leader, end=100) == 0
    assert leader.offsets == [0, 0]


def test_the_size_is_unknown_if_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("karrow.spark.reading.fetching.SAMPLE_FOR", 0.2)
    leader = Replica(LEADER)
    leader.always("Fetch", {"throttle_time_ms": 1, "responses": []})
    assert sampled(leader) is None
    leader = Replica(LEADER)
    leader.says = {"error_code": OUT_OF_RANGE}
    assert sampled(leader) is None


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


def ending(replica: Replica, offset: int, error: int = 0) -> None:
    """Have a broker say where the log ends, or why it cannot."""
    said = {"partition_index": 0, "error_code": error, "offset": offset, "timestamp": -1}
    replica.always("ListOffsets", {"topics": [{"name": TOPIC, "partitions": [said]}]})


def test_a_log_that_ends_in_front_of_the_range_is_too_short() -> None:
    leader = Replica(LEADER)
    ending(leader, END)
    with pytest.raises(ShortLog, match=f"it ends at {END}"):
        read(leader, end=END + 3)


def test_a_log_that_is_too_short_and_ends_with_what_compaction_has_removed() -> None:
    leader = Replica(LEADER)
    saying(leader, None, None, *[{"high_watermark": 5}] * 10_000)
    ending(leader, 5)
    with pytest.raises(ShortLog, match="it ends at 5"):
        read(leader)
    assert set(leader.offsets) == {0, 1, 2}


@pytest.mark.parametrize(("offset", "error"), [(END + 3, 0), (-1, OFFSET_NOT_AVAILABLE)])
def test_a_log_that_is_only_silent_is_waited_for_in_vain(offset: int, error: int) -> None:
    """It has more than may be read now, or its leader does not know yet (KIP-207)."""
    leader = Replica(LEADER)
    ending(leader, offset, error)
    with pytest.raises(
        RequestTimeout, match=f"the leader has offsets up to {END}, and {END + 3} was asked"
    ):
        read(leader, end=END + 3)


def test_a_leader_that_was_just_elected_is_given_time() -> None:
    """Until its followers have fetched, it does not know how far they are."""
    leader = Replica(LEADER)
    saying(leader, None, None, *[{"high_watermark": 2}] * 10)
    ending(leader, 2)
    assert read(leader) == list(range(END))
    assert "ListOffsets" not in leader.seen


def test_who_is_not_the_leader_any_more_does_not_say_where_the_log_ends() -> None:
    """It has not heard of the new one, and takes itself for the leader."""
    old, new = Replica(LEADER), Replica(FOLLOWER)
    ending(old, 2)
    ending(new, END)

    def move(request: wire.Request) -> Answer:
        for one in (old, new):
            one.topics.clear()
            one.add_topic(TOPIC, FOLLOWER, epoch=1)
        return old.fetch(request)

    def fetch(request: wire.Request) -> Answer:
        if len(old.offsets) < 2:
            return old.fetch(request)
        old.says = {"high_watermark": 2}
        return move(request)

    old.handlers["Fetch"] = fetch
    assert read(old, new) == list(range(END))
    assert new.offsets == list(range(2, END))


def test_an_offset_in_remote_storage_is_waited_for() -> None:
    """KIP-405: while it is slow, the leader answers without data, as at the end of a range."""
    leader = Replica(LEADER, {**SUPPORTED, "ListOffsets": (1, 8)})
    saying(leader, None, *[{}] * 5)
    local = {"partition_index": 0, "offset": 10, "timestamp": -1}
    leader.handlers["ListOffsets"] = lambda _: {"topics": [{"name": TOPIC, "partitions": [local]}]}
    assert read(leader) == list(range(END))
