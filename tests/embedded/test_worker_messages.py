"""Messages to workers, and Stop from every callback."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import karrow
from karrow import Commit, EndReason, Stop
from karrow.broker.threaded import Broker
from karrow.errors import (
    BufferFull,
    GroupEnded,
    RequestTimeout,
    StateError,
)
from tests.embedded.working import (
    TOPIC,
    AsyncNoting,
    AsyncTalking,
    Notes,
    Noting,
    Talking,
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


# Messages.


@pytest.mark.parametrize("kind", [Talking, AsyncTalking])
def test_messages_reach_the_worker(broker: Broker, notes: Notes, kind: type[Noting]) -> None:
    with group_of(broker, kind, notes) as group:
        worker = until(lambda: group.worker((TOPIC, 1)))
        assert group.call(worker, 21) == 42
        assert group.call((TOPIC, 2), "ab") == "abab"
        group.cast(worker, "over")
        group.info(worker, "there")
        until(lambda: notes.of("cast") == ["over"] and notes.of("info") == ["there"])


@pytest.mark.parametrize("kind", [Talking, AsyncTalking])
def test_error_of_a_call_is_its_callers(broker: Broker, notes: Notes, kind: type[Noting]) -> None:
    with group_of(broker, kind, notes) as group:
        until(lambda: group.worker((TOPIC, 1)))
        for error in (KeyError("no"), StopIteration("end"), TimeoutError("late")):
            with pytest.raises((KeyError, RuntimeError, TimeoutError)):
                group.call((TOPIC, 1), error)
        assert group.call((TOPIC, 1), 1) == 2
        assert until(lambda: group.worker((TOPIC, 1))).restarts == 0


def test_error_of_a_cast_restarts_the_worker(broker: Broker, notes: Notes) -> None:
    with group_of(broker, Talking, notes) as group:
        until(lambda: group.worker((TOPIC, 1)))
        group.cast((TOPIC, 1), ValueError("no"))
        until(lambda: (group.worker((TOPIC, 1)) or group.workers[0]).restarts == 1)
        assert group.call((TOPIC, 1), 1) == 2


def test_messages_without_a_callback(
    broker: Broker, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    with group_of(broker, Noting, notes) as group:
        until(lambda: group.worker((TOPIC, 1)))
        with pytest.raises(StateError, match="Noting has no handle_call"):
            group.call((TOPIC, 1), 1)
        with pytest.raises(StateError, match="Noting has no handle_cast"):
            group.cast((TOPIC, 1), 1)
        with caplog.at_level(logging.ERROR, "karrow.workers"):
            group.info((TOPIC, 1), "hello")
            until(lambda: "orders-1: no handle_info for 'hello'" in caplog.text)
        assert until(lambda: group.worker((TOPIC, 1))).restarts == 0


def test_message_to_a_partition_that_is_not_here(broker: Broker, notes: Notes) -> None:
    with group_of(broker, Talking, notes) as group:
        until(lambda: group.worker((TOPIC, 0)))
        with pytest.raises(StateError, match="no worker of orders-9 here; there are: orders-0"):
            group.call((TOPIC, 9), 1)


def test_call_that_takes_too_long(broker: Broker, notes: Notes) -> None:
    class Slow(Noting):
        async def handle_call(self, message: object) -> None:
            await asyncio.sleep(60)

    with group_of(broker, Slow, notes, shutdown=0.1) as group:
        until(lambda: group.worker((TOPIC, 0)))
        with pytest.raises(RequestTimeout, match=r"orders-0 did not answer in 0\.05 s"):
            group.call((TOPIC, 0), 1, timeout=0.05)


def test_call_to_a_worker_that_ends(broker: Broker, notes: Notes) -> None:
    entered = threading.Event()

    class Slow(Noting):
        async def handle_call(self, message: object) -> None:
            entered.set()
            await asyncio.sleep(60)

    raised: list[BaseException] = []

    def ask() -> None:
        try:
            group.call((TOPIC, 0), 1, timeout=60)
        except StateError as error:
            raised.append(error)

    with group_of(broker, Slow, notes, shutdown=0.1) as group:
        until(lambda: group.worker((TOPIC, 0)))
        callers = [threading.Thread(target=ask) for _ in range(2)]
        for caller in callers:
            caller.start()
        assert entered.wait(10)
    for caller in callers:
        caller.join(10)
    assert len(raised) == 2


def test_too_many_messages_are_refused(
    broker: Broker, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("karrow.workers.mailbox.MAX_MESSAGES", 2)
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Noting):
        def handle_cast(self, message: object) -> None:
            entered.set()
            go_on.wait(10)

    with group_of(broker, Slow, notes) as group:
        until(lambda: group.worker((TOPIC, 0)))
        group.cast((TOPIC, 0), 1)
        assert entered.wait(10)
        group.cast((TOPIC, 0), 2)
        group.cast((TOPIC, 0), 3)
        with pytest.raises(BufferFull, match="2 messages wait"):
            group.cast((TOPIC, 0), 4)
        go_on.set()


# Setup and Stop.


class Refusing(Noting):
    """Does not want to begin."""

    def setup(self, topic: str, partition: int, **arguments: Any) -> Any:
        return Stop("not today")


class AsyncRefusing(AsyncNoting):
    """The same with async."""

    async def setup(self, topic: str, partition: int, **arguments: Any) -> Any:
        return Stop("not today")


@pytest.mark.parametrize("kind", [Refusing, AsyncRefusing])
def test_setup_may_refuse(broker: Broker, notes: Notes, kind: type[Noting]) -> None:
    group = group_of(broker, kind, notes)
    group.start()
    with pytest.raises(GroupEnded, match=r"refused \(not today\)") as raised:
        group.wait(10)
    assert (raised.value.reason, raised.value.detail) == ("refused", "not today")
    assert notes.of("teardown") == []


@pytest.mark.parametrize("where", ["__init__", "setup"])
def test_setup_that_raises_is_tried_again(broker: Broker, notes: Notes, where: str) -> None:
    class Unready(Noting):
        def __init__(self) -> None:
            if where == "__init__":
                raise OSError("no database")

        def setup(self, topic: str, partition: int, **arguments: Any) -> Any:
            self.notes = arguments["notes"]
            self.notes.add("setup", partition)
            raise OSError("no database")

    group = group_of(broker, Unready, notes, max_restarts=2)
    group.start()
    with pytest.raises(GroupEnded, match=r"crash_loop \(\w+ of orders-\d: no database\)"):
        group.wait(10)
    assert len(notes.of("setup")) >= 3 * (where == "setup")
    assert notes.of("teardown") == []


def test_teardown_that_raises_is_logged(
    broker: Broker, notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    class Untidy(Noting):
        def teardown(self) -> None:
            raise ValueError("mess")

    with group_of(broker, Untidy, notes) as group:
        until(lambda: group.active)
    assert "orders-0: teardown raised" in caplog.text
    assert group.ending == karrow.Ending(EndReason.STOPPED)


class Stopping(Noting):
    """Stops wherever it is told to."""

    def stop_at(self, place: str) -> Stop | None:
        return Stop("enough", reply="bye") if self.place == place else None

    def setup(self, topic: str, partition: int, *, notes: Notes, **more: Any) -> Any:
        super().setup(topic, partition, notes=notes)
        self.place = more["place"]

    def handle_records(self, records: Sequence[karrow.Record]) -> Any:
        self.note(records)
        return self.stop_at("handle_records")

    def handle_call(self, message: object) -> Any:
        return self.stop_at("handle_call")

    def handle_cast(self, message: object) -> Any:
        return self.stop_at("handle_cast")

    def handle_info(self, message: object) -> Any:
        return self.stop_at("handle_info")


@pytest.mark.parametrize("place", ["handle_records", "handle_call", "handle_cast", "handle_info"])
def test_stop_from_every_callback(broker: Broker, notes: Notes, place: str) -> None:
    group = group_of(broker, Stopping, notes, arguments={"place": place})
    group.start()
    if place == "handle_records":
        put(broker, [1])
    else:
        until(lambda: group.worker((TOPIC, 0)))
        answer = getattr(group, place.removeprefix("handle_"))((TOPIC, 0), 1)
        assert answer == ("bye" if place == "handle_call" else None)
    assert group.wait(10) == karrow.Ending(EndReason.HANDLER, "enough")
    assert sorted(notes.of("teardown")) == [0, 1, 2, 3]
    # What a Stop was returned for is read again by whoever comes next.
    assert committed(broker).get((TOPIC, 0), 0) == 0


def test_stop_from_the_teardown_of_a_worker_that_crashed(broker: Broker, notes: Notes) -> None:
    """It would have been restarted otherwise."""

    class Careful(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Any:
            raise ZeroDivisionError

        def teardown(self) -> Stop:
            return Stop("nothing is left to work with")

    put(broker, [1])
    with group_of(broker, Careful, notes) as group:
        ending = group.wait(10)
    assert ending == karrow.Ending(EndReason.HANDLER, "nothing is left to work with")
    assert committed(broker).get((TOPIC, 0), 0) == 0


@pytest.mark.parametrize("commit", list(Commit))
def test_stop_with_a_commit_counts_the_records(
    broker: Broker, notes: Notes, commit: Commit
) -> None:
    class Last(Noting):
        async def handle_records(self, records: Sequence[karrow.Record]) -> Stop:
            self.note(records)
            return Stop("that was all", commit=commit)

    put(broker, range(3))
    with group_of(broker, Last, notes) as group:
        assert group.wait(10) == karrow.Ending(EndReason.HANDLER, "that was all")
    assert committed(broker)[TOPIC, 0] == 3


def test_stop_from_handle_batch(broker: Broker, notes: Notes) -> None:
    class Last(Noting):
        handle_records = karrow.Handler.handle_records

        def handle_batch(self, batch: pa.RecordBatch) -> Stop:
            return Stop(batch.num_rows)

    put(broker, range(3))
    with group_of(broker, Last, notes, batch_records=2) as group:
        assert group.wait(10) == karrow.Ending(EndReason.HANDLER, 2)
