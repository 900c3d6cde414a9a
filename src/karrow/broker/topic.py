"""Topics and their partitions: who leads them, what they hold, who waits for more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self
from uuid import UUID

from karrow.broker.log import Limits, Log
from karrow.broker.producers import Marker, Producers, marker_batch
from karrow.records import BatchInfo, batches

if TYPE_CHECKING:
    from karrow.broker.settings import Settings

NO_LEADER = -1


class Partition:
    """One partition. All its replicas are the same log: nothing here copies data."""

    def __init__(self, topic: Topic, index: int, replicas: list[int], log: Log) -> None:
        self.topic = topic
        self.index = index
        self.replicas = replicas
        self.isr = list(replicas)
        self.leader = replicas[0]
        self.leader_epoch = 0
        self.log = log
        self.producers = Producers()
        self._watchers: set[Callable[[], None]] = set()
        self._replay()

    @property
    def high_watermark(self) -> int:
        """The end of what consumers may read."""
        return self.log.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of what consumers of committed data may read."""
        first_open = self.producers.first_open
        if first_open is None:
            return self.log.end_offset
        return max(first_open, self.log.start_offset)

    def append(self, batch: bytearray, info: BatchInfo, now: int) -> int:
        """Store a checked batch; gives the offset of its first record."""
        base = self._store(batch, info, now)
        self.producers.note(info, base)
        self.wake()
        return base

    def append_marker(
        self, producer_id: int, epoch: int, marker: Marker, now: int, version: int = 0
    ) -> int:
        """Store the end of a transaction; ``version`` is that of the transactions (KIP-890)."""
        self.producers.check_marker(producer_id, epoch, marker, version)
        batch = marker_batch(producer_id, epoch, marker, now)
        offset = self._store(batch, batches(batch)[0], now)
        self.producers.note_marker(producer_id, epoch, offset, marker, now)
        self.wake()
        return offset

    def retain(self, now: int) -> None:
        """Drop records that are too old or too many, and producers that are idle."""
        if self.log.retain(self.topic.rules.limits, now):
            self.producers.forget_before(self.log.start_offset)
            self.wake()
        self.producers.forget_idle(now)

    def delete_before(self, offset: int) -> None:
        """Make records below ``offset`` unreadable."""
        self.log.delete_before(offset)
        self.producers.forget_before(offset)
        self.wake()

    def cut(self, offset: int) -> None:
        """Lose everything from ``offset`` on, as an unclean election does."""
        self.log.cut(offset)
        self._replay()
        self.wake()

    def lead(self, leader: int) -> None:
        """Change the leader; every change begins an epoch."""
        self.leader = leader
        self.leader_epoch += 1
        self.wake()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher`` at every change until it is unwatched."""
        self._watchers.add(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Stop calling it."""
        self._watchers.discard(watcher)

    def wake(self) -> None:
        """Tell those who wait that something changed."""
        for watcher in tuple(self._watchers):
            watcher()

    def _store(self, batch: bytearray, info: BatchInfo, now: int) -> int:
        limits = self.topic.rules.limits
        return self.log.append(batch, info, epoch=self.leader_epoch, limits=limits, now=now)

    def _replay(self) -> None:
        self.producers = Producers()
        for _, data in self.log.batches():
            self.producers.replay(data, batches(data)[0])


class Rules(NamedTuple):
    """The settings that every append looks at, read once and not from text each time."""

    limits: Limits
    deletes: bool
    compacts: bool
    stamps: bool
    max_message_bytes: int
    max_ahead_ms: int
    max_behind_ms: int
    min_in_sync: int


@dataclass(slots=True, eq=False)
class Topic:
    """A topic: a name, an id that no other topic ever had, partitions and settings."""

    name: str
    id: UUID
    settings: Settings
    partitions: list[Partition] = field(default_factory=list)
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        self.configure(self.settings)

    def configure(self, settings: Settings) -> None:
        """Take other settings."""
        self.settings = settings
        self.rules = _rules(settings)

    @property
    def replication_factor(self) -> int:
        """How many replicas each partition has."""
        return len(self.partitions[0].replicas) if self.partitions else 0


def _rules(settings: Settings) -> Rules:
    policies = settings.items("cleanup.policy")
    deletes = "delete" in policies
    return Rules(
        limits=Limits(
            settings.number("segment.bytes"),
            settings.number("segment.ms"),
            settings.number("retention.bytes") if deletes else -1,
            settings.number("retention.ms") if deletes else -1,
        ),
        deletes=deletes,
        compacts="compact" in policies,
        stamps=settings.text("message.timestamp.type") == "LogAppendTime",
        max_message_bytes=settings.number("max.message.bytes"),
        max_ahead_ms=_time_limit(settings, "message.timestamp.after.max.ms"),
        max_behind_ms=_time_limit(settings, "message.timestamp.before.max.ms"),
        min_in_sync=settings.number("min.insync.replicas"),
    )


def _time_limit(settings: Settings, name: str) -> int:
    """How far a record's time may be off; up to 3.9 another setting meant both ways (KIP-937)."""
    both = "message.timestamp.difference.max.ms"
    limits = [settings.number(known) for known in (name, both) if known in settings.table]
    return min(limits)


class Signal:
    """Waits for a change in any of several partitions, or for the time to be up."""

    def __init__(self, partitions: list[Partition]) -> None:
        self._partitions = partitions
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        for partition in self._partitions:
            partition.watch(self.set)
        return self

    def __exit__(self, *_: object) -> None:
        for partition in self._partitions:
            partition.unwatch(self.set)

    def set(self) -> None:
        """Let the one who waits look again."""
        self._event.set()

    async def wait(self) -> None:
        """Return at the first change since the last call."""
        await self._event.wait()
        self._event.clear()
