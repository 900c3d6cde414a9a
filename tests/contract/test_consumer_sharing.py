"""Consumers that share topics in a group, in both group protocols, on every kind of broker."""

from __future__ import annotations

import gc
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import karrow
from karrow import errors, events
from karrow.types import TopicPartition
from tests.brokers import KafkaCluster
from tests.contract.test_consumer import fill, filled, new_group, take, until
from tests.fix_any import AnyKafka

TIMEOUT = 30.0
KINDS: dict[str, dict[str, Any]] = {
    "eager": {"assignors": "range", "heartbeat_interval": 0.1},
    "cooperative": {"assignors": "cooperative-sticky", "heartbeat_interval": 0.1},
    "served": {"protocol": "consumer"},
}


def supported(name: str, kafka: AnyKafka) -> dict[str, Any]:
    """How the group shares; the new protocol needs a new broker."""
    if name == "served" and kafka.number < (4, 0):
        pytest.skip("no groups that the broker divides")
    return KINDS[name]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, any_kafka: AnyKafka) -> dict[str, Any]:
    """Each that the broker has."""
    return supported(request.param, any_kafka)


@pytest.fixture(params=KINDS)
def every_kind(request: pytest.FixtureRequest, every_kafka: AnyKafka) -> dict[str, Any]:
    """The same on every release."""
    return supported(request.param, every_kafka)


class Member:
    """A consumer in a thread of its own, which notes what it reads and what it is told."""

    def __init__(self, bootstrap: str, topics: Sequence[Any], **options: Any) -> None:
        self.seen: list[tuple[str, int, int]] = []
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.owned: set[TopicPartition] = set()
        self.error: Exception | None = None
        self.pause = 0.0
        self._stop = threading.Event()
        self._is_ended = False
        self.consumer = karrow.Consumer(
            bootstrap,
            *topics,
            **{
                "start": "earliest",
                "max_wait": 0.1,
                "auto_commit_interval": 0.05,
                "max_poll_records": 5,
                "on_assigned": self._assigned,
                "on_revoked": self._revoked,
                "on_lost": self._lost,
                **options,
            },
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert threading.current_thread() is self._thread
        self.told.append(("assigned", frozenset(partitions)))
        assert not self.owned & set(partitions)
        self.owned |= set(partitions)

    def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        assert threading.current_thread() is self._thread
        self.told.append(("revoked", frozenset(partitions)))
        assert self.owned >= set(partitions)
        self.owned -= set(partitions)

    def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("lost", frozenset(partitions)))
        self.owned -= set(partitions)

    def _run(self) -> None:
        try:
            with self.consumer:
                while not self._stop.is_set():
                    for record in self.consumer.poll(0.1):
                        where = TopicPartition(record.topic, record.partition)
                        assert where in self.owned, where
                        self.seen.append((record.topic, record.partition, record.offset))
                    time.sleep(self.pause)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def stop(self) -> None:
        """Close the consumer, and see that nothing went wrong."""
        self._stop.set()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        self._is_ended = True
        if self.error is not None:
            raise self.error

    @property
    def count(self) -> int:
        return len(self.consumer.assignment)


@contextmanager
def members(kafka: AnyKafka) -> Iterator[Callable[..., Member]]:
    """Makes members that are stopped at the end."""
    with ExitStack() as stack:

        def make(*topics: Any, **options: Any) -> Member:
            member = Member(kafka.bootstrap, topics, **options)
            stack.callback(member.stop)
            return member

        yield make


def shares(*group: Member) -> list[int]:
    return sorted(member.count for member in group)


def test_members_share_and_nothing_is_skipped_or_doubled(
    any_kafka: AnyKafka, kind: dict[str, Any]
) -> None:
    """Rolling joins and leaves while records come."""
    topic, group = filled(any_kafka, 20, 4), new_group()
    with members(any_kafka) as make:
        first = make(topic, group=group, **kind)
        until(lambda: first.count == 4)
        second = make(topic, group=group, **kind)
        until(lambda: shares(first, second) == [2, 2], TIMEOUT)
        fill(any_kafka, topic, range(20, 40), 4)
        third = make(topic, group=group, **kind)
        until(lambda: shares(first, second, third) == [1, 1, 2], TIMEOUT)
        fill(any_kafka, topic, range(40, 60), 4)
        first.stop()
        until(lambda: shares(second, third) == [2, 2], TIMEOUT)
        fill(any_kafka, topic, range(60, 80), 4)
        second.stop()
        until(lambda: third.count == 4, TIMEOUT)
        everyone = (first, second, third)
        until(lambda: sum(len(one.seen) for one in everyone) >= 4 * 80, TIMEOUT)
        third.stop()
    seen = Counter(place for one in everyone for place in one.seen)
    assert set(seen) == {(topic, part, number) for part in range(4) for number in range(80)}
    assert set(seen.values()) == {1}
    # Nobody was told of losses, and everything that came went.
    for one in everyone:
        assert {what for what, _ in one.told} == {"assigned", "revoked"}
        assert not one.owned


def dealt(members: Sequence[str], partitions: Sequence[TopicPartition]) -> dict[str, Any]:
    """An assignor of an application: one partition to the first member, the rest to the last."""
    return {members[0]: partitions[:1], members[-1]: partitions[1 if len(members) > 1 else 0 :]}


ASSIGNORS: dict[str, tuple[Any, list[int]]] = {
    "range": ("range", [2, 2]),
    "roundrobin": ("roundrobin", [2, 2]),
    "sticky": ("sticky", [2, 2]),
    "cooperative-sticky": ("cooperative-sticky", [2, 2]),
    "custom": (karrow.custom_assignor("dealt", dealt), [1, 3]),
}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_assignor_shares_and_nothing_is_skipped_or_doubled(
    every_kafka: AnyKafka, name: str
) -> None:
    assignor, expected = ASSIGNORS[name]
    topic, group = filled(every_kafka, 10, 4), new_group()
    options = {"group": group, "assignors": [assignor], "heartbeat_interval": 0.1}
    with members(every_kafka) as make:
        first = make(topic, **options)
        until(lambda: first.count == 4, TIMEOUT)
        second = make(topic, **options)
        until(lambda: shares(first, second) == expected, TIMEOUT)
        fill(every_kafka, topic, range(10, 20), 4)
        until(lambda: len(first.seen) + len(second.seen) >= 4 * 20, TIMEOUT)
        membership = second.consumer.membership
        assert membership is not None
        assert membership.protocol == ("dealt" if name == "custom" else name)
        first.stop()
        until(lambda: second.count == 4, TIMEOUT)
        fill(every_kafka, topic, range(20, 30), 4)
        until(lambda: len(first.seen) + len(second.seen) >= 4 * 30, TIMEOUT)
        second.stop()
    seen = Counter([*first.seen, *second.seen])
    assert set(seen) == {(topic, part, number) for part in range(4) for number in range(30)}
    assert set(seen.values()) == {1}


def test_partitions_change_hands_once_per_rebalance(
    any_kafka: AnyKafka, kind: dict[str, Any]
) -> None:
    topic, group = filled(any_kafka, 1, 4), new_group()
    with members(any_kafka) as make:
        first = make(topic, group=group, **kind)
        until(lambda: first.told)
        assert [(what, len(about)) for what, about in first.told] == [("assigned", 4)]
        second = make(topic, group=group, **kind)
        # The assignment is there before the listeners have heard of it.
        until(lambda: (len(first.owned), len(second.owned)) == (2, 2), TIMEOUT)
        told = first.told[1:]
        if kind.get("assignors") == "range":
            assert [(what, len(about)) for what, about in told] == [("revoked", 4), ("assigned", 2)]
        else:
            assert [(what, len(about)) for what, about in told] == [("revoked", 2)]


def test_the_application_finishes_what_it_has_before_others_get_it(
    any_kafka: AnyKafka, kind: dict[str, Any]
) -> None:
    topic, group = filled(any_kafka, 10, 2), new_group()
    options = {"group": group, "start": "earliest", "max_wait": 0.1, **kind}
    with karrow.Consumer(any_kafka.bootstrap, topic, **options) as slow:
        handed = slow.poll(TIMEOUT, max_records=4)
        (busy,) = {one.partition for one in handed}
        with members(any_kafka) as make:
            other = make(topic, group=group, **kind)
            # In the midst of its work nobody takes that away; the rest may go.
            time.sleep(1.0)
            assert busy not in {partition for _, partition, _ in other.seen}
            slow.commit()
            deadline = time.monotonic() + TIMEOUT
            rest: list[karrow.Record] = []
            while len(rest) + len(other.seen) < 16:
                assert time.monotonic() < deadline
                rest += slow.poll(0.1)
                slow.commit()
            seen = [(one.topic, one.partition, one.offset) for one in [*handed, *rest]]
            assert not set(seen) & set(other.seen)
            assert len({*seen, *other.seen}) == 20


def test_a_listener_may_seek_and_commit(every_kafka: AnyKafka, every_kind: dict[str, Any]) -> None:
    topic, group = filled(every_kafka, 10, 1), new_group()
    where = TopicPartition(topic, 0)
    consumer: karrow.Consumer

    def assigned(partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            consumer.seek(one, 6)

    def revoked(partitions: Sequence[TopicPartition]) -> None:
        consumer.commit(dict.fromkeys(partitions, 8))

    consumer = karrow.Consumer(
        every_kafka.bootstrap,
        topic,
        group=group,
        auto_commit=False,
        on_assigned=assigned,
        on_revoked=revoked,
        **every_kind,
    )
    with consumer:
        assert [one.offset for one in consumer.poll(TIMEOUT)] == [6, 7, 8, 9]
    with karrow.Client(every_kafka.bootstrap) as client:
        assert client.committed_offsets(group, [topic])[where].offset == 8


def test_a_listener_that_raises_harms_nobody(any_kafka: AnyKafka, kind: dict[str, Any]) -> None:
    topic = filled(any_kafka, 3, 1)

    def raises(_: object) -> None:
        raise ZeroDivisionError("ouch")

    with karrow.Consumer(
        any_kafka.bootstrap,
        topic,
        group=new_group(),
        start="earliest",
        on_assigned=raises,
        **kind,
    ) as consumer:
        with pytest.raises(errors.CallbackError, match=r"on_assigned.*ouch") as caught:
            until(lambda: consumer.poll(0.1))
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert len(take(consumer, 3)) == 3


def test_a_subscription_may_change(every_kafka: AnyKafka, every_kind: dict[str, Any]) -> None:
    first, second = filled(every_kafka, 2, 1), filled(every_kafka, 3, 1)
    with karrow.Consumer(
        every_kafka.bootstrap,
        first,
        group=new_group(),
        start="earliest",
        max_wait=0.1,
        **every_kind,
    ) as consumer:
        assert {one.topic for one in take(consumer, 2)} == {first}
        consumer.subscribe(second)
        assert {one.topic for one in take(consumer, 3)} == {second}
        assert list(consumer.assignment) == [(second, 0)]
        consumer.unsubscribe()
        assert not consumer.assignment
        with pytest.raises(errors.StateError, match="read nothing"):
            consumer.poll(0.1)
        consumer.subscribe(first, second)
        fill(every_kafka, first, [2], 1)
        assert [(one.topic, one.offset) for one in take(consumer, 1)] == [(first, 2)]


def test_a_pattern_finds_topics_that_come_later(any_kafka: AnyKafka, kind: dict[str, Any]) -> None:
    prefix = f"some-{uuid.uuid4().hex[:8]}"
    first = any_kafka.create_topic(f"{prefix}-a")
    any_kafka.create_topic(f"not-{prefix}-a")
    fill(any_kafka, first, [0], 1)
    with karrow.Consumer(
        any_kafka.bootstrap,
        re.compile(f"{prefix}-.*"),
        group=new_group(),
        start="earliest",
        metadata_max_age=0.5,
        **kind,
    ) as consumer:
        assert {one.topic for one in take(consumer, 1)} == {first}
        second = any_kafka.create_topic(f"{prefix}-b")
        fill(any_kafka, second, [0], 1)
        assert {one.topic for one in take(consumer, 1)} == {second}
        assert consumer.assignment == ((first, 0), (second, 0))


@pytest.mark.parametrize("way", [None, *KINDS])
def test_internal_topics_are_read_if_they_are_named_or_the_broker_matches(
    kafka: KafkaCluster, way: str | None
) -> None:
    prefix = f"some-{uuid.uuid4().hex[:8]}"
    topic, internal = kafka.create_topic(prefix), "__consumer_offsets"
    with karrow.Client(kafka.bootstrap()) as client:
        client.commit_offsets(new_group(), {(topic, 0): 0})  # so that it is there
        assert client.metadata([internal]).topics[internal].internal
    options: dict[str, Any] = {"start": "latest", "max_wait": 0.1, "auto_commit": False}
    grouped = {} if way is None else {"group": new_group(), **KINDS[way]}

    def given(*wanted: Any) -> set[str]:
        with karrow.Consumer(kafka.bootstrap(), *wanted, **options, **grouped) as consumer:
            until(lambda: consumer.poll(0.05) or consumer.assignment)
            return {one.topic for one in consumer.assignment}

    matched = {topic, internal} if way == "served" else {topic}
    assert given(re.compile(f"{internal}|{prefix}")) == matched
    assert given(topic, internal) == {topic, internal}


def test_what_is_paused_stays_so_over_a_rebalance_until_it_is_given_away(
    any_kafka: AnyKafka, kind: dict[str, Any]
) -> None:
    topic, group = filled(any_kafka, 3, 4), new_group()
    with members(any_kafka) as make:
        options = {"group": group, "start": "earliest", "max_wait": 0.1, **kind}
        with karrow.Consumer(any_kafka.bootstrap, topic, **options) as consumer:
            take(consumer, 12)
            consumer.pause(*consumer.assignment)
            other = make(topic, group=group, **kind)
            until(lambda: consumer.poll(0.05) == [] and len(other.owned) == 2, TIMEOUT)
            until(lambda: consumer.poll(0.05) == [] and len(consumer.assignment) == 2, TIMEOUT)
            kept = [] if kind.get("assignors") == "range" else list(consumer.assignment)
            assert sorted(consumer.paused) == kept
            other.stop()
            until(lambda: consumer.poll(0.05) == [] and len(consumer.assignment) == 4, TIMEOUT)
            assert sorted(consumer.paused) == kept


@pytest.mark.since("2.4")
def test_a_static_member_keeps_its_partitions_over_a_restart(
    any_kafka: AnyKafka, kind: dict[str, Any]
) -> None:
    topic, group = filled(any_kafka, 4, 2), new_group()
    with members(any_kafka) as make:
        first = make(topic, group=group, instance_id="one", **kind)
        second = make(topic, group=group, instance_id="two", **kind)
        until(lambda: (len(first.owned), len(second.owned)) == (1, 1), TIMEOUT)
        kept = second.consumer.assignment
        rounds = len(second.told)
        mine = first.consumer.assignment
        first.stop()
        again = make(topic, group=group, instance_id="one", **kind)
        until(lambda: len(again.owned) == 1, TIMEOUT)
        assert again.consumer.assignment == mine
        assert second.consumer.assignment == kept
        assert len(second.told) == rounds


def test_transactions_carry_a_members_offsets(any_kafka: AnyKafka, kind: dict[str, Any]) -> None:
    topic, group = filled(any_kafka, 4, 1), new_group()
    target = any_kafka.create_topic()
    with (
        karrow.Consumer(
            any_kafka.bootstrap, topic, group=group, auto_commit=False, start="earliest", **kind
        ) as consumer,
        karrow.Producer(any_kafka.bootstrap, transactional_id=f"{group}-tx") as producer,
    ):
        records = consumer.poll(TIMEOUT, max_records=3)
        with producer.transaction() as transaction:
            for record in records:
                producer.send(target, record.value)
            transaction.send_offsets(consumer)
        until(lambda: consumer.committed()[TopicPartition(topic, 0)].offset == 3)


def test_events_tell_of_the_group(any_kafka: AnyKafka, kind: dict[str, Any]) -> None:
    topic = filled(any_kafka, 2, 1)
    seen: list[events.Event] = []
    with (
        events.subscribe(seen.append),
        karrow.Consumer(
            any_kafka.bootstrap, topic, group=new_group(), start="earliest", **kind
        ) as consumer,
    ):
        take(consumer, 2)
        consumer.commit()
        until(lambda: consumer.health().is_ok)
    names = {event.name for event in seen}
    expected = {"join.stop", "rebalance", "fetch.stop", "commit.stop", "leave.stop"}
    assert expected | {"consumer.health"} <= names
    states = [event.fields["state"] for event in seen if event.name == "consumer.health"]
    assert states[-2:] == ["ok", "dead"]


def test_health_tells_what_a_member_waits_for(any_kafka: AnyKafka, kind: dict[str, Any]) -> None:
    topic = any_kafka.create_topic()
    consumer = karrow.Consumer(any_kafka.bootstrap, topic, group=new_group(), **kind)
    assert consumer.health().state == "waiting"
    with consumer:
        assert consumer.poll(0.0) == []
        until(lambda: consumer.poll(0.1) or consumer.health().is_ok)
        consumer.pause(*consumer.assignment)
        health = consumer.health()
        assert (health.state, health.reason) == ("waiting", "all partitions are paused")
    assert consumer.health().state == "dead"


def test_a_topic_that_is_missing_is_named(any_kafka: AnyKafka, kind: dict[str, Any]) -> None:
    topic, name = filled(any_kafka, 2, 1), f"missing-{uuid.uuid4().hex[:8]}"
    with karrow.Consumer(
        any_kafka.bootstrap, topic, name, group=new_group(), start="earliest", **kind
    ) as consumer:
        assert len(take(consumer, 2)) == 2
        until(lambda: consumer.health().state == "degraded")
        assert name in consumer.health().reason


def drop(held: list[karrow.Consumer]) -> None:
    held.clear()
    gc.collect()


def test_a_consumer_that_is_dropped_leaves_its_group(
    any_kafka: AnyKafka, kind: dict[str, Any]
) -> None:
    topic, group = filled(any_kafka, 2, 1), new_group()
    told: list[object] = []
    held = [
        karrow.Consumer(
            any_kafka.bootstrap,
            topic,
            group=group,
            start="earliest",
            on_revoked=told.append,
            **kind,
        )
    ]
    take(held[0], 2)
    with pytest.warns(ResourceWarning, match="was not closed"):
        drop(held)
    with karrow.Admin(any_kafka.bootstrap) as admin:
        until(lambda: not admin.describe_group(group).members)
    assert told == []
