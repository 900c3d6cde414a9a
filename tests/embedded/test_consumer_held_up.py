"""What holds up one partition of a consumer leaves the others alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from tests.embedded.consuming import GROUP, KINDS, QUICK, TOPIC, fill, places, poll_until, take

OTHER = "other"
# A buffer that some records of 1,000 bytes fill, and more of them than fit.
SMALL = {"buffer_bytes": 50_000, "partition_max_bytes": 100_000}
LARGE = [os.urandom(1000) for _ in range(400)]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(3) as broker:
        broker.create_topic(TOPIC, 6)
        broker.create_topic(OTHER, 1)
        yield broker


def send_other(broker: Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        client.produce(OTHER, [b"hello"], partition=0)


def full_of(broker: Broker, **options: object) -> karrow.Consumer:
    """A consumer of both topics whose buffer one of them has filled."""
    with karrow.Producer(broker.bootstrap, batch_bytes=20_000) as producer:
        for value in LARGE:
            producer.send(TOPIC, value, partition=0)
    consumer = karrow.Consumer(broker.bootstrap, TOPIC, OTHER, **{**QUICK, **SMALL, **options})
    consumer.poll(0)
    deadline = time.monotonic() + 10
    while not consumer._twin.engine.fetcher.waits_for_room:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return consumer


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_slow_commit_holds_up_no_heartbeat(kind: str) -> None:
    """A broker handles one request of a connection at a time, and sessions end meanwhile."""
    with Broker(heartbeat_interval=0.1) as broker:
        broker.create_topic(TOPIC, 2)
        fill(broker, range(5))
        options = {**QUICK, **KINDS[kind], "request_timeout": 5.0, "auto_commit": False}
        with karrow.Consumer(broker.bootstrap, TOPIC, group=GROUP, **options) as consumer:
            take(consumer, 10)
            slow = broker.delay("OffsetCommit", 1.5)
            stored = consumer.commit_nowait()
            poll_until(consumer, lambda: slow.met)
            broker.clear_requests()
            poll_until(consumer, stored.done)
            beats = [one for one in broker.requests if one.api.endswith("Heartbeat")]
            assert len(beats) >= 5
            stored.result(0)


@pytest.mark.parametrize("group", [None, GROUP])
def test_a_place_that_nobody_tells_holds_up_only_its_partition(
    broker: Broker, group: str | None
) -> None:
    fill(broker, range(5), 6)
    fault = broker.fail(
        "ListOffsets", "REPLICA_NOT_AVAILABLE", topic=TOPIC, partition=5, times=10_000
    )
    with karrow.Consumer(broker.bootstrap, TOPIC, group=group, **QUICK) as consumer:
        assert places(take(consumer, 25)) == [(p, n) for p in range(5) for n in range(5)]
        poll_until(consumer, lambda: f"{TOPIC}-5 stands still" in consumer.health().reason)
        assert fault.met
        broker.clear_faults()
        assert places(take(consumer, 5)) == [(5, n) for n in range(5)]


def test_partitions_by_hand_do_not_wait_for_a_broker_that_is_gone(broker: Broker) -> None:
    """Nothing is known of the cluster yet, so they cannot be told apart by their leaders."""
    fill(broker, range(5), 6)
    with karrow.Client(broker.bootstrap) as client:
        leaders = {
            number: one.leader
            for number, one in client.metadata([TOPIC]).topics[TOPIC].partitions.items()
        }
    gone = leaders[5]
    assert gone is not None
    broker.kill_node(gone)
    left = [number for number, leader in leaders.items() if leader != gone]
    with karrow.Consumer(broker.bootstrap, **QUICK) as consumer:
        consumer.assign([(TOPIC, number) for number in leaders])
        found = take(consumer, 5 * len(left))
        assert places(found) == [(p, n) for p in left for n in range(5)]


def test_what_is_paused_makes_way_though_nothing_is_handed_out(broker: Broker) -> None:
    with full_of(broker) as consumer:
        consumer.pause((TOPIC, 0))
        send_other(broker)
        assert [record.value for record in take(consumer, 1)] == [b"hello"]
        consumer.resume((TOPIC, 0))
        seen = places(take(consumer, len(LARGE)))
        assert seen == [(0, n) for n in range(len(LARGE))]


def test_damage_makes_way_for_others(broker: Broker) -> None:
    broker.corrupt("Fetch", topic=TOPIC, partition=0)
    with full_of(broker) as consumer:
        with pytest.raises(errors.CorruptRecordError):
            poll_until(consumer, lambda: False)
        send_other(broker)
        assert [record.value for record in take(consumer, 1)] == [b"hello"]


def test_damage_is_not_skipped_after_a_seek(broker: Broker) -> None:
    fill(broker, range(50), 1)
    broker.corrupt("Fetch", topic=TOPIC, partition=0)
    with karrow.Consumer(broker.bootstrap, TOPIC, out_of_range="none", **QUICK) as consumer:
        with pytest.raises(errors.CorruptRecordError):
            poll_until(consumer, lambda: False)
        consumer.seek((TOPIC, 0), 4000)
        with pytest.raises(errors.OffsetOutOfRange):
            poll_until(consumer, lambda: False)
        assert consumer.skip_damaged() == ()


def test_what_is_decompressed_of_paused_partitions_counts(broker: Broker) -> None:
    with karrow.Producer(broker.bootstrap, compression="zstd", linger=0.2) as producer:
        for partition in range(6):
            for _ in range(200):
                producer.send(TOPIC, bytes(1000), partition=partition)
    with karrow.Consumer(broker.bootstrap, TOPIC, **QUICK) as consumer:
        fetcher = consumer._twin.engine.fetcher
        held = 0
        for _ in range(2):  # the second time they have begun with bytes of their own
            for _ in range(6):
                (record,) = take(consumer, 1, max_records=1)
                consumer.pause((TOPIC, record.partition))
            consumer.poll(0)
            assert len(consumer.paused) == 6
            held = fetcher.expanded_bytes()
            consumer.resume(*consumer.paused)
        assert held > 5 * 100_000
        assert len(take(consumer, 6 * 198)) == 6 * 198
        assert fetcher.expanded_bytes() < 1_000_000


def test_topics_that_stay_in_a_subscription_go_on_where_they_were(broker: Broker) -> None:
    fill(broker, range(10), 1)
    with karrow.Consumer(broker.bootstrap, TOPIC, **{**QUICK, "start": "earliest"}) as consumer:
        take(consumer, 3, max_records=3)
        consumer.subscribe(TOPIC, OTHER)
        send_other(broker)
        found = take(consumer, 8)
        assert sorted(r.offset for r in found if r.topic == TOPIC) == list(range(3, 10))
        consumer.subscribe(OTHER)
        assert {one.topic for one in consumer.assignment} == {OTHER}


def test_what_is_done_is_committed_before_a_partition_is_unassigned(broker: Broker) -> None:
    fill(broker, range(10), 2)
    with karrow.Consumer(
        broker.bootstrap, group=GROUP, auto_commit_interval=60.0, **QUICK
    ) as consumer:
        consumer.assign([(TOPIC, 0), (TOPIC, 1)])
        take(consumer, 20)
        assert consumer.poll(0) == []  # the last ones are done with
        consumer.unassign([(TOPIC, 0)])
        assert stored_offset(consumer, 0) == 10
        consumer.assign([(TOPIC, 2)])
        assert stored_offset(consumer, 1) == 10


def stored_offset(consumer: karrow.Consumer, partition: int) -> int | None:
    (found,) = consumer.committed([(TOPIC, partition)]).values()
    return found.offset
