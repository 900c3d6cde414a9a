"""Deaths by SIGKILL at every step of the protocol, on real brokers: each row is there once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from karrow.spark.exactly.crash import POINTS, VARIABLE
from karrow.sync.client import Client
from tests.brokers import KafkaCluster
from tests.contract.once_process import PARTITIONS, ROWS, rows
from tests.contract.transactional import new_id
from tests.proxy import ClusterProxy, Proxy
from tests.proxy_link import Step

Started = subprocess.Popen[bytes]
ROOT = Path(__file__).parents[2]
BATCHES = 10
PATIENCE = 60.0
BOTH = pytest.mark.parametrize("kafka_version", ["4.3.1", "3.9.2"], indirect=True)
DEADLY = [point for point in POINTS if point != "task-done"]
# What makes an attempt fail, so that those points are come by which follow a failure.
FAILURES = ("raise=task-wrote", "raise=written", "raise=stored", "raise=ended")


class Life:
    """What driver after driver goes on with."""

    def __init__(self, kafka: KafkaCluster, folder: Path, ledger: str) -> None:
        self.kafka, self.folder = kafka, folder
        self.topic = kafka.create_topic(partitions=PARTITIONS)
        self._flags = 0
        self.task = {
            "topic": self.topic,
            "sink_id": new_id("sink"),
            "ledger": ledger,
            "log": str(folder / "log"),
            "batches": BATCHES,
        }

    def run(self, *orders: str) -> int:
        """One driver; how it ended."""
        text = ",".join(f"{order}:{self.flag()}" for order in orders)
        with self.started(text) as driver:
            return driver.wait(240)

    @contextmanager
    def started(self, orders: str, bootstrap: str | None = None) -> Iterator[Started]:
        """A driver that knows brokers by that address, and does not outlive the block."""
        task = {**self.task, "bootstrap": bootstrap or self.kafka.bootstrap()}
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.once_process", json.dumps(task)],
            cwd=ROOT,
            env={**os.environ, VARIABLE: orders},
        )
        try:
            yield driver
        finally:
            driver.kill()
            driver.wait()

    def flag(self) -> Path:
        """A file for a point."""
        self._flags += 1
        return self.folder / f"flag-{self._flags}"

    def check(self, batches: int = BATCHES) -> None:
        """So many batches are there, in their order, once, and whole; no others."""
        for partition in range(PARTITIONS):
            wanted = [value for batch in range(batches) for value in rows(batch, partition)]
            assert self._seen(partition) == wanted

    def waits_for(self, batches: int) -> None:
        """What was committed is seen a moment later, when the markers are written."""
        deadline = time.monotonic() + PATIENCE
        while not all(len(self._seen(part)) == batches * ROWS for part in range(PARTITIONS)):
            assert time.monotonic() < deadline, "what was committed is not seen"
            time.sleep(0.05)

    def _seen(self, partition: int) -> list[bytes]:
        with Client(self.kafka.bootstrap()) as client:
            found = client.fetch_all(self.topic, partition, isolation="read_committed")
            return [bytes(record.value or b"") for record in found.records]


@BOTH
def test_driver_dies_at_every_point(kafka_version: KafkaCluster, tmp_path: Path) -> None:
    life = Life(kafka_version, tmp_path, "group")
    for point in DEADLY:
        failure = ["raise=written"] if point.startswith("fence") else []
        assert life.run(*failure, point) == -signal.SIGKILL, point
    assert life.run() == 0
    life.check()


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("ledger", ["group", "topic"])
def test_any_schedule_of_deaths(kafka_version: KafkaCluster, tmp_path: Path, ledger: str) -> None:
    seed = int(os.environ.get("KARROW_SEED") or random.randrange(1 << 32))
    print(f"KARROW_SEED={seed}")  # noqa: T201 - what pytest shows of a failure
    chance = random.Random(seed)
    life = Life(kafka_version, tmp_path, ledger)
    for _ in range(25):
        deaths = [f"{chance.choice(DEADLY)}@{chance.randrange(BATCHES)}" for _ in range(3)]
        failures = [f"{one}@{chance.randrange(BATCHES)}" for one in chance.sample(FAILURES, 2)]
        if life.run(*deaths, *failures) == 0:
            break
    assert life.run() == 0
    life.check()


# ---- with EndTxn under way


@contextmanager
def stands_at(life: Life, proxy: ClusterProxy, order: str) -> Iterator[tuple[Started, Path]]:
    """A driver behind the proxy that waits at a point, until the file is removed."""
    hold = life.flag()
    hold.touch()
    with life.started(f"wait={order}:{hold}", proxy.bootstrap) as driver:
        deadline = time.monotonic() + PATIENCE
        while not hold.with_suffix(".seen").exists():
            assert driver.poll() is None, "it ended before the point"
            assert time.monotonic() < deadline, "it did not come by the point"
            time.sleep(0.02)
        yield driver, hold


def dies_committing(
    life: Life, proxy: ClusterProxy, step: Callable[[Proxy], Step], batch: int
) -> Step:
    """SIGKILL when the EndTxn of a batch meets the proxy, as request or as answer."""
    with stands_at(life, proxy, f"stored@{batch}") as (driver, hold):
        met = step(proxy.nodes[0])
        hold.unlink()
        met.wait(PATIENCE)
        driver.send_signal(signal.SIGKILL)
        assert driver.wait(PATIENCE) == -signal.SIGKILL
    return met


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("ledger", ["group", "topic"])
def test_driver_dies_with_its_commit_under_way(
    kafka_version: KafkaCluster, tmp_path: Path, ledger: str
) -> None:
    life = Life(kafka_version, tmp_path, ledger)
    with ClusterProxy(kafka_version) as proxy:
        # The broker has committed, and nobody has heard of it.
        dies_committing(life, proxy, lambda node: node.drop_answer("EndTxn", "stall"), 2)
        life.waits_for(3)
        # The broker never hears of it.
        dies_committing(life, proxy, lambda node: node.hold("EndTxn"), 5).discard()
        life.check(5)
        # The broker hears of it when the next driver has begun.
        late = dies_committing(life, proxy, lambda node: node.hold("EndTxn"), 7)
        life.check(7)
        with stands_at(life, proxy, "written@7") as (driver, hold):
            late.release()
            time.sleep(0.5)
            hold.unlink()
            assert driver.wait(PATIENCE) == 0
    life.check()
