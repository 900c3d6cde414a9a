"""The consumer while real brokers fail: killed, frozen, restarted, truncated; topics made anew.

Rows are those of the failure table.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

import pytest

import karrow
from karrow import errors, events
from karrow.types import HealthState, TopicPartition
from tests.brokers import KafkaCluster
from tests.fix_kafka import NewKafka
from tests.proxy import ClusterProxy

TIMEOUT = 60.0
QUICK: dict[str, Any] = {
    "start": "earliest",
    "max_wait": 0.1,
    "request_timeout": 2.0,
    "connect_timeout": 1.0,
    "retry_backoff_max": 0.3,
}
KINDS: dict[str, dict[str, Any]] = {
    "eager": {"assignors": "range", "heartbeat_interval": 0.3},
    "cooperative": {"assignors": "cooperative-sticky", "heartbeat_interval": 0.3},
    "served": {"protocol": "consumer"},
}
# One kind in the gate, where the kinds do not differ by much.
SOME_KINDS = [
    pytest.param(name, marks=() if name == "served" else (pytest.mark.slow,)) for name in KINDS
]


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def fill(
    bootstrap: str, topic: str, numbers: Iterable[int], partitions: int, **options: Any
) -> None:
    with karrow.Producer(bootstrap, **options) as producer:
        for number in numbers:
            for partition in range(partitions):
                producer.send(topic, b"%d" % number, partition=partition)


def places(records: Iterable[karrow.Record]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


def everything(count: int, partitions: int, begin: int = 0) -> list[tuple[int, int]]:
    return [(one, number) for one in range(partitions) for number in range(begin, count)]


def take(reader: karrow.Consumer, count: int) -> list[karrow.Record]:
    found: list[karrow.Record] = []
    deadline = time.monotonic() + TIMEOUT
    while len(found) < count:
        assert time.monotonic() < deadline, (places(found), reader.health())
        found += reader.poll(0.2)
    assert len(found) == count
    return found


def poll_until(reader: karrow.Consumer, look: Callable[[], Any], seconds: float = TIMEOUT) -> float:
    """How long it took, with nothing read meanwhile."""
    began = time.monotonic()
    while not look():
        assert time.monotonic() - began < seconds, reader.health()
        assert reader.poll(0.02) == []
    return time.monotonic() - began


def coordinator_of(cluster: KafkaCluster, group: str) -> int:
    with cluster.connect() as connection:
        body = {"key_type": 0, "coordinator_keys": [group]}
        (found,) = connection.request("FindCoordinator", body).coordinators
    assert found.error_code == 0
    return int(found.node_id)


class Writing:
    """A producer that goes on until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._make = (bootstrap, topic, partitions)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        bootstrap, topic, partitions = self._make
        try:
            with karrow.Producer(
                bootstrap, request_timeout=2.0, delivery_timeout=120.0
            ) as producer:
                while not self._stop.wait(0.01):
                    for partition in range(partitions):
                        producer.send(topic, b"%d" % self.count, partition=partition)
                    self.count += 1
        except BaseException as error:  # noqa: BLE001 - for the test
            self.error = error


def read_through(
    cluster: KafkaCluster, kind: str, trouble: Callable[[str, str], object], *, most_again: int = 0
) -> list[str]:
    """Read and commit while records come and something breaks; what listeners were told.

    Everything must be read, and nothing twice but for ``most_again`` records.
    """
    partitions = 3
    topic = cluster.create_topic(partitions=partitions, config={"min.insync.replicas": "2"})
    group = new_group()
    told: list[str] = []
    listeners = {
        name: lambda _, what=name: told.append(what)
        for name in ("on_assigned", "on_revoked", "on_lost")
    }
    seen: Counter[tuple[int, int]] = Counter()
    options = {**QUICK, **KINDS[kind], **listeners, "group": group, "auto_commit": False}
    problems: list[BaseException] = []
    is_over = threading.Event()

    def break_things() -> None:
        try:
            trouble(topic, group)
        except BaseException as error:  # noqa: BLE001 - for the test
            problems.append(error)
        is_over.set()

    breaking = threading.Thread(target=break_things)
    with karrow.Consumer(cluster.bootstrap(), topic, **options) as consumer:
        with Writing(cluster.bootstrap(), topic, partitions) as writing:
            while len(seen) < 100:
                seen.update(places(consumer.poll(0.1)))
            breaking.start()
            while not is_over.is_set():
                seen.update(places(consumer.poll(0.1)))
                try:
                    consumer.commit()
                except errors.CommitFailed:
                    continue
        assert problems == []
        deadline = time.monotonic() + TIMEOUT
        while len(seen) < writing.count * partitions:
            assert time.monotonic() < deadline, consumer.health()
            seen.update(places(consumer.poll(0.1)))
        consumer.commit()
        stored = consumer.committed()
    assert sorted(seen) == everything(writing.count, partitions)
    assert sum(seen.values()) - len(seen) <= most_again
    assert {it.offset for it in stored.values()} == {writing.count}
    return told


# Brokers that end.


@pytest.mark.parametrize("kind", SOME_KINDS)
def test_leader_and_coordinator_are_killed(kafka_three: KafkaCluster, kind: str) -> None:
    """Row 8: kill -9 of who coordinates, then of who leads; the member stays one."""

    def trouble(topic: str, group: str) -> None:
        kafka_three.node(coordinator_of(kafka_three, group)).kill()
        time.sleep(2.0)
        kafka_three.heal()
        kafka_three.node(kafka_three.leader(topic)).kill()
        time.sleep(2.0)

    told = read_through(kafka_three, kind, trouble)
    assert "on_lost" not in told


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_rolling_restart_reaches_no_caller(kafka_three: KafkaCluster, kind: str) -> None:
    """Row 33: all brokers, two rounds; nothing is lost, nothing comes twice."""

    def trouble(_: str, __: str) -> None:
        for _round in range(2):
            for node in kafka_three.nodes:
                node.stop()
                node.start()
                kafka_three.heal()

    told = read_through(kafka_three, kind, trouble)
    assert "on_lost" not in told


@pytest.mark.slow
def test_all_brokers_end_and_come_back(kafka_three: KafkaCluster) -> None:
    """Row 33: nobody is there for a while; health says so, and it goes on by itself."""
    topic = kafka_three.create_topic(partitions=2)
    fill(kafka_three.bootstrap(), topic, range(10), 2)
    options = {**QUICK, **KINDS["eager"], "group": new_group(), "auto_commit": False}
    with karrow.Consumer(kafka_three.bootstrap(), topic, **options) as consumer:
        take(consumer, 20)
        consumer.commit()
        for node in kafka_three.nodes:
            node.kill()
        poll_until(consumer, lambda: consumer.health().state is HealthState.DEGRADED)
        used = time.process_time()
        assert consumer.poll(2.0) == []
        assert time.process_time() - used < 0.1  # it takes 0.02
        kafka_three.heal()
        fill(kafka_three.bootstrap(), topic, range(10, 20), 2)
        assert places(take(consumer, 20)) == everything(20, 2, 10)
        poll_until(consumer, lambda: consumer.health().is_ok)


# Brokers that stand still.


@pytest.mark.parametrize("kind", [None, *SOME_KINDS])
def test_frozen_broker_is_seen_in_health(kafka: KafkaCluster, kind: str | None) -> None:
    """Row 30: SIGSTOP: degraded within two time-outs, ok again after SIGCONT, nothing is lost."""
    topic = kafka.create_topic(partitions=2)
    fill(kafka.bootstrap(), topic, range(10), 2)
    limit = 1.5
    grouped = {} if kind is None else {**KINDS[kind], "group": new_group()}
    options = {**QUICK, **grouped, "request_timeout": limit}
    told: list[str] = []
    with karrow.Consumer(
        kafka.bootstrap(), topic, **options, on_lost=lambda _: told.append("lost")
    ) as consumer:
        take(consumer, 20)
        poll_until(consumer, lambda: consumer.health().is_ok)
        kafka.nodes[0].pause()
        spent = poll_until(consumer, lambda: consumer.health().state is HealthState.DEGRADED)
        assert spent < 2 * limit
        kafka.nodes[0].resume()
        poll_until(consumer, lambda: consumer.health().is_ok)
        fill(kafka.bootstrap(), topic, range(10, 20), 2)
        assert places(take(consumer, 20)) == everything(20, 2, 10)
        assert told == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_frozen_one_of_three_holds_up_nobody_for_long(kafka_three: KafkaCluster, kind: str) -> None:
    """Row 30: the frozen one leads and coordinates; the others take over, nothing is lost."""

    def trouble(topic: str, group: str) -> None:
        for broker_id in {coordinator_of(kafka_three, group), kafka_three.leader(topic)}:
            kafka_three.node(broker_id).pause()
            time.sleep(12.0)
            kafka_three.node(broker_id).resume()
            kafka_three.heal()

    told = read_through(kafka_three, kind, trouble)
    assert "on_lost" not in told


@pytest.mark.slow
def test_slow_broker_holds_up_only_its_own_partitions(kafka_three: KafkaCluster) -> None:
    """Row 31: no waiting in line behind one of three."""
    topic = kafka_three.create_topic(partitions=3)
    leaders = {number: kafka_three.leader(topic, number) for number in range(3)}
    slow = leaders[0]
    with ClusterProxy(kafka_three) as proxy:
        options = {**QUICK, "request_timeout": 20.0}
        with karrow.Consumer(proxy.bootstrap, topic, **options) as consumer:
            poll_until(consumer, lambda: consumer.health().is_ok)
            proxy.node(slow).latency(2.0)
            began = time.monotonic()
            fill(kafka_three.bootstrap(), topic, range(10), 3)
            found: list[tuple[int, int]] = []
            quick = [number for number, leader in leaders.items() if leader != slow]
            while sum(number in quick for number, _ in found) < 10 * len(quick):
                assert time.monotonic() - began < 2.0
                found += places(consumer.poll(0.1))
            while len(found) < 30:
                assert time.monotonic() - began < TIMEOUT
                found += places(consumer.poll(0.1))
            assert sorted(found) == everything(10, 3)


# A client that stands still.

STOPPED = """
import sys, time, karrow
from karrow.errors import CommitFailed, StateError
bootstrap, topic, group, kind = sys.argv[1:]
told = []
consumer = karrow.Consumer(
    bootstrap, topic, group=group, start="earliest", max_wait=0.1, auto_commit=False,
    session_timeout=6.0, max_poll_records=3,
    on_assigned=lambda _: told.append("assigned"), on_revoked=lambda _: told.append("revoked"),
    on_lost=lambda _: told.append("lost"),
    **({"protocol": "consumer"} if kind == "served" else {"assignors": "range"}),
)
held = []
if kind == "iterate":
    for record in consumer:
        held.append(record)
        break
while not held:
    held = consumer.poll(0.2)
print("ready", flush=True)
sys.stdin.readline()  # stopped here; the clock goes on
seen = []
if kind == "iterate":
    import threading
    stop = threading.Timer(3.0, consumer.close)
    stop.start()
    try:
        for record in consumer:
            seen.append((record.partition, record.offset))
    except StateError:
        pass
    stop.join()
    print(" ".join(told), flush=True)
else:
    try:
        consumer.commit(held[-1])
        print("stored", flush=True)
    except CommitFailed:
        print("refused", flush=True)
    end = time.monotonic() + 20
    while time.monotonic() < end and "lost" not in told:
        seen += [(one.partition, one.offset) for one in consumer.poll(0.05)]
    seen += [(one.partition, one.offset) for one in consumer.poll(1.0)]
    print(" ".join(told[:2]), flush=True)
    consumer.close()
print(sorted(seen), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eager", "iterate"])
def test_stopped_process_hands_out_and_commits_nothing_of_others(
    kafka: KafkaCluster, kind: str
) -> None:
    """Row 11: SIGSTOP past the session: no delivery, no commit, and the loss is told."""
    stop_past_the_session(kafka, kind, KINDS["eager"])


@pytest.mark.slow
def test_stopped_process_of_a_served_group_hands_out_and_commits_nothing_of_others(
    new_kafka: NewKafka,
) -> None:
    """Row 11: where the broker says how long a session is."""
    kafka = new_kafka(properties={"group.consumer.session.timeout.ms": "3000"})
    stop_past_the_session(kafka, "served", KINDS["served"])


def stop_past_the_session(kafka: KafkaCluster, kind: str, other_kind: dict[str, Any]) -> None:
    topic, group = kafka.create_topic(partitions=2), new_group()
    fill(kafka.bootstrap(), topic, range(20), 2)
    command = [sys.executable, "-W", "error", "-c", STOPPED, kafka.bootstrap(), topic, group, kind]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        options = {**QUICK, **other_kind, "group": group, "auto_commit": False}
        with karrow.Consumer(kafka.bootstrap(), topic, **options) as other:
            assert places(take(other, 40)) == everything(20, 2)
            other.commit()
            process.stdin.write("\n")  # so that it goes on in the moment in which it is woken
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
            deadline = time.monotonic() + TIMEOUT
            while process.poll() is None:
                assert time.monotonic() < deadline
                assert other.poll(0.05) == []
            out, complaints = process.communicate(timeout=TIMEOUT)
            assert complaints == ""
            told = out.split("\n")[:-1]
            assert told[-1] == "[]"
            assert told[-2].startswith("assigned lost")
            assert "stored" not in told
            stored = other.committed([(topic, 0), (topic, 1)])
            assert {it.offset for it in stored.values()} == {20}
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_slow_application_leaves_and_comes_back(kafka: KafkaCluster, kind: str) -> None:
    """Row 12: past max_poll_interval others go on; it hears of the loss and joins again."""
    topic, group = kafka.create_topic(partitions=2), new_group()
    fill(kafka.bootstrap(), topic, range(5), 2)
    told: list[tuple[str, set[int]]] = []

    def note(what: str) -> Callable[[Sequence[TopicPartition]], None]:
        return lambda about: told.append((what, {one.partition for one in about}))

    options = {**QUICK, **KINDS[kind], "group": group, "auto_commit": False}
    with karrow.Consumer(
        kafka.bootstrap(),
        topic,
        **options,
        max_poll_interval=2.0,
        on_assigned=note("assigned"),
        on_revoked=note("revoked"),
        on_lost=note("lost"),
    ) as slow:
        held: list[karrow.Record] = []
        while not held:
            held = slow.poll(0.5, max_records=1)
        with karrow.Consumer(kafka.bootstrap(), topic, **options) as other:
            # Nothing was committed before, so what came before a rebalance may come again.
            found: set[tuple[int, int]] = set()
            deadline = time.monotonic() + TIMEOUT
            while len(found) < 10 or {other.position(one) for one in other.assignment} != {5}:
                assert time.monotonic() < deadline
                found.update(places(other.poll(0.1)))
            other.commit()
            with pytest.raises(errors.CommitFailed):
                slow.commit(held[-1])
            while told[-1][0] != "assigned" or "lost" not in [what for what, _ in told]:
                assert time.monotonic() < deadline, told
                assert slow.poll(0.05) == []
                assert other.poll(0.05) == []
    # What it works on is lost; the other partition may have been given back before.
    busy = [what for what, about in told if held[-1].partition in about]
    assert busy[:2] == ["assigned", "lost"]


@pytest.mark.slow
def test_the_older_of_two_with_one_name_gives_up(kafka: KafkaCluster) -> None:
    """Row 13: fenced for good."""
    topic, group = kafka.create_topic(), new_group()
    fill(kafka.bootstrap(), topic, range(5), 1)
    options = {**QUICK, **KINDS["eager"], "group": group, "instance_id": "one"}
    with karrow.Consumer(kafka.bootstrap(), topic, auto_commit=False, **options) as older:
        take(older, 5)
        with karrow.Consumer(kafka.bootstrap(), topic, auto_commit=False, **options) as newer:
            take(newer, 5)
            with pytest.raises(errors.FencedInstanceId):
                poll_until(older, lambda: False)
            assert older.health().state is HealthState.DEAD
            newer.commit()


# Logs that are cut, topics that are made anew.


@contextmanager
def truncated(cluster: KafkaCluster, topic: str) -> Iterator[None]:
    """Records that only a dead leader has are lost: an unclean election of one that lacks them."""
    leader = cluster.leader(topic)
    (other,) = [
        node for node in cluster.nodes if node.id != leader and _has(cluster, topic, node.id)
    ]
    other.pause()
    yield
    cluster.node(leader).kill()
    other.resume()


def _has(cluster: KafkaCluster, topic: str, broker_id: int) -> bool:
    (partition,) = cluster.metadata([topic]).topics[0].partitions
    return broker_id in partition.replica_nodes


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["none", "latest"])
def test_truncated_log_is_never_skipped_over(new_kafka: NewKafka, policy: str) -> None:
    """Row 20: an unclean election loses what was read; it is told, or gone on from by policy."""
    cluster = new_kafka(
        nodes=3,
        properties={
            "unclean.leader.election.enable": "true",
            "replica.lag.time.max.ms": "2000",
            "min.insync.replicas": "1",
        },
    )
    topic = cluster.create_topic(
        replicas=2,
        config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    )
    single = {"batch_bytes": 1, "linger": 0.0}
    fill(cluster.bootstrap(), topic, range(5), 1, **single)
    options = {**QUICK, "out_of_range": policy}
    with karrow.Consumer(cluster.bootstrap(), topic, **options) as consumer:
        take(consumer, 5)
        with truncated(cluster, topic):
            time.sleep(1.0)
            fill(cluster.bootstrap(), topic, range(5, 10), 1, **single, acks=1, idempotent=False)
            take(consumer, 5)
        deadline = time.monotonic() + TIMEOUT
        while cluster.leader(topic) < 0 or not cluster.node(cluster.leader(topic)).running:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        with karrow.Producer(cluster.bootstrap(), acks=1, idempotent=False) as producer:
            for number in range(20):
                producer.send(topic, b"new %d" % number, partition=0)
        if policy == "none":
            with pytest.raises(errors.LogTruncated) as caught:
                poll_until(consumer, lambda: False)
            assert (caught.value.offset, caught.value.position) == (5, 10)
            consumer.seek((topic, 0), 5)
        found = take(consumer, 20)
        assert [one.value for one in found] == [b"new %d" % number for number in range(20)]
        assert [one.offset for one in found] == list(range(5, 25))


# Commits go by a topic's id in the first only, fetches by its name in the last.
@pytest.mark.parametrize("kafka_version", ["4.3.1", "3.9.2", "2.8.2"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "gone"),
    [("alone", 0.0), *((kind, 0.0) for kind in KINDS), *((kind, 1.0) for kind in KINDS)],
)
def test_topic_made_anew_is_read_from_its_beginning(
    kafka_version: KafkaCluster, kind: str, gone: float
) -> None:
    """Row 22: never at the old offset, also if a commit waited while the topic was gone."""
    kafka = kafka_version
    if kind == "served" and kafka.release.number < (4, 0):
        pytest.skip("no groups that the broker divides")
    topic = kafka.create_topic(partitions=2)
    fill(kafka.bootstrap(), topic, range(10), 2)
    grouped = {} if kind == "alone" else {**KINDS[kind], "group": new_group()}
    with (
        karrow.Consumer(
            kafka.bootstrap(), topic, **{**QUICK, **grouped, "metadata_max_age": 1.0}
        ) as consumer,
        karrow.Admin(kafka.bootstrap()) as admin,
    ):
        take(consumer, 20)
        admin.delete_topic(topic)
        deadline = time.monotonic() + TIMEOUT
        while topic in admin.list_topics():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(gone)
        while True:  # ZooKeeper may know it for longer than the brokers' metadata
            with suppress(errors.TopicAlreadyExists):
                admin.create_topic(topic, partitions=2)
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with karrow.Producer(kafka.bootstrap()) as producer:
            for number in range(20):
                for partition in range(2):
                    producer.send(topic, b"new %d" % number, partition=partition)
        found = take(consumer, 40)
        assert places(found) == everything(20, 2)
        assert {one.value for one in found} == {b"new %d" % number for number in range(20)}
        assert TopicPartition(topic, 0) in consumer.assignment


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_throttled_consumers_keep_their_partitions(kafka: KafkaCluster, kind: str) -> None:
    """Row 32: a quota on bytes mutes the fetches, heartbeats go on, nothing times out."""
    topic = kafka.create_topic()
    name = f"throttled-{uuid.uuid4().hex[:8]}"
    with karrow.Producer(kafka.bootstrap()) as producer:
        for _ in range(40):
            producer.send(topic, b"x" * 50_000)
    quota = {
        "entity": [{"entity_type": "client-id", "entity_name": name}],
        "ops": [{"key": "consumer_byte_rate", "value": 120_000.0, "remove": False}],
    }
    with kafka.connect() as connection:
        body = {"entries": [quota], "validate_only": False}
        answer = connection.request("AlterClientQuotas", body)
        assert answer.entries[0].error_code == 0
    told: list[str] = []
    muted: list[events.Event] = []
    options = {**QUICK, **KINDS[kind], "group": new_group(), "client_id": name}
    with (
        events.subscribe(muted.append, "connection.throttle"),
        karrow.Consumer(
            kafka.bootstrap(),
            topic,
            **options,
            partition_max_bytes=200_000,
            on_lost=lambda _: told.append("lost"),
            on_assigned=lambda _: told.append("assigned"),
        ) as consumer,
    ):
        assert places(take(consumer, 40)) == everything(40, 1)
    assert told == ["assigned"]
    assert {(one.fields["operation"], one.fields["muted"]) for one in muted} == {("Fetch", True)}
