"""Consumers of ours and of other makers share one group: each partition once, no record missed."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import confluent_kafka
import pytest
from kafka.errors import KafkaError

import karrow
from karrow import errors
from tests.fix_any import AnyKafka
from tests.interop.group_members import (
    HEARTBEAT_MS,
    MOMENT,
    SESSION_MS,
    Consumer,
    maker,
)

PATIENCE = 60.0
PARTITIONS = 4
# How each mixture divides: what ours is told, and what the other one is.
MIXTURES: dict[str, dict[str, Any]] = {
    "confluent": {"assignors": "range"},
    "confluent-cooperative": {"assignors": "cooperative-sticky"},
    "confluent-848": {"protocol": "consumer"},
    "kafka-python": {"assignors": "range"},
}


class OurConsumer:
    """Ours, with the same few methods."""

    def __init__(self, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        if "protocol" not in options:
            options |= {"session_timeout": SESSION_MS / 1000, "heartbeat_interval": 0.1}
        self._consumer = karrow.Consumer(
            bootstrap,
            topic,
            group=group,
            start="earliest",
            auto_commit=False,
            max_wait=0.05,
            **options,
        )

    def poll(self) -> list[bytes]:
        return [record.value or b"" for record in self._consumer.poll(MOMENT, max_records=100)]

    def assigned(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class CooperativeConfluent:
    """librdkafka's, with incremental rebalances."""

    def __init__(self, bootstrap: str, group: str, topic: str, _: None) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        messages = self._consumer.consume(100, MOMENT)
        for message in messages:
            assert message.error() is None, message.error()
        return [message.value() or b"" for message in messages]

    def assigned(self) -> set[int]:
        return {item.partition for item in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class Mixture:
    """A topic, a group, and members of both makers that are polled in turn."""

    def __init__(self, kafka: AnyKafka, kind: str, stack: ExitStack) -> None:
        self.topic = kafka.create_topic(partitions=PARTITIONS)
        self.read: Counter[bytes] = Counter()
        self.members: list[Consumer] = []
        self._produced = 0
        self._kafka = kafka
        self._group = f"group-{uuid.uuid4().hex[:12]}"
        self._options = MIXTURES[kind]
        self._kind = kind
        self._runner = stack.enter_context(asyncio.Runner())
        stack.callback(self._end)

    def ours(self) -> Consumer:
        """One more of ours."""
        return self._add(
            OurConsumer(self._kafka.bootstrap, self._group, self.topic, **self._options)
        )

    def theirs(self, kind: str | None = None) -> Consumer:
        """One more of the other maker, or of any."""
        wanted = kind or self._kind
        make: Callable[..., Consumer] = (
            CooperativeConfluent
            if wanted == "confluent-cooperative"
            else maker(wanted, self._runner)
        )
        return self._add(make(self._kafka.bootstrap, self._group, self.topic, None))

    def _add(self, member: Consumer) -> Consumer:
        self.members.append(member)
        return member

    def leave(self, member: Consumer) -> None:
        """One leaves, after it has stored how far it is."""
        if member.assigned():
            self._store(member)
        self.members.remove(member)
        member.close()

    def produce(self, count: int = 40) -> None:
        with karrow.Producer(self._kafka.bootstrap) as producer:
            for _ in range(count):
                value = b"%d" % self._produced
                producer.send(self.topic, value, partition=self._produced % PARTITIONS)
                self._produced += 1

    def settle(self) -> None:
        """Poll until every member has its share, and all that was produced was read."""
        deadline = time.monotonic() + PATIENCE
        while not (self._is_shared() and len(self.read) == self._produced):
            assert time.monotonic() < deadline, (self._shares(), self._unread())
            for member in self.members:
                found = member.poll()
                self.read.update(found)
                if found:
                    self._store(member)
        owned = [number for share in self._shares() for number in share]
        assert sorted(owned) == list(range(PARTITIONS))

    def _store(self, member: Consumer) -> None:
        """A commit may meet a rebalance; then what was read comes again, if it goes elsewhere."""
        with contextlib.suppress(errors.CommitFailed, confluent_kafka.KafkaException, KafkaError):
            member.commit()

    def _shares(self) -> list[set[int]]:
        return [member.assigned() for member in self.members]

    def _unread(self) -> dict[int, list[int]]:
        """What has not been read yet, by partition."""
        missing = [n for n in range(self._produced) if b"%d" % n not in self.read]
        return {p: [n for n in missing if n % PARTITIONS == p] for p in range(PARTITIONS)}

    def _is_shared(self) -> bool:
        sizes = [len(share) for share in self._shares()]
        most = -(-PARTITIONS // len(sizes))
        return sum(sizes) == PARTITIONS and max(sizes) <= most

    def _end(self) -> None:
        for member in self.members:
            member.close()


@contextmanager
def mixed(kafka: AnyKafka, kind: str) -> Iterator[Mixture]:
    with ExitStack() as stack:
        yield Mixture(kafka, kind, stack)


def rolled(group: Mixture, order: Sequence[str]) -> None:
    """Members of both kinds come and go, one at a time, while records come."""
    here: dict[str, Consumer] = {}
    for step in order:
        name = step[1:]
        if step[0] == "+":
            here[name] = _joined(group, name)
        else:
            group.leave(here.pop(name))
        group.produce()
        group.settle()
    assert set(group.read.values()) == {1}


def _joined(group: Mixture, name: str) -> Consumer:
    if name.startswith("our"):
        return group.ours()
    return group.theirs(None if name.startswith("their") else name)


@pytest.mark.parametrize("kind", MIXTURES)
def test_rolling_joins_and_leaves_miss_and_double_nothing(
    newest_kafka: AnyKafka, kind: str
) -> None:
    """The leader is theirs, then ours, and theirs again."""
    with mixed(newest_kafka, kind) as group:
        rolled(group, ["+their1", "+our1", "-their1", "+their2", "-our1"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MIXTURES)
def test_more_members_than_two(newest_kafka: AnyKafka, kind: str) -> None:
    """Two of each, in another order."""
    with mixed(newest_kafka, kind) as group:
        steps = ["+our1", "+their1", "+our2", "+their2", "-our1", "-their1", "+our3", "-their2"]
        rolled(group, [*steps, "+their3", "-our2", "-our3"])


def test_three_makers_share_one_group(newest_kafka: AnyKafka) -> None:
    """Each of them leads for a while, and is one of three."""
    with mixed(newest_kafka, "confluent") as group:
        steps = ["+kafka-python", "+our1", "+confluent", "-kafka-python", "+kafka-python"]
        rolled(group, [*steps, "-our1", "+our2", "-confluent"])
