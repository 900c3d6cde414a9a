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
from tests.fix_any import AnyKafka

TIMEOUT = 60.0
PARTITIONS = 4
QUICK: dict[str, Any] = {"heartbeat_interval": 0.2, "max_wait": 0.1, "start": "earliest"}


def until(look: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT
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
