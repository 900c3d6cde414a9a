"""Workers whose callbacks raise or hang, and records that cannot be read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import karrow
from karrow import Commit, EndReason, Stop, events
from karrow.broker.threaded import Broker
from karrow.errors import (
    CorruptRecordError,
    GroupEnded,
)
from karrow.types import HealthState
from tests.embedded.working import (
    GROUP,
    TOPIC,
    AsyncNoting,
    AsyncOnce,
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


# Crashes.


@pytest.mark.parametrize("kind", [Once, AsyncOnce])
def test_crash_goes_on_at_the_last_commit(broker: Broker, notes: Notes, kind: type[Noting]) -> None:
    seen: list[events.Event] = []
    put(broker, range(10))
    with (
        events.subscribe(seen.append, "worker.crash"),
        group_of(broker, kind, notes, batch_records=2, commit_interval=60) as group,
    ):
        until(lambda: 9 in notes.values())
        assert until(lambda: group.worker((TOPIC, 0))).restarts == 1
    assert notes.values() == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]
    assert notes.of("setup").count(0) == notes.of("teardown").count(0) == 2
    assert [dict(event.fields) for event in seen] == [
        {
            "client_id": "karrow",
            "group": GROUP,
            "topic": TOPIC,
            "partition": 0,
            "first_offset": 4,
            "last_offset": 5,
            "callback": "handle_records",
            "kind": "ValueError",
            "reason": "five",
            "error": seen[0].fields["error"],
        }
    ]
    assert committed(broker)[TOPIC, 0] == 10


def test_crash_without_a_group_goes_on_behind_what_was_handled(
    broker: Broker, notes: Notes
) -> None:
    put(broker, range(10))
    with group_of(broker, Once, notes, group=None, batch_records=2):
        until(lambda: 9 in notes.values())
    assert notes.values() == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]


def test_crash_while_nothing_can_be_committed_goes_back_further(
    broker: Broker, notes: Notes
) -> None:
    put(broker, range(10))
    with group_of(broker, Once, notes, batch_records=2, commit_interval=60):
        broker.fail("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE", times=1)
        until(lambda: 9 in notes.values())
    assert notes.values() == [0, 1, 2, 3, 4, 5, *range(10)]


def test_other_workers_go_on_while_one_crashes(broker: Broker, notes: Notes) -> None:
    put(broker, range(10))
    put(broker, range(100, 110), 1)
    with group_of(broker, Once, notes, batch_records=1):
        until(lambda: 9 in notes.values() and 109 in notes.values())
    assert [value for value in notes.values() if value >= 100] == list(range(100, 110))
    assert notes.of("setup").count(1) == 1


def test_crash_loop_ends_the_group(broker: Broker, notes: Notes) -> None:
    class Poisoned(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.note(records)
            if records[0].value == b"2":
                raise ValueError("two")

    put(broker, range(5))
    group = group_of(broker, Poisoned, notes, batch_records=1, max_restarts=2)
    group.start()
    where = "handle_records of orders-0 at offset 2"
    with pytest.raises(GroupEnded, match=rf"ended: crash_loop \({where}: two\)") as raised:
        group.wait(10)
    assert (raised.value.reason, raised.value.detail) == (EndReason.CRASH_LOOP, where)
    assert isinstance(raised.value.__cause__, ValueError)
    assert notes.values() == [0, 1, 2, 2, 2]
    assert committed(broker)[TOPIC, 0] == 2
    health = group.health()
    assert (health.state, health.reason) == (
        HealthState.DEAD,
        "the workers have ended: crash_loop",
    )
    assert group.stop().reason is EndReason.CRASH_LOOP


@pytest.mark.parametrize("callback", ["setup", "handle_batch"])
def test_crash_says_where_the_records_are_if_there_were_any(
    broker: Broker, notes: Notes, callback: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Noting):
        handle_records = karrow.Handler.handle_records

        def setup(self, topic: str, partition: int, **_: Any) -> None:
            if callback == "setup":
                raise ValueError("no table")

        def handle_batch(self, batch: pa.RecordBatch) -> None:
            raise ValueError("no row")

    broker.create_topic("rows", 1)
    with karrow.Client(broker.bootstrap) as client:
        client.produce("rows", [b"0", b"1", b"2"], partition=0)
    seen: list[events.Event] = []
    group = group_of(broker, Failing, notes, topics=["rows"], max_restarts=0)
    with events.subscribe(seen.append, "worker.crash"):
        group.start()
        with pytest.raises(GroupEnded) as raised:
            group.wait(10)
    crash = seen[0].fields
    found = crash["first_offset"], crash["last_offset"]
    place = "rows-0" if callback == "setup" else "rows-0 at offsets 0 to 2"
    assert found == ((None, None) if callback == "setup" else (0, 2))
    assert raised.value.detail == f"{callback} of {place}"
    assert f"{place}: {callback} raised" in caplog.messages


def test_crash_at_the_end_says_where(
    broker: Broker, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    class Late(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.note(records)
            go_on.wait(10)
            raise ValueError("too late")

    put(broker, [1])
    with group_of(broker, Late, notes):
        until(notes.values)
        threading.Timer(0.1, go_on.set).start()
    assert "orders-0 at offset 0: handle_records raised while the worker ends" in caplog.messages


def test_crashes_that_are_far_apart_are_no_loop(broker: Broker, notes: Notes) -> None:
    class Stumbling(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            seen = self.notes.counted()
            self.note(records)
            if not seen[int(records[0].value or b"")]:
                time.sleep(0.06)
                raise ValueError("at first")

    put(broker, range(4))
    with group_of(broker, Stumbling, notes, batch_records=1, max_restarts=1, max_seconds=0.05):
        until(lambda: len(notes.values()) == 8)


def test_health_tells_of_a_crash_until_there_is_progress(broker: Broker, notes: Notes) -> None:
    go_on = threading.Event()

    class Retrying(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            if not self.notes.of("crash"):
                self.notes.add("crash", 1)
                raise ValueError("now")
            assert go_on.wait(10)
            self.note(records)

    put(broker, [1])
    with group_of(broker, Retrying, notes) as group:
        until(lambda: group.health().state is HealthState.DEGRADED)
        reason = "orders-0 at offset 0 was restarted after ValueError('now')"
        assert group.health().reason == reason
        go_on.set()
        until(lambda: group.health().state is HealthState.OK)


def test_health_tells_since_when_though_nobody_asked(broker: Broker, notes: Notes) -> None:
    class Failing(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.notes.add("crash", 1)
            if len(self.notes.of("crash")) == 1:
                raise ValueError("now")
            time.sleep(1.5)
            raise ValueError("again")

    put(broker, [1])
    group = group_of(broker, Failing, notes, max_restarts=1)
    group.start()
    until(lambda: len(notes.of("crash")) == 2)
    time.sleep(1.2)
    asked = time.time()
    degraded = group.health()
    assert degraded.state is HealthState.DEGRADED
    assert degraded.since < asked
    with pytest.raises(GroupEnded):
        group.wait(10)
    ended = time.time()
    time.sleep(0.1)
    dead = group.health()
    assert dead.state is HealthState.DEAD
    assert asked < dead.since < ended


class Unexpected(BaseException):
    """What only a few things raise, such as ``pytest.fail``."""


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Unexpected()])
@pytest.mark.parametrize("kind", KINDS)
def test_handler_that_raises_what_is_no_exception_crashes(
    broker: Broker, notes: Notes, kind: type[Noting], error: BaseException
) -> None:
    class Exiting(kind):  # type: ignore[valid-type, misc]
        def note(self, records: Sequence[karrow.Record]) -> None:
            raise error

    put(broker, [1])
    group = group_of(broker, Exiting, notes, max_restarts=0)
    group.start()
    with pytest.raises(GroupEnded, match="a callback raised"):
        group.wait(10)


@pytest.mark.parametrize("answer", [True, 1, "sync", object()])
def test_wrong_answer_is_a_crash(broker: Broker, notes: Notes, answer: object) -> None:
    class Wrong(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Any:
            return answer

    put(broker, [1])
    group = group_of(broker, Wrong, notes, max_restarts=0)
    group.start()
    with pytest.raises(GroupEnded, match=r"handle_records returned .* no Commit, Stop or None"):
        group.wait(10)
    assert (TOPIC, 0) not in committed(broker)


# Damage, of one batch in one partition, so that it is what the first answer has.

ONE = [(TOPIC, 0)]


def put_damaged(broker: Broker, *values: bytes) -> None:
    """Store values in one batch, which is damaged when it is read for the first time."""
    with karrow.Client(broker.bootstrap) as client:
        client.produce(TOPIC, values, partition=0)
    broker.corrupt("Fetch", times=1)


def test_damage_is_handed_to_the_handler_which_may_go_on(broker: Broker, notes: Notes) -> None:
    class Lenient(Noting):
        def handle_damage(self, error: CorruptRecordError) -> None:
            self.notes.add("damage", error.context["partition"], error.offset)

    put_damaged(broker, b"0", b"1")
    with group_of(broker, Lenient, notes, partitions=ONE, batch_records=1) as group:
        until(lambda: notes.of("damage"))
        put(broker, [2])
        until(lambda: 2 in notes.values())
        assert group.health().state is not HealthState.DEGRADED
    assert notes.of("damage") == [(0, 0)]
    # If the header's own length was hit, only the next offset is known to be worth a try.
    assert notes.values() in ([2], [1, 2])


def test_damage_in_the_first_data_without_a_group_is_told(broker: Broker, notes: Notes) -> None:
    """The partition comes within the poll that finds the damage, before it has a worker."""

    class Lenient(Noting):
        def handle_damage(self, error: CorruptRecordError) -> None:
            self.notes.add("damage", error.context["partition"], error.offset)

    put_damaged(broker, b"0", b"1")
    with group_of(broker, Lenient, notes, group=None):
        until(lambda: notes.of("damage") == [(0, 0)])
        put(broker, [2])
        until(lambda: 2 in notes.values())


def test_damage_that_nobody_handles_is_a_crash_that_reads_again(
    broker: Broker, notes: Notes
) -> None:
    put_damaged(broker, b"0", b"1", b"2")
    with group_of(broker, Noting, notes, partitions=ONE):
        until(lambda: notes.values() == [0, 1, 2])
    assert notes.of("setup").count(0) == 2


def test_stop_from_handle_damage(broker: Broker, notes: Notes) -> None:
    class Strict(Noting):
        async def handle_damage(self, error: CorruptRecordError) -> Stop:
            return Stop("damaged")

    put_damaged(broker, b"0", b"1", b"2")
    with group_of(broker, Strict, notes, partitions=ONE) as group:
        assert group.wait(10) == karrow.Ending(EndReason.HANDLER, "damaged")


# Time.


def test_callback_that_hangs_does_not_keep_the_group(broker: Broker, notes: Notes) -> None:
    go_on = threading.Event()

    class Hanging(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            if records[0].value == b"1":
                go_on.wait(20)
            return Commit.ASYNC

    put(broker, range(3))
    group = group_of(broker, Hanging, notes, batch_records=1)
    group.start()
    until(lambda: 1 in notes.values())
    began = time.monotonic()
    assert group.stop(timeout=0.2).reason is EndReason.STOPPED
    assert time.monotonic() - began < 5
    assert committed(broker)[TOPIC, 0] == 1
    assert notes.of("teardown").count(0) == 0
    go_on.set()
    until(lambda: notes.of("teardown").count(0) == 1)
    assert committed(broker)[TOPIC, 0] == 1


def test_callback_that_waits_for_a_thread_does_not_begin_after_the_end(
    broker: Broker, notes: Notes
) -> None:
    go_on = threading.Event()

    class Hanging(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            go_on.wait(20)
            return Commit.ASYNC

    put(broker, [1], 0)
    put(broker, [2], 1)
    group = group_of(broker, Hanging, notes, threads=1, shutdown=0.2)
    group.start()
    until(notes.values)
    until(lambda: len([one for one in group.workers if one.callback == "handle_records"]) == 2)
    group.stop()
    go_on.set()
    until(lambda: {0, 1} <= set(notes.of("teardown")))
    assert len(notes.values()) == 1


def test_async_callback_that_hangs_is_cancelled(broker: Broker, notes: Notes) -> None:
    class Hanging(AsyncNoting):
        async def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.note(records)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.notes.add("cancelled", 1)
                raise

    put(broker, range(3))
    group = group_of(broker, Hanging, notes, shutdown=0.1)
    group.start()
    until(notes.values)
    group.stop()
    assert notes.of("cancelled") == [1]
    assert sorted(notes.of("teardown")) == [0, 1, 2, 3]
    assert committed(broker).get((TOPIC, 0), 0) == 0


def test_async_callback_that_cancels_itself_is_a_crash(broker: Broker, notes: Notes) -> None:
    class Cancelling(AsyncNoting):
        async def handle_records(self, records: Sequence[karrow.Record]) -> None:
            raise asyncio.CancelledError

    put(broker, [1])
    group = group_of(broker, Cancelling, notes, max_restarts=0)
    group.start()
    with pytest.raises(GroupEnded, match="the callback was cancelled"):
        group.wait(10)
