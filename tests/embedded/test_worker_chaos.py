"""Groups of workers that come and go while handlers crash and the broker fails: nothing is skipped.

What happens is drawn from ``random``, whose seed pytest prints; how it interleaves is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

import karrow
from karrow import Commit
from karrow.broker.threaded import Broker
from karrow.errors import GroupIdNotFound
from tests.embedded.working import (
    GROUP,
    TOPIC,
    AsyncNoting,
    Notes,
    Noting,
    committed,
    group_of,
    until,
)

PARTITIONS = 4
SECONDS = 2.0
MEMBERS = 3
APIS = ["OffsetCommit", "Heartbeat", "Fetch", "OffsetFetch", "SyncGroup", "ConsumerGroupHeartbeat"]
OPTIONS: dict[str, Any] = {
    "heartbeat_interval": 0.05,
    "session_timeout": 6.0,
    "batch_records": 7,
    "commit_threshold": 20,
    "commit_interval": 0.2,
    "max_restarts": 1_000_000,
    "shutdown": 0.5,
}


class Fragile(Noting):
    """Raises now and then, before, in the middle of, and after its work."""

    def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
        drawn = random.random()
        if drawn < 0.02:
            raise ValueError("before")
        time.sleep(0.004 * random.random())
        for record in records:
            self.note([record])
            self.done(record)
            if drawn > 0.99:
                raise ValueError("in the middle")
        return Commit.SYNC if drawn < 0.3 else Commit.ASYNC


class AsyncFragile(AsyncNoting):
    """The same with async."""

    async def handle_records(self, records: Sequence[karrow.Record]) -> Commit:
        drawn = random.random()
        if drawn < 0.02:
            raise ValueError("before")
        await asyncio.sleep(0.004 * random.random())
        self.note(records)
        return Commit.SYNC if drawn < 0.3 else Commit.ASYNC


class Chaos:
    """Does something at random to a broker or to the members of a group."""

    def __init__(self, broker: Broker, notes: Notes, options: dict[str, Any]) -> None:
        self.members: list[karrow.WorkerGroup] = []
        self._broker = broker
        self._notes = notes
        self._options = options

    def happen(self) -> None:
        if not self.members:
            self.join()
        random.choice([self.join, self.leave, self.expire, self.cut, self.fail, self.delay])()

    def join(self) -> None:
        if len(self.members) < MEMBERS:
            kind = random.choice([Fragile, AsyncFragile])
            member = group_of(self._broker, kind, self._notes, **self._options)
            member.start()
            self.members.append(member)

    def leave(self) -> None:
        self.members.pop(random.randrange(len(self.members))).stop()

    def expire(self) -> None:
        with contextlib.suppress(GroupIdNotFound):
            self._broker.expire_session(group=GROUP)

    def cut(self) -> None:
        self._broker.close_connections()

    def fail(self) -> None:
        error = random.choice(["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"])
        self._broker.fail(random.choice(APIS), error, times=2)

    def delay(self) -> None:
        self._broker.delay("OffsetCommit", 0.2)


@pytest.mark.parametrize(
    "sharing",
    [{"assignors": "range"}, {"assignors": "cooperative-sticky"}, {"protocol": "consumer"}],
    ids=["eager", "cooperative", "served"],
)
def test_nothing_is_skipped(sharing: dict[str, Any]) -> None:
    notes, sent = Notes(), 0
    with (
        Broker(heartbeat_interval=0.1) as broker,
        karrow.Producer(broker.bootstrap, linger=0) as producer,
    ):
        broker.create_topic(TOPIC, PARTITIONS)
        chaos = Chaos(broker, notes, {**OPTIONS, **sharing})
        over = threading.Event()

        def disturb() -> None:
            while not over.wait(0.3 * random.random()):
                chaos.happen()

        disturber = threading.Thread(target=disturb)
        disturber.start()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            producer.send(TOPIC, str(sent), partition=sent % PARTITIONS)
            sent += 1
            time.sleep(0.001)
        over.set()
        disturber.join()
        broker.clear_faults()
        chaos.join()
        until(lambda: len(notes.counted()) == sent)
        for member in chaos.members:
            member.stop().check()
        stored = committed(broker)
    assert sum(offset or 0 for offset in stored.values()) == sent
