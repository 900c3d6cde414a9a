"""What tests of consumers against the embedded broker have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import karrow
from karrow.broker.threaded import Broker
from karrow.errors import GroupIdNotFound
from karrow.types import TopicPartition

TOPIC = "topic"
GROUP = "group"
TIMEOUT = 15.0
QUICK: dict[str, Any] = {
    "start": "earliest",
    "max_wait": 0.05,
    "retry_backoff": 0.02,
    "retry_backoff_max": 0.1,
    "request_timeout": 1.0,
    "connect_timeout": 1.0,
}
KINDS: dict[str, dict[str, Any]] = {
    "eager": {"assignors": "range", "heartbeat_interval": 0.1},
    "cooperative": {"assignors": "cooperative-sticky", "heartbeat_interval": 0.1},
    "served": {"protocol": "consumer"},
}
CLASSIC = [kind for kind in KINDS if kind != "served"]
# Nodes of the fixture `trio`.
NODES = 3


def group_of(kind: str, number: int) -> dict[str, Any]:
    """A group of its own for each number, or none."""
    if kind == "alone":
        return {}
    return {"group": f"{GROUP}-{number}", **KINDS[kind]}


def fill(broker: Broker, numbers: Iterable[int], partitions: int = 2, **options: Any) -> None:
    """Records in every partition whose values are their offsets."""
    with karrow.Producer(broker.bootstrap, **options) as producer:
        for number in numbers:
            for partition in range(partitions):
                producer.send(TOPIC, b"%d" % number, partition=partition)


def places(records: Iterable[karrow.Record]) -> list[tuple[int, int]]:
    """Where records are, in order."""
    return sorted((record.partition, record.offset) for record in records)


def everything(count: int, partitions: int = 2, begin: int = 0) -> list[tuple[int, int]]:
    """Where ``fill`` has put its records."""
    return [(one, number) for one in range(partitions) for number in range(begin, count)]


def take(reader: karrow.Consumer, count: int, **options: Any) -> list[karrow.Record]:
    """So many records, by polling, and none beyond."""
    found: list[karrow.Record] = []
    deadline = time.monotonic() + TIMEOUT
    while len(found) < count:
        assert time.monotonic() < deadline, (places(found), reader.health())
        found += reader.poll(0.1, **options)
    assert len(found) == count, places(found)
    return found


def until(look: Callable[[], Any], seconds: float = TIMEOUT) -> Any:
    """Look until there is something."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.005)
    return seen


def poll_until(
    reader: karrow.Consumer, look: Callable[[], Any], seconds: float = TIMEOUT
) -> list[karrow.Record]:
    """Poll until there is something to see; gives the records that came meanwhile."""
    found: list[karrow.Record] = []
    deadline = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < deadline, reader.health()
        found += reader.poll(0.02)
    return found


def stored(broker: Broker, group: str = GROUP) -> dict[int, int | None]:
    """What a group has committed, by partition."""
    with karrow.Client(broker.bootstrap) as client:
        found = client.committed_offsets(group, [TOPIC])
    return {one.partition: it.offset for one, it in found.items()}


def reader(broker: Broker, kind: dict[str, Any] | None = None, **options: Any) -> karrow.Consumer:
    """A consumer of the topic, in the group if it has a kind."""
    grouped = {} if kind is None else {"group": GROUP, **kind}
    chosen = {**QUICK, **grouped, **options}
    return karrow.Consumer(broker.bootstrap, TOPIC, **chosen)


def asked(broker: Broker, api: str) -> int:
    return sum(seen.api == api for seen in broker.requests)


def members_of(broker: Broker, group: str = GROUP) -> int:
    with karrow.Admin(broker.bootstrap) as admin:
        try:
            return len(admin.describe_group(group).members)
        except GroupIdNotFound:
            return 0  # nobody has joined yet


class Notes:
    """What listeners were told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, frozenset[int]]] = []
        self.owned: set[TopicPartition] = set()

    @property
    def options(self) -> dict[str, Any]:
        """The listeners, for a consumer."""
        return {"on_assigned": self._assigned, "on_revoked": self._revoked, "on_lost": self._lost}

    def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert not self.owned & set(partitions)
        self.owned |= set(partitions)
        self._note("assigned", partitions)

    def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._gone("revoked", partitions)

    def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._gone("lost", partitions)

    def _gone(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        assert self.owned >= set(partitions)
        self.owned -= set(partitions)
        self._note(what, partitions)

    def _note(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        self.told.append((what, frozenset(one.partition for one in partitions)))

    def kinds(self) -> list[str]:
        """What happened, without the partitions."""
        return [what for what, _ in self.told]
