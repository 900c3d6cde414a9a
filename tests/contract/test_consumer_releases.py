"""What consumers can do, in short, on every release: the old ones answer in other versions."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.types import TopicPartition
from tests.contract.test_consumer import (
    QUICK,
    TIMEOUT,
    consumer,
    everything,
    fill,
    filled,
    new_group,
    places,
    take,
    until,
)
from tests.contract.test_consumer_sharing import members, shares
from tests.fix_any import AnyKafka

EAGER: dict[str, Any] = {"assignors": "range", "heartbeat_interval": 0.1}


@pytest.mark.since("0.11")
def test_what_was_aborted_is_not_read_as_committed(every_kafka: AnyKafka) -> None:
    topic = every_kafka.create_topic()
    bootstrap = every_kafka.bootstrap
    with karrow.Producer(bootstrap, transactional_id=f"tx-{topic}") as producer:
        for value in (b"kept", b"gone", b"also kept"):
            producer.begin_transaction()
            producer.send(topic, value).result(TIMEOUT)
            if value == b"gone":
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    with consumer(every_kafka, topic, isolation="read_committed") as reader:
        assert [one.value for one in take(reader, 2)] == [b"kept", b"also kept"]
        # A marker is behind each record.
        until(lambda: reader.poll(0.05) or reader.position((topic, 0)) == 6)
        assert reader.lag() == {(topic, 0): 0}
    with consumer(every_kafka, topic) as reader:
        assert [one.value for one in take(reader, 3)] == [b"kept", b"gone", b"also kept"]


def test_partitions_rest_lag_and_are_left_when_told(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 5)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consumer(every_kafka, out_of_range="earliest") as reader:
        reader.assign({first: 1_000, second: 2})  # the log does not reach that far
        reader.pause(first)
        assert places(take(reader, 3)) == [(1, 2), (1, 3), (1, 4)]
        assert reader.poll(0.2) == []
        fill(every_kafka, topic, [5], 2)
        assert places(take(reader, 1)) == [(1, 5)]
        assert reader.watermarks() == {first: (0, 6), second: (0, 6)}
        reader.resume(first)
        assert places(take(reader, 6)) == everything(6, 1)
        reader.seek(second, 4)
        assert reader.lag() == {first: 0, second: 2}
        # As a whole again: what was asked for too far behind begins where the policy says.
        reader.seek(first, 1_000)
        assert places(take(reader, 8)) == [*everything(6, 1), (1, 4), (1, 5)]


def test_an_offset_beyond_the_end_follows_the_policy(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 5, 1)
    where = TopicPartition(topic, 0)
    with consumer(every_kafka, out_of_range=lambda _, offset: offset - 997) as reader:
        reader.assign({where: 1_000})
        assert [one.offset for one in take(reader, 2)] == [3, 4]
    with consumer(every_kafka, out_of_range="latest") as reader:
        reader.assign({where: 1_000})
        until(lambda: reader.poll(0.05) or reader.position(where) == 5)
        fill(every_kafka, topic, [5], 1)
        assert [one.offset for one in take(reader, 1)] == [5]
    with consumer(every_kafka, out_of_range="none") as reader:
        reader.assign({where: 1_000})
        with pytest.raises(errors.OffsetOutOfRange, match="offset 1000"):
            reader.poll(TIMEOUT)
        reader.seek(where, 4)
        assert [one.offset for one in take(reader, 2)] == [4, 5]


def test_members_share_what_a_pattern_matches(every_kafka: AnyKafka) -> None:
    prefix, group = f"pattern-{uuid.uuid4().hex[:8]}", new_group()
    topics = [every_kafka.create_topic(f"{prefix}-{name}", partitions=2) for name in "ab"]
    other = every_kafka.create_topic(f"not-{prefix}")
    parts = frozenset(TopicPartition(topic, number) for topic in topics for number in range(2))
    with members(every_kafka) as make:
        one = make(re.compile(f"{prefix}-.*"), group=group, **EAGER)
        until(lambda: one.count == 4)
        two = make(re.compile(f"{prefix}-.*"), group=group, **EAGER)
        until(lambda: shares(one, two) == [2, 2])
        for topic in (*topics, other):
            fill(every_kafka, topic, range(5), 1 if topic == other else 2)
        until(lambda: len(one.seen) + len(two.seen) == 20)
        until(lambda: shares(one, two) == [2, 2] and one.owned | two.owned == parts)
        mine = frozenset(one.owned)
        assert one.told[0] == ("assigned", parts)
        assert ("revoked", parts) in one.told
        assert one.told[-1] == ("assigned", mine)
        assert two.told[-1] == ("assigned", parts - mine)
        one.stop()
        assert one.told[-1] == ("revoked", mine)
        until(lambda: two.owned == parts)
        assert "lost" not in {what for what, _ in (*one.told, *two.told)}
    assert len({*one.seen, *two.seen}) == 20
    assert {topic for topic, _, _ in (*one.seen, *two.seen)} == set(topics)


def test_asynchronous_consumer_goes_on_where_its_group_is(every_kafka: AnyKafka) -> None:
    topic, group = filled(every_kafka, 5), new_group()
    options: dict[str, Any] = {**QUICK, **EAGER, "start": "earliest", "auto_commit": False}

    async def read(count: int) -> list[karrow.Record]:
        found: list[karrow.Record] = []
        async with (
            asyncio.timeout(TIMEOUT),
            karrow.AsyncConsumer(every_kafka.bootstrap, topic, group=group, **options) as reader,
        ):
            async for record in reader:
                found.append(record)
                if len(found) == count:
                    await reader.commit()
                    return found
        raise AssertionError(found)

    async def main() -> None:
        assert places([*await read(4), *await read(6)]) == everything(5)

    asyncio.run(main())
