"""Workers on every kind of broker: partitions move, nothing is skipped or doubled."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import karrow
from karrow import Commit, EndReason, Stop
from karrow.errors import GroupEnded
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
    kafka: AnyKafka,
    topic: str,
    group: str,
    found: list[int],
    commit: Commit,
    handler: type[karrow.Handler] = Numbers,
    **options: Any,
) -> karrow.WorkerGroup:
    return karrow.WorkerGroup(
        handler,
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


def offsets(kafka: AnyKafka, topic: str, group: str) -> list[int | None]:
    """What a group has stored, by partition."""
    with karrow.Client(kafka.bootstrap) as client:
        stored = client.committed_offsets(group, [topic])
    return [one.offset for _, one in sorted(stored.items())]


class Stumbling(Numbers):
    """Raises where it first sees a number that leaves no rest by six."""

    def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
        seen = set(self.found)
        super().handle_records(records)
        if any(number % 6 == 0 and number not in seen for number in self.found):
            raise ValueError("six")
        return self.commit


@pytest.mark.parametrize("commit", list(Commit))
def test_crash_goes_on_at_the_last_commit(newest_kafka: AnyKafka, commit: Commit) -> None:
    topic, group = newest_kafka.create_topic(), f"workers-{uuid.uuid4().hex[:8]}"
    with karrow.Producer(newest_kafka.bootstrap) as producer:
        for number in range(1, 10):
            producer.send(topic, str(number))
    found: list[int] = []
    workers = group_of(
        newest_kafka,
        topic,
        group,
        found,
        commit,
        handler=Stumbling,
        batch_records=2,
        commit_interval=60,
    )
    with workers:
        until(lambda: 9 in found)
        assert [worker.restarts for worker in workers.workers] == [1]
    assert found == [1, 2, 3, 4, 5, 6, 5, 6, 7, 8, 9]
    assert offsets(newest_kafka, topic, group) == [9]


class Poisoned(Numbers):
    """Cannot handle one record."""

    def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
        self.found += [record.offset for record in records]
        if records[-1].value == b"9":
            raise ValueError("nine")
        return self.commit


def test_crash_loop_ends_with_the_place_of_its_record(newest_kafka: AnyKafka) -> None:
    topic, group = newest_kafka.create_topic(partitions=PARTITIONS), f"w-{uuid.uuid4().hex[:8]}"
    send(newest_kafka, topic, range(16))
    found: list[int] = []
    options: dict[str, Any] = {"handler": Poisoned, "batch_records": 1, "max_restarts": 2}
    workers = group_of(newest_kafka, topic, group, found, Commit.SYNC, **options)
    workers.start()
    with pytest.raises(GroupEnded, match=f"handle_records of {topic}-1 at offset 2: nine") as ended:
        workers.wait(TIMEOUT)
    assert ended.value.reason == EndReason.CRASH_LOOP
    assert offsets(newest_kafka, topic, group)[1] == 2


class Columns(karrow.Handler):
    """Sums up columns, and stops when it is told."""

    def setup(self, topic: str, partition: int, *, found: list[int]) -> None:
        self.found = found

    def handle_batch(self, batch: pa.RecordBatch) -> None:
        assert batch.schema.names == ["value"]
        self.found += map(int, batch["value"].to_pylist())

    def handle_call(self, _message: object) -> int:
        return sum(self.found)

    def handle_cast(self, message: str) -> Stop:
        return Stop(message)

    def handle_info(self, message: int) -> None:
        self.found.append(message)


@pytest.mark.parametrize("is_sharing", [True, False])
def test_columns_and_messages_with_and_without_a_group(
    any_kafka: AnyKafka, is_sharing: bool
) -> None:
    """Arrow batches, call, info, and a Stop that a cast brings about."""
    topic, group = any_kafka.create_topic(partitions=PARTITIONS), f"workers-{uuid.uuid4().hex[:8]}"
    send(any_kafka, topic, range(40))
    found: list[int] = []
    place: dict[str, Any] = {"group": group, "topics": [topic]}
    alone: dict[str, Any] = {"partitions": {(topic, 1): 8, (topic, 2): "earliest"}}
    workers = karrow.WorkerGroup(
        Columns,
        any_kafka.bootstrap,
        arguments={"found": found},
        columns=["value"],
        **QUICK,
        **(place if is_sharing else alone),
    )
    with workers:
        wanted = set(range(40)) if is_sharing else {33, 37, *range(2, 40, 4)}
        until(lambda: set(found) == wanted)
        assert len(workers.assignments) == (PARTITIONS if is_sharing else 2)
        workers.info((topic, 1), 1000)
        assert workers.call((topic, 1), None) == sum(wanted) + 1000
        workers.cast((topic, 2), "enough")
        assert workers.wait(TIMEOUT) == karrow.Ending(EndReason.HANDLER, "enough")
    assert sorted(found) == [*sorted(wanted), 1000]
    if is_sharing:
        assert offsets(any_kafka, topic, group) == [10] * PARTITIONS


@pytest.mark.parametrize("option", [{"commit_interval": 0.2}, {"commit_threshold": 10}])
def test_commits_come_in_time_or_when_there_is_much(
    newest_kafka: AnyKafka, option: dict[str, Any]
) -> None:
    topic, group = newest_kafka.create_topic(partitions=PARTITIONS), f"w-{uuid.uuid4().hex[:8]}"
    send(newest_kafka, topic, range(40))
    found: list[int] = []
    options = {"commit_interval": 600.0, "commit_threshold": 1000, **option}
    with group_of(newest_kafka, topic, group, found, Commit.ASYNC, **options):
        until(lambda: len(found) == 40)
        until(lambda: offsets(newest_kafka, topic, group) == [10] * PARTITIONS)


def test_functions_whose_records_are_committed_when_they_return(every_kafka: AnyKafka) -> None:
    topic, group = every_kafka.create_topic(partitions=PARTITIONS), f"kafe-{uuid.uuid4().hex[:8]}"
    send(every_kafka, topic, range(8))
    seen: list[tuple[int, int]] = []

    async def note(_id: object, _topic: str, partition: int, offset: int, *_: object) -> None:
        seen.append((partition, offset))
        if (partition, offset) == (3, 1) and seen.count((3, 1)) == 1:
            raise ValueError("once more")

    workers = karrow.start_consumer(
        every_kafka.bootstrap, group, note, topics=[topic], fetch_interval=0, max_wait=0.1
    )
    until(lambda: offsets(every_kafka, topic, group) == [2] * PARTITIONS)
    assert workers.stop().reason is EndReason.STOPPED
    assert sorted(seen) == sorted([*((n % PARTITIONS, n // PARTITIONS) for n in range(8)), (3, 1)])


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
