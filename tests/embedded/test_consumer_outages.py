"""Consumers while nodes of the embedded cluster are slow, silent or away, and what users met there.

Rows are those of the failure table.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import karrow
from karrow import events
from karrow.broker.groups.classic import ClassicGroup
from karrow.broker.threaded import Broker
from karrow.types import HealthState, TopicPartition
from tests.embedded.consuming import (
    CLASSIC,
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
    members_of,
    places,
    poll_until,
    reader,
    stored,
    take,
    until,
)
from tests.proxy import Proxy


@pytest.fixture
def broker(trio: Broker) -> Broker:
    return trio


# In the gate one kind of each protocol.
SOME_KINDS = [
    pytest.param(name, marks=(pytest.mark.slow,) if name == "cooperative" else ()) for name in KINDS
]


@pytest.fixture(params=SOME_KINDS)
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How the group shares its partitions."""
    return KINDS[request.param]


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
            with karrow.Producer(broker.bootstrap, linger=0.0) as producer:
                for number in range(10):
                    producer.send(TOPIC, b"%d" % number, partition=1).result(TIMEOUT)
                    began = time.monotonic()
                    assert places(take(consumer, 1)) == [(1, 5 + number)]
                    assert time.monotonic() - began < limit / 2
                    time.sleep(limit / 4)
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


def test_slow_coordinator_with_much_to_send_keeps_its_members(
    broker: Broker, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 31: heartbeats and commits do not wait behind data that comes slowly, nor do others."""
    session = 2.0
    monkeypatch.setattr("karrow.broker.groups.coordinator.SHORTEST_SESSION", session)
    monkeypatch.setattr("karrow.broker.groups.consumer.SESSION_TIMEOUT", session)
    with karrow.Admin(broker.bootstrap) as admin:
        admin.create_partitions({TOPIC: NODES})
    for node in range(1, NODES + 1):
        broker.move_leader(TOPIC, node - 1, node)
    broker.move_coordinator(GROUP, 1)
    fill(broker, [0], NODES)
    notes = Notes()
    options = {**QUICK, "group": GROUP, **kind, **notes.options, "heartbeat_interval": 0.1}
    patience = 4 * TIMEOUT
    options |= {"request_timeout": patience, "api_timeout": TIMEOUT}
    options |= {"session_timeout": session, "auto_commit": False}
    with (
        proxied(broker) as proxies,
        karrow.Consumer(proxies[2].bootstrap, TOPIC, **options) as consumer,
        karrow.Producer(broker.bootstrap, linger=0.0) as producer,
    ):
        take(consumer, NODES)
        until(lambda: consumer.poll(0.01) or consumer.health().is_ok)
        before = consumer.group_metadata()
        # Its answer is under way for three sessions.
        proxies[1].rate(30_000 / session)
        began = time.monotonic()
        producer.send(TOPIC, b"x" * 90_000, partition=0).result(TIMEOUT)
        slow: list[tuple[int, int]] = []
        rounds = 0
        while not slow:
            sent_at = time.monotonic()
            assert sent_at - began < patience, consumer.health()
            rounds += 1
            producer.send(TOPIC, b"quick", partition=1)
            producer.send(TOPIC, b"quick", partition=2)
            quick: list[tuple[int, int]] = []
            while len(quick) < 2:
                assert time.monotonic() - sent_at < session, consumer.health()
                found = consumer.poll(0.05)
                slow += places(one for one in found if one.partition == 0)
                quick += places(one for one in found if one.partition != 0)
            assert sorted(quick) == [(1, rounds), (2, rounds)]
            consumer.commit()
            assert time.monotonic() - sent_at < session
            time.sleep(0.02)
        assert time.monotonic() - began > 2 * session
        assert rounds > 5
        assert slow == [(0, 1)]
        assert consumer.group_metadata() == before
        assert notes.kinds() == ["assigned"]
        assert consumer.health().is_ok
    assert stored(broker) == {0: 2, 1: rounds + 1, 2: rounds + 1}


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


# What users were bitten by.


class Walk:
    """A consumer that does anything in any order, and what has to come next in each partition."""

    def __init__(self, consumer: karrow.Consumer, count: int, chance: random.Random) -> None:
        self.expected = {0: 0, 1: 0}
        self._consumer = consumer
        self._count = count
        self._chance = chance
        self._paused: set[int] = set()

    def read(self, partition: int, offset: int) -> None:
        assert partition not in self._paused
        assert offset == self.expected[partition]
        self.expected[partition] += 1

    def _is_at_end(self) -> bool:
        return all(
            offset == self._count or partition in self._paused
            for partition, offset in self.expected.items()
        )

    def poll(self, _: int) -> None:
        most = self._chance.choice([1, 7, 50])
        for record in self._consumer.poll(0.005, max_records=most):
            self.read(record.partition, record.offset)

    def iterate(self, _: int) -> None:
        for _number in range(self._chance.randrange(10)):
            if self._is_at_end():
                return
            record = next(self._consumer)
            self.read(record.partition, record.offset)

    def batch(self, _: int) -> None:
        batch = next(self._consumer.batches(max_records=9, timeout=0.005), None)
        for row in [] if batch is None else batch.to_pylist():
            self.read(row["partition"], row["offset"])

    def seek(self, partition: int) -> None:
        self.expected[partition] = self._chance.randrange(self._count)
        self._consumer.seek((TOPIC, partition), self.expected[partition])

    def pause(self, partition: int) -> None:
        self._consumer.pause((TOPIC, partition))
        self._paused.add(partition)

    def resume(self, partition: int) -> None:
        self._consumer.resume((TOPIC, partition))
        self._paused.discard(partition)


@pytest.mark.parametrize("seed", range(4))
def test_no_offset_is_skipped_after_seeks_pauses_and_resumes(broker: Broker, seed: int) -> None:
    """Whatever the order, each partition goes on where it is, or where it was told to."""
    chance, count = random.Random(seed), 300
    fill(broker, range(count))
    with reader(broker, partition_max_bytes=chance.choice([100, 2000, 1 << 20])) as consumer:
        consumer.poll(0.0, max_records=1)
        until(lambda: len(consumer.assignment) == 2)
        consumer.seek_all(0)
        walk = Walk(consumer, count, chance)
        steps = [walk.poll, walk.iterate, walk.batch, walk.seek, walk.pause, walk.resume]
        for _ in range(250):
            chance.choice(steps)(chance.randrange(2))
        for partition in range(2):
            walk.resume(partition)
        deadline = time.monotonic() + TIMEOUT
        while walk.expected != {0: count, 1: count}:
            assert time.monotonic() < deadline, walk.expected
            walk.poll(0)


def costs_at_most(seconds: float, consumer: karrow.Consumer) -> bool:
    """Whether two seconds without records can pass so cheaply.

    What earlier tests have left may be collected meanwhile, or burn down: who spins does so always.
    """
    for _ in range(3):
        gc.collect()
        used = time.process_time()
        assert consumer.poll(2.0) == []
        if time.process_time() - used <= seconds:
            return True
    return False


@pytest.mark.parametrize(
    "kind", ["alone", "served", *(pytest.param(one, marks=pytest.mark.slow) for one in CLASSIC)]
)
def test_a_consumer_without_brokers_costs_no_time(broker: Broker, kind: str) -> None:
    """Idle CPU near zero with all brokers down, and health says so; it goes on when they are."""
    fill(broker, range(3))
    with reader(broker, None if kind == "alone" else KINDS[kind], auto_commit=False) as consumer:
        take(consumer, 6)
        for node in range(1, NODES + 1):
            broker.kill_node(node)
        consumer.poll(0.5)
        assert costs_at_most(0.1, consumer)  # it takes 0.02
        assert consumer.health().state is HealthState.DEGRADED
        for node in range(1, NODES + 1):
            broker.start_node(node)
        fill(broker, range(3, 6))
        again = take(consumer, 6)
        assert places(again) == everything(6, begin=3)


def test_many_partitions_and_nothing_to_do_cost_no_time() -> None:
    """Idle CPU near zero with many partitions; the broker's part counts too, it runs in here."""
    with Broker(brokers=1) as broker:
        broker.create_topic(TOPIC, 500)
        with karrow.Consumer(broker.bootstrap, TOPIC, **{**QUICK, "max_wait": 0.5}) as consumer:
            consumer.poll(0.0)
            until(lambda: len(consumer.assignment) == 500 and consumer.health().is_ok)
            consumer.poll(0.5)
            assert costs_at_most(0.3, consumer)  # it takes 0.1 for four empty answers of 500


def test_health_is_told_by_itself_and_since_is_when_its_state_began(broker: Broker) -> None:
    """Nobody has to ask: each change of the state is an event, another reason is none."""
    told: list[events.Event] = []

    def listen(event: events.Event) -> None:
        if event.name == "consumer.health" and event.fields["client_id"] == "watched":
            told.append(event)

    def until_told(state: str) -> None:
        until(lambda: told and told[-1].fields["state"] == state)

    def stand_still(partition: int) -> None:
        broker.fail("Fetch", "KAFKA_STORAGE_ERROR", topic=TOPIC, partition=partition, times=10_000)

    with events.subscribe(listen), reader(broker, client_id="watched") as consumer:
        assert consumer.poll(0.1) == []
        until_told("ok")
        healthy = consumer.health()
        began = time.time()
        stand_still(1)
        until_told("degraded")
        assert f"{TOPIC}-1 stands still" in told[-1].fields["reason"]
        known, ended = len(told), time.time()
        degraded = consumer.health()
        assert degraded.state is HealthState.DEGRADED
        assert healthy.since <= began <= degraded.since <= ended
        stand_still(0)
        again = until(lambda: (now := consumer.health()).reason != degraded.reason and now)
        assert (again.state, again.since) == (degraded.state, degraded.since)
        assert f"{TOPIC}-0 stands still" in again.reason
        assert len(told) == known
        broker.clear_faults()
        until_told("ok")
        assert consumer.health().since > ended


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


@pytest.mark.parametrize(
    "trouble", ["none", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "close", "close after"]
)
def test_only_one_id_is_asked_for_however_often_a_join_fails(
    broker: Broker, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every id that is given counts as a member to be waited for, until its session ends."""
    given: list[str] = []
    expect = ClassicGroup._expect

    def note(group: ClassicGroup, member_id: str, session_timeout: float) -> None:
        expect(group, member_id, session_timeout)
        given.append(member_id)
        # On the broker's loop, so that it meets the join that comes with this id.
        inner = broker._inner
        if trouble.startswith("close"):
            inner.close("JoinGroup", when="after" if "after" in trouble else "before")
        elif trouble != "none":
            inner.fail("JoinGroup", trouble, times=2)

    monkeypatch.setattr(ClassicGroup, "_expect", note)
    fill(broker, range(2))
    with reader(broker, KINDS["eager"]) as consumer:
        take(consumer, 4)
        assert consumer.membership is not None
        assert given == [consumer.membership.member_id]
        group = broker._call(lambda: broker._inner._cluster.groups.classic(GROUP))
        assert (list(group.members), group._pending) == (given, {})
