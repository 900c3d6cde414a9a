"""Workers on the embedded broker: records, commits, threads, and the face of a group."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import karrow
from karrow import Commit, EndReason, events
from karrow.broker.threaded import Broker
from karrow.errors import (
    ConfigError,
    GroupEnded,
    StateError,
)
from karrow.types import HealthState
from tests.embedded.working import (
    GROUP,
    TOPIC,
    AsyncNoting,
    AsyncTalking,
    Notes,
    Noting,
    Once,
    committed,
    group_of,
    put,
    until,
)

KINDS = [Noting, AsyncNoting]


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic(TOPIC, 4)
    return shared


# Records.


@pytest.mark.parametrize("kind", KINDS)
def test_every_partition_has_a_handler(broker: Broker, notes: Notes, kind: type[Noting]) -> None:
    for partition in range(4):
        put(broker, range(partition * 100, partition * 100 + 10), partition)
    with group_of(broker, kind, notes) as group:
        until(lambda: len(notes.values()) == 40)
        assert group.assignments == tuple((TOPIC, number) for number in range(4))
        until(lambda: [worker.records for worker in group.workers] == [10] * 4)
    assert sorted(notes.of("setup")) == sorted(notes.of("teardown")) == [0, 1, 2, 3]
    for partition in range(4):
        mine = [value for number, value in notes.of("record") if number == partition]
        assert mine == list(range(partition * 100, partition * 100 + 10))


def test_handler_knows_where_it_is(broker: Broker, notes: Notes) -> None:
    class Placed(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.notes.add("place", self.topic, self.partition, self.group)

    put(broker, [1], 2)
    with group_of(broker, Placed, notes):
        assert until(lambda: notes.of("place")) == [(TOPIC, 2, GROUP)]


def test_plain_functions_run_in_threads_and_async_ones_on_the_loop(
    broker: Broker, notes: Notes
) -> None:
    class Mixed(Noting):
        async def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.notes.add("thread", threading.current_thread().name)

        def handle_call(self, message: object) -> str:
            return threading.current_thread().name

    put(broker, [1])
    with group_of(broker, Mixed, notes) as group:
        assert until(lambda: notes.of("thread")) == ["karrow"]
        assert group.call((TOPIC, 0), None).startswith("karrow-worker-")


def test_arrow_batches_with_the_columns_that_are_wanted(broker: Broker, notes: Notes) -> None:
    class Columnar(Noting):
        handle_records = karrow.Handler.handle_records

        def handle_batch(self, batch: pa.RecordBatch) -> Commit:
            self.notes.add("batch", batch.schema.names, batch["value"].to_pylist())
            return Commit.SYNC

    put(broker, range(10))
    with group_of(broker, Columnar, notes, columns=["value"], batch_records=4):
        until(lambda: len(notes.of("batch")) >= 3)
        until(lambda: committed(broker).get((TOPIC, 0)) == 10)
    assert [names for names, _ in notes.of("batch")] == [["value"]] * 3
    values = [int(value) for _, values in notes.of("batch") for value in values]
    assert values == list(range(10))


def test_arrow_batches_with_all_columns(broker: Broker, notes: Notes) -> None:
    class Columnar(Noting):
        handle_records = karrow.Handler.handle_records

        async def handle_batch(self, batch: pa.RecordBatch) -> None:
            self.notes.add("batch", batch.num_rows, batch.schema.names[0])

    put(broker, range(10))
    with group_of(broker, Columnar, notes):
        until(lambda: sum(rows for rows, _ in notes.of("batch")) == 10)
    assert {name for _, name in notes.of("batch")} == {"key"}
    assert committed(broker)[TOPIC, 0] == 10


class Sizing(Noting):
    """Notes how many rows come together."""

    handle_records = karrow.Handler.handle_records

    def handle_batch(self, batch: pa.RecordBatch) -> None:
        self.notes.add("rows", batch.num_rows)


@pytest.mark.parametrize(
    ("options", "rows"), [({"batch_bytes": 250}, [3, 2, 1]), ({"batch_records": 4}, [4, 2])]
)
def test_arrow_batches_have_a_size(
    broker: Broker, notes: Notes, options: dict[str, Any], rows: list[int]
) -> None:
    """The one that reaches the bytes is the last."""
    sizes = [100, 100, 100, 100, 1000, 100]
    with karrow.Client(broker.bootstrap) as client:
        client.produce(TOPIC, [bytes(size) for size in sizes], partition=0)
    with group_of(broker, Sizing, notes, **options):
        until(lambda: sum(notes.of("rows")) == len(sizes))
    assert notes.of("rows") == rows


def test_arrow_batches_have_4_mib_unless_told_otherwise(broker: Broker, notes: Notes) -> None:
    """However small they were fetched, by their compression."""
    with karrow.Client(broker.bootstrap) as client:
        client.produce(TOPIC, [bytes(1 << 20)] * 6, partition=0, compression="zstd")
    with group_of(broker, Sizing, notes):
        until(lambda: sum(notes.of("rows")) == 6)
    assert notes.of("rows") == [4, 2]


def test_batch_records_bounds_a_call(broker: Broker, notes: Notes) -> None:
    class Counting(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.notes.add("count", len(records))

    put(broker, range(10))
    with group_of(broker, Counting, notes, batch_records=3):
        until(lambda: sum(notes.of("count")) == 10)
    assert max(notes.of("count")) == 3


# Commits.


def test_sync_commits_before_the_next_batch(broker: Broker, notes: Notes) -> None:
    class Careful(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.notes.add("stored", committed(broker).get((TOPIC, 0), 0))
            return Commit.SYNC

    put(broker, range(4))
    with group_of(broker, Careful, notes, batch_records=1):
        until(lambda: len(notes.of("stored")) == 4)
    assert notes.of("stored") == [0, 1, 2, 3]
    assert committed(broker)[TOPIC, 0] == 4


def test_sync_waits_for_a_commit_that_fails_for_a_while(broker: Broker, notes: Notes) -> None:
    class Careful(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            self.notes.add("stored", committed(broker).get((TOPIC, 0), 0))
            return Commit.SYNC

    put(broker, range(3))
    broker.fail("OffsetCommit", "UNKNOWN_SERVER_ERROR", times=2)
    with group_of(broker, Careful, notes, batch_records=1):
        until(lambda: len(notes.values()) == 3)
    assert notes.of("stored") == [0, 1, 2]


def test_commit_that_failed_is_forgotten_with_its_partition(broker: Broker, notes: Notes) -> None:
    """The other partitions have nothing to store that could take its place."""
    broker.create_topic("passing", 1)
    broker.fail("OffsetCommit", "UNKNOWN_SERVER_ERROR", topic="passing", times=10_000)
    options = {"topics": ["^orders|passing"], "commit_interval": 0.1, "metadata_max_age": 0.5}
    with (
        group_of(broker, Noting, notes, **options) as group,
        karrow.Admin(broker.bootstrap) as admin,
    ):
        put(broker, [1], topic="passing")
        until(lambda: group.health().state is HealthState.DEGRADED)
        assert "UNKNOWN_SERVER_ERROR" in group.health().reason
        admin.delete_topic("passing")
        broker.clear_faults()
        put(broker, [2])
        until(lambda: committed(broker).get((TOPIC, 0)) == 1, "it holds up the others' commits")
        until(lambda: group.health().is_ok)


def test_async_commits_when_much_is_done(broker: Broker, notes: Notes) -> None:
    put(broker, range(10))
    options: dict[str, Any] = {"commit_threshold": 5, "commit_interval": 60, "batch_records": 2}
    with group_of(broker, Noting, notes, **options):
        until(lambda: committed(broker).get((TOPIC, 0), 0) in (6, 8, 10))
        until(lambda: len(notes.values()) == 10)
    # Five batches: one commit or two for each five records, and one at the end for what is left.
    assert 1 <= sum(request.api == "OffsetCommit" for request in broker.requests) <= 3


def test_async_commits_after_a_while(broker: Broker, notes: Notes) -> None:
    put(broker, range(10))
    with group_of(broker, Noting, notes, commit_interval=0.05):
        until(lambda: committed(broker).get((TOPIC, 0)) == 10)


@pytest.mark.parametrize("kind", KINDS)
def test_stop_commits(broker: Broker, notes: Notes, kind: type[Noting]) -> None:
    put(broker, range(10))
    with group_of(broker, kind, notes, commit_interval=60) as group:
        until(lambda: len(notes.values()) == 10)
        assert (TOPIC, 0) not in committed(broker)
    assert committed(broker)[TOPIC, 0] == 10
    assert group.ending == karrow.Ending(EndReason.STOPPED)


def test_stop_finishes_the_callback_and_leaves_what_waits(broker: Broker, notes: Notes) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            entered.set()
            assert go_on.wait(10)
            self.note(records)

    put(broker, range(10))
    group = group_of(broker, Slow, notes, batch_records=1)
    group.start()
    assert entered.wait(10)
    threading.Timer(0.1, go_on.set).start()
    assert group.stop().reason is EndReason.STOPPED
    assert notes.values() == [0]
    assert committed(broker)[TOPIC, 0] == 1


def test_stop_in_the_middle_of_everything(broker: Broker, notes: Notes) -> None:
    """Commits, fetches and callbacks are under way: none of them keeps the group from its end."""
    for partition in range(4):
        put(broker, range(2000), partition)
    options: dict[str, Any] = {"batch_records": 10, "commit_threshold": 10, "max_wait": 0.01}
    for number in range(10):
        with group_of(broker, AsyncNoting, notes, group=f"{number}", **options):
            until(lambda: len(notes.values()) > 100)
        handled = Counter(partition for partition, _ in notes.of("record"))
        stored = committed(broker, f"{number}")
        assert {where: handled[where[1]] for where in stored} == stored
        notes.entries.clear()


def test_place_of_a_group_that_read_nothing_is_kept(broker: Broker, notes: Notes) -> None:
    put(broker, range(3))
    with group_of(broker, Noting, notes, start="latest", commit_interval=0.05):
        until(lambda: committed(broker).get((TOPIC, 0)) == 3)
    put(broker, [3])
    with group_of(broker, Noting, notes, start="latest"):
        until(lambda: notes.values() == [3])


def test_markers_of_transactions_are_passed_over(broker: Broker, notes: Notes) -> None:
    producer = karrow.Producer(broker.bootstrap, transactional_id="t")
    with producer, producer.transaction():
        producer.send(TOPIC, "1", partition=0)
    with group_of(broker, Noting, notes, commit_interval=0.05):
        until(lambda: committed(broker).get((TOPIC, 0)) == 2)
    assert notes.values() == [1]


def test_only_marked_records_count_when_a_handler_raises(broker: Broker, notes: Notes) -> None:
    class Partial(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            for record in records:
                self.note([record])
                if record.offset == 3 and notes.counted()[3] == 1:
                    raise ValueError("not this one")
                self.done(record)

    put(broker, range(6))
    with group_of(broker, Partial, notes):
        until(lambda: 5 in notes.values())
    assert notes.values() == [0, 1, 2, 3, 3, 4, 5]


# Threads and order.


class Guarded(Noting):
    """Notes how many callbacks are inside at once."""

    inside = 0

    def enter(self) -> None:
        self.inside += 1
        self.notes.add("inside", self.inside)
        time.sleep(0.002)
        self.inside -= 1

    def handle_cast(self, message: object) -> Any:
        self.enter()

    def handle_call(self, message: object) -> Any:
        self.enter()

    def handle_info(self, message: object) -> Any:
        self.enter()

    def handle_records(self, records: Sequence[karrow.Record]) -> Any:
        self.enter()


class AsyncGuarded(AsyncNoting):
    """The same, with a moment inside in which the loop can do other things."""

    inside = 0

    async def enter(self) -> None:
        self.inside += 1
        self.notes.add("inside", self.inside)
        await asyncio.sleep(0.002)
        self.inside -= 1

    async def handle_cast(self, message: object) -> Any:
        await self.enter()

    async def handle_call(self, message: object) -> Any:
        await self.enter()

    async def handle_info(self, message: object) -> Any:
        await self.enter()

    async def handle_records(self, records: Sequence[karrow.Record]) -> Any:
        await self.enter()


@pytest.mark.parametrize("kind", [Guarded, AsyncGuarded])
def test_callbacks_never_overlap(broker: Broker, notes: Notes, kind: type[Noting]) -> None:
    put(broker, range(20))
    with group_of(broker, kind, notes, batch_records=1) as group:
        for number in range(10):
            until(lambda: group.worker((TOPIC, 0)))
            group.cast((TOPIC, 0), number)
            group.info((TOPIC, 0), number)
            group.call((TOPIC, 0), number)
        until(lambda: len(notes.of("inside")) == 50)
    assert set(notes.of("inside")) == {1}


def test_threads_are_bounded(broker: Broker, notes: Notes) -> None:
    class Busy(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.notes.add("enter", 1)
            time.sleep(0.05)
            self.notes.add("leave", 1)

    for partition in range(4):
        put(broker, [1], partition)
    with group_of(broker, Busy, notes, threads=2):
        until(lambda: len(notes.of("leave")) == 4)
    inside = most = 0
    for kind, *_ in notes.entries:
        inside += {"enter": 1, "leave": -1}.get(kind, 0)
        most = max(most, inside)
    assert most == 2


def test_slow_partition_holds_up_nobody(broker: Broker, notes: Notes) -> None:
    go_on = threading.Event()

    class Uneven(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            if self.partition == 0:
                go_on.wait(10)
            self.note(records)

    for partition in range(4):
        put(broker, range(20), partition)
    with group_of(broker, Uneven, notes, batch_records=5) as group:
        until(lambda: len(notes.values()) == 60)
        assert {partition for partition, _ in notes.of("record")} == {1, 2, 3}
        worker = until(lambda: group.worker((TOPIC, 0)))
        assert (worker.state, worker.callback) == ("busy", "handle_records")
        assert group.health().is_ok
        go_on.set()
        until(lambda: len(notes.values()) == 80)


# The face.


def test_introspection(broker: Broker, notes: Notes) -> None:
    group = group_of(broker, Noting, notes)
    assert (group.active, group.assignments, group.workers) == (False, (), ())
    assert (group.generation, group.member_id, group.leader) == (None, None, None)
    assert (group.is_leader, group.group_name) == (False, GROUP)
    assert (group.state, group.ending) == ("new", None)
    assert group.health().state is HealthState.WAITING
    with group:
        until(lambda: [worker.state for worker in group.workers] == ["waiting"] * 4)
        assert (group.active, group.state) == (True, "running")
        assert group.worker((TOPIC, 3)) == group.workers[3]
        assert group.worker((TOPIC, 4)) is None
        assert group.generation is not None
        assert group.generation >= 1
        assert group.member_id
        assert (group.is_leader, group.leader) == (True, group.member_id)
        assert repr(group) == "<WorkerGroup 'billing' of Noting: running>"
    assert (group.active, group.state) == (False, "ended")


def test_life_of_a_group_has_an_order(broker: Broker, notes: Notes) -> None:
    group = group_of(broker, Noting, notes)
    with pytest.raises(StateError, match="not started"):
        group.wait(0)
    group.start()
    with pytest.raises(StateError, match="starts once"):
        group.start()
    assert group.wait(0.01) is None
    assert group.stop() == group.stop() == group.wait() == karrow.Ending(EndReason.STOPPED)
    with pytest.raises(StateError, match="starts once"):
        group.start()


def test_group_that_never_began_can_be_stopped(broker: Broker, notes: Notes) -> None:
    group = group_of(broker, Noting, notes)
    assert group.stop().reason is EndReason.STOPPED
    assert group.wait() == group.ending


def test_block_raises_how_the_group_ended(broker: Broker, notes: Notes) -> None:
    class Broken(Noting):
        def setup(self, topic: str, partition: int, **arguments: Any) -> Any:
            raise ValueError("broken")

    with (
        pytest.raises(GroupEnded, match="crash_loop"),
        group_of(broker, Broken, notes, max_restarts=0) as group,
    ):
        until(lambda: group.ending)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": TOPIC}, "topics='orders' is one name"),
        ({"topics": []}, "either topics or partitions"),
        ({"topics": [TOPIC], "partitions": [(TOPIC, 0)]}, "either topics or partitions"),
        ({"on_revoked": print}, "on_revoked: workers listen themselves; have setup and teardown"),
        ({"threads": 0}, "threads=0 is outside its range"),
        ({"commit_intervall": 1}, "did you mean 'commit_interval'"),
        ({"topics": ["no name!"]}, "no name!"),
    ],
)
def test_wrong_options(notes: Notes, options: dict[str, Any], message: str) -> None:
    given = {"group": GROUP, "topics": [TOPIC], **options}
    with pytest.raises(ConfigError, match=message):
        karrow.WorkerGroup(Noting, "localhost:1", **given)


def test_wrong_handlers() -> None:
    class Both(Noting):
        def handle_batch(self, batch: pa.RecordBatch) -> None:
            pass

    for handler, message in {
        karrow.Handler: "Handler has no callback for records",
        Both: "Both has handle_records and handle_batch",
        Noting(): "is no class of handlers",
        print: "is no class of handlers",
    }.items():
        with pytest.raises(ConfigError, match=message):
            karrow.WorkerGroup(handler, "localhost:1", topics=[TOPIC])  # type: ignore[arg-type]


def test_handler_needs_no_broker() -> None:
    handler = Noting()
    handler.notes = notes = Notes()
    record = karrow.Record(value=b"7", offset=3)
    assert handler.handle_records([record]) is Commit.ASYNC
    handler.done(record)
    assert notes.values() == [7]
    with pytest.raises(StateError, match="Noting has no handle_call"):
        handler.handle_call(1)
    with pytest.raises(StateError, match="Noting has no handle_cast"):
        handler.handle_cast(1)
    assert handler.handle_info(1) is None


def test_client_of_others_is_shared_and_stays_open(broker: Broker, notes: Notes) -> None:
    put(broker, range(3))
    with karrow.Client(broker.bootstrap) as client:
        group = karrow.WorkerGroup(
            Noting,
            client,
            group=GROUP,
            topics=[TOPIC],
            start="earliest",
            arguments={"notes": notes},
        )
        with group:
            until(lambda: notes.values() == [0, 1, 2])
        assert client.latest_offset(TOPIC, 0) == 3


def test_spans_of_processing(broker: Broker, notes: Notes) -> None:
    seen: list[events.Event] = []
    put(broker, range(10))
    with (
        events.subscribe(seen.append, "process"),
        group_of(broker, Once, notes, batch_records=2),
    ):
        until(lambda: 9 in notes.values())
    ends = [event for event in seen if not event.name.endswith(".start")]
    assert [event.name.rpartition(".")[2] for event in ends] == [
        "stop",
        "stop",
        "exception",
        "stop",
        "stop",
        "stop",
    ]
    fields = dict(ends[0].fields)
    assert fields == {
        "client_id": "karrow",
        "group": GROUP,
        "topic": TOPIC,
        "partition": 0,
        "first_offset": 0,
        "last_offset": 1,
        "record_count": 2,
        "handler": "Once",
        "commit": "async",
        "result": "ok",
    }
    failed = ends[2].fields
    assert (failed["kind"], failed["first_offset"], failed["last_offset"]) == ("ValueError", 4, 5)


def test_worker_with_enough_to_do_is_well(broker: Broker, notes: Notes) -> None:
    go_on = threading.Event()

    class Busy(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.note(records)
            go_on.wait(10)

    put(broker, range(10))
    with group_of(broker, Busy, notes, partitions=[(TOPIC, 0)], batch_records=1) as group:
        until(lambda: group.health().is_ok and notes.values())
        time.sleep(0.1)
        assert group.health().is_ok
        assert notes.values() == [0]
        go_on.set()


# Without sharing.


def test_partitions_by_hand_and_no_group(broker: Broker, notes: Notes) -> None:
    for partition in range(4):
        put(broker, range(10), partition)
    options: dict[str, Any] = {"group": None, "partitions": {(TOPIC, 1): 8, (TOPIC, 2): "-1h"}}
    with group_of(broker, Noting, notes, **options) as group:
        until(lambda: len(notes.values()) == 12)
        assert group.assignments == ((TOPIC, 1), (TOPIC, 2))
        assert (group.generation, group.member_id, group.group_name) == (None, None, None)
    assert notes.of("record").count((1, 7)) == 0
    assert committed(broker) == {}


def test_partitions_by_hand_with_a_group_that_stores(broker: Broker, notes: Notes) -> None:
    put(broker, range(10), 1)
    for _ in range(2):
        with group_of(broker, Noting, notes, partitions=[(TOPIC, 1)]) as group:
            until(lambda: len(notes.values()) >= 10)
            until(lambda: group.active)
            assert group.generation is None
    assert notes.values() == list(range(10))
    assert committed(broker) == {(TOPIC, 1): 10}


def test_topics_without_a_group_are_read_whole(broker: Broker, notes: Notes) -> None:
    for partition in range(4):
        put(broker, [partition], partition)
    with group_of(broker, Noting, notes, group=None):
        until(lambda: sorted(notes.values()) == [0, 1, 2, 3])


# To be awaited.


def test_group_to_be_awaited(broker: Broker, notes: Notes, on_loop: Any) -> None:
    async def main() -> None:
        group = karrow.AsyncWorkerGroup(
            AsyncTalking,
            broker.bootstrap,
            group=GROUP,
            topics=[TOPIC],
            start="earliest",
            arguments={"notes": notes},
        )
        async with group:
            await asyncio.to_thread(until, lambda: len(notes.values()) == 10)
            assert await group.call((TOPIC, 0), 2) == 4
            await group.cast((TOPIC, 0), "x")
            assert group.worker((TOPIC, 0)) is not None
            assert await group.wait(0) is None
        assert await group.wait() == karrow.Ending(EndReason.STOPPED)

    put(broker, range(10))
    on_loop(main())
    assert committed(broker)[TOPIC, 0] == 10
    assert notes.of("cast") == ["x"]


def test_group_to_be_awaited_that_is_cancelled(broker: Broker, notes: Notes) -> None:
    async def main() -> None:
        group = karrow.AsyncWorkerGroup(
            AsyncNoting, broker.bootstrap, group=GROUP, topics=[TOPIC], arguments={"notes": notes}
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2), group:
                await group.wait()
        assert group.ending == karrow.Ending(EndReason.STOPPED)

    asyncio.run(main())
