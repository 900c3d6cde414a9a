"""Offsets that consumers store without waiting, and those that they ask for."""

from __future__ import annotations

import asyncio
from typing import Any

import karrow
from karrow.broker.threaded import Broker
from karrow.types import TopicPartition
from tests.contract.test_consumer import (
    QUICK,
    TIMEOUT,
    consumer,
    filled,
    new_group,
    take,
    until,
)
from tests.fix_any import AnyKafka

MINUTE_MS = 60_000
FIRST_MS = 1_700_000_000_000


def stored(reader: karrow.Consumer) -> dict[int, tuple[int | None, str]]:
    """What the group has, by partition."""
    found = reader.committed()
    return {one.partition: (it.offset, it.metadata or "") for one, it in found.items()}


# Commits that nobody waits for.


def test_commits_without_waiting_take_all_that_commits_take(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 10, 1)
    where = (topic, 0)
    with consumer(any_kafka, topic, group=new_group(), auto_commit=False) as reader:

        def now_stored(what: Any) -> tuple[int | None, str]:
            reader.commit_nowait(what).result(TIMEOUT)
            return stored(reader)[0]

        records = reader.poll(TIMEOUT, max_records=4)
        assert len(records) == 4
        assert now_stored(records[1]) == (2, "")
        assert now_stored(records[:3]) == (3, "")
        batch = next(reader.batches(max_records=3))
        assert now_stored(batch.slice(0, 1)) == (5, "")
        assert now_stored(batch) == (7, "")
        assert now_stored({where: 6}) == (6, "")
        assert now_stored({where: (5, "a note")}) == (5, "a note")
        # What comes without metadata takes away those of before.
        assert now_stored(records[0]) == (1, "")
        assert now_stored(None) == (7, "")


def test_lists_that_are_committed_without_waiting_may_reach_over_partitions(
    any_kafka: AnyKafka,
) -> None:
    topic = filled(any_kafka, 5)
    with consumer(any_kafka, topic, group=new_group(), auto_commit=False) as reader:
        found = take(reader, 10, max_records=3)
        some = [one for one in found if one.offset < 2 + one.partition]
        reader.commit_nowait(some).result(TIMEOUT)
        assert stored(reader) == {0: (2, ""), 1: (3, "")}


def test_asynchronous_commits_without_waiting_store_the_same(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 10, 1)
    where = TopicPartition(topic, 0)
    options: dict[str, Any] = {"start": "earliest", "auto_commit": False, **QUICK}

    async def main() -> None:
        async with karrow.AsyncConsumer(
            any_kafka.bootstrap, topic, group=new_group(), **options
        ) as reader:
            records = await reader.poll(TIMEOUT, max_records=4)
            batch = await anext(reader.batches(max_records=3))
            given: list[tuple[Any, tuple[int, str]]] = [
                (records[1], (2, "")),
                (records[:3], (3, "")),
                (batch, (7, "")),
                ({where: 6}, (6, "")),
                ({where: (5, "a note")}, (5, "a note")),
                (None, (7, "")),
            ]
            for what, expected in given:
                await asyncio.wait_for(reader.commit_nowait(what), TIMEOUT)
                found = (await reader.committed())[where]
                assert (found.offset, found.metadata or "") == expected

    asyncio.run(main())


# Lag.


def half_done(kafka: AnyKafka, group: str) -> str:
    """A topic with ten records in both partitions: four are done with in one, three gone of one."""
    topic = filled(kafka, 10)
    with karrow.Admin(kafka.bootstrap) as admin, karrow.Client(kafka.bootstrap) as client:
        admin.delete_records({(topic, 1): 3})
        client.commit_offsets(group, {(topic, 0): 4})
    return topic


def test_lag_of_what_has_no_position_counts_from_the_commit_or_as_a_whole(
    any_kafka: AnyKafka,
) -> None:
    group = new_group()
    topic = half_done(any_kafka, group)
    both = [(topic, 0), (topic, 1)]
    # With "none" there is no position where nothing is committed, however long it is looked for.
    with consumer(any_kafka, group=group, start="none") as reader:
        assert reader.lag() == {}
        reader.assign(both)
        assert reader.lag() == {(topic, 0): 6, (topic, 1): 7}
        assert reader.position((topic, 1)) is None
    with consumer(any_kafka, group=new_group(), start="none") as reader:
        reader.assign(both)
        assert reader.lag() == {(topic, 0): 10, (topic, 1): 7}


def test_lag_is_known_before_positions_are() -> None:
    """With "latest" it would be nothing where nothing is committed: so it was no position's."""
    with Broker() as broker:
        kafka, group = AnyKafka("4.3", broker), new_group()
        topic = half_done(kafka, group)
        with consumer(kafka, group=group, start="latest") as reader:
            broker.clear_requests()
            broker.delay("OffsetFetch", 0.5)
            reader.assign([(topic, 0), (topic, 1)])
            until(lambda: any(seen.api == "OffsetFetch" for seen in broker.requests))
            assert reader.position((topic, 0)) is None
            assert reader.lag() == {(topic, 0): 6, (topic, 1): 7}
            until(lambda: reader.position((topic, 1)) == 10)
            assert reader.lag() == {(topic, 0): 6, (topic, 1): 0}


# Times.


def test_offset_of_a_time_is_that_of_the_first_record_that_is_not_older(
    every_kafka: AnyKafka,
) -> None:
    topic = every_kafka.create_topic(partitions=2)
    with karrow.Producer(
        every_kafka.bootstrap, idempotent=every_kafka.number >= (0, 11)
    ) as producer:
        for number in range(10):
            for partition in range(2):
                stamp = FIRST_MS + number * MINUTE_MS + partition
                producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=stamp)

    with consumer(every_kafka, topic) as reader:

        def found(stamp: int) -> list[tuple[int | None, int | None]]:
            place = karrow.Offset.at_timestamp_ms(stamp)
            both = reader.offsets_for_times({(topic, 0): place, (topic, 1): place})
            results = [both[TopicPartition(topic, number)] for number in range(2)]
            return [(one.offset, one.timestamp_ms) for one in results]

        middle = FIRST_MS + 4 * MINUTE_MS
        assert found(middle) == [(4, middle), (4, middle + 1)]
        assert found(middle + 1) == [(5, middle + MINUTE_MS), (4, middle + 1)]
        assert found(middle - 1) == [(4, middle), (4, middle + 1)]
        assert found(0) == [(0, FIRST_MS), (0, FIRST_MS + 1)]
        last = FIRST_MS + 9 * MINUTE_MS
        assert found(last) == [(9, last), (9, last + 1)]
        # Nothing is that new; the timestamp says nothing either.
        assert found(last + 1)[0] == (None, None)
        assert found(last + 2) == [(None, None), (None, None)]
