"""Fetching while the embedded broker fails, waits, forgets and lies on request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import karrow
from karrow import errors, events
from karrow.aio.consuming.fetcher import Fetcher
from karrow.aio.consuming.leaders import Leaders
from karrow.aio.consuming.positions import Positions
from karrow.broker.handlers import fetch as handlers
from karrow.broker.threaded import Broker
from karrow.net.cluster import Cluster
from karrow.records import BatchBuilder
from karrow.types import HealthState

TOPIC = "topic"
TIMEOUT = 15.0
QUICK: dict[str, Any] = {
    "start": "earliest",
    "max_wait": 0.1,
    "retry_backoff": 0.02,
    "retry_backoff_max": 0.1,
}
LONG = 8.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(brokers=2) as broker:
        broker.create_topic(TOPIC, 2, 2)
        yield broker


def fill(broker: Broker, batches: int, partition: int = 0, per_batch: int = 5) -> None:
    """Batches of a thousand bytes or so, whose values are their offsets."""
    with karrow.Client(broker.bootstrap) as client:
        at = client.list_offsets({(TOPIC, partition): "latest"})[TOPIC, partition].offset or 0
        for base in range(at, at + batches * per_batch, per_batch):
            client.produce(
                TOPIC, [b"%0200d" % n for n in range(base, base + per_batch)], partition=partition
            )


def reader(broker: Broker, **options: Any) -> karrow.Consumer:
    made = karrow.Consumer(broker.bootstrap, **{**QUICK, **options})
    made.assign([(TOPIC, 0), (TOPIC, 1)])
    return made


def read(consumer: karrow.Consumer, count: int) -> list[int]:
    """The offsets of so many records, and that nothing else comes."""
    found: list[int] = []
    deadline = time.monotonic() + TIMEOUT
    while len(found) < count and time.monotonic() < deadline:
        found += [record.offset for record in consumer.poll(0.2)]
    assert consumer.poll(0.0) == []
    return found


Found = list[tuple[str, int, int]]


def until_raised(
    consumer: karrow.Consumer, kind: type[errors.KarrowError]
) -> tuple[Found, errors.KarrowError]:
    """The records in front of an error."""
    found: Found = []
    try:
        while True:
            records = consumer.poll(TIMEOUT)
            assert records
            found += [(one.topic, one.partition, one.offset) for one in records]
    except kind as error:
        return found, error


def count(found: Found, partition: int) -> int:
    return sum(one[1] == partition for one in found)


def fetches(broker: Broker) -> int:
    return sum(seen.api == "Fetch" for seen in broker.requests)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def positions_of(consumer: karrow.Consumer) -> Positions:
    return consumer._engine.positions


# ---- nothing is lost, nothing comes twice


@pytest.mark.parametrize(
    "error",
    [
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        "FETCH_SESSION_TOPIC_ID_ERROR",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_SERVER_ERROR",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
    ],
)
def test_refused_fetches_are_repeated(broker: Broker, error: str) -> None:
    fill(broker, 10)
    with reader(broker, partition_max_bytes=1500) as consumer:
        first = [record.offset for record in consumer.poll(TIMEOUT, 7)]
        broker.fail("Fetch", error, times=2)
        fill(broker, 2)
        assert first + read(consumer, 60 - len(first)) == list(range(60))


@pytest.mark.parametrize("trouble", ["close", "close after", "drop", "delay", "throttle", "forget"])
def test_lost_and_late_answers_cost_nothing(broker: Broker, trouble: str) -> None:
    fill(broker, 10)
    with reader(broker, partition_max_bytes=1500, request_timeout=0.5) as consumer:
        first = [record.offset for record in consumer.poll(TIMEOUT, 7)]
        if trouble.startswith("close"):
            broker.close("Fetch", when="after" if "after" in trouble else "before", times=2)
        elif trouble == "drop":
            broker.drop("Fetch")
        elif trouble == "delay":
            broker.delay("Fetch", 0.3)
        elif trouble == "throttle":
            broker.throttle(0.2, "Fetch")
        else:
            broker.expire_session()
        fill(broker, 2)
        assert first + read(consumer, 60 - len(first)) == list(range(60))


def test_a_leader_that_moves_is_followed(broker: Broker) -> None:
    fill(broker, 10)
    with reader(broker, partition_max_bytes=1500) as consumer:
        consumer.assign([(TOPIC, 0)])  # nothing else leads to the other node
        found = [record.offset for record in consumer.poll(TIMEOUT, 7)]
        for _ in range(3):
            broker.move_leader(TOPIC, 0)
            fill(broker, 1)
            found += [record.offset for record in consumer.poll(TIMEOUT, 7)]
        assert found + read(consumer, 65 - len(found)) == list(range(65))


def test_a_lost_session_is_begun_anew_at_once(broker: Broker) -> None:
    fill(broker, 1)
    with reader(broker, retry_backoff=5.0, retry_backoff_max=5.0) as consumer:
        assert read(consumer, 5) == list(range(5))
        broker.expire_session()
        fill(broker, 1)
        began = time.monotonic()
        assert read(consumer, 5) == list(range(5, 10))
        assert time.monotonic() - began < 2.5


def test_a_topic_that_is_made_again_is_read_from_its_beginning(broker: Broker) -> None:
    fill(broker, 3)
    with reader(broker) as consumer, karrow.Admin(broker.bootstrap) as admin:
        assert read(consumer, 15) == list(range(15))
        admin.delete_topic(TOPIC)
        broker.create_topic(TOPIC, 2, 2)
        fill(broker, 2)
        assert read(consumer, 10) == list(range(10))


# ---- nothing waits without need


def test_the_next_fetch_leaves_before_anything_is_decoded(broker: Broker) -> None:
    fill(broker, 4)
    with reader(broker, partition_max_bytes=1500, fetch_sessions=False) as consumer:
        consumer.poll(TIMEOUT, 1)
        cursor = positions_of(consumer)[karrow.TopicPartition(TOPIC, 0)]
        until(lambda: (cursor.fetch_position or 0) >= 10)
        assert consumer.position((TOPIC, 0)) == 1


def test_fetching_goes_on_after_a_fetch_aside_that_took_long(broker: Broker) -> None:
    fill(broker, 1)
    with reader(broker, max_wait=0.3) as consumer:
        consumer.assign([(TOPIC, 0)])
        assert read(consumer, 5) == list(range(5))
        asked = fetches(broker)
        until(lambda: fetches(broker) > asked)
        broker.delay("Fetch", 1.0)
        consumer.seek((TOPIC, 0), 0)
        assert read(consumer, 5) == list(range(5))
        fill(broker, 1)
        assert read(consumer, 5) == list(range(5, 10))


def test_a_seek_does_not_wait_for_a_fetch_that_waits(broker: Broker) -> None:
    fill(broker, 2)
    with reader(broker, max_wait=LONG) as consumer:
        assert read(consumer, 10) == list(range(10))
        time.sleep(0.1)  # now the next fetch waits at its broker
        began = time.monotonic()
        consumer.seek((TOPIC, 0), 3)
        assert read(consumer, 7) == list(range(3, 10))
        consumer.pause((TOPIC, 0))
        fill(broker, 1)
        consumer.resume((TOPIC, 0))
        assert read(consumer, 5) == list(range(10, 15))
        assert time.monotonic() - began < LONG / 2


def test_no_seek_waits_while_fetches_come_and_go(broker: Broker) -> None:
    broker.move_leader(TOPIC, 0, 1)
    broker.move_leader(TOPIC, 1, 1)
    fill(broker, 1, partition=1)
    with karrow.Client(broker.bootstrap) as client, reader(broker, max_wait=LONG) as consumer:
        consumer.poll(TIMEOUT)
        began = time.monotonic()
        for _ in range(10):
            for _ in range(3):
                client.produce(TOPIC, [b"one"], partition=0)
                consumer.seek((TOPIC, 1), 0)
                time.sleep(0.004)
            while not any(record.partition == 1 for record in consumer.poll(LONG)):
                pass
        assert time.monotonic() - began < LONG / 2


def test_partitions_with_data_do_not_wait_for_those_without(broker: Broker) -> None:
    broker.move_leader(TOPIC, 0, 1)
    broker.move_leader(TOPIC, 1, 1)
    fill(broker, 40)
    with reader(broker, max_wait=LONG, partition_max_bytes=1500) as consumer:
        began = time.monotonic()
        found: list[int] = []
        while len(found) < 200:
            found += [record.offset for record in consumer.poll(TIMEOUT, 10)]
            time.sleep(0.005)
        assert found == list(range(200))
        assert time.monotonic() - began < LONG / 2


def test_an_idle_consumer_does_not_spin(broker: Broker) -> None:
    fill(broker, 1)
    with reader(broker, max_wait=0.0, min_bytes=0) as consumer:
        assert read(consumer, 5) == list(range(5))
        broker.clear_requests()
        consumer.poll(0.5)
        assert 0 < fetches(broker) <= 2 * 0.5 / 0.02 + 2


def test_a_transaction_that_hangs_is_waited_for_without_spinning(broker: Broker) -> None:
    with karrow.Producer(broker.bootstrap, transactional_id="hanging") as producer:
        producer.begin_transaction()
        producer.send(TOPIC, b"1", partition=0)
        producer.flush()
        fill(broker, 1)
        with reader(broker, isolation="read_committed", max_wait=0.2) as consumer:
            broker.clear_requests()
            assert consumer.poll(1.0) == []
            assert fetches(broker) <= 2 * (1.0 / 0.2 + 4)
            health = consumer.health()
            assert health.state is HealthState.WAITING
            assert health.reason == "topic-0: a transaction is open at offset 0"
            assert consumer.lag() == {(TOPIC, 0): 0, (TOPIC, 1): 0}  # of what may be read
            producer.commit_transaction()
            assert read(consumer, 6) == [0, *range(1, 6)]
            until(lambda: consumer.poll(0.05) or consumer.health().is_ok)


# ---- memory


def test_what_waits_is_bounded(broker: Broker) -> None:
    fill(broker, 60)
    fill(broker, 60, 1)
    limits = {"buffer_bytes": 20_000, "partition_max_bytes": 4_000, "max_bytes": 8_000}
    with reader(broker, **limits) as consumer:
        consumer.poll(TIMEOUT, 1)
        samples = []
        for _ in range(50):
            samples.append([one.buffered_bytes for one in positions_of(consumer).cursors()])
            time.sleep(0.005)
        assert 8_000 < max(map(sum, samples)) <= 20_000 + 2 * 8_000
        assert max(map(max, samples)) < 3 * 4_000  # twice its limit, and a fetch that goes over it
        assert len(read(consumer, 599)) == 599


def test_paused_partitions_do_not_fill_the_buffer(broker: Broker) -> None:
    fill(broker, 20)
    fill(broker, 20, 1)
    limits = {"buffer_bytes": 6_000, "partition_max_bytes": 4_000, "max_bytes": 8_000}
    with reader(broker, **limits) as consumer:
        first = [record.offset for record in consumer.poll(TIMEOUT) if record.partition == 0]
        consumer.pause((TOPIC, 0))
        found: list[tuple[int, int]] = []
        while (1, 99) not in found:
            found += [(one.partition, one.offset) for one in consumer.poll(TIMEOUT)]
        assert {partition for partition, _ in found} == {1}
        consumer.resume((TOPIC, 0))
        assert first + read(consumer, 100 - len(first)) == list(range(100))


def test_a_paused_partition_is_left_out(broker: Broker) -> None:
    fill(broker, 2)
    with reader(broker, fetch_sessions=False) as consumer:
        read(consumer, 10)
        consumer.pause((TOPIC, 0))
        time.sleep(0.3)
        broker.clear_requests()
        consumer.poll(0.3)
        named = {tuple(one) for seen in broker.requests for one in seen.partitions}
        assert (TOPIC, 0) not in named
        assert (TOPIC, 1) in named


def test_a_batch_beyond_every_limit_is_read(broker: Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        client.produce(TOPIC, [bytes(50_000), bytes(50_000)], partition=0)
    with reader(broker, partition_max_bytes=100, max_bytes=200) as consumer:
        assert read(consumer, 2) == [0, 1]


def test_an_offset_that_is_chosen_in_a_topic_that_was_made_again_counts(broker: Broker) -> None:
    fill(broker, 1)
    with reader(broker) as consumer, karrow.Admin(broker.bootstrap) as admin:
        assert read(consumer, 5) == list(range(5))
        consumer.unassign()
        admin.delete_topic(TOPIC)
        admin.create_topic(TOPIC, partitions=2)
        fill(broker, 2)
        consumer.assign({(TOPIC, 0): 7})
        assert read(consumer, 3) == [7, 8, 9]


def test_a_session_does_not_go_on_with_a_topic_that_was_there_before(broker: Broker) -> None:
    with reader(broker) as consumer, karrow.Admin(broker.bootstrap) as admin:
        assert consumer.poll(0.5) == []  # the session has both partitions at offset 0
        admin.delete_topic(TOPIC)
        admin.create_topic(TOPIC, partitions=2)
        fill(broker, 1)
        assert read(consumer, 5) == list(range(5))


# ---- what is not there


MISSING = {
    "a topic": [("nothere", 0)],
    "a topic at an offset": {("nothere", 0): 0},
    "a partition": [(TOPIC, 7)],
    "a partition at an offset": {(TOPIC, 7): 0},
}


@pytest.mark.parametrize("what", list(MISSING.values()), ids=list(MISSING))
@pytest.mark.parametrize("group", [None, "group"])
def test_what_is_assigned_by_hand_and_missing_is_raised_once_and_read_when_it_comes(
    broker: Broker, what: Any, group: str | None
) -> None:
    ((topic, number),) = what
    with karrow.Consumer(broker.bootstrap, group=group, **QUICK) as consumer:
        consumer.assign(what)
        with pytest.raises(errors.UnknownTopicOrPartition, match=topic) as caught:
            consumer.poll(TIMEOUT)
        assert {"topic": topic, "partition": number}.items() <= caught.value.context.items()
        assert consumer.poll(0.5) == []  # it was raised once
        health = consumer.health()
        assert health.state is HealthState.DEGRADED
        assert f"{topic}-{number}" in health.reason
        with karrow.Admin(broker.bootstrap) as admin:
            if topic == TOPIC:
                admin.create_partitions({TOPIC: 8})
            else:
                admin.create_topic(topic, partitions=1)
        with karrow.Client(broker.bootstrap) as client:
            client.produce(topic, [b"came"], partition=number)
        assert read(consumer, 1) == [0]
        assert consumer.health().is_ok


def test_what_is_missing_for_a_moment_is_not_raised(broker: Broker) -> None:
    fill(broker, 1)
    broker.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=TOPIC, times=3)
    with reader(broker) as consumer:
        consumer.seek((TOPIC, 0), 0)
        assert read(consumer, 5) == list(range(5))


def test_what_is_missing_is_not_looked_for_any_more_when_nobody_wants_it(broker: Broker) -> None:
    with karrow.Consumer(broker.bootstrap, **QUICK) as consumer:
        consumer.assign({("nothere", 0): 0})
        with pytest.raises(errors.UnknownTopicOrPartition):
            consumer.poll(TIMEOUT)
        consumer.unassign()
        time.sleep(0.3)
        broker.clear_requests()
        time.sleep(0.5)
        assert not [seen for seen in broker.requests if seen.api == "Metadata"]
        consumer.assign({("nothere", 0): 0})
        with pytest.raises(errors.UnknownTopicOrPartition):  # this is another assignment
            consumer.poll(TIMEOUT)


# ---- what the application has to decide


def test_damage_stops_one_partition_and_can_be_skipped(broker: Broker) -> None:
    fill(broker, 4)
    fill(broker, 4, 1)
    with reader(broker, partition_max_bytes=1500) as consumer:
        broker.corrupt("Fetch", partition=0, topic=TOPIC)
        found, error = until_raised(consumer, errors.CorruptRecordError)
        assert isinstance(error, errors.CorruptRecordError)
        assert {"topic": TOPIC, "partition": 0}.items() <= error.context.items()
        assert error.offset is not None
        assert error.next_offset == error.offset + 5
        found += [(TOPIC, 1, offset) for offset in read(consumer, 20 - count(found, 1))]
        assert consumer.skip_damaged() == ((TOPIC, 0),)
        expected = [n for n in range(20) if not error.offset <= n < error.next_offset]
        before = [offset for _, partition, offset in found if partition == 0]
        assert before + read(consumer, 15 - len(before)) == expected
        consumer.seek((TOPIC, 0), error.offset)
        assert read(consumer, 20 - error.offset) == list(range(error.offset, 20))


def test_data_without_a_whole_batch_is_raised_and_not_asked_for_in_a_loop(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(data: bytes, version: int) -> bytes:
        return data[:8] + b"\x7f\xff\xff\xf0" + data[12:] if data else data

    fill(broker, 2)
    with reader(broker) as consumer:
        assert read(consumer, 10) == list(range(10))
        monkeypatch.setattr(handlers, "down_convert", cut)
        broker.clear_requests()
        fill(broker, 2)
        fill(broker, 1, 1)
        until(lambda: len(consumer._engine.inbox) == 2)
        time.sleep(0.3)
        assert len(consumer._engine.inbox) == 2
        assert fetches(broker) < 20
        for _ in range(2):
            with pytest.raises(errors.CorruptRecordError, match="seek to go on"):
                read(consumer, 1)
        assert consumer.poll(0.2) == []  # each was raised once
        assert consumer.health().state is HealthState.DEGRADED
        assert set(consumer.skip_damaged()) == {(TOPIC, 0), (TOPIC, 1)}
        found, error = until_raised(consumer, errors.CorruptRecordError)
        assert not found
        assert isinstance(error, errors.CorruptRecordError)
        assert error.offset in {1, 11}
        monkeypatch.undo()
        consumer.seek((TOPIC, 0), 10)
        consumer.seek((TOPIC, 1), 0)
        assert sorted(read(consumer, 15)) == [*range(5), *range(10, 20)]


@pytest.fixture
def cutting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """One that cuts off what is larger than it was asked for, as Kafka 0.10.0 does."""
    whole = handlers._read_partition

    def cut(*args: Any, **options: Any) -> Any:
        answer = whole(*args, **options)
        answer.records = bytes(answer.records or b"")[: args[2].max_bytes]
        return answer

    monkeypatch.setattr(handlers, "_read_partition", cut)
    with Broker(version="3.9") as broker:
        broker.create_topic(TOPIC, 2)
        with karrow.Client(broker.bootstrap) as client:
            for size in (10, 50_000, 10):
                client.produce(TOPIC, [bytes(size)], partition=0)
        yield broker


OLD: dict[str, Any] = {
    "api_versions": {"Fetch": 2},
    "partition_max_bytes": 1000,
    "max_bytes": 2000,
}


def test_an_old_broker_that_cuts_off_a_message_is_asked_for_more(cutting: Broker) -> None:
    with reader(cutting, **OLD) as consumer:
        assert read(consumer, 3) == [0, 1, 2]
        assert fetches(cutting) < 40


def test_a_message_of_an_old_broker_that_no_frame_holds_is_raised(cutting: Broker) -> None:
    with reader(cutting, **OLD, max_frame_bytes=9000) as consumer:
        found, error = until_raised(consumer, errors.CorruptRecordError)
        assert found == [(TOPIC, 0, 0)]
        assert isinstance(error, errors.CorruptRecordError)
        assert error.offset == 1
        assert fetches(cutting) < 40


def test_a_bomb_is_named_and_others_go_on(broker: Broker) -> None:
    builder = BatchBuilder(compression="zstd")
    builder.append(None, bytes(500_000))
    with karrow.Client(broker.bootstrap) as client:
        part = {"index": 0, "records": builder.build()}
        body = {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [{"name": TOPIC, "partition_data": [part]}],
        }
        client.request("Produce", body, to=karrow.Node.leader(TOPIC, 0), api_version=9)
    fill(broker, 1)
    fill(broker, 1, 1)
    with reader(broker, max_decompressed_bytes=10_000) as consumer:
        found, error = until_raised(consumer, errors.CorruptRecordError)
        assert isinstance(error, errors.CorruptRecordError)
        assert "10000" in str(error)
        assert {"topic": TOPIC, "partition": 0}.items() <= error.context.items()
        assert (error.offset, error.next_offset) == (0, 1)
        assert count(found, 0) == 0
        found += [(TOPIC, 1, offset) for offset in read(consumer, 5 - len(found))]
        assert consumer.poll(0.3) == []  # it was raised once
        assert consumer.skip_damaged() == ((TOPIC, 0),)
        assert len(read(consumer, 10 - len(found))) == 10 - len(found)


def test_a_policy_that_raises_stops_its_partition_alone(broker: Broker) -> None:
    def policy(partition: karrow.TopicPartition, offset: int) -> str:
        raise ZeroDivisionError("ouch")

    for partition in range(2):
        broker.move_leader(TOPIC, partition, 1)
        fill(broker, 1, partition)
    with reader(broker, out_of_range=policy) as consumer:
        consumer.seek((TOPIC, 0), 77)
        found, error = until_raised(consumer, errors.CallbackError)
        assert error.context == {"topic": TOPIC, "partition": 0, "offset": 77}
        assert "out_of_range raised ZeroDivisionError: ouch" in str(error)
        assert isinstance(error.__cause__, ZeroDivisionError)
        fill(broker, 1, 1)
        assert len(read(consumer, 10 - len(found))) == 10 - len(found)
        assert consumer.health().state is HealthState.DEGRADED
        consumer.seek((TOPIC, 0), 3)
        assert read(consumer, 2) == [3, 4]


def test_a_policy_that_names_an_offset_that_is_not_there_either_is_not_asked_for_ever(
    broker: Broker,
) -> None:
    asked: list[int] = []

    def policy(partition: karrow.TopicPartition, offset: int) -> int:
        asked.append(offset)
        return 99

    fill(broker, 1)
    with reader(broker, out_of_range=policy) as consumer:
        consumer.seek((TOPIC, 0), 77)
        with pytest.raises(errors.OffsetOutOfRange, match="no offset 99"):
            read(consumer, 1)
        assert consumer.poll(0.2) == []
        assert asked == [77, 99]
        assert consumer.health().state is HealthState.DEGRADED


@pytest.mark.parametrize("way", ["truncated", "made again"])
def test_a_policy_that_raises_is_named_whatever_calls_it(broker: Broker, way: str) -> None:
    def policy(partition: karrow.TopicPartition, offset: int) -> str:
        return "sometime"

    fill(broker, 3)
    with reader(broker, out_of_range=policy) as consumer, karrow.Admin(broker.bootstrap) as admin:
        consumer.assign([(TOPIC, 0)])
        assert read(consumer, 15) == list(range(15))
        if way == "truncated":
            broker.truncate(TOPIC, 0, 5)
            broker.move_leader(TOPIC, 0)
        else:
            admin.delete_topic(TOPIC)
            broker.create_topic(TOPIC, 2, 2)
            fill(broker, 1)
        fill(broker, 3)
        with pytest.raises(errors.CallbackError, match="sometime") as caught:
            read(consumer, 1)
        assert caught.value.context == {"topic": TOPIC, "partition": 0, "offset": 15}
        assert consumer.poll(0.2) == []
        consumer.seek((TOPIC, 0), 5)
        assert read(consumer, 15) == list(range(5, 20))


def test_a_refusal_is_told_once_and_stops_its_partition(broker: Broker) -> None:
    fill(broker, 1, 1)
    with reader(broker) as consumer:
        broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=TOPIC, partition=0, times=99)
        found, _ = until_raised(consumer, errors.TopicAuthorizationFailed)
        assert len(found) + len(read(consumer, 5 - len(found))) == 5
        broker.clear_faults()
        fill(broker, 1)
        consumer.seek((TOPIC, 0), 0)
        assert read(consumer, 5) == list(range(5))


# ---- faults of ours


@pytest.mark.parametrize(
    ("part", "method", "task"),
    [(Fetcher, "_keep", ""), (Fetcher, "_wanted", "aside"), (Leaders, "_hold_up", "metadata")],
)
def test_a_task_that_breaks_ends_the_consumer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, part: type, method: str, task: str
) -> None:
    """In a worker, beside it, or where leaders are looked for: it never looks well afterwards."""
    usual = getattr(part, method)
    broken: list[str] = []

    def breaks_once(self: object, *arguments: Any) -> Any:
        here = asyncio.current_task()
        name = "" if here is None else here.get_name()
        if broken or not name.endswith(task):
            return usual(self, *arguments)
        broken.append(name)
        raise ZeroDivisionError("ouch")

    fill(broker, 1)
    with reader(broker, max_wait=1.0) as consumer:
        assert read(consumer, 5) == list(range(5))
        monkeypatch.setattr(part, method, breaks_once)
        time.sleep(0.1)  # now the next fetch waits at its broker
        consumer.seek((TOPIC, 0), 5)
        broker.move_leader(TOPIC, 0)
        for _ in range(3):
            with pytest.raises(errors.StateError, match="broke: ZeroDivisionError: ouch"):
                read(consumer, 1)
        assert consumer.health().state is HealthState.DEAD
        assert "ouch" in consumer.health().reason


def test_leaders_are_looked_for_until_they_are_found(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal that is not passing is raised once, and does not leave a partition for good."""
    usual, refusals = Cluster.refresh, [errors.ClusterAuthorizationFailed("no") for _ in range(3)]

    async def refuses(self: Cluster, *arguments: Any, **options: Any) -> Any:
        here = asyncio.current_task()
        if refusals and here is not None and here.get_name() == "karrow fetch metadata":
            raise refusals.pop()
        return await usual(self, *arguments, **options)

    fill(broker, 1)
    with reader(broker) as consumer:
        assert read(consumer, 5) == list(range(5))
        monkeypatch.setattr(Cluster, "refresh", refuses)
        broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=TOPIC, partition=0)
        with pytest.raises(errors.ClusterAuthorizationFailed):
            read(consumer, 5)
        fill(broker, 1)
        assert read(consumer, 5) == list(range(5, 10))
        assert refusals == []


# ---- versions


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 17])
def test_a_version_that_was_chosen_is_the_one_that_is_spoken(broker: Broker, version: int) -> None:
    fill(broker, 2)
    with reader(broker, api_versions={"Fetch": version, "ListOffsets": 4}) as consumer:
        broker.clear_requests()
        assert read(consumer, 10) == list(range(10))
        ours = {(one.api, one.version) for one in broker.requests}
    assert {("Fetch", version), ("ListOffsets", 4)} <= ours
    assert {one for one in ours if one[0] == "Fetch"} == {("Fetch", version)}


# ---- telemetry


def test_fetches_are_told(broker: Broker) -> None:
    fill(broker, 1)
    heard: list[events.Event] = []
    with events.subscribe(heard.append, "fetch"), reader(broker) as consumer:
        assert read(consumer, 5) == list(range(5))
        broker.close("Fetch")
        until(lambda: any(event.name == "fetch.exception" for event in heard))
    stops = [event for event in heard if event.name == "fetch.stop"]
    assert all(set(event.fields) == set(events.fields("fetch.stop")) for event in stops)
    assert max(event.fields["bytes"] for event in stops) > 1000
    assert {event.fields["broker_id"] for event in stops} <= {1, 2}
