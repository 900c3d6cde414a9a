"""Consumers while the embedded broker fails on request; rows are those of the failure table.

Here is what happens between a consumer and a cluster; what happens to a consumer in its own process
(forks, signals, cancellation, long stops) is in test_consumer_process.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from karrow.types import HealthState
from tests.embedded.consuming import (
    GROUP,
    KINDS,
    QUICK,
    TIMEOUT,
    TOPIC,
    Notes,
    asked,
    everything,
    fill,
    members_of,
    places,
    poll_until,
    reader,
    stored,
    take,
    until,
)

NODES = 3
CLASSIC = [kind for kind in KINDS if kind != "served"]
# Batches of one record: a log is cut between batches.
SINGLE: dict[str, Any] = {"batch_bytes": 1, "linger": 0.0}
# What a coordinator says that moves, or that is not ready.
ELSEWHERE = ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(brokers=NODES, heartbeat_interval=0.1) as broker:
        broker.create_topic(TOPIC, 2, NODES)
        yield broker


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How the group shares its partitions."""
    return KINDS[request.param]


# Row 8: coordinators.


def test_a_coordinator_that_moves_is_followed(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 8: commits and membership go on, nobody loses anything."""
    notes = Notes()
    with reader(broker, kind, auto_commit=False, **notes.options) as consumer:
        count = 0
        for node in (1, 2, 3, 2):
            broker.move_coordinator(GROUP, node)
            fill(broker, range(count, count + 5))
            assert places(take(consumer, 10)) == everything(count + 5, begin=count)
            count += 5
            consumer.commit()
            assert stored(broker) == {0: count, 1: count}
            time.sleep(0.3)
        until(lambda: consumer.poll(0.01) or consumer.health().is_ok)
        assert notes.kinds() == ["assigned"]


@pytest.mark.parametrize("error", ELSEWHERE)
def test_a_coordinator_that_is_not_ready_is_waited_for(
    broker: Broker, kind: dict[str, Any], error: str
) -> None:
    """Row 8: at every step of a member's life."""
    apis = ["FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat"]
    fill(broker, range(5))
    for api in [*apis, "OffsetFetch", "OffsetCommit", "LeaveGroup"]:
        broker.fail(api, error, times=2)
    with reader(broker, kind, auto_commit=False) as consumer:
        assert places(take(consumer, 10)) == everything(5)
        consumer.commit()
        assert stored(broker) == {0: 5, 1: 5}
    assert members_of(broker) == 0


def test_a_coordinator_that_does_not_know_the_topic_yet_is_asked_again(
    broker: Broker, kind: dict[str, Any]
) -> None:
    """Row 8: its metadata may be older than ours, which is no concern of callers."""
    fill(broker, range(5))
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    faults = [
        broker.fail("OffsetFetch", unknown),
        broker.fail("OffsetCommit", unknown, topic=TOPIC, partition=0),
        broker.fail("OffsetCommit", unknown, topic=TOPIC, partition=1),
    ]
    notes = Notes()
    with reader(broker, kind, auto_commit=False, **notes.options) as consumer:
        assert places(take(consumer, 10)) == everything(5)
        consumer.commit()
        assert stored(broker) == {0: 5, 1: 5}
        assert notes.kinds() == ["assigned"]
    assert [fault.met for fault in faults] == [1, 1, 1]


def test_a_coordinator_that_dies_costs_nothing(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 8: another node takes its place; whoever is a member stays one."""
    notes = Notes()
    for partition in range(2):
        broker.move_leader(TOPIC, partition, 1)
    broker.move_coordinator(GROUP, 3)
    fill(broker, range(5))
    with reader(broker, kind, auto_commit=False, **notes.options) as consumer:
        assert places(take(consumer, 10)) == everything(5)
        broker.kill_node(3)
        consumer.commit()
        fill(broker, range(5, 10))
        assert places(take(consumer, 10)) == everything(10, begin=5)
        time.sleep(0.5)
        consumer.commit()
        assert stored(broker) == {0: 10, 1: 10}
        assert notes.kinds() == ["assigned"]


def test_a_silent_coordinator_holds_up_no_records(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 8: heartbeats and commits wait, fetches do not; health tells of it, and of its end."""
    for partition in range(2):
        broker.move_leader(TOPIC, partition, 1)
    broker.move_coordinator(GROUP, 3)
    fill(broker, range(5))
    with reader(broker, kind, request_timeout=0.5) as consumer:
        take(consumer, 10)
        for api in ("Heartbeat", "ConsumerGroupHeartbeat", "OffsetCommit"):
            broker.drop(api, times=1000)
        fill(broker, range(5, 10))
        began = time.monotonic()
        assert places(take(consumer, 10)) == everything(10, begin=5)
        assert time.monotonic() - began < 1.0
        until(lambda: consumer.poll(0.01) or consumer.health().state is HealthState.DEGRADED, 3.0)
        broker.clear_faults()
        until(lambda: consumer.poll(0.01) or consumer.health().is_ok, 5.0)


# Row 9: commits and rebalances.


@pytest.mark.parametrize("kind", [KINDS[one] for one in CLASSIC], ids=CLASSIC)
def test_a_commit_during_a_rebalance_is_made_again(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 9: REBALANCE_IN_PROGRESS passes where the partition stays."""
    fill(broker, range(5))
    notes = Notes()
    with reader(broker, kind, auto_commit=False, **notes.options) as consumer:
        take(consumer, 10)
        broker.fail("OffsetCommit", "REBALANCE_IN_PROGRESS", times=2)
        consumer.commit()
        assert stored(broker) == {0: 5, 1: 5}
        assert "lost" not in notes.kinds()


@pytest.mark.parametrize("error", ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"])
def test_who_is_no_member_any_more_loses_and_joins_again(
    broker: Broker, kind: dict[str, Any], error: str
) -> None:
    """Row 9: the commit fails, partitions are lost and not revoked, what was not stored is read."""
    if kind is KINDS["served"] and error == "ILLEGAL_GENERATION":
        pytest.skip("the new protocol has no generations")
    fill(broker, range(5))
    notes = Notes()
    with reader(broker, kind, auto_commit=False, **notes.options) as consumer:
        take(consumer, 10)
        consumer.commit({(TOPIC, 0): 3, (TOPIC, 1): 4})
        if error == "UNKNOWN_MEMBER_ID":  # or the group would wait for the old one
            broker.expire_session(group=GROUP)
        broker.fail("OffsetCommit", error)
        with pytest.raises(errors.CommitFailed):
            consumer.commit()
        assert places(take(consumer, 3)) == [(0, 3), (0, 4), (1, 4)]
        both = frozenset({0, 1})
        assert notes.told == [("assigned", both), ("lost", both), ("assigned", both)]
        assert stored(broker) == {0: 3, 1: 4}
        consumer.commit()
        assert stored(broker) == {0: 5, 1: 5}


def test_a_second_member_during_commits(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 9: commits meet a real rebalance; nothing is skipped, stored offsets are exact."""
    seen: list[tuple[int, int]] = []
    stop = threading.Event()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            with reader(broker, kind, auto_commit=False, max_poll_records=3) as consumer:
                while not stop.is_set():
                    records = consumer.poll(0.05)
                    seen.extend(places(records))
                    try:
                        consumer.commit()
                    except errors.CommitFailed:
                        continue
        except BaseException as error:  # noqa: BLE001 - for the test
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    threads[0].start()
    fill(broker, range(20))
    threads[1].start()
    until(lambda: members_of(broker) == 2 or problems)
    fill(broker, range(20, 40))
    until(lambda: len(set(seen)) == 80 or problems)
    stop.set()
    for thread in threads:
        thread.join(TIMEOUT)
    assert problems == []
    assert sorted(set(seen)) == everything(40)
    assert stored(broker) == {0: 40, 1: 40}


def test_commits_that_failed_in_the_background_are_forgiven(broker: Broker) -> None:
    """Health tells of a commit that failed until one succeeds, and no longer."""
    fill(broker, range(5))
    with reader(broker, KINDS["eager"], auto_commit=False) as consumer:
        take(consumer, 10)
        until(lambda: consumer.health().is_ok)
        broker.fail("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE")
        with pytest.raises(errors.CommitFailed):
            consumer.commit_nowait().result(TIMEOUT)
        consumer.commit_nowait().result(TIMEOUT)
        assert stored(broker) == {0: 5, 1: 5}
        until(lambda: consumer.health().is_ok, 3.0)


# Row 10: epochs of members.


def test_a_stale_member_epoch_passes(broker: Broker) -> None:
    """Row 10: the commit is made again after the next heartbeat."""
    fill(broker, range(5))
    notes = Notes()
    with reader(broker, KINDS["served"], auto_commit=False, **notes.options) as consumer:
        take(consumer, 10)
        broker.fail("OffsetCommit", "STALE_MEMBER_EPOCH", times=2)
        consumer.commit()
        assert stored(broker) == {0: 5, 1: 5}
        assert notes.kinds() == ["assigned"]


@pytest.mark.parametrize("error", ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"])
def test_a_fenced_member_drops_all_and_joins_again(broker: Broker, error: str) -> None:
    """Row 10: everything is lost at once; it comes back with epoch 0 and goes on."""
    fill(broker, range(5))
    notes = Notes()
    options = {"auto_commit": False, **notes.options}
    with reader(broker, KINDS["served"], **options) as consumer:
        take(consumer, 10)
        consumer.commit()
        broker.fail("ConsumerGroupHeartbeat", error)
        assert poll_until(consumer, lambda: len(notes.told) == 3) == []
        both = frozenset({0, 1})
        assert notes.told == [("assigned", both), ("lost", both), ("assigned", both)]
        fill(broker, range(5, 8))
        assert places(take(consumer, 6)) == everything(8, begin=5)
        consumer.commit()


# Row 11 and 12: who was away for too long.


def test_a_session_that_is_over_is_lost_not_revoked(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 11: the group goes on without a member that it takes for dead."""
    fill(broker, range(5))
    notes = Notes()
    with reader(broker, kind, auto_commit=False, **notes.options) as consumer:
        take(consumer, 10)
        broker.expire_session(group=GROUP)
        again = poll_until(consumer, lambda: notes.kinds() == ["assigned", "lost", "assigned"])
        again += take(consumer, 10 - len(again))
        assert places(again) == everything(5)


def test_a_slow_application_leaves_and_comes_back(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 12: others go on meanwhile; what it had in hand cannot be committed."""
    fill(broker, range(5))
    slow, quick = Notes(), Notes()
    options = {"auto_commit": False, "max_poll_interval": 1.0, **slow.options}
    with reader(broker, kind, **options) as first:
        (record, *_) = first.poll(TIMEOUT, max_records=1)
        with reader(broker, kind, auto_commit=False, **quick.options) as second:
            # The first one works on its record for longer than it may.
            # Nothing was committed before, so what came before a rebalance may come again.
            deadline = time.monotonic() + TIMEOUT
            found: set[tuple[int, int]] = set()
            while len(found) < 10 or {second.position(one) for one in second.assignment} != {5}:
                assert time.monotonic() < deadline
                found.update(places(second.poll(0.05)))
            second.commit()
            with pytest.raises(errors.CommitFailed):
                first.commit(record)
            assert stored(broker) == {0: 5, 1: 5}
            health = first.health()
            assert health.state is HealthState.DEGRADED
            assert "max_poll_interval" in health.reason or "asked for records" in health.reason
            deadline = time.monotonic() + TIMEOUT
            while slow.kinds()[-1] != "assigned" or "lost" not in slow.kinds():
                assert time.monotonic() < deadline, slow.told
                assert first.poll(0.05) == []
                assert second.poll(0.05) == []
            # What it works on is lost; the other partition may have been given back before.
            busy = [what for what, about in slow.told if record.partition in about]
            assert busy[:2] == ["assigned", "lost"]


# Row 13: instances.


@pytest.mark.parametrize("kind", [KINDS[one] for one in CLASSIC], ids=CLASSIC)
def test_the_older_of_two_with_one_name_gives_up(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 13: it is fenced for good, and does not fight."""
    fill(broker, range(5))
    notes = Notes()
    options = {"auto_commit": False, "instance_id": "one"}
    with (
        reader(broker, kind, **options, **notes.options) as older,
        reader(broker, kind, **options) as newer,
    ):
        take(older, 10)
        take(newer, 10)
        for _ in range(3):
            with pytest.raises(errors.FencedInstanceId):
                poll_until(older, lambda: False)
        assert older.health().state is HealthState.DEAD
        assert notes.kinds() == ["assigned", "lost"]
        with pytest.raises((errors.CommitFailed, errors.FencedInstanceId)):
            older.commit()
        joins = asked(broker, "JoinGroup")
        fill(broker, range(5, 8))
        assert places(take(newer, 6)) == everything(8, begin=5)
        newer.commit()
        assert asked(broker, "JoinGroup") == joins
        older.close()
        assert newer.poll(0.3) == []
        newer.commit()


def test_the_newer_of_two_with_one_name_is_refused(broker: Broker) -> None:
    """Row 13: so it is with the new protocol, where the broker keeps the older one's place."""
    fill(broker, range(5))
    options = {"auto_commit": False, "instance_id": "one"}
    with reader(broker, KINDS["served"], **options) as older:
        take(older, 10)
        with reader(broker, KINDS["served"], **options) as newer:
            with pytest.raises(errors.UnreleasedInstanceId):
                poll_until(newer, lambda: False)
            assert newer.health().state is HealthState.DEAD
        older.commit()
        fill(broker, range(5, 8))
        assert places(take(older, 6)) == everything(8, begin=5)


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


def test_truncated_log_goes_on_by_policy(broker: Broker) -> None:
    """Row 20: with a policy it goes on where the logs part."""
    fill(broker, range(10), 1, **SINGLE)
    with reader(broker, out_of_range="latest") as consumer:
        take(consumer, 10)
        broker.truncate(TOPIC, 0, 6)
        broker.move_leader(TOPIC, 0)
        fill(broker, range(6, 16), 1, **SINGLE)
        assert [one.offset for one in take(consumer, 10)] == list(range(6, 16))


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


# Row 22 and 23: topics that come and go.


@pytest.mark.parametrize("way", ["alone", *KINDS])
def test_topic_made_anew_is_read_from_its_beginning(broker: Broker, way: str) -> None:
    """Row 22: never at the old offset; a position belongs to a topic's id, not to its name."""
    kind = None if way == "alone" else KINDS[way]
    fill(broker, range(10))
    with (
        reader(broker, kind, metadata_max_age=0.5) as consumer,
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


# Row 51: listeners that raise.


@pytest.mark.parametrize("name", ["on_assigned", "on_revoked", "on_lost"])
def test_listener_that_raises_is_reported_and_the_group_goes_on(
    broker: Broker, kind: dict[str, Any], name: str
) -> None:
    """Row 51: the application hears of it once; partitions and offsets are as without it."""
    fill(broker, range(5))

    def raises(_: object) -> None:
        raise ZeroDivisionError("ouch")

    heard: list[errors.CallbackError] = []

    def poll(consumer: karrow.Consumer) -> list[karrow.Record]:
        try:
            return consumer.poll(0.02)
        except errors.CallbackError as error:
            heard.append(error)
            return []

    consumer = reader(broker, kind, auto_commit=False, **{name: raises})
    found: list[karrow.Record] = []
    while len(found) < 10:
        found += poll(consumer)
    consumer.commit()
    if name == "on_lost":
        broker.expire_session(group=GROUP)
        until(lambda: poll(consumer) or heard)
    fill(broker, range(5, 8))
    more: list[karrow.Record] = []
    while len(more) < 6:
        more += poll(consumer)
    assert places(more) == everything(8, begin=5)
    consumer.commit()
    if name == "on_revoked":
        with pytest.raises(errors.CallbackError, match="on_revoked"):
            consumer.close()
    else:
        consumer.close()
        assert len(heard) == 1
        assert name in str(heard[0])
    assert stored(broker) == {0: 8, 1: 8}
    assert members_of(broker) == 0


def test_who_was_refused_may_subscribe_again(broker: Broker, kind: dict[str, Any]) -> None:
    """A refusal ends the consumer, until it is told to begin anew."""
    fill(broker, range(3))
    for api in ("JoinGroup", "ConsumerGroupHeartbeat"):
        broker.fail(api, "GROUP_AUTHORIZATION_FAILED")
    with reader(broker, kind) as consumer:
        for _ in range(2):
            with pytest.raises(errors.GroupAuthorizationFailed):
                poll_until(consumer, lambda: False)
        assert consumer.health().state is HealthState.DEAD
        consumer.subscribe(TOPIC)
        assert places(take(consumer, 6)) == everything(3)
