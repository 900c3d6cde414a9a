"""Groups of workers that share partitions, lose them, or may not have them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import pytest

import karrow
from karrow import Commit, EndReason, Stop, events
from karrow.broker.threaded import Broker
from karrow.errors import GroupEnded
from karrow.types import HealthState
from tests.embedded.working import (
    GROUP,
    TOPIC,
    AsyncNoting,
    Notes,
    Noting,
    committed,
    group_of,
    put,
    until,
)

PARTITIONS = 4
QUICK: dict[str, Any] = {"heartbeat_interval": 0.05}


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker(heartbeat_interval=0.1) as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic(TOPIC, PARTITIONS)
    return shared


class Stream:
    """Numbers, each once, that go into all partitions while a test does other things."""

    def __init__(self, broker: Broker) -> None:
        self.sent = 0
        self._over = threading.Event()
        self._producer = karrow.Producer(broker.bootstrap, linger=0)
        self._thread = threading.Thread(target=self._main)

    def _main(self) -> None:
        while not self._over.wait(0.001):
            self._producer.send(TOPIC, str(self.sent), partition=self.sent % PARTITIONS)
            self.sent += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.close()


SHARING: dict[str, dict[str, Any]] = {
    "eager": {"assignors": "range"},
    "cooperative": {"assignors": "cooperative-sticky"},
    "served": {"protocol": "consumer"},
}


@pytest.mark.parametrize("commit", list(Commit))
@pytest.mark.parametrize("sharing", list(SHARING))
def test_partitions_move_between_groups_without_loss_or_doubles(
    broker: Broker, notes: Notes, sharing: str, commit: Commit
) -> None:
    class Steady(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            time.sleep(0.002)
            return commit

    options: dict[str, Any] = {**QUICK, **SHARING[sharing], "batch_records": 5}
    with Stream(broker) as stream, group_of(broker, Steady, notes, **options) as first:
        until(lambda: len(first.assignments) == PARTITIONS and len(notes.values()) > 50)
        with group_of(broker, Steady, notes, **options) as second:
            until(lambda: len(first.assignments) == len(second.assignments) == PARTITIONS // 2)
            assert not set(first.assignments) & set(second.assignments)
            before = len(notes.values())
            until(lambda: len(notes.values()) > before + 50)
        until(lambda: len(first.assignments) == PARTITIONS)
        stream.end()
        until(lambda: len(notes.counted()) == stream.sent)
    assert sorted(notes.values()) == list(range(stream.sent))
    assert sum(offset or 0 for offset in committed(broker).values()) == stream.sent
    assert len(notes.of("setup")) == len(notes.of("teardown"))


@pytest.mark.parametrize("sharing", list(SHARING))
def test_stop_from_the_teardown_of_a_worker_whose_partition_is_given_back(
    broker: Broker, notes: Notes, sharing: str
) -> None:
    """The partition goes on elsewhere; so do then those that would have stayed."""

    class Last(Noting):
        def teardown(self) -> Stop:
            super().teardown()
            return Stop("nothing is left to work with")

    for partition in range(PARTITIONS):
        put(broker, [partition], partition)
    options: dict[str, Any] = {**QUICK, **SHARING[sharing]}
    with group_of(broker, Last, notes, **options) as first:
        until(lambda: len(notes.values()) == len(first.assignments) == PARTITIONS)
        with group_of(broker, Noting, notes, **options) as second:
            ending = first.wait(10)
            assert ending == karrow.Ending(EndReason.HANDLER, "nothing is left to work with")
            until(lambda: len(second.assignments) == PARTITIONS)
            assert sorted(notes.of("teardown")) == list(range(PARTITIONS))
    assert sorted(notes.values()) == list(range(PARTITIONS))


@pytest.mark.parametrize("sharing", ["eager", "cooperative"])
def test_groups_agree_on_who_leads(broker: Broker, notes: Notes, sharing: str) -> None:
    options: dict[str, Any] = {**QUICK, **SHARING[sharing]}
    with group_of(broker, Noting, notes, **options) as first:
        until(lambda: len(first.assignments) == PARTITIONS)
        with group_of(broker, Noting, notes, **options) as second:
            until(lambda: len(first.assignments) == len(second.assignments) == PARTITIONS // 2)
            assert [first.is_leader, second.is_leader].count(True) == 1
            leader = first if first.is_leader else second
            assert first.leader == second.leader == leader.member_id
            # Whoever is left leads.
            leader.stop()
            other = second if leader is first else first
            until(lambda: len(other.assignments) == PARTITIONS)
            assert (other.is_leader, other.leader) == (True, other.member_id)


def test_rebalance_waits_for_a_callback_but_not_for_ever(broker: Broker, notes: Notes) -> None:
    go_on = threading.Event()

    class Hanging(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.note(records)
            if self.partition == 0 and len(self.notes.values()) == 1:
                go_on.wait(20)

    put(broker, [1])
    with group_of(broker, Hanging, notes, shutdown=0.2, **QUICK) as first:
        until(notes.values)
        with group_of(broker, Hanging, notes, shutdown=0.2, **QUICK) as second:
            until(lambda: second.assignments)
            until(lambda: len(first.assignments) + len(second.assignments) == PARTITIONS)
            # Whoever has the partition now does what was not finished.
            until(lambda: notes.values() == [1, 1])
            assert "teardown" not in {kind for kind, *more in notes.entries if more == [0]}
            go_on.set()
            until(lambda: 0 in notes.of("teardown"))


@pytest.mark.parametrize("held_up", [False, True])
def test_callback_that_outlasts_a_rebalance_counts_for_nothing(
    broker: Broker, notes: Notes, held_up: bool
) -> None:
    """Whatever is asked of the loop afterwards is answered, also if the last commit was cut off."""

    class Slow(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.notes.add("begun")
            time.sleep(2.0 if len(self.notes.of("begun")) == 1 else 0)
            self.note(records)
            return Commit.SYNC

    timing: dict[str, Any] = {"rebalance_timeout": 1.0, "shutdown": 10.0, **QUICK}
    put(broker, [0])
    if held_up:
        broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=10_000)
    with group_of(broker, Slow, notes, **timing) as one:
        until(lambda: notes.of("begun"))
        with group_of(broker, Slow, notes, **timing):
            until(lambda: len(notes.values()) == 2, "whoever has it now does it again")
            until(lambda: 0 in notes.of("teardown"))
            broker.clear_faults()
            until(lambda: one.active)


def test_rebalance_waits_for_a_group_that_stops(broker: Broker, notes: Notes) -> None:
    go_on = threading.Event()

    class Slow(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            go_on.wait(20)
            return Commit.SYNC

    put(broker, [1])
    first = group_of(broker, Slow, notes, shutdown=20, **QUICK)
    first.start()
    until(notes.values)
    stopping = threading.Thread(target=first.stop)
    stopping.start()
    until(lambda: first.state == "ending" and not first.assignments)
    with group_of(broker, Slow, notes, **QUICK) as second:
        # Long enough for the second one to have the partition, if nobody held it back.
        time.sleep(1)
        go_on.set()
        stopping.join()
        assert committed(broker)[TOPIC, 0] == 1
        until(lambda: len(second.assignments) == PARTITIONS)
        put(broker, [2])
        until(lambda: 2 in notes.values())
    assert notes.values() == [1, 2]


def test_lost_partitions_are_not_committed(broker: Broker, notes: Notes) -> None:
    go_on, entered = threading.Event(), threading.Event()

    class Slow(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            if not entered.is_set():
                entered.set()
                go_on.wait(20)
            return Commit.ASYNC

    put(broker, range(3))
    with group_of(broker, Slow, notes, **QUICK) as group:
        assert entered.wait(10)
        generation = group.generation
        broker.expire_session(group=GROUP)
        until(lambda: group.generation not in (None, generation) and group.active)
        assert committed(broker).get((TOPIC, 0)) is None
        # A new worker has the records while the old one is still in its callback.
        until(lambda: notes.values() == [0, 1, 2, 0, 1, 2])
        assert notes.of("teardown").count(0) == 0
        go_on.set()
        until(lambda: notes.of("teardown").count(0) == 1)
    assert committed(broker)[TOPIC, 0] == 3


def test_async_callback_is_cancelled_when_its_partition_is_lost(
    broker: Broker, notes: Notes
) -> None:
    class Slow(AsyncNoting):
        async def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            try:
                await asyncio.sleep(0 if self.notes.of("cancelled") else 60)
            except asyncio.CancelledError:
                self.notes.add("cancelled", 1)
                raise
            return Commit.ASYNC

    put(broker, range(3))
    with group_of(broker, Slow, notes, **QUICK):
        until(notes.values)
        broker.expire_session(group=GROUP)
        until(lambda: notes.of("cancelled") == [1])
        until(lambda: len(notes.values()) >= 6)


def test_handler_that_takes_too_long_makes_a_member_that_is_stuck(
    broker: Broker, notes: Notes
) -> None:
    go_on = threading.Event()
    seen: list[events.Event] = []

    class Stuck(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            go_on.wait(30)
            return Commit.ASYNC

    put(broker, [1])
    options: dict[str, Any] = {"max_poll_interval": 0.4, **QUICK}
    with (
        events.subscribe(seen.append, "worker.stuck"),
        group_of(broker, Stuck, notes, **options) as group,
    ):
        until(notes.values)
        until(lambda: group.health().state is HealthState.DEGRADED)
        assert "handle_records of orders-0 takes" in group.health().reason
        # Others can have its partitions, and this one rests.
        until(lambda: not group.assignments)
        with group_of(broker, Noting, notes, **QUICK) as other:
            until(lambda: len(other.assignments) == PARTITIONS)
            until(lambda: notes.values() == [1, 1])
            assert not group.assignments
        go_on.set()
        until(lambda: len(group.assignments) == PARTITIONS)
        until(lambda: group.health().state is not HealthState.DEGRADED)
    assert [event.fields["callback"] for event in seen] == ["handle_records"]
    assert seen[0].measurements["duration"] > 0.4
    assert committed(broker)[TOPIC, 0] == 1


def test_stuck_handler_without_a_group_holds_up_nobody(broker: Broker, notes: Notes) -> None:
    go_on = threading.Event()

    class Stuck(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> None:
            self.note(records)
            if self.partition == 0:
                go_on.wait(20)

    put(broker, [0])
    with group_of(broker, Stuck, notes, group=None, max_poll_interval=0.1) as group:
        until(lambda: group.health().state is HealthState.DEGRADED)
        put(broker, [1], 1)
        until(lambda: 1 in notes.values())
        go_on.set()
        until(lambda: group.health().is_ok)


def test_member_that_was_replaced_is_fenced(broker: Broker, notes: Notes) -> None:
    first = group_of(broker, Noting, notes, instance_id="one", **QUICK)
    first.start()
    until(lambda: first.active)
    with group_of(broker, Noting, notes, instance_id="one", **QUICK) as second:
        with pytest.raises(GroupEnded, match="fenced") as raised:
            first.wait(10)
        assert raised.value.reason == EndReason.FENCED
        until(lambda: second.active)


@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "OffsetCommit"])
def test_missing_right_ends_the_group(broker: Broker, notes: Notes, api: str) -> None:
    put(broker, [1])
    broker.fail(api, "GROUP_AUTHORIZATION_FAILED", times=1000)
    group = group_of(broker, Noting, notes, commit_interval=0.05, **QUICK)
    group.start()
    with pytest.raises(GroupEnded, match="auth") as raised:
        group.wait(10)
    assert raised.value.reason == EndReason.AUTH
    broker.clear_faults()


@pytest.mark.parametrize(
    ("refusal", "attempts"), [("COORDINATOR_NOT_AVAILABLE", 6), ("GROUP_MAX_SIZE_REACHED", 1)]
)
def test_group_that_cannot_be_joined(
    broker: Broker, notes: Notes, monkeypatch: pytest.MonkeyPatch, refusal: str, attempts: int
) -> None:
    monkeypatch.setattr("karrow.aio.groups.member.JOIN_PAUSE", 0.01)
    monkeypatch.setattr("karrow.aio.groups.member.LONGEST_JOIN_PAUSE", 0.02)
    broker.fail("JoinGroup", refusal, times=1000)
    group = group_of(broker, Noting, notes, **QUICK)
    group.start()
    with pytest.raises(GroupEnded, match=f"join_failed .*{refusal}") as raised:
        group.wait(10)
    broker.clear_faults()
    assert raised.value.reason == EndReason.JOIN_FAILED
    assert [one.api for one in broker.requests].count("JoinGroup") == attempts


def test_versions_that_were_chosen_are_those_that_are_spoken(broker: Broker, notes: Notes) -> None:
    chosen = {"Fetch": 11, "JoinGroup": 5, "Heartbeat": 3, "OffsetCommit": 7}
    put(broker, range(5))
    with group_of(broker, Noting, notes, api_versions=chosen, **QUICK):
        until(lambda: len(notes.values()) == 5)
        until(lambda: any(one.api == "Heartbeat" for one in broker.requests))
    seen = {(one.api, one.version) for one in broker.requests if one.api in chosen}
    assert seen == set(chosen.items())


def test_offset_that_is_nowhere_ends_the_group(broker: Broker, notes: Notes) -> None:
    group = group_of(broker, Noting, notes, start="none", **QUICK)
    group.start()
    with pytest.raises(GroupEnded, match="error") as raised:
        group.wait(10)
    assert raised.value.reason == EndReason.ERROR


def test_end_is_an_event(broker: Broker, notes: Notes) -> None:
    seen: list[events.Event] = []
    with events.subscribe(seen.append, "worker.end"), group_of(broker, Noting, notes, **QUICK):
        pass
    assert [dict(event.fields) for event in seen] == [
        {
            "client_id": "karrow",
            "group": GROUP,
            "reason": "stopped",
            "detail": None,
            "error": None,
        }
    ]


def test_broker_that_is_gone_for_a_while_loses_nothing(notes: Notes) -> None:
    class Steady(Noting):
        def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
            self.note(records)
            return Commit.SYNC

    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        put(broker, range(10))
        with group_of(broker, Steady, notes, batch_records=2, **QUICK):
            until(lambda: len(notes.values()) >= 4)
            broker.kill_node(1)
            time.sleep(0.3)
            broker.start_node(1)
            put(broker, range(10, 20))
            until(lambda: 19 in notes.values())
            until(lambda: committed(broker).get((TOPIC, 0)) == 20)
    assert set(notes.values()) == set(range(20))
