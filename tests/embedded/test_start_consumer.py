"""A function called with every record: commits by return, by id, in order or not."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest

import karrow
from karrow import CommitId, EndReason, events
from karrow.broker.threaded import Broker
from karrow.errors import CommitFailed, ConfigError, GroupEnded, StateError
from tests.embedded.working import GROUP, TOPIC, committed, put, until

QUICK: dict[str, Any] = {"topics": [TOPIC], "fetch_interval": 0, "max_wait": 0.05}


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic(TOPIC, 2)
    return shared


class Calls:
    """A callback that notes what it is called with."""

    def __init__(self) -> None:
        self.ids: list[CommitId] = []
        self.given: list[tuple[Any, ...]] = []

    def __call__(self, commit_id: CommitId, *given: Any) -> None:
        self.ids.append(commit_id)
        self.given.append(given)

    def offsets(self) -> list[int]:
        return [given[2] for given in self.given]


@pytest.fixture
def calls() -> Calls:
    return Calls()


def test_every_record_is_handed_over_and_committed(broker: Broker, calls: Calls) -> None:
    with karrow.Producer(broker.bootstrap) as producer:
        for number in range(3):
            producer.send(TOPIC, f"v{number}", key=f"k{number}", partition=1)
    group = karrow.start_consumer(broker.bootstrap, GROUP, calls, **QUICK)
    assert isinstance(group, karrow.WorkerGroup)
    until(lambda: len(calls.given) == 3)
    until(lambda: committed(broker).get((TOPIC, 1)) == 3)
    assert group.stop().reason is EndReason.STOPPED
    assert calls.given == [
        (TOPIC, 1, number, b"k%d" % number, b"v%d" % number) for number in range(3)
    ]
    assert [one[:3] for one in calls.ids] == [(TOPIC, 1, number) for number in range(3)]


def test_function_to_be_awaited(broker: Broker, calls: Calls) -> None:
    async def callback(commit_id: CommitId, *given: Any) -> None:
        await asyncio.sleep(0)
        calls(commit_id, *given)

    put(broker, range(3))
    group = karrow.start_consumer(broker.bootstrap, GROUP, callback, fetch_size=10, **QUICK)
    until(lambda: calls.offsets() == [0, 1, 2])
    group.stop()
    assert committed(broker)[TOPIC, 0] == 3


def test_function_that_raises_is_called_again(broker: Broker, calls: Calls) -> None:
    def callback(commit_id: CommitId, *given: Any) -> None:
        calls(commit_id, *given)
        if given[2] == 2 and calls.offsets().count(2) == 1:
            raise ValueError("two")

    put(broker, range(4))
    group = karrow.start_consumer(broker.bootstrap, GROUP, callback, fetch_size=10, **QUICK)
    until(lambda: 3 in calls.offsets())
    group.stop()
    assert calls.offsets() == [0, 1, 2, 2, 3]
    assert committed(broker)[TOPIC, 0] == 4


@pytest.mark.parametrize("is_async", [True, False])
def test_function_that_raises_is_told_with_its_record(
    broker: Broker, calls: Calls, is_async: bool
) -> None:
    """Also where others came with it."""

    def callback(commit_id: CommitId, *given: Any) -> None:
        calls(commit_id, *given)
        if given[2] == 2:
            raise ValueError("two")

    async def awaited(*given: Any) -> None:
        callback(*given)

    with karrow.Client(broker.bootstrap) as client:
        client.produce(TOPIC, [b"0", b"1", b"2", b"3"], partition=0)
    seen: list[events.Event] = []
    with events.subscribe(seen.append, "worker.crash", "process.exception"):
        group = karrow.start_consumer(
            broker.bootstrap,
            GROUP,
            awaited if is_async else callback,
            fetch_size=10,
            config=karrow.WorkerConfig(max_restarts=0),
            **QUICK,
        )
        with pytest.raises(GroupEnded, match="handle_records of orders-0 at offset 2: two"):
            group.wait(20)
    assert calls.offsets() == [0, 1, 2]
    assert sorted(event.name for event in seen) == ["process.exception", "worker.crash"]
    for event in seen:
        assert (event.fields["first_offset"], event.fields["last_offset"]) == (2, 2)


def test_function_that_always_raises_ends_the_group(broker: Broker, calls: Calls) -> None:
    def callback(*_: Any) -> None:
        raise ValueError("never")

    put(broker, range(4))
    group = karrow.start_consumer(broker.bootstrap, GROUP, callback, **QUICK)
    with pytest.raises(GroupEnded, match="crash_loop"):
        group.wait(20)
    assert (TOPIC, 0) not in committed(broker)


def test_interval_and_size_set_the_pace(broker: Broker, calls: Calls) -> None:
    times: list[float] = []

    def callback(*_: Any) -> None:
        times.append(time.monotonic())

    put(broker, range(6))
    options = {**QUICK, "fetch_interval": 0.1}
    group = karrow.start_consumer(broker.bootstrap, GROUP, callback, fetch_size=2, **options)
    until(lambda: len(times) == 6)
    group.stop()
    assert times[2] - times[0] >= 0.09
    assert times[4] - times[2] >= 0.09
    assert times[5] - times[4] < 0.09


def test_ids_are_committed_in_order(broker: Broker, calls: Calls) -> None:
    put(broker, range(3))
    group = karrow.start_consumer(broker.bootstrap, GROUP, calls, autocommit=False, **QUICK)
    until(lambda: len(calls.ids) == 3)
    assert group.pending_commits() == tuple(calls.ids)
    with pytest.raises(StateError, match="offset 1 cannot be committed before 0"):
        group.commit(calls.ids[1])
    assert group.commit(calls.ids[0]) is True
    assert committed(broker)[TOPIC, 0] == 1
    with pytest.raises(StateError, match="committed already"):
        group.commit(calls.ids[0])
    assert group.commit(calls.ids[1]) is True
    assert group.pending_commits() == (calls.ids[2],)
    group.stop()
    assert committed(broker)[TOPIC, 0] == 2


def test_commit_that_failed_can_be_made_again(broker: Broker, calls: Calls) -> None:
    put(broker, range(2))
    group = karrow.start_consumer(broker.bootstrap, GROUP, calls, autocommit=False, **QUICK)
    until(lambda: len(calls.ids) == 2)
    broker.fail("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE")
    with pytest.raises(CommitFailed):
        group.commit(calls.ids[0])
    assert committed(broker).get((TOPIC, 0)) is None
    assert group.commit(calls.ids[0]) is True
    assert committed(broker)[TOPIC, 0] == 1
    with pytest.raises(StateError, match="committed already"):
        group.commit(calls.ids[0])
    group.stop()


def test_ids_out_of_order_wait_where_that_is_allowed(broker: Broker, calls: Calls) -> None:
    put(broker, range(3))
    group = karrow.start_consumer(
        broker.bootstrap, GROUP, calls, autocommit=False, allow_unordered_commit=True, **QUICK
    )
    until(lambda: len(calls.ids) == 3)
    assert group.commit(calls.ids[2]) is False
    assert group.commit(calls.ids[1]) is False
    assert committed(broker).get((TOPIC, 0)) is None
    assert group.commit(calls.ids[0]) is True
    assert committed(broker)[TOPIC, 0] == 3
    group.stop()


def test_what_is_not_committed_is_handed_over_again(broker: Broker, calls: Calls) -> None:
    def has(count: int) -> bool:
        return len(calls.ids) == count

    put(broker, range(3))
    for count in (3, 5):
        group = karrow.start_consumer(broker.bootstrap, GROUP, calls, autocommit=False, **QUICK)
        until(partial(has, count))
        if count == 3:
            group.commit(calls.ids[0])
        group.stop()
    assert calls.offsets() == [0, 1, 2, 1, 2]


def test_ids_of_an_earlier_life_are_refused(broker: Broker, calls: Calls) -> None:
    def callback(commit_id: CommitId, *given: Any) -> None:
        calls(commit_id, *given)
        if len(calls.ids) == 2:
            raise ValueError("second")

    put(broker, range(2))
    group = karrow.start_consumer(broker.bootstrap, GROUP, callback, autocommit=False, **QUICK)
    until(lambda: calls.offsets() == [0, 1, 0, 1])
    with pytest.raises(StateError, match="of an earlier life of its worker"):
        group.commit(calls.ids[0])
    assert group.commit(calls.ids[2]) is True
    group.stop()
    assert committed(broker)[TOPIC, 0] == 1


def test_id_of_a_partition_that_is_gone_is_refused(broker: Broker, calls: Calls) -> None:
    group = karrow.start_consumer(broker.bootstrap, GROUP, calls, autocommit=False, **QUICK)
    until(lambda: group.active)
    with pytest.raises(StateError, match="no worker of orders-7"):
        group.commit(CommitId(TOPIC, 7, 0, 1))
    group.stop()


def test_ids_are_of_no_use_with_autocommit(broker: Broker, calls: Calls) -> None:
    put(broker, [1])
    group = karrow.start_consumer(broker.bootstrap, GROUP, calls, **QUICK)
    until(lambda: calls.ids)
    with pytest.raises(StateError, match="committed when the callback returns"):
        group.commit(calls.ids[0])
    assert group.pending_commits() == ()
    group.stop()


def test_commits_from_another_thread_while_records_come(broker: Broker, calls: Calls) -> None:
    put(broker, range(50))
    group = karrow.start_consumer(
        broker.bootstrap, GROUP, calls, autocommit=False, fetch_size=5, **QUICK
    )
    done = threading.Event()

    def has(number: int) -> bool:
        return len(calls.ids) > number

    def commit() -> None:
        for number in range(50):
            until(partial(has, number))
            group.commit(calls.ids[number])
        done.set()

    threading.Thread(target=commit, daemon=True).start()
    assert done.wait(20)
    group.stop()
    assert calls.offsets() == list(range(50))
    assert committed(broker)[TOPIC, 0] == 50


def test_partitions_are_read_without_sharing(broker: Broker, calls: Calls) -> None:
    put(broker, [0], 0)
    put(broker, [1], 1)
    options = {**QUICK, "topics": [(TOPIC, [1])]}
    groups = [karrow.start_consumer(broker.bootstrap, GROUP, calls, **options) for _ in range(2)]
    until(lambda: committed(broker).get((TOPIC, 1)) == 1)
    until(lambda: all(group.active for group in groups))
    for group in groups:
        assert (group.assignments, group.generation) == (((TOPIC, 1),), None)
        group.stop()
    assert (TOPIC, 0) not in committed(broker)


def test_member_id_from_before(broker: Broker, calls: Calls) -> None:
    """One that the group does not know is replaced by one that it gives."""
    joins: list[events.Event] = []
    with events.subscribe(joins.append, "join.start"):
        group = karrow.start_consumer(broker.bootstrap, GROUP, calls, member_id="mine", **QUICK)
        until(lambda: group.active)
        assert group.member_id not in (None, "mine")
        group.stop()
    assert joins[0].fields["member_id"] == "mine"


def test_member_id_that_the_group_still_knows_is_gone_on_with(broker: Broker, calls: Calls) -> None:
    """Who died without a word is waited for; its successor takes its place at once."""
    put(broker, range(3))
    with karrow.Client(broker.bootstrap) as client:
        protocol = client.default_protocol("range", 1, [TOPIC])
        before = client.join_group(GROUP, [protocol], session_timeout=300.0)
        group = karrow.start_consumer(
            broker.bootstrap, GROUP, calls, member_id=before.member_id, **QUICK
        )
        # Far sooner than the session of the dead one ends, or it has had its time to join again.
        until(lambda: calls.offsets() == [0, 1, 2])
        assert group.member_id == before.member_id
        assert group.generation is not None
        assert group.generation > before.generation
        members = client.describe_group(GROUP).members
        assert [member.member_id for member in members] == [before.member_id]
        group.stop()
        assert client.describe_group(GROUP).members == ()


def test_options_reach_the_consumer(broker: Broker, calls: Calls) -> None:
    group = karrow.start_consumer(
        broker.bootstrap,
        GROUP,
        calls,
        topics=[TOPIC],
        session_timeout=11.0,
        max_bytes=1 << 20,
        min_bytes=2,
        max_wait=0.1,
        config=karrow.WorkerConfig(threads=3),
    )
    config = group.config
    assert (config.session_timeout, config.max_wait, config.min_bytes) == (11.0, 0.1, 2)
    assert config.partition_max_bytes == config.max_bytes == 1 << 20
    assert (config.fetch_interval, config.batch_records, config.threads) == (1.0, 1, 3)
    group.stop()


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        (TOPIC, "is one name"),
        ([], "either topics or partitions"),
        ([TOPIC, (TOPIC, [1])], "names with partitions and names without"),
    ],
)
def test_wrong_topics(broker: Broker, calls: Calls, topics: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        karrow.start_consumer(broker.bootstrap, GROUP, calls, topics=topics)
