"""Drivers that are killed, with SIGKILL, at every step: in the end each row is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import KafkaCluster
from tests.spark.once import ROWS, Case, Driver, Relay, wait_for

BOTH = pytest.mark.parametrize("kafka_version", ["4.3.1", "3.9.2"], indirect=True)
# Where a driver dies, in the order of the protocol; the last two come after a failure.
POINTS = (
    "open-claimed",
    "opened",
    "prepared",
    "written",
    "checked",
    "stored",
    "ended",
    "committed",
    "raise=written,fence-looked",
    "raise=written,fenced",
)
pytestmark = pytest.mark.timeout(3600)
ANYWHERE = ("task-begun", "task-wrote", "task-done", *POINTS)


@pytest.fixture
def case(kafka_version: KafkaCluster, tmp_path: Path) -> Case:
    return Case(kafka_version, tmp_path)


def die_at(case: Case, point: str) -> None:
    """A driver that goes on until it comes by the point, and no further."""
    text = ",".join(f"{one}:{case.flag()}" for one in point.split(","))
    with case.driver(text) as driver:
        driver.was_killed()


def finish(case: Case, **more: Any) -> None:
    with case.driver(**more) as driver:
        driver.succeeded()
    assert case.found() == case.wanted()


@pytest.mark.gate
def test_driver_dies_before_and_after_its_commit(kafka: KafkaCluster, tmp_path: Path) -> None:
    case = Case(kafka, tmp_path).add(3)
    die_at(case, "stored")
    die_at(case, "ended")
    finish(case)


@BOTH
def test_driver_dies_at_every_step_in_turn(case: Case) -> None:
    case.add(len(POINTS) + 1)
    for point in POINTS:
        die_at(case, point)
    finish(case)


@BOTH
def test_driver_that_reads_from_kafka_dies_before_and_after_its_commit(
    kafka_version: KafkaCluster, tmp_path: Path
) -> None:
    """Rows that come between death and restart do not belong to the batch that is repeated."""
    case = Relay(kafka_version, tmp_path).add(3)
    for point in ("written@1", "ended@2"):
        die_at(case, point)
        case.add(1)
    finish(case)


@BOTH
@pytest.mark.parametrize("point", ["task-begun", "task-wrote", "task-done"])
def test_driver_dies_while_its_tasks_write(case: Case, point: str) -> None:
    """The tasks wait at the point until it is dead, and then they go on, if they live."""
    hold = case.flag()
    hold.touch()
    case.add(1).add(1, rows=200).add(1)
    with case.driver(f"wait={point}@1:{hold}") as driver:
        driver.reaches(hold)
        has_rows = case.offsets() > ROWS + case.partitions  # more than the first and its markers
        assert point == "task-wrote" or has_rows is (point == "task-done")
        driver.kill()
        hold.unlink()
        finish(case)


@BOTH
def test_driver_that_was_replaced_comes_back(case: Case) -> None:
    """Two drivers of one query: the old one has written everything and is about to commit."""
    hold = case.flag()
    hold.touch()
    case.add(3)
    with case.driver(f"wait=stored@1:{hold}") as old:
        wait_for(hold.with_suffix(".seen").exists, "the old driver did not get there")
        finish(case)
        hold.unlink()
        assert old.ended() == 1
        assert "another" in old.log() or "PRODUCER_FENCED" in old.log()
    assert case.found() == case.wanted()


@BOTH
def test_driver_that_stood_still_is_too_late(case: Case) -> None:
    hold = case.flag()
    hold.touch()
    case.add(2)
    with case.driver(f"wait=checked@0:{hold}") as old:
        wait_for(hold.with_suffix(".seen").exists, "the old driver did not get there")
        os.killpg(old.process.pid, signal.SIGSTOP)
        hold.unlink()
        finish(case)
        os.killpg(old.process.pid, signal.SIGCONT)
        assert old.ended() == 1
    assert case.found() == case.wanted()


@BOTH
def test_any_schedule_of_deaths_leaves_every_row_once(case: Case) -> None:
    seed = int(os.environ.get("KARROW_SEED") or random.randrange(1 << 32))
    print(f"KARROW_SEED={seed}")  # noqa: T201 - what pytest shows of a failure
    chance = random.Random(seed)
    options = {"ledger": chance.choice(["group", "topic"])}
    case.add(12, rows=200)
    for _ in range(8):
        text = ",".join(orders(case, chance, one) for one in chance.sample(ANYWHERE, 2))
        with case.driver(text, options=options) as driver:
            if chance.random() < 0.3:
                kill_soon(driver, chance)
            if driver.ended() == 0:
                case.add(4, rows=200)
    finish(case, options=options)


def orders(case: Case, chance: random.Random, point: str) -> str:
    """A death in any batch; if it comes after a failure, the failure too."""
    batch = chance.randrange(12)
    return ",".join(f"{one}@{batch}:{case.flag()}" for one in point.split(","))


def kill_soon(driver: Driver, chance: random.Random) -> None:
    """SIGKILL at a moment that no point names."""
    try:
        driver.ended(chance.uniform(8.0, 30.0))
    except subprocess.TimeoutExpired:
        driver.kill()


@BOTH
def test_executors_that_come_and_go_are_refused(case: Case) -> None:
    case.add(1)
    with case.driver(settings={"spark.dynamicAllocation.enabled": "true"}) as driver:
        assert driver.ended() == 1
        assert "spark.dynamicAllocation.enabled and exactly_once exclude each other" in driver.log()
    assert case.offsets() == 0
