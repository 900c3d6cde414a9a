"""Deaths by SIGKILL at every step of the protocol, on real brokers: each row is there once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from karrow.spark.exactly.crash import POINTS, VARIABLE
from karrow.sync.client import Client
from tests.brokers import KafkaCluster
from tests.contract.once_process import PARTITIONS, rows
from tests.contract.transactional import new_id

ROOT = Path(__file__).parents[2]
BATCHES = 10
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
            "bootstrap": kafka.bootstrap(),
            "topic": self.topic,
            "sink_id": new_id("sink"),
            "ledger": ledger,
            "log": str(folder / "log"),
            "batches": BATCHES,
        }

    def run(self, *orders: str) -> int:
        """One driver; how it ended."""
        text = ",".join(f"{order}:{self._flag()}" for order in orders)
        return subprocess.run(
            [sys.executable, "-m", "tests.contract.once_process", json.dumps(self.task)],
            cwd=ROOT,
            env={**os.environ, VARIABLE: text},
            check=False,
            timeout=240,
        ).returncode

    def _flag(self) -> Path:
        self._flags += 1
        return self.folder / f"flag-{self._flags}"

    def check(self) -> None:
        """Every batch is there, in its order, once, and whole."""
        with Client(self.kafka.bootstrap()) as client:
            for partition in range(PARTITIONS):
                found = client.fetch_all(self.topic, partition, isolation="read_committed")
                wanted = [value for batch in range(BATCHES) for value in rows(batch, partition)]
                assert [bytes(record.value or b"") for record in found.records] == wanted


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
