"""Workers on every kind of broker: partitions move, nothing is skipped or doubled."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import karrow
from karrow import Commit, EndReason
from karrow.types import HealthState
from tests.brokers import KafkaCluster
from tests.fix_any import AnyKafka

TIMEOUT = 60.0
PARTITIONS = 4
QUICK: dict[str, Any] = {"heartbeat_interval": 0.2, "max_wait": 0.1, "start": "earliest"}


def until(look: Callable[[], Any], seconds: float = TIMEOUT) -> Any:
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return seen


class Numbers(karrow.Handler):
    """Puts the numbers that it reads into a list."""

    def setup(self, topic: str, partition: int, *, found: list[int], commit: Commit) -> None:
        self.found = found
        self.commit = commit

    def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
        self.found += [int(record.value or b"-1") for record in records]
        return self.commit

    def handle_call(self, _message: object) -> tuple[str, int]:
        return self.topic, self.partition


def send(kafka: AnyKafka, topic: str, numbers: range) -> None:
    idempotent = kafka.number >= (0, 11)
    with karrow.Producer(kafka.bootstrap, idempotent=idempotent) as producer:
        for number in numbers:
            producer.send(topic, str(number), partition=number % PARTITIONS)


def group_of(
    kafka: AnyKafka, topic: str, group: str, found: list[int], commit: Commit, **options: Any
) -> karrow.WorkerGroup:
    return karrow.WorkerGroup(
        Numbers,
        kafka.bootstrap,
        group=group,
        topics=[topic],
        arguments={"found": found, "commit": commit},
        **QUICK,
        **options,
    )


def check(kafka: AnyKafka, commit: Commit, **options: Any) -> None:
    """Two groups of workers come and go while records come."""
    topic, group = kafka.create_topic(partitions=PARTITIONS), f"workers-{uuid.uuid4().hex[:8]}"
    found: list[int] = []
    over = threading.Event()
    sent = [0]

    def stream() -> None:
        while not over.wait(0.05):
            send(kafka, topic, range(sent[0], sent[0] + 20))
            sent[0] += 20

    sender = threading.Thread(target=stream)
    sender.start()
    try:
        with group_of(kafka, topic, group, found, commit, **options) as first:
            until(lambda: len(first.assignments) == PARTITIONS and found)
            assert first.call((topic, 2), None) == (topic, 2)
            with group_of(kafka, topic, group, found, commit, **options) as second:
                until(lambda: len(first.assignments) == len(second.assignments) == 2)
                assert not set(first.assignments) & set(second.assignments)
            until(lambda: len(first.assignments) == PARTITIONS)
            over.set()
            sender.join()
            until(lambda: len(set(found)) == sent[0])
    finally:
        over.set()
        sender.join()
    assert first.ending == karrow.Ending(EndReason.STOPPED)
    assert sorted(found) == list(range(sent[0]))
    with karrow.Client(kafka.bootstrap) as client:
        stored = client.committed_offsets(group, [topic])
        assert sum(one.offset or 0 for one in stored.values()) == sent[0]


@pytest.mark.parametrize("commit", list(Commit))
def test_partitions_move_between_workers(every_kafka: AnyKafka, commit: Commit) -> None:
    check(every_kafka, commit)


def test_partitions_move_in_cooperation(newest_kafka: AnyKafka) -> None:
    check(newest_kafka, Commit.ASYNC, assignors="cooperative-sticky")


def test_partitions_move_as_the_broker_says(newest_kafka: AnyKafka) -> None:
    check(newest_kafka, Commit.ASYNC, protocol="consumer")


@pytest.mark.parametrize(
    ("sharing", "commit"),
    [
        pytest.param({"protocol": "consumer"}, Commit.SYNC, id="served"),
        pytest.param({"assignors": "range"}, Commit.ASYNC, id="eager", marks=pytest.mark.slow),
        pytest.param(
            {"assignors": "cooperative-sticky"},
            Commit.SYNC,
            id="cooperative",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_frozen_broker_is_seen_in_health(
    kafka: KafkaCluster, sharing: dict[str, Any], commit: Commit
) -> None:
    """Row 30: SIGSTOP: degraded within two time-outs, ok again after SIGCONT, each record once."""
    any_kafka = AnyKafka(kafka.version.rpartition(".")[0], kafka)
    topic, group = kafka.create_topic(partitions=PARTITIONS), f"workers-{uuid.uuid4().hex[:8]}"
    found: list[int] = []
    limit = 2.0
    options = {**sharing, "request_timeout": limit, "connect_timeout": 1.0, "commit_interval": 0.2}
    with (
        karrow.Producer(any_kafka.bootstrap, delivery_timeout=120.0) as producer,
        group_of(any_kafka, topic, group, found, commit, **options) as workers,
    ):
        send(any_kafka, topic, range(20))
        until(lambda: len(found) == 20 and workers.health().is_ok)
        before = workers.member_id, workers.generation
        # These may be on their way, in hands or not committed when everything stands still.
        sent = [producer.send(topic, str(n), partition=n % PARTITIONS) for n in range(20, 60)]
        kafka.nodes[0].pause()
        try:
            until(lambda: workers.health().state is HealthState.DEGRADED, 2 * limit)
        finally:
            kafka.nodes[0].resume()
        until(lambda: workers.health().is_ok)
        for delivery in sent:
            delivery.result(TIMEOUT)
        send(any_kafka, topic, range(60, 80))
        until(lambda: len(found) >= 80)
        assert (workers.member_id, workers.generation) == before
        assert [worker.restarts for worker in workers.workers] == [0] * PARTITIONS
    assert sorted(found) == list(range(80))
    assert workers.ending == karrow.Ending(EndReason.STOPPED)
    with karrow.Client(any_kafka.bootstrap) as client:
        stored = client.committed_offsets(group, [topic])
        assert sum(one.offset or 0 for one in stored.values()) == 80


def test_functions_by_record(every_kafka: AnyKafka) -> None:
    topic, group = every_kafka.create_topic(partitions=PARTITIONS), f"kafe-{uuid.uuid4().hex[:8]}"
    send(every_kafka, topic, range(8))
    ids: list[karrow.CommitId] = []

    def note(commit_id: karrow.CommitId, *_: object) -> None:
        ids.append(commit_id)

    workers = karrow.start_consumer(
        every_kafka.bootstrap, group, note, topics=[topic], fetch_interval=0, autocommit=False
    )
    until(lambda: len(ids) == 8)
    for commit_id in ids:
        assert workers.commit(commit_id) is True
    assert workers.stop().reason is EndReason.STOPPED
    with karrow.Client(every_kafka.bootstrap) as client:
        stored = client.committed_offsets(group, [topic])
    assert [one.offset for _, one in sorted(stored.items())] == [2, 2, 2, 2]
