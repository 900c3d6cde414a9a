"""Consumers of ours and of other makers share one group: each partition once, no record missed."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import confluent_kafka
import pytest
from kafka.errors import KafkaError

import karrow
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


class Polling:
    """A member that is polled in a thread of its own, as applications do.

    In one thread members hold each other up: a join ends when all have joined, and some join only
    while they are polled.
    """

    def __init__(
        self, member: Consumer, note: Callable[[Consumer, list[bytes], bool], object]
    ) -> None:
        self.share: set[int] = set()
        self._member = member
        self._note = note
        self._end = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Leave, after it has stored how far it is."""
        self._end.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        self.check()

    def check(self) -> None:
        """Raise what has ended it."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._poll()
        except BaseException as error:  # noqa: BLE001 - for the test
            self._error = error
        finally:
            self._member.close()

    def _poll(self) -> None:
        while not self._end.is_set():
            found = self._member.poll()
            is_stored = not found or self._store()
            self._note(self._member, found, is_stored)
            self.share = self._member.assigned()
        if self._member.assigned():
            self._store()

    def _store(self) -> bool:
        """Commit; whether it could be.

        Other makers' members take part in a rebalance while the application has records of theirs:
        then these cannot be stored, and come again. Ours finishes first.
        """
        try:
            self._member.commit()
        except (confluent_kafka.KafkaException, KafkaError):
            return False
        return True


class Mixture:
    """A topic, a group, and members of several makers."""

    def __init__(self, kafka: AnyKafka, kind: str, stack: ExitStack) -> None:
        self.topic = kafka.create_topic(partitions=PARTITIONS)
        self.read: defaultdict[bytes, list[str]] = defaultdict(list)
        self.not_stored: set[bytes] = set()
        self.members: list[Polling] = []
        self._produced = 0
        self._kafka = kafka
        self._group = f"group-{uuid.uuid4().hex[:12]}"
        self._options = MIXTURES[kind]
        self._kind = kind
        self._runner = stack.enter_context(asyncio.Runner())
        self._lock = threading.Lock()
        stack.callback(self._end)

    def ours(self) -> Polling:
        """One more of ours."""
        return self._add(
            OurConsumer(self._kafka.bootstrap, self._group, self.topic, **self._options)
        )

    def theirs(self, kind: str | None = None) -> Polling:
        """One more of the other maker, or of any."""
        wanted = kind or self._kind
        make: Callable[..., Consumer] = (
            CooperativeConfluent
            if wanted == "confluent-cooperative"
            else maker(wanted, self._runner)
        )
        return self._add(make(self._kafka.bootstrap, self._group, self.topic, None))

    def _add(self, member: Consumer) -> Polling:
        self.members.append(Polling(member, self._note))
        return self.members[-1]

    def _note(self, member: Consumer, found: list[bytes], is_stored: bool) -> None:
        with self._lock:
            for value in found:
                self.read[value].append(f"{type(member).__name__} {id(member):x}")
            self.not_stored.update([] if is_stored else found)

    def leave(self, member: Polling) -> None:
        """One leaves."""
        self.members.remove(member)
        member.leave()

    def produce(self, count: int = 40) -> None:
        with karrow.Producer(self._kafka.bootstrap) as producer:
            for _ in range(count):
                value = b"%d" % self._produced
                producer.send(self.topic, value, partition=self._produced % PARTITIONS)
                self._produced += 1

    def settle(self) -> None:
        """Wait until every member has its share, and all that was produced was read."""
        deadline = time.monotonic() + PATIENCE
        while not (self._is_shared() and len(self.read) == self._produced):
            for member in self.members:
                member.check()
            assert time.monotonic() < deadline, (self._shares(), self._unread())
            time.sleep(MOMENT)

    def _shares(self) -> list[set[int]]:
        return [member.share for member in self.members]

    def _unread(self) -> dict[int, list[int]]:
        """What has not been read yet, by partition."""
        missing = [n for n in range(self._produced) if b"%d" % n not in self.read]
        return {p: [n for n in missing if n % PARTITIONS == p] for p in range(PARTITIONS)}

    def _is_shared(self) -> bool:
        """Whether each partition has one owner, and nobody too many."""
        shares = self._shares()
        most = -(-PARTITIONS // len(shares))
        owned = sorted(number for share in shares for number in share)
        return owned == list(range(PARTITIONS)) and max(map(len, shares)) <= most

    def _end(self) -> None:
        for member in self.members:
            member.leave()


@contextmanager
def mixed(kafka: AnyKafka, kind: str) -> Iterator[Mixture]:
    with ExitStack() as stack:
        yield Mixture(kafka, kind, stack)


def rolled(group: Mixture, order: Sequence[str]) -> None:
    """Members of both kinds come and go, one at a time, while records come."""
    here: dict[str, Polling] = {}
    for step in order:
        name = step[1:]
        if step[0] == "+":
            here[name] = _joined(group, name)
        else:
            group.leave(here.pop(name))
        group.produce()
        group.settle()
    twice = {value: by for value, by in group.read.items() if len(by) > 1}
    assert not twice.keys() - group.not_stored, twice


def _joined(group: Mixture, name: str) -> Polling:
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
