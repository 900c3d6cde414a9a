"""The consumer on every kind of broker: ways to read, places, commits, bad input."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import karrow
from karrow import errors
from karrow.types import TopicPartition
from tests.fix_any import AnyKafka

TIMEOUT = 20.0
QUICK: dict[str, Any] = {"heartbeat_interval": 0.2, "max_wait": 0.1}


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def filled(kafka: AnyKafka, count: int = 10, partitions: int = 2, **options: Any) -> str:
    """A topic with ``count`` records in each partition: b"PARTITION-NUMBER"."""
    topic = kafka.create_topic(partitions=partitions)
    fill(kafka, topic, range(count), partitions, **options)
    return topic


def fill(
    kafka: AnyKafka, topic: str, numbers: Iterable[int], partitions: int = 2, **options: Any
) -> None:
    idempotent = kafka.number >= (0, 11)
    with karrow.Producer(kafka.bootstrap, idempotent=idempotent, **options) as producer:
        for number in numbers:
            for partition in range(partitions):
                producer.send(topic, b"%d-%d" % (partition, number), partition=partition)


def consumer(kafka: AnyKafka, *topics: Any, **options: Any) -> karrow.Consumer:
    return karrow.Consumer(kafka.bootstrap, *topics, **{"start": "earliest", **QUICK, **options})


def until(look: Callable[[], Any], seconds: float = TIMEOUT) -> Any:
    """Look until there is something."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.005)
    return seen


def take(reader: karrow.Consumer, count: int, **options: Any) -> list[karrow.Record]:
    """So many records, by polling."""
    found: list[karrow.Record] = []
    deadline = time.monotonic() + TIMEOUT
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += reader.poll(0.2, **options)
    assert len(found) == count
    return found


def places(records: Iterable[karrow.Record]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


def everything(count: int, partitions: int = 2) -> list[tuple[int, int]]:
    return [(partition, number) for partition in range(partitions) for number in range(count)]


# Three ways to read.


def test_polls_give_every_record_once_and_in_order(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 30)
    with consumer(every_kafka, topic) as reader:
        found = take(reader, 60, max_records=7)
        assert reader.poll(0.05) == []
    assert places(found) == everything(30)
    for partition in range(2):
        offsets = [one.offset for one in found if one.partition == partition]
        assert offsets == sorted(offsets)
    assert {one.value for one in found} == {b"%d-%d" % place for place in everything(30)}


def test_iteration_goes_on_for_ever(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 5)
    found = []
    with consumer(any_kafka, topic) as reader:
        for record in reader:
            found.append(record)
            if len(found) == 10:
                fill(any_kafka, topic, [5])
            if len(found) == 12:
                break
    assert places(found) == everything(6)


def test_batches_are_arrow_and_of_one_partition(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 30)
    with consumer(any_kafka, topic) as reader:
        found = list(reader.batches(max_records=8, timeout=1.0))
    assert all(0 < batch.num_rows <= 8 for batch in found)
    assert all(len(set(batch.column("partition").to_pylist())) == 1 for batch in found)
    rows = pa.Table.from_batches(found).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in rows) == everything(30)
    assert {row["value"] for row in rows} == {b"%d-%d" % place for place in everything(30)}


def test_batches_end_with_the_record_that_reaches_max_bytes(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 10)  # values of three bytes
    with consumer(any_kafka, topic) as reader:
        found = list(reader.batches(max_bytes=10, timeout=1.0))
    assert max(batch.num_rows for batch in found) == 4
    rows = pa.Table.from_batches(found).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in rows) == everything(10)


def test_batches_have_only_the_columns_that_were_asked_for(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 3, 1)
    with consumer(any_kafka, topic) as reader:
        (batch,) = reader.batches(timeout=1.0, columns=["offset", "value"])
    assert batch.to_pydict() == {"offset": [0, 1, 2], "value": [b"0-0", b"0-1", b"0-2"]}


def test_ways_of_reading_can_be_mixed(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 20, 1)
    with consumer(any_kafka, topic) as reader:
        offsets = [one.offset for one in reader.poll(TIMEOUT, max_records=3)]
        for record in reader:
            offsets.append(record.offset)
            if record.offset == 5:
                break
        batch = next(reader.batches(max_records=4))
        offsets += batch.column("offset").to_pylist()
        for record in reader:
            offsets.append(record.offset)
            if record.offset == 11:
                break
        offsets += [one.offset for one in take(reader, 8)]
    assert offsets == list(range(20))


def test_the_asynchronous_twin_reads_the_same(any_kafka: AnyKafka) -> None:
    async def main() -> None:
        topic = filled(any_kafka, 5)
        options: dict[str, Any] = {"start": "earliest", **QUICK}
        async with karrow.AsyncConsumer(any_kafka.bootstrap, topic, **options) as reader:
            polled = await reader.poll(TIMEOUT, max_records=2)
            iterated = []
            async for record in reader:
                iterated.append(record)
                if len(iterated) == 3:
                    break
            # Of the five that are left, at least three are of one partition.
            batches = [batch async for batch in reader.batches(max_bytes=4, timeout=1.0)]
        assert max(batch.num_rows for batch in batches) == 2
        rows = pa.Table.from_batches(batches).to_pylist()
        seen = places([*polled, *iterated]) + [(row["partition"], row["offset"]) for row in rows]
        assert sorted(seen) == everything(5)

    asyncio.run(main())


def test_records_that_come_later_wake_a_poll(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with consumer(any_kafka, topic, max_wait=0.5) as reader:
        assert reader.poll(0.1) == []
        threading.Timer(0.2, lambda: fill(any_kafka, topic, [0], 1)).start()
        (record,) = reader.poll(TIMEOUT)
    assert record.value == b"0-0"


# Places.


def test_start_and_seeks_may_be_any_place(every_kafka: AnyKafka) -> None:
    topic = every_kafka.create_topic()
    old = datetime.now(UTC) - timedelta(hours=3)
    idempotent = every_kafka.number >= (0, 11)
    with karrow.Producer(every_kafka.bootstrap, idempotent=idempotent) as producer:
        for hours in range(4):
            stamp = old + timedelta(hours=hours, minutes=1)
            producer.send(topic, b"%d" % hours, timestamp_ms=round(stamp.timestamp() * 1000))
    expected: dict[Any, bytes] = {
        "earliest": b"0",
        2: b"2",
        old + timedelta(hours=1): b"1",
        (old + timedelta(hours=2)).isoformat(): b"2",
        "-1h": b"2",
        "-30 minutes": b"3",
        timedelta(hours=1): b"2",
        karrow.Offset.at_timestamp_ms(round(old.timestamp() * 1000) + 3_600_000): b"1",
    }
    for start, value in expected.items():
        with consumer(every_kafka, topic, start=start) as reader:
            assert reader.poll(TIMEOUT)[0].value == value, start
    with consumer(every_kafka, topic) as reader:
        take(reader, 4)
        for place, value in expected.items():
            reader.seek((topic, 0), place)
            assert reader.poll(TIMEOUT)[0].value == value, place


def test_latest_is_the_default_and_what_comes_is_read(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 3, 1)
    with karrow.Consumer(every_kafka.bootstrap, topic, **QUICK) as reader:
        assert reader.poll(0.3) == []
        assert reader.position((topic, 0)) == 3
        fill(every_kafka, topic, [3], 1)
        assert [one.offset for one in reader.poll(TIMEOUT)] == [3]


@pytest.mark.since("3.0")
def test_the_newest_time_is_a_place(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    now = round(time.time() * 1000)
    with karrow.Producer(any_kafka.bootstrap, linger=0.0) as producer:
        for second in (1, 3, 2):
            stamp = now + 1000 * second
            producer.send(topic, b"%d" % second, timestamp_ms=stamp).result(TIMEOUT)
    with consumer(any_kafka, topic, start="max_timestamp") as reader:
        assert [one.value for one in take(reader, 2)] == [b"3", b"2"]
        reader.seek((topic, 0), "max_timestamp")
        assert [one.value for one in take(reader, 2)] == [b"3", b"2"]


def test_seeks_go_anywhere_and_drop_what_was_fetched(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 10, 1)
    where = (topic, 0)
    with consumer(every_kafka, topic) as reader:
        assert [one.offset for one in reader.poll(TIMEOUT, max_records=2)] == [0, 1]
        assert reader.position(where) == 2
        reader.seek(where, 7)
        assert [one.offset for one in take(reader, 3)] == [7, 8, 9]
        reader.seek(where, "earliest")
        assert [one.offset for one in take(reader, 10)] == list(range(10))
        reader.seek_all("latest")
        assert reader.poll(0.3) == []
        reader.seek_all(9)
        assert [one.offset for one in take(reader, 1)] == [9]


def test_assigned_partitions_are_read_from_where_they_are_told(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 5, 3)
    with consumer(every_kafka) as reader:
        reader.assign({(topic, 0): 3, (topic, 2): "earliest"})
        assert reader.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 2))
        found = take(reader, 7)
        assert places(found) == [(0, 3), (0, 4), *((2, number) for number in range(5))]
        reader.assign([(topic, 1)], keep=True)
        assert places(take(reader, 5)) == [(1, number) for number in range(5)]
        reader.unassign([(topic, 0)])
        assert reader.assignment == (TopicPartition(topic, 1), TopicPartition(topic, 2))
        reader.unassign()
        assert not reader.assignment


def test_paused_partitions_keep_what_they_have(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 5)
    with consumer(any_kafka, topic) as reader:
        take(reader, 10)
        reader.pause((topic, 0))
        assert reader.paused == (TopicPartition(topic, 0),)
        fill(any_kafka, topic, range(5, 8))
        assert places(take(reader, 3)) == [(1, 5), (1, 6), (1, 7)]
        assert reader.poll(0.3) == []
        reader.resume((topic, 0))
        assert places(take(reader, 3)) == [(0, 5), (0, 6), (0, 7)]


def test_lag_and_watermarks_and_times(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 5)
    with consumer(any_kafka, topic) as reader:
        take(reader, 10)
        fill(any_kafka, topic, range(5, 9))
        reader.pause(*reader.assignment)
        lag = reader.lag()
        assert set(lag) == {(topic, 0), (topic, 1)}
        assert reader.watermarks() == {(topic, 0): (0, 9), (topic, 1): (0, 9)}
        assert sum(lag.values()) == 18 - sum(reader.position(one) or 0 for one in lag)
        past = reader.offsets_for_times({(topic, 0): "-1h", (topic, 1): "latest"})
        assert {one: found.offset for one, found in past.items()} == {(topic, 0): 0, (topic, 1): 9}


def test_partitions_and_topics_that_come_later_are_read(any_kafka: AnyKafka) -> None:
    prefix = f"later-{uuid.uuid4().hex[:8]}"
    first = any_kafka.create_topic(f"{prefix}-a")
    fill(any_kafka, first, [0], 1)
    pattern = re.compile(f"{prefix}-.*")
    # Also with "latest": what comes later is new as a whole.
    with consumer(any_kafka, pattern, start="latest", metadata_max_age=0.3) as reader:
        until(lambda: reader.poll(0.05) or reader.health().is_ok)
        second = any_kafka.create_topic(f"{prefix}-b")
        fill(any_kafka, second, [0], 1)
        with karrow.Admin(any_kafka.bootstrap) as admin:
            admin.create_partitions({first: 2})
        fill(any_kafka, first, [1])
        found = take(reader, 3)
        assert {(one.topic, one.value) for one in found} == {
            (second, b"0-0"),
            (first, b"0-1"),
            (first, b"1-1"),
        }
        assert reader.subscription == (first, second)


# Commits.


def test_what_was_committed_is_not_read_again(every_kafka: AnyKafka) -> None:
    topic, group = filled(every_kafka, 10), new_group()
    with consumer(every_kafka, topic, group=group, auto_commit=False) as reader:
        found = take(reader, 20)
        reader.commit({(topic, 0): 4, (topic, 1): (7, "a note")})
        stored = reader.committed()
    assert {one: (it.offset, it.metadata) for one, it in stored.items()} == {
        (topic, 0): (4, ""),
        (topic, 1): (7, "a note"),
    }
    assert len(found) == 20
    with consumer(every_kafka, topic, group=group, auto_commit=False) as reader:
        assert places(take(reader, 9)) == [
            *((0, number) for number in range(4, 10)),
            *((1, number) for number in range(7, 10)),
        ]


@pytest.mark.parametrize("way", ["record", "list", "batch", "nothing", "nowait"])
def test_commits_take_what_was_handed_out(every_kafka: AnyKafka, way: str) -> None:
    topic, group = filled(every_kafka, 10, 1), new_group()
    with consumer(every_kafka, topic, group=group, auto_commit=False) as reader:
        if way == "batch":
            batch = next(reader.batches(max_records=6))
            reader.commit(batch)
        else:
            records = reader.poll(TIMEOUT, max_records=6)
            if way == "record":
                reader.commit(records[-1])
            elif way == "list":
                reader.commit(records)
            elif way == "nothing":
                reader.commit()
            else:
                reader.commit_nowait().result(TIMEOUT)
        assert reader.committed()[TopicPartition(topic, 0)].offset == 6


def test_iteration_commits_the_record_in_hand(every_kafka: AnyKafka) -> None:
    topic, group = filled(every_kafka, 10, 1), new_group()
    with consumer(every_kafka, topic, group=group, auto_commit=False) as reader:
        for record in reader:
            if record.offset == 4:
                reader.commit()
                assert reader.position((topic, 0)) == 5
                break
        assert reader.committed()[TopicPartition(topic, 0)].offset == 5


def test_automatic_commits_never_pass_what_is_done_with(every_kafka: AnyKafka) -> None:
    topic, group = filled(every_kafka, 10, 1), new_group()
    where = TopicPartition(topic, 0)
    options: dict[str, Any] = {"group": group, "auto_commit_interval": 0.05}

    def stored(client: karrow.Client) -> int | None:
        return client.committed_offsets(group, [topic])[where].offset

    with karrow.Client(every_kafka.bootstrap) as client:
        with suppress(ZeroDivisionError), consumer(every_kafka, topic, **options) as reader:
            assert len(reader.poll(TIMEOUT, max_records=4)) == 4
            time.sleep(0.3)
            assert stored(client) in (None, 0)
            assert len(reader.poll(TIMEOUT, max_records=3)) == 3
            until(lambda: stored(client) == 4)
            time.sleep(0.2)
            assert stored(client) == 4
            raise ZeroDivisionError
        # What was handed out last was not done with when that was raised.
        assert stored(client) == 4
        with consumer(every_kafka, topic, **options) as reader:
            assert [one.offset for one in reader.poll(TIMEOUT, max_records=2)] == [4, 5]
        assert stored(client) == 6


def test_work_that_came_to_nothing_is_read_again(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 6, 1)
    with consumer(every_kafka, topic, group=new_group(), auto_commit=False) as reader:
        reader.commit(reader.poll(TIMEOUT, max_records=2))
        assert len(reader.poll(TIMEOUT, max_records=3)) == 3
        reader.seek_to_committed()
        assert [one.offset for one in take(reader, 4)] == [2, 3, 4, 5]


def test_offsets_are_stored_without_membership(every_kafka: AnyKafka) -> None:
    topic, group = filled(every_kafka, 10, 1), new_group()
    with consumer(every_kafka, group=group) as reader:
        reader.assign([(topic, 0)])
        assert reader.membership is None
        assert len(reader.poll(TIMEOUT, max_records=4)) == 4
        reader.commit()
    with consumer(every_kafka, group=group, auto_commit=False) as reader:
        reader.assign([(topic, 0)])
        assert reader.poll(TIMEOUT)[0].offset == 4


def test_a_mapping_says_where_partitions_begin_whatever_start_is(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 3, 1)
    with consumer(every_kafka, start="none") as reader:
        reader.assign({(topic, 0): 1})
        assert [one.offset for one in take(reader, 2)] == [1, 2]
        reader.assign([(topic, 0)])
    with consumer(every_kafka, start="none") as reader:
        reader.assign([(topic, 0)])
        with pytest.raises(errors.NoOffset, match="no committed offset"):
            reader.poll(TIMEOUT)


# Bad input.


def test_bad_input_is_refused_by_name(newest_kafka: AnyKafka) -> None:
    bootstrap = newest_kafka.bootstrap
    topic = newest_kafka.create_topic()
    with pytest.raises(errors.ConfigError, match="no name of a topic"):
        karrow.Consumer(bootstrap, "a b")
    with pytest.raises(errors.ConfigError, match="no pattern"):
        karrow.Consumer(bootstrap, "^(")
    with karrow.Consumer(bootstrap, [topic]) as reader:
        assert reader.subscription == (topic,)
        with pytest.raises(errors.StateError, match="no partition is assigned"):
            reader.seek_all("earliest")
        with pytest.raises(errors.ConfigError, match="no partition"):
            reader.pause("aa")  # type: ignore[arg-type]
    with karrow.Consumer(bootstrap) as reader:
        with pytest.raises(errors.StateError, match="read nothing"):
            reader.poll(0.1)
        with pytest.raises(errors.ConfigError, match="subscribing to nothing"):
            reader.subscribe()
        reader.subscribe(topic)
        with pytest.raises(errors.StateError, match="subscribed"):
            reader.assign([(topic, 0)])
        with pytest.raises(errors.StateError, match="in no group"):
            reader.commit()
        with pytest.raises(errors.ConfigError, match="max_records"):
            reader.poll(0.1, max_records=0)
        with pytest.raises(errors.ConfigError, match=r"max_records=1\.5 is not an integer"):
            reader.poll(0.1, max_records=1.5)  # type: ignore[arg-type]
        with pytest.raises(errors.ConfigError, match="timeout='1'"):
            reader.poll("1")  # type: ignore[arg-type]
        # Before anything is asked for, let alone handed out.
        for wrong in ({"columns": ["kee"]}, {"max_records": 0}, {"max_bytes": 0}):
            with pytest.raises(errors.ConfigError, match=r"'kee' is none of|max_"):
                reader.batches(**wrong)
    for call in (
        lambda: reader.poll(0.1),
        lambda: next(iter(reader)),
        lambda: next(reader.batches()),
        lambda: reader.subscribe(topic),
        lambda: reader.seek((topic, 0), 0),
        lambda: reader.position((topic, 0)),
        lambda: reader.partitions_for(topic),
        reader.watermarks,
        reader.lag,
        reader.commit,
    ):
        with pytest.raises(errors.StateError, match="closed"):
            call()
    reader.close()


def test_a_partition_that_is_not_owned_cannot_be_committed(newest_kafka: AnyKafka) -> None:
    topic = filled(newest_kafka, 3, 1)
    with consumer(newest_kafka, topic, group=new_group()) as reader:
        take(reader, 3)
        with pytest.raises(errors.CommitFailed, match="not assigned"):
            reader.commit({(topic, 7): 1})
        with pytest.raises(errors.StateError, match="not assigned"):
            reader.seek((topic, 7), 1)
        with pytest.raises(errors.ConfigError, match="cannot be committed"):
            reader.commit({(topic, 0): -4})


def test_a_topic_that_does_not_exist_is_an_error_and_then_read(newest_kafka: AnyKafka) -> None:
    name = f"late-{uuid.uuid4().hex[:8]}"
    with consumer(newest_kafka, name, retry_backoff=0.05, retry_backoff_max=0.1) as reader:
        with pytest.raises(errors.UnknownTopicOrPartition, match=name):
            until(lambda: reader.poll(0.2))
        assert reader.health().state == "degraded"
        newest_kafka.create_topic(name)
        fill(newest_kafka, name, [0], 1)
        assert take(reader, 1)[0].value == b"0-0"
        until(lambda: reader.health().is_ok)


@pytest.mark.since("0.11")
def test_an_offset_that_is_gone_follows_the_policy(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 10, 1)
    where = (topic, 0)
    with karrow.Admin(every_kafka.bootstrap) as admin:
        admin.delete_records({where: 4})
    for policy, first in (("earliest", 4), ("latest", None), (lambda _, offset: offset + 6, 6)):
        with consumer(every_kafka, out_of_range=policy) as reader:
            reader.assign({where: 0})
            found = reader.poll(0.5 if first is None else TIMEOUT)
            assert (found[0].offset if found else None) == first
    with consumer(every_kafka, start=0) as reader:
        reader.assign({where: 0})
        with pytest.raises(errors.OffsetOutOfRange, match="offset 0"):
            reader.poll(TIMEOUT)
        assert reader.health().state == "degraded"
        assert reader.poll(0.2) == []
        reader.seek(where, 5)
        assert reader.poll(TIMEOUT)[0].offset == 5


def test_two_threads_at_once_are_refused(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    with consumer(newest_kafka, topic) as reader:
        waiting = threading.Thread(target=reader.poll, args=(1.0,))
        waiting.start()
        time.sleep(0.2)
        with pytest.raises(errors.StateError, match="two threads"):
            reader.poll(0.1)
        waiting.join()
        assert reader.poll(0.1) == []


def test_two_tasks_at_once_are_refused(newest_kafka: AnyKafka) -> None:
    async def main() -> None:
        topic = newest_kafka.create_topic()
        async with karrow.AsyncConsumer(newest_kafka.bootstrap, topic) as reader:
            waiting = asyncio.create_task(reader.poll(0.5))
            await asyncio.sleep(0.1)
            with pytest.raises(errors.StateError, match="two tasks"):
                await reader.poll(0.1)
            assert await waiting == []

    asyncio.run(main())


def test_closing_ends_a_poll_in_another_thread(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic()
    reader = consumer(newest_kafka, topic)
    caught: list[Exception] = []

    def read() -> None:
        try:
            for _ in reader:
                pass
        except errors.StateError as error:
            caught.append(error)

    reading = threading.Thread(target=read)
    reading.start()
    time.sleep(0.3)
    reader.close()
    reading.join(TIMEOUT)
    assert "closed" in str(caught[0])
