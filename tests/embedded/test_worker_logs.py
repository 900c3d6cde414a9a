"""Workers of partitions whose log is another one by now: made again, or cut."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import karrow
from karrow import Commit
from karrow.aio.consuming.positions import Positions
from karrow.broker.threaded import Broker
from karrow.errors import CommitFailed, StateError
from karrow.types import TopicPartition
from tests.embedded.working import (
    GROUP,
    TOPIC,
    Notes,
    Noting,
    committed,
    group_of,
    put,
    until,
)

HERE = (TOPIC, 0)
# Soon told that the topic is another one.
QUICK: dict[str, Any] = {"metadata_max_age": 0.2}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as found:
        found.create_topic(TOPIC, 1)
        yield found


class Once(Noting):
    """Stores at once, and raises when it sees 66 for the first time."""

    def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
        seen = self.notes.counted()
        self.note(records)
        if any(record.value == b"66" for record in records) and not seen[66]:
            raise ValueError("66")
        return Commit.SYNC


def make_again(broker: Broker) -> None:
    with karrow.Admin(broker.bootstrap) as admin:
        admin.delete_topic(TOPIC)
        admin.create_topic(TOPIC, partitions=1)


def put_singly(broker: Broker, values: Iterable[int]) -> None:
    """Store values in batches of their own: a log is cut between two batches."""
    with karrow.Producer(broker.bootstrap) as producer:
        for value in values:
            producer.send(TOPIC, str(value), partition=0).result()


def test_topic_that_was_made_again_is_read_from_its_beginning(broker: Broker, notes: Notes) -> None:
    with group_of(broker, Once, notes, start="latest", commit_interval=0.05, **QUICK):
        until(lambda: committed(broker).get(HERE) == 0)
        put(broker, range(20))
        until(lambda: committed(broker).get(HERE) == 20)
        make_again(broker)
        put(broker, range(100, 105))
        until(lambda: 104 in notes.values())
        until(lambda: committed(broker).get(HERE) == 5)
        put(broker, [66])
        until(lambda: notes.counted()[66] == 2)
        put(broker, [67])
        until(lambda: committed(broker).get(HERE) == 7)
    assert notes.values() == [*range(20), *range(100, 105), 66, 66, 67]
    # The worker of the new topic is another one, and that one crashed.
    assert notes.of("setup") == notes.of("teardown") == [0, 0, 0]


@pytest.mark.parametrize("is_crash", [True, False])
def test_late_result_of_an_old_topic_counts_for_nothing(
    broker: Broker, notes: Notes, is_crash: bool
) -> None:
    go_on = threading.Event()

    class Slow(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            if records[-1].value == b"9":
                go_on.wait(20)
                if is_crash:
                    raise ValueError("nine")
            return Commit.SYNC

    put(broker, range(10))
    with group_of(broker, Slow, notes, **QUICK) as group:
        until(lambda: 9 in notes.values())
        positions = _positions(group)
        before = positions.assignments([TopicPartition(*HERE)])
        make_again(broker)
        until(lambda: positions.assignments([TopicPartition(*HERE)]) != before)
        go_on.set()
        put(broker, [100])
        until(lambda: 100 in notes.values())
        until(lambda: committed(broker).get(HERE) == 1)
    assert notes.values() == [*range(10), 100]


def test_nothing_of_an_old_topic_is_stored_in_the_new_one(broker: Broker, notes: Notes) -> None:
    seen: list[karrow.CommitId] = []

    def note(commit_id: karrow.CommitId, *_: object) -> None:
        seen.append(commit_id)

    config = karrow.WorkerConfig(start="earliest", **QUICK)
    put(broker, range(3))
    group = karrow.start_consumer(
        broker.bootstrap,
        GROUP,
        note,
        topics=[TOPIC],
        autocommit=False,
        fetch_interval=0.01,
        config=config,
    )
    try:
        until(lambda: len(seen) == 3)
        positions = _positions(group)
        before = positions.assignments([TopicPartition(*HERE)])
        make_again(broker)
        until(lambda: positions.assignments([TopicPartition(*HERE)]) != before)
        with pytest.raises((CommitFailed, StateError)):
            group.commit(seen[0])
        put(broker, [100])
        until(lambda: len(seen) == 4)
        with pytest.raises(StateError, match="of an earlier life"):
            group.commit(seen[1])
        assert group.pending_commits() == (seen[3],)
        assert group.commit(seen[3])
    finally:
        group.stop()
    assert committed(broker).get(HERE) == 1


def test_log_that_was_cut_is_read_on_and_stored_where_it_is(broker: Broker, notes: Notes) -> None:
    with group_of(broker, Once, notes, out_of_range="earliest", **QUICK):
        put_singly(broker, range(20))
        until(lambda: committed(broker).get(HERE) == 20)
        broker.truncate(TOPIC, 0, 10)
        put(broker, range(100, 105))
        until(lambda: 104 in notes.values())
        until(lambda: committed(broker).get(HERE) == 15)
        put(broker, [66, 67])
        until(lambda: committed(broker).get(HERE) == 17)
    assert notes.values()[:20] == list(range(20))
    assert {*range(100, 105), 66, 67} <= set(notes.values())


def test_log_that_was_cut_and_is_not_written_to(broker: Broker, notes: Notes) -> None:
    with group_of(broker, Noting, notes, out_of_range="latest", commit_interval=0.05, **QUICK):
        put_singly(broker, range(20))
        until(lambda: committed(broker).get(HERE) == 20)
        broker.truncate(TOPIC, 0, 10)
        until(lambda: committed(broker).get(HERE) == 10)


@pytest.mark.parametrize("in_batches", [False, True])
def test_log_that_was_cut_between_two_groups_is_noticed(
    broker: Broker, notes: Notes, in_batches: bool
) -> None:
    """Offsets are stored with their leader's epoch (KIP-320), or nobody could tell."""

    class Columnar(Noting):
        handle_records = karrow.Handler.handle_records

        def handle_batch(self, batch: pa.RecordBatch) -> None:
            for value in batch["value"].to_pylist():
                self.notes.add("record", 0, int(value))

    kind = Columnar if in_batches else Noting
    put_singly(broker, range(20))
    with group_of(broker, kind, notes):
        until(lambda: 19 in notes.values())
    assert committed(broker)[HERE] == 20
    broker.truncate(TOPIC, 0, 10)
    put(broker, range(100, 115))
    with group_of(broker, kind, notes, out_of_range="earliest"):
        until(lambda: 114 in notes.values())
    assert set(range(100, 115)) <= set(notes.values())


def _positions(group: karrow.WorkerGroup) -> Positions:
    return group._twin._consumer.engine.positions
