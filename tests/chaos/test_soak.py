"""An hour's shape in two minutes: steady records, steady rebalances, flat memory."""

from __future__ import annotations

import gc
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import karrow
from karrow.broker.threaded import Broker
from karrow.sync.consumer import Consumer
from tests.chaos.test_groups import KINDS

TOPIC = "soak"
GROUP = "group"
PARTITIONS = 4
SECONDS = 120.0
WARM_UP = 30.0
VALUE = b"x" * 4000
# What allocators may keep: between the two times that are compared about ten times as much is sent,
# so that a leak of one record in ten is more.
SLACK_BYTES = 25 * 1024 * 1024
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def memory() -> int:
    """The bytes that this process has in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096


class Reader:
    """A member that counts."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._make = (bootstrap, options)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        bootstrap, options = self._make
        try:
            with Consumer(bootstrap, TOPIC, group=GROUP, start="earliest", **options) as consumer:
                while not self._stop.is_set():
                    self.count += len(consumer.poll(0.2))
        except BaseException as error:  # noqa: BLE001 - for the test
            self.error = error

    def stop(self) -> int:
        """Leave; how much it has read."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.count


@pytest.mark.parametrize("kind", ["cooperative", "served"])
def test_memory_is_flat_while_groups_change(kind: str) -> None:
    chance = random.Random(1)
    stop = threading.Event()
    sent = [0]
    with Broker(heartbeat_interval=0.1) as broker, karrow.Admin(broker.bootstrap) as admin:
        # Or the broker, which is in the same process, would grow.
        limits = {"retention.bytes": str(16 << 20), "segment.bytes": str(1 << 20)}
        admin.create_topic(TOPIC, partitions=PARTITIONS, config=limits)

        def write() -> None:
            with karrow.Producer(broker.bootstrap) as producer:
                while not stop.wait(0.01):
                    for _ in range(20):
                        producer.send(TOPIC, VALUE)
                    sent[0] += 20

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        options: dict[str, Any] = {"max_wait": 0.1, **KINDS[kind]}
        members = [Reader(broker.bootstrap, **options) for _ in range(2)]
        read, changes, sizes = 0, 0, []
        began = time.monotonic()
        while time.monotonic() - began < SECONDS:
            time.sleep(0.7)
            members.append(Reader(broker.bootstrap, **options))
            time.sleep(0.7)
            read += members.pop(chance.randrange(len(members))).stop()
            changes += 2
            broker.apply_retention()
            broker.clear_requests()
            if time.monotonic() - began > WARM_UP:
                sizes.append(memory())
        stop.set()
        writer.join(60)
        time.sleep(2.0)
        read += sum(member.stop() for member in members)
    half = len(sizes) // 2
    early, late = min(sizes[:half]), min(sizes[half:])
    print(f"{sent[0]} sent, {read} read, {changes} changes, {early} -> {late} bytes")  # noqa: T201
    assert read >= sent[0]
    assert late - early < SLACK_BYTES
