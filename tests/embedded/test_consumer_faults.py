"""Consumers while the embedded broker fails on request; rows are those of the failure table.

Here is what happens between a consumer and a cluster; what happens to a consumer in its own process
(forks, signals, cancellation, long stops) is in test_consumer_process.py.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import karrow
from karrow import errors, events
from karrow.broker.threaded import Broker
from karrow.types import HealthState, TopicPartition
from tests.embedded.consuming import (
    GROUP,
    KINDS,
    QUICK,
    TIMEOUT,
    TOPIC,
    Notes,
    everything,
    fill,
    places,
    poll_until,
    stored,
    take,
    until,
)
from tests.proxy import Proxy

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


def reader(broker: Broker, kind: dict[str, Any] | None = None, **options: Any) -> karrow.Consumer:
    """A consumer of the topic, in the group if it has a kind."""
    grouped = {} if kind is None else {"group": GROUP, **kind}
    chosen = {**QUICK, **grouped, **options}
    return karrow.Consumer(broker.bootstrap, TOPIC, **chosen)


def asked(broker: Broker, api: str) -> int:
    return sum(seen.api == api for seen in broker.requests)


def members_of(broker: Broker, group: str = GROUP) -> int:
    with karrow.Admin(broker.bootstrap) as admin:
        return len(admin.describe_group(group).members)


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
    cooperative = {**kind, "assignors": "cooperative-sticky"}
    with reader(broker, cooperative, auto_commit=False, **notes.options) as consumer:
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
            deadline = time.monotonic() + TIMEOUT
            found: list[karrow.Record] = []
            while len(found) < 10:
                assert time.monotonic() < deadline
                found += second.poll(0.05)
            assert places(found) == everything(5)
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
            # What was being given back is lost apart from the rest.
            gone = [number for what, about in slow.told if what == "lost" for number in about]
            assert sorted(gone) == [0, 1]
            assert "revoked" not in slow.kinds()


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
def test_topic_that_is_made_later_is_read(broker: Broker, way: str) -> None:
    """Row 23: a consumer may be there before its topic."""
    kind = None if way == "alone" else KINDS[way]
    with Broker(brokers=1, auto_create_topics=False, heartbeat_interval=0.1) as empty:
        with reader(empty, kind, metadata_max_age=0.2) as consumer:
            assert consumer.poll(0.3) == []
            assert not consumer.health().is_ok
            empty.create_topic(TOPIC, 2)
            fill(empty, range(3))
            assert places(take(consumer, 6)) == everything(3)


# Row 30 to 32: brokers that are slow or silent.


@contextmanager
def proxied(broker: Broker) -> Iterator[dict[int, Proxy]]:
    """A proxy in front of every node."""
    ports = {number: int(port) for number, port in enumerate(ports_of(broker), 1)}
    with ExitStack() as stack:
        found = {
            node: stack.enter_context(Proxy(("127.0.0.1", port))) for node, port in ports.items()
        }
        addresses = {proxy.target: proxy.address for proxy in found.values()}
        for proxy in found.values():
            proxy.map_addresses(addresses)
        yield found


def ports_of(broker: Broker) -> list[str]:
    return [server.rsplit(":", 1)[1] for server in broker.bootstrap.split(",")]


def test_silent_broker_holds_up_only_its_own_partitions(
    broker: Broker, kind: dict[str, Any]
) -> None:
    """Row 30: the others go on, health tells of it in time, and it goes on when it is back."""
    broker.move_leader(TOPIC, 0, 1)
    broker.move_leader(TOPIC, 1, 2)
    broker.move_coordinator(GROUP, 2)
    fill(broker, range(5))
    limit = 0.6
    options = {**QUICK, "group": GROUP, **kind, "request_timeout": limit}
    with proxied(broker) as proxies:
        bootstrap = ",".join(proxy.bootstrap for proxy in proxies.values())
        with karrow.Consumer(bootstrap, TOPIC, **options) as consumer:
            take(consumer, 10)
            until(lambda: consumer.poll(0.01) or consumer.health().is_ok)
            proxies[1].blackhole()
            began = time.monotonic()
            poll_until(consumer, lambda: consumer.health().state is HealthState.DEGRADED)
            assert time.monotonic() - began < 2 * limit
            with karrow.Producer(broker.bootstrap) as producer:
                for number in range(10):
                    producer.send(TOPIC, b"%d" % number, partition=1)
            began = time.monotonic()
            assert places(take(consumer, 10)) == [(1, 5 + number) for number in range(10)]
            assert time.monotonic() - began < limit
            proxies[1].restore()
            fill(broker, [5], 1)
            assert places(take(consumer, 1)) == [(0, 5)]
            poll_until(consumer, lambda: consumer.health().is_ok)


def test_slow_broker_holds_up_only_its_own_partitions(broker: Broker) -> None:
    """Row 31: no waiting in line behind one of three."""
    broker.move_leader(TOPIC, 0, 1)
    broker.move_leader(TOPIC, 1, 2)
    with proxied(broker) as proxies:
        bootstrap = proxies[2].bootstrap
        with karrow.Consumer(bootstrap, TOPIC, **{**QUICK, "request_timeout": 10.0}) as consumer:
            consumer.poll(0.0)
            until(lambda: consumer.poll(0.01) or consumer.health().is_ok)
            proxies[1].latency(0.7)
            began = time.monotonic()
            fill(broker, range(20))
            found: list[tuple[int, int]] = []
            while sum(partition for partition, _ in found) < 20:
                assert time.monotonic() - began < 0.7
                found += places(consumer.poll(0.1))
            while len(found) < 40:
                assert time.monotonic() - began < TIMEOUT
                found += places(consumer.poll(0.1))
            assert sorted(found) == everything(20)


def test_throttled_fetches_are_waited_for(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 32: that connection rests, heartbeats do not, and nobody takes it for a time-out."""
    fill(broker, range(5))
    notes = Notes()
    throttles: list[events.Event] = []
    with (
        events.subscribe(throttles.append, "connection.throttle"),
        reader(broker, kind, request_timeout=0.4, **notes.options) as consumer,
    ):
        take(consumer, 10)
        broker.clear_requests()
        broker.throttle(1.0, "Fetch", times=2)
        poll_until(consumer, lambda: throttles)
        api = "ConsumerGroupHeartbeat" if "protocol" in kind else "Heartbeat"
        broker.clear_requests()
        fill(broker, range(5, 8))
        assert places(take(consumer, 6)) == everything(8, begin=5)
        assert asked(broker, api) >= 1
        assert notes.kinds() == ["assigned"]


# Row 33: all of them, one after the other.


def test_nodes_that_end_and_come_back_one_by_one(broker: Broker, kind: dict[str, Any]) -> None:
    """Row 33: no error reaches the caller, nothing is lost, and nothing comes twice."""
    notes = Notes()
    with reader(broker, kind, auto_commit=False, **notes.options) as consumer:
        count = 0
        for node in (1, 2, 3, 1):
            fill(broker, range(count, count + 10))
            broker.kill_node(node)
            assert places(take(consumer, 20)) == everything(count + 10, begin=count)
            consumer.commit()
            count += 10
            broker.start_node(node)
        assert notes.kinds() == ["assigned"]


def test_connections_that_end_all_the_time_lose_nothing(
    broker: Broker, kind: dict[str, Any]
) -> None:
    """Row 33: cut off again and again, in the midst of anything."""
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(0.15):
            broker.close_connections()

    cutter = threading.Thread(target=cut)
    notes = Notes()
    with reader(broker, kind, auto_commit=False, **notes.options) as consumer:
        consumer.poll(0.1)
        cutter.start()
        try:
            fill(broker, range(200))
            found = take(consumer, 400, max_records=20)
        finally:
            stop.set()
            cutter.join()
        assert places(found) == everything(200)
        consumer.commit()
        assert stored(broker) == {0: 200, 1: 200}
        assert "lost" not in notes.kinds()


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
    until(lambda: found.extend(poll(consumer)) or len(found) == 10)
    consumer.commit()
    if name == "on_lost":
        broker.expire_session(group=GROUP)
        until(lambda: poll(consumer) or heard)
    fill(broker, range(5, 8))
    more: list[karrow.Record] = []
    until(lambda: more.extend(poll(consumer)) or len(more) == 6)
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


# What users were bitten by.


@pytest.mark.parametrize("seed", range(6))
def test_no_offset_is_skipped_after_seeks_pauses_and_resumes(broker: Broker, seed: int) -> None:
    """Whatever the order, each partition goes on where it is, or where it was told to."""
    chance = random.Random(seed)
    count = 300
    fill(broker, range(count))
    expected = {0: 0, 1: 0}
    paused: set[int] = set()
    with reader(broker, partition_max_bytes=chance.choice([100, 2000, 1 << 20])) as consumer:
        consumer.poll(0.0)
        until(lambda: len(consumer.assignment) == 2)

        def read(records: list[karrow.Record]) -> None:
            for record in records:
                assert record.partition not in paused
                assert record.offset == expected[record.partition], record
                expected[record.partition] += 1

        def iterate(most: int) -> None:
            if all(expected[one] == count or one in paused for one in expected):
                return
            for number, record in enumerate(consumer):
                read([record])
                if number == most or all(
                    expected[one] == count or one in paused for one in expected
                ):
                    return

        for _ in range(250):
            what = chance.choice(["poll", "poll", "iterate", "batch", "seek", "pause", "resume"])
            partition = chance.randrange(2)
            if what == "poll":
                read(consumer.poll(0.005, max_records=chance.choice([1, 7, 50])))
            elif what == "iterate":
                iterate(chance.randrange(10))
            elif what == "batch":
                for batch in consumer.batches(max_records=9, timeout=0.005):
                    for row in batch.to_pylist():
                        assert row["partition"] not in paused
                        assert row["offset"] == expected[row["partition"]]
                        expected[row["partition"]] += 1
                    break
            elif what == "seek":
                expected[partition] = chance.randrange(count)
                consumer.seek((TOPIC, partition), expected[partition])
            elif what == "pause":
                consumer.pause((TOPIC, partition))
                paused.add(partition)
            else:
                consumer.resume((TOPIC, partition))
                paused.discard(partition)
        consumer.resume((TOPIC, 0), (TOPIC, 1))
        paused.clear()
        left = sum(count - one for one in expected.values())
        found: list[karrow.Record] = []
        while len(found) < left:
            found += consumer.poll(1.0)
        read(sorted(found, key=lambda one: one.offset))
        assert expected == {0: count, 1: count}


@pytest.mark.parametrize("kind", ["alone", *KINDS])
def test_a_consumer_without_brokers_costs_no_time(broker: Broker, kind: str) -> None:
    """Idle CPU near zero with all brokers down, and health says so; it goes on when they are."""
    fill(broker, range(3))
    with reader(broker, None if kind == "alone" else KINDS[kind], auto_commit=False) as consumer:
        take(consumer, 6)
        for node in range(1, NODES + 1):
            broker.kill_node(node)
        consumer.poll(0.5)
        used = time.process_time()
        assert consumer.poll(1.5) == []
        assert time.process_time() - used < 0.5
        assert consumer.health().state is HealthState.DEGRADED
        for node in range(1, NODES + 1):
            broker.start_node(node)
        fill(broker, range(3, 6))
        again = take(consumer, 6)
        assert places(again) == everything(6, begin=3)


def test_many_partitions_and_nothing_to_do_cost_no_time() -> None:
    """Idle CPU near zero with many partitions."""
    with Broker(brokers=1) as broker:
        broker.create_topic(TOPIC, 500)
        with karrow.Consumer(broker.bootstrap, TOPIC, **{**QUICK, "max_wait": 0.5}) as consumer:
            consumer.poll(0.0)
            until(lambda: len(consumer.assignment) == 500 and consumer.health().is_ok)
            consumer.poll(0.5)
            used = time.process_time()
            assert consumer.poll(1.0) == []
            assert time.process_time() - used < 0.5


@pytest.mark.parametrize("api", ["OffsetFetch", "ListOffsets", "Fetch", "Metadata"])
def test_lost_and_refused_answers_are_asked_for_again(
    broker: Broker, kind: dict[str, Any], api: str
) -> None:
    """Whatever happens to a request, records come, once each."""
    moves: list[Callable[[], object]] = [
        lambda: broker.drop(api, when="before"),
        lambda: broker.drop(api, when="after"),
        lambda: broker.close(api, when="before"),
        lambda: broker.close(api, when="after"),
        lambda: broker.delay(api, 0.8),
    ]
    fill(broker, range(10))
    for move in moves:
        move()
    with (
        reader(broker, kind, request_timeout=0.3, auto_commit=False) as consumer,
        karrow.Producer(broker.bootstrap) as producer,
    ):
        assert places(take(consumer, 20)) == everything(10)
        producer.partitions_for(TOPIC)
        for move in moves:
            move()
        for partition in 2 * [0, 1] * 5:
            producer.send(TOPIC, b"more", partition=partition)
        assert places(take(consumer, 20)) == everything(20, begin=10)


def test_member_ids_are_kept_where_brokers_give_them(broker: Broker) -> None:
    """MEMBER_ID_REQUIRED keeps the id it was given: no second pending member."""
    fill(broker, range(2))
    with reader(broker, KINDS["eager"]) as consumer:
        broker.close("JoinGroup", when="after")
        take(consumer, 4)
        assert members_of(broker) == 1
        assert consumer.membership is not None
        assert TopicPartition(TOPIC, 0) in consumer.assignment
