"""Consumers while the embedded broker fails on request; rows are those of the failure table.

Here is what happens between a consumer and a cluster; what happens to a consumer in its own process
(forks, signals, long stops) is in test_consumer_process.py, and cancellation in
test_consumer_cancellation.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from karrow.types import HealthState, TopicPartition
from tests.embedded.consuming import (
    CLASSIC,
    GROUP,
    KINDS,
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

COOPERATIVE = KINDS["cooperative"]
# What a coordinator says that moves, or that is not ready.
ELSEWHERE = ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"]


@pytest.fixture
def broker(trio: Broker) -> Broker:
    return trio


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


@contextmanager
def one_of_two_lost(broker: Broker, consumer: karrow.Consumer) -> Iterator[TopicPartition]:
    """Have another member take a partition that the consumer took too long to give back."""
    had = set(consumer.assignment)
    with reader(broker, COOPERATIVE, auto_commit=False) as other:
        poll_until(other, lambda: other.assignment)
        (lost,) = had.difference(consumer.assignment)
        assert other.assignment == (lost,)
        yield lost


def test_what_was_lost_is_not_stored_and_what_was_kept_is(broker: Broker) -> None:
    """Row 9: members are fenced partition by partition."""
    fill(broker, range(5))
    notes = Notes()
    options = {"auto_commit": False, "rebalance_timeout": 0.5, **notes.options}
    with reader(broker, COOPERATIVE, **options) as consumer:
        take(consumer, 10)
        with one_of_two_lost(broker, consumer) as lost:
            (kept,) = consumer.assignment
            with pytest.raises(errors.CommitFailed, match="not stored: the partitions were lost"):
                consumer.commit()
            with pytest.raises(errors.CommitFailed, match="was lost meanwhile") as refused:
                consumer.commit({lost: 5, kept: 5})
            assert refused.value.context["partition"] == lost.partition
            consumer.commit({kept: 4})
            assert stored(broker) == {kept.partition: 4, lost.partition: None}
            # Who asks for more is done with what was lost, as with everything else.
            assert consumer.poll(0.1) == []
            consumer.commit()
            assert stored(broker) == {kept.partition: 5, lost.partition: None}
            assert notes.told[1:] == [("lost", frozenset({lost.partition}))]


def test_a_commit_on_its_way_stores_nothing_for_who_has_lost_a_part_of_it(broker: Broker) -> None:
    """Row 9: it was asked for in time, and is refused as soon as the partition is another's."""
    fill(broker, range(5))
    options = {"auto_commit": False, "rebalance_timeout": 0.5}
    with reader(broker, COOPERATIVE, **options) as consumer:
        take(consumer, 10)
        broker.fail("OffsetCommit", "REBALANCE_IN_PROGRESS", times=10_000)
        storing = consumer.commit_nowait()
        with one_of_two_lost(broker, consumer) as lost:
            (kept,) = consumer.assignment
            with pytest.raises(errors.CommitFailed, match="went to another member") as refused:
                storing.result(TIMEOUT)
            assert refused.value.context["partition"] == lost.partition
            broker.clear_faults()
            consumer.commit({kept: 5})
            assert stored(broker) == {kept.partition: 5, lost.partition: None}


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_commits_that_failed_in_the_background_are_forgiven(
    broker: Broker, is_waited_for: bool
) -> None:
    """Health tells of a commit that failed until one succeeds, and no longer."""
    fill(broker, range(5))
    with reader(broker, KINDS["eager"], auto_commit=False) as consumer:
        take(consumer, 10)
        until(lambda: consumer.health().is_ok)
        broker.fail("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE")
        with pytest.raises(errors.CommitFailed):
            consumer.commit_nowait().result(TIMEOUT)
        assert consumer.health().state is HealthState.DEGRADED
        if is_waited_for:
            consumer.commit()
        else:
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
