"""Limits in bytes although the size of a partition's records cannot be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import karrow
from karrow.spark import pool
from karrow.spark.reading.fetching import SAMPLE_BYTES, Answer, Fetching
from tests.embedded.sourcing import Query, places, query

COUNT = 200


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(seed=1, auto_create_topics=False) as broker:
        broker.create_topic("orders", partitions=2)
        with karrow.Client(broker.bootstrap) as client:
            for _ in range(COUNT // 10):
                for partition in range(2):
                    client.produce("orders", [b"x" * 1000] * 10, partition=partition)
        yield broker
        pool.close()


class Quota:
    """Empty and throttled answers to samples of some partitions, so many times for each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *partitions: int, times: int) -> None:
        self._left = Counter(dict.fromkeys(partitions, times))
        self.calls: Counter[int] = Counter()
        call = Fetching._call_fetch

        async def called(
            fetching: Fetching, offset: int, size: int, *more: Any, **by: Any
        ) -> Answer:
            answer = await call(fetching, offset, size, *more, **by)
            is_sample = size == SAMPLE_BYTES
            return self.throttled(fetching.partition.partition, answer) if is_sample else answer

        monkeypatch.setattr(Fetching, "_call_fetch", called)
        monkeypatch.setattr("karrow.spark.reading.fetching.SAMPLE_FOR", 0.3)

    def throttled(self, partition: int, answer: Answer) -> Answer:
        self.calls[partition] += 1
        if self._left[partition] <= 0:
            return answer
        self._left[partition] -= 1
        return answer._replace(data=None, next_offset=answer.offset, is_throttled=True)


def first_batch(running: Query) -> Counter[int]:
    """How many rows the first batch has of each partition."""
    rows = running.next()
    assert rows is not None
    return Counter(partition for partition, _ in places(rows))


def test_a_sample_that_brings_nothing_is_repeated(
    broker: karrow.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = Quota(monkeypatch, 0, times=2)
    running = query(broker, startingOffsets="earliest", maxBytesPerTrigger="20k")
    assert first_batch(running) == {0: 10, 1: 10}
    assert quota.calls == {0: 3, 1: 1}


def test_a_partition_that_is_not_seen_is_taken_to_be_like_the_others(
    broker: karrow.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = Quota(monkeypatch, 0, times=1000)
    running = query(broker, startingOffsets="earliest", maxBytesPerTrigger="20k")
    assert first_batch(running) == {0: 10, 1: 10}
    assert 1 < quota.calls[0] < 1000


def test_a_limit_holds_although_nothing_is_seen(
    broker: karrow.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    Quota(monkeypatch, 0, 1, times=1000)
    running = query(broker, startingOffsets="earliest", maxBytesPerTrigger="20k")
    assert first_batch(running) == {0: 10, 1: 10}


def test_no_samples_are_begun_when_there_was_no_time_for_the_others(
    broker: karrow.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = Quota(monkeypatch, times=0)
    monkeypatch.setattr("karrow.spark.reading.planning.SAMPLES_FOR", -1.0)
    running = query(broker, startingOffsets="earliest", maxBytesPerTrigger="20k")
    assert first_batch(running) == {0: 10, 1: 10}
    assert not quota.calls


def test_an_offset_that_is_gone_does_not_lift_the_limit(broker: karrow.Broker) -> None:
    given = {"maxBytesPerTrigger": "20k", "failOnDataLoss": "false"}
    running = query(broker, startingOffsets="earliest", **given)
    first_batch(running)
    with karrow.Admin(broker.bootstrap) as admin:
        admin.delete_records({("orders", 0): 15})
    assert first_batch(running) == {0: 5, 1: 10}


def test_tasks_are_divided_although_nothing_is_seen(
    broker: karrow.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    Quota(monkeypatch, 0, 1, times=1000)
    running = query(broker, startingOffsets="earliest", maxBytesPerPartition="100k")
    running.next()
    assert [part.size for part in running.ranges(0)] == [COUNT // 2] * 4
