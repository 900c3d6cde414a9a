"""Consumers while logs are cut, leaders change, and topics come and go.

Rows are those of the failure table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import karrow
from karrow import errors, events
from karrow.aio.groups import membership
from karrow.broker.threaded import Broker
from karrow.types import HealthState
from tests.embedded.consuming import (
    GROUP,
    KINDS,
    NODES,
    QUICK,
    TIMEOUT,
    TOPIC,
    Notes,
    asked,
    everything,
    fill,
    places,
    poll_until,
    reader,
    stored,
    take,
    until,
)

OTHER = "other"

# Batches of one record: a log is cut between batches.
SINGLE: dict[str, Any] = {"batch_bytes": 1, "linger": 0.0}


@pytest.fixture
def broker(trio: Broker) -> Broker:
    return trio


# Row 20 and 21: truncated logs, leader epochs.


def test_truncated_log_is_told_and_nothing_is_skipped(broker: Broker) -> None:
    """Row 20: what was read does not exist any more; the application says where to go on."""
    fill(broker, range(10), 1, **SINGLE)
    with reader(broker, out_of_range="none") as consumer:
        take(consumer, 10)
        broker.truncate(TOPIC, 0, 6)
        broker.move_leader(TOPIC, 0)
        with karrow.Producer(broker.bootstrap) as producer:
            for number in range(20):
                producer.send(TOPIC, b"new %d" % number, partition=0)
        with pytest.raises(errors.LogTruncated) as caught:
            poll_until(consumer, lambda: False)
        assert (caught.value.offset, caught.value.position) == (6, 10)
        assert consumer.poll(0.2) == []
        assert consumer.health().state is HealthState.DEGRADED
        consumer.seek((TOPIC, 0), caught.value.offset)
        found = take(consumer, 20)
        assert [one.value for one in found] == [b"new %d" % number for number in range(20)]
        assert found[0].offset == 6


@contextmanager
def resets() -> Iterator[list[tuple[Any, ...]]]:
    """What is told of partitions that went on elsewhere."""
    seen: list[tuple[Any, ...]] = []

    def note(event: events.Event) -> None:
        names = ("topic", "partition", "offset", "place", "reason")
        seen.append(tuple(event.fields[name] for name in names))

    with events.subscribe(note, "consumer.reset"):
        yield seen


@pytest.mark.parametrize(
    "options", [{"out_of_range": "latest"}, {"start": "earliest"}, {"start": "latest"}]
)
def test_truncated_log_goes_on_by_policy(broker: Broker, options: dict[str, Any]) -> None:
    """Row 20: it goes on where the logs part, and says so; the policy is by default the start."""
    fill(broker, range(10), 1, **SINGLE)
    with karrow.Consumer(broker.bootstrap, **{**QUICK, **options}) as consumer, resets() as seen:
        consumer.assign({(TOPIC, 0): "earliest"})
        take(consumer, 10)
        broker.truncate(TOPIC, 0, 6)
        broker.move_leader(TOPIC, 0)
        fill(broker, range(6, 16), 1, **SINGLE)
        assert [one.offset for one in take(consumer, 10)] == list(range(6, 16))
    assert seen == [(TOPIC, 0, 10, "6", "truncated")]


def test_truncated_log_without_an_end_to_begin_at_is_told(broker: Broker) -> None:
    """Row 20: a start that is no end of the log is no policy."""
    fill(broker, range(10), 1, **SINGLE)
    with reader(broker, start="-1h") as consumer:
        take(consumer, 10)
        broker.truncate(TOPIC, 0, 6)
        broker.move_leader(TOPIC, 0)
        with pytest.raises(errors.LogTruncated):
            poll_until(consumer, lambda: False)


def test_offsets_that_are_gone_are_told_of_though_a_policy_knows_better(broker: Broker) -> None:
    """Row 24: what retention took is not passed over in silence."""
    fill(broker, range(10), 1)
    with reader(broker) as consumer, karrow.Admin(broker.bootstrap) as admin, resets() as seen:
        take(consumer, 10)
        admin.delete_records({(TOPIC, 0): 7})
        consumer.seek((TOPIC, 0), 2)
        assert [one.offset for one in take(consumer, 3)] == [7, 8, 9]
    assert seen == [(TOPIC, 0, 2, "earliest", "out_of_range")]


def test_truncation_behind_a_restart_is_found(broker: Broker) -> None:
    """Row 20: the epoch is committed with the offset, and compared by who goes on there."""
    fill(broker, range(10), 1, **SINGLE)
    with reader(broker, KINDS["eager"], auto_commit=False) as consumer:
        take(consumer, 10)
        consumer.commit()
    broker.truncate(TOPIC, 0, 6)
    broker.move_leader(TOPIC, 0)
    fill(broker, range(6, 16), 1, **SINGLE)
    with reader(broker, KINDS["eager"], out_of_range="none") as consumer:
        with pytest.raises(errors.LogTruncated):
            poll_until(consumer, lambda: False)
        consumer.seek((TOPIC, 0), 6)
        assert [one.offset for one in take(consumer, 10)] == list(range(6, 16))


def test_leader_that_cannot_tell_has_not_truncated(broker: Broker) -> None:
    """Row 20: an undefined end, and passing errors, are no truncation."""
    fill(broker, range(5))
    with reader(broker, out_of_range="none") as consumer:
        take(consumer, 10)
        codes = ["FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER"]
        for number, code in enumerate(codes):
            broker.fail("OffsetForLeaderEpoch", code, topic=TOPIC, partition=0)
            for partition in range(2):
                broker.move_leader(TOPIC, partition)
            fill(broker, [5 + number])
            assert places(take(consumer, 2)) == everything(6 + number, begin=5 + number)


def test_leader_that_moves_while_it_is_asked_is_asked_again(broker: Broker) -> None:
    """Row 20: whoever leads by then has to say whether it has what was read."""
    fill(broker, range(5))
    with reader(broker, out_of_range="none") as consumer:
        take(consumer, 10)
        broker.clear_requests()
        broker.delay("OffsetForLeaderEpoch", 0.3, times=2)
        for partition in range(2):
            broker.move_leader(TOPIC, partition, 1)
            broker.move_leader(TOPIC, partition, 2)
        until(lambda: asked(broker, "OffsetForLeaderEpoch"))
        for partition in range(2):
            broker.move_leader(TOPIC, partition, 1)
            broker.move_leader(TOPIC, partition, 2)
        fill(broker, range(5, 8))
        assert places(take(consumer, 6)) == everything(8, begin=5)


@pytest.mark.parametrize(
    "code",
    [
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "NOT_LEADER_OR_FOLLOWER",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "OFFSET_NOT_AVAILABLE",
    ],
)
def test_passing_errors_of_fetches_reach_nobody(broker: Broker, code: str) -> None:
    """Row 21 and 23: asked again after a rest, with newer metadata; other partitions go on."""
    with reader(broker) as consumer:
        consumer.poll(0.0)
        until(lambda: consumer.poll(0.01) or consumer.health().is_ok)
        broker.fail("Fetch", code, topic=TOPIC, partition=0, times=5)
        fill(broker, range(10))
        assert places(take(consumer, 20)) == everything(10)
        until(lambda: consumer.poll(0.01) or consumer.health().is_ok, 3.0)
        assert asked(broker, "Fetch") < 100


def test_leaders_that_move_all_the_time_lose_nothing(broker: Broker) -> None:
    """Row 21: every leader has a newer epoch, older ones are never believed."""
    stop = threading.Event()

    def move() -> None:
        while not stop.wait(0.02):
            for partition in range(2):
                broker.move_leader(TOPIC, partition)

    mover = threading.Thread(target=move)
    with reader(broker) as consumer:
        mover.start()
        try:
            fill(broker, range(100))
            assert places(take(consumer, 200)) == everything(100)
        finally:
            stop.set()
            mover.join()


@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER"])
def test_leader_that_a_refusal_names_is_followed_without_asking_for_metadata(
    broker: Broker, code: str
) -> None:
    """Row 21: the answer of the one before says who leads now, and where it is (KIP-951)."""
    fill(broker, range(3))
    options: dict[str, Any] = {**QUICK, "client_id": "reading", "metadata_max_age": 1000.0}

    def move() -> None:  # in one turn of the broker's loop: no fetch comes in between
        broker._inner.fail("Fetch", code, topic=TOPIC, partition=0)
        broker._inner.move_leader(TOPIC, 0)

    with (
        karrow.Consumer(broker.bootstrap, **options) as consumer,
        karrow.Producer(broker.bootstrap) as producer,
    ):
        consumer.assign([(TOPIC, 0), (TOPIC, 1)])
        assert places(take(consumer, 6)) == everything(3)
        for number in range(3, 3 + 2 * NODES):
            broker.clear_requests()
            broker._call(move)
            producer.send(TOPIC, b"%d" % number, partition=0).result(TIMEOUT)
            assert places(take(consumer, 1)) == [(0, number)]
            mine = [seen.api for seen in broker.requests if seen.client_id == "reading"]
            assert "Fetch" in mine
            assert "Metadata" not in mine


def test_partition_without_a_leader_does_not_look_well(broker: Broker) -> None:
    """Row 21: the others go on, health says what stands still, and it goes on by itself."""
    with reader(broker) as consumer:
        consumer.poll(0.0)
        until(lambda: consumer.poll(0.01) or consumer.health().is_ok)
        broker.move_leader(TOPIC, 0, -1)
        with karrow.Producer(broker.bootstrap) as producer:
            producer.send(TOPIC, b"other", partition=1).result(TIMEOUT)
        assert places(take(consumer, 1)) == [(1, 0)]
        until(lambda: consumer.poll(0.01) or consumer.health().state is HealthState.DEGRADED, 4.0)
        broker.move_leader(TOPIC, 0, 2)
        fill(broker, [0], 1)
        assert places(take(consumer, 1)) == [(0, 0)]
        until(lambda: consumer.poll(0.01) or consumer.health().is_ok, 3.0)


def test_trouble_of_a_partition_ends_with_its_assignment(broker: Broker) -> None:
    """What is not read any more cannot stand still."""
    with karrow.Consumer(broker.bootstrap, **QUICK) as consumer:
        consumer.assign([(TOPIC, 0), (TOPIC, 1)])
        consumer.poll(0.0)
        until(lambda: consumer.health().is_ok)
        broker.fail("Fetch", "KAFKA_STORAGE_ERROR", topic=TOPIC, partition=0, times=10_000)
        until(lambda: consumer.health().state is HealthState.DEGRADED)
        consumer.assign([(TOPIC, 1)])
        until(lambda: consumer.health().is_ok, 3.0)


def test_trouble_of_a_partition_that_is_paused_is_none(broker: Broker) -> None:
    """Nobody fetches it, and so nobody would see the end of it."""
    with karrow.Consumer(broker.bootstrap, **QUICK) as consumer:
        consumer.assign([(TOPIC, 0), (TOPIC, 1)])
        consumer.poll(0.0)
        until(lambda: consumer.health().is_ok)
        broker.fail("Fetch", "KAFKA_STORAGE_ERROR", topic=TOPIC, partition=0, times=10_000)
        until(lambda: consumer.health().state is HealthState.DEGRADED)
        consumer.pause((TOPIC, 0))
        until(lambda: consumer.health().is_ok, 3.0)
        consumer.resume((TOPIC, 0))
        until(lambda: consumer.health().state is HealthState.DEGRADED)


# Row 22 and 23: topics that come and go.


@pytest.mark.parametrize("versions", [{}, {"Fetch": 12}, {"Fetch": 4}], ids=str)
@pytest.mark.parametrize("way", ["alone", *KINDS])
def test_topic_made_anew_is_read_from_its_beginning(
    broker: Broker, way: str, versions: dict[str, int]
) -> None:
    """Row 22: never at the old offset; a position belongs to a topic's id, not to its name."""
    kind = None if way == "alone" else KINDS[way]
    fill(broker, range(10))
    with (
        reader(broker, kind, metadata_max_age=0.5, api_versions=versions) as consumer,
        karrow.Admin(broker.bootstrap) as admin,
    ):
        take(consumer, 20)
        admin.delete_topic(TOPIC)
        admin.create_topic(TOPIC, partitions=2)
        with karrow.Producer(broker.bootstrap) as producer:
            for number in range(20):
                for partition in range(2):
                    producer.send(TOPIC, b"new %d" % number, partition=partition)
        found = take(consumer, 40)
        assert places(found) == everything(20)
        assert {one.value for one in found} == {b"new %d" % number for number in range(20)}


def make_again(broker: Broker, count: int) -> None:
    """Delete the topic and fill another one of its name."""
    with karrow.Admin(broker.bootstrap) as admin:
        admin.delete_topic(TOPIC)
        admin.create_topic(TOPIC, partitions=2)
    fill(broker, range(count))


def test_committed_offsets_of_a_topic_that_was_made_again_are_found(broker: Broker) -> None:
    """Row 22: the coordinator knows the new id only."""
    fill(broker, range(3))
    with karrow.Client(broker.bootstrap) as client, reader(broker, group=GROUP) as consumer:
        consumer.assign([(TOPIC, 0)])
        take(consumer, 3)
        consumer.unassign()
        client.commit_offsets(GROUP, {(TOPIC, 0): 3})
        make_again(broker, 10)
        client.commit_offsets(GROUP, {(TOPIC, 0): 7})
        consumer.assign([(TOPIC, 0)])
        assert [one.offset for one in consumer.committed().values()] == [7]
        until(lambda: consumer.position((TOPIC, 0)) is not None)
        assert consumer.health().is_ok


def test_offsets_of_a_topic_are_not_stored_for_another_one_of_its_name(broker: Broker) -> None:
    """Row 22: what was read before the topic was made again counts no more."""
    fill(broker, range(5))
    with reader(broker, group=GROUP, auto_commit=False) as consumer:
        consumer.assign([(TOPIC, 0)])
        take(consumer, 5)
        consumer.pause((TOPIC, 0))  # so that nobody else finds out
        make_again(broker, 2)
        began = time.monotonic()
        with pytest.raises(errors.CommitFailed, match=r"made again|UNKNOWN_TOPIC_ID"):
            consumer.commit()
        assert time.monotonic() - began < TIMEOUT
        assert stored(broker) == {0: None, 1: None}


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_is_gone_holds_up_no_commit_of_another_one(
    broker: Broker, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 22: and the group gives it up, long before metadata is too old."""
    monkeypatch.setattr(membership, "MISSING_TOPICS_PAUSE", 1.0)
    broker.create_topic(OTHER, 1)
    fill(broker, range(5))
    with (
        karrow.Producer(broker.bootstrap) as producer,
        karrow.Admin(broker.bootstrap) as admin,
        reader(broker, KINDS[kind], auto_commit_interval=0.1) as consumer,
    ):
        consumer.subscribe(TOPIC, OTHER)
        producer.send(OTHER, b"").result(TIMEOUT)
        take(consumer, 11)
        admin.delete_topic(OTHER)
        fill(broker, range(5, 10))
        take(consumer, 10)
        poll_until(consumer, lambda: (OTHER, 0) not in consumer.assignment)
        # At the latest with the next commit, if the last one still had the other topic in it.
        poll_until(consumer, lambda: stored(broker) == {0: 10, 1: 10}, 3.0)
        poll_until(consumer, lambda: consumer.health().is_ok)


def test_commit_stores_what_it_can_before_a_topic_that_is_gone_fails_it(broker: Broker) -> None:
    fill(broker, range(5))
    broker.create_topic(OTHER, 1)
    with (
        karrow.Producer(broker.bootstrap) as producer,
        karrow.Admin(broker.bootstrap) as admin,
        reader(broker, group=GROUP, auto_commit=False, api_timeout=1.0) as consumer,
    ):
        consumer.assign([(TOPIC, 0), (OTHER, 0)])
        producer.send(OTHER, b"").result(TIMEOUT)
        take(consumer, 6)
        admin.delete_topic(OTHER)
        with pytest.raises(errors.CommitFailed, match="the topic does not exist") as failed:
            consumer.commit()
        assert failed.value.context["topic"] == OTHER
        assert stored(broker)[0] == 5


@pytest.mark.parametrize("versions", [{}, {"OffsetCommit": 9}], ids=["by id", "by name"])
def test_a_commit_that_waits_for_its_topic_does_not_go_to_the_next_one_of_its_name(
    broker: Broker, versions: dict[str, int]
) -> None:
    """Row 22: it is tried again while the topic is gone, and then there is another one."""
    fill(broker, range(5))
    with reader(broker, group=GROUP, auto_commit=False, api_versions=versions) as consumer:
        consumer.assign([(TOPIC, 0)])
        take(consumer, 5)
        consumer.pause((TOPIC, 0))  # so that nobody else finds out
        with karrow.Admin(broker.bootstrap) as admin:
            admin.delete_topic(TOPIC)
        failed: list[errors.KarrowError] = []

        def commit() -> None:
            with pytest.raises(errors.CommitFailed) as caught:
                consumer.commit()
            failed.append(caught.value)

        waiting = threading.Thread(target=commit)
        waiting.start()
        time.sleep(0.5)  # some attempts that find no topic at all
        assert waiting.is_alive()
        broker.create_topic(TOPIC, 2, NODES)
        waiting.join(TIMEOUT)
        assert "made again" in str(failed[0])
        assert stored(broker) == {0: None, 1: None}


@pytest.mark.parametrize("way", ["alone", *KINDS])
def test_topic_that_is_missing_for_a_moment_keeps_its_position(broker: Broker, way: str) -> None:
    """Row 23: metadata is not everywhere at once."""
    kind = None if way == "alone" else KINDS[way]
    notes = Notes()
    options = {} if kind is None else notes.options
    fill(broker, range(5))
    with reader(broker, kind, metadata_max_age=0.1, **options) as consumer:
        take(consumer, 10)
        broker.fail("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic=TOPIC, times=8)
        for partition in range(2):
            broker.move_leader(TOPIC, partition)
        fill_later = threading.Timer(0.3, lambda: fill(broker, range(5, 8)))
        fill_later.start()
        assert places(take(consumer, 6)) == everything(8, begin=5)
        fill_later.join()
        assert "lost" not in notes.kinds()


@pytest.mark.parametrize("way", ["alone", *KINDS])
def test_topic_that_is_made_later_is_read(way: str) -> None:
    """Row 23: a consumer may be there before its topic."""
    kind = None if way == "alone" else KINDS[way]
    with (
        Broker(brokers=1, auto_create_topics=False, heartbeat_interval=0.1) as empty,
        reader(empty, kind, metadata_max_age=0.2) as consumer,
    ):
        told = 0
        try:
            assert consumer.poll(0.3) == []
        except errors.UnknownTopicOrPartition:
            told += 1
        assert not consumer.health().is_ok
        empty.create_topic(TOPIC, 2)
        fill(empty, range(3))
        try:
            found = take(consumer, 6)
        except errors.UnknownTopicOrPartition:
            told += 1
            found = take(consumer, 6)
        assert places(found) == everything(3)
        assert told <= (way == "alone")  # once, if it was missing for longer than a moment
