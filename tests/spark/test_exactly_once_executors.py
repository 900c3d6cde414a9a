"""Executors and shuffles that are lost, on a standalone cluster too: each row is there once."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.brokers import KafkaCluster
from tests.spark.once import Case, Driver, wait_for
from tests.spark.standalone import Standalone

pytestmark = pytest.mark.timeout(3600)
BOTH = pytest.mark.parametrize("kafka_version", ["4.3.1", "3.9.2"], indirect=True)
# What the driver comes by, and in which batch: the ledger is opened for the first, and an attempt
# is fenced after a failure.
STEPS = (
    ("open-claimed", 0),
    ("opened", 0),
    ("prepared", 1),
    ("written", 2),
    ("checked", 3),
    ("stored", 4),
    ("ended", 5),
    ("committed", 6),
    ("fence-looked", 7),
    ("fenced", 8),
)
FAILING = (7, 8)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


@pytest.fixture
def case(kafka_version: KafkaCluster, tmp_path: Path) -> Case:
    return Case(kafka_version, tmp_path, partitions=4)


def held(case: Case, point: str, batch: int = 1) -> tuple[Path, str]:
    hold = case.flag()
    hold.touch()
    return hold, f"wait={point}@{batch}:{hold}"


def arrived(hold: Path, driver: Driver) -> None:
    seen = hold.with_suffix(".seen")
    wait_for(lambda: seen.exists() or driver.has_ended, "no task came by the point")
    assert seen.exists(), driver.log()[-3000:]


def on_cluster(
    case: Case,
    cluster: Standalone,
    orders: str,
    settings: Mapping[str, str] | None = None,
    **more: Any,
) -> Driver:
    chosen: dict[str, Any] = {
        "spark.executor.memory": "512m",
        "spark.cores.max": "4",
        **(settings or {}),
    }
    return case.driver(orders, master=cluster.master, settings=chosen, **more)


def was_repeated(driver: Driver, batch: int = 1) -> bool:
    """Whether the driver has told that an attempt at a batch failed and another one begins."""
    return re.search(rf"^sink\.retry {batch} ", driver.log(), re.MULTILINE) is not None


@BOTH
@pytest.mark.parametrize("point", ["task-begun", "task-done"])
def test_executor_is_killed_before_or_after_its_tasks_have_written(
    case: Case, cluster: Standalone, point: str
) -> None:
    hold, orders = held(case.add(3), point)
    with on_cluster(case, cluster, orders) as driver:
        arrived(hold, driver)
        os.kill(cluster.executors()[0], signal.SIGKILL)
        hold.unlink()
        driver.succeeded()
        assert was_repeated(driver)
    assert case.found() == case.wanted()


@BOTH
def test_executors_are_killed_at_every_step_of_the_driver(case: Case, cluster: Standalone) -> None:
    """All of them, while the driver is between two steps of a batch."""
    case.add(STEPS[-1][1] + 1)
    held_at = [held(case, point, batch) for point, batch in STEPS]
    failures = [f"raise=written@{batch}:{case.flag()}" for batch in FAILING]
    text = ",".join([*failures, *(order for _, order in held_at)])
    with on_cluster(case, cluster, text) as driver:
        killed: set[int] = set()
        for hold, _ in held_at:
            arrived(hold, driver)
            # Between some steps there is no time for new ones to come.
            wait_for(lambda: set(cluster.executors()) - killed, "no new executors")
            running = cluster.executors()
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            killed.update(running)
            hold.unlink()
        driver.succeeded()
        assert all(was_repeated(driver, batch) for batch in FAILING)
    assert case.found() == case.wanted()


@BOTH
def test_task_whose_executor_is_lost_writes_on_and_is_fenced(
    case: Case, cluster: Standalone
) -> None:
    """The Python half of a task outlives its executor, and has rows and connections still."""
    hold, orders = held(case.add(3, rows=200), "task-wrote")
    with on_cluster(case, cluster, orders) as driver:
        arrived(hold, driver)
        before = set(cluster.executors())
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: set(cluster.executors()) - before, "no new executors")
        hold.unlink()
        driver.succeeded()
        assert was_repeated(driver)
    assert case.found() == case.wanted()
    # What the lost tasks wrote is there, and nobody sees it.
    assert case.offsets() > len(case.wanted()) + 3 * case.partitions


@BOTH
def test_executor_that_stood_still_is_too_late(case: Case, cluster: Standalone) -> None:
    hold, orders = held(case.add(2, rows=200), "task-wrote")
    quick = {
        "spark.network.timeout": "30s",
        "spark.network.timeoutInterval": "5s",
        "spark.executor.heartbeatInterval": "2s",
    }
    with on_cluster(case, cluster, orders, quick) as driver:
        arrived(hold, driver)
        still = cluster.executors()[0]
        os.kill(still, signal.SIGSTOP)
        try:
            hold.unlink()
            driver.succeeded()
            assert was_repeated(driver)
        finally:
            os.kill(still, signal.SIGCONT)
    assert case.found() == case.wanted()


class Apart(Standalone):
    """Workers on hosts of two names: no task has two copies on one host."""

    def _run(self, name: str, kind: str, *arguments: str) -> Path:
        host = "localhost" if name == "worker-1" else "127.0.0.1"
        return super()._run(name, kind, *(host if a == "127.0.0.1" else a for a in arguments))


class Tasks(NamedTuple):
    """Tasks of a stage by its event log: how many there are to be, and which began."""

    is_barrier: bool
    wanted: int
    began: list[tuple[int, bool]]
    """The task's number, and whether it is a second copy."""

    @property
    def copies(self) -> int:
        return sum(is_copy for _, is_copy in self.began)


def tasks_by_stage(folder: Path) -> list[Tasks]:
    """What really ran: whoever writes twice under one identity leaves one row."""
    stages: dict[int, Tasks] = {}
    lines = [line for file in folder.rglob("events_*") for line in file.read_text().splitlines()]
    for event in map(json.loads, lines):
        if event["Event"] == "SparkListenerStageSubmitted":
            info = event["Stage Info"]
            is_barrier = any(rdd["Barrier"] for rdd in info["RDD Info"])
            stages[info["Stage ID"]] = Tasks(is_barrier, info["Number of Tasks"], [])
        elif event["Event"] == "SparkListenerTaskStart":
            info = event["Task Info"]
            stages[event["Stage ID"]].began.append((info["Index"], info["Speculative"]))
    return list(stages.values())


@BOTH
def test_task_that_is_slow_gets_no_second_copy_unlike_one_of_an_ordinary_stage(
    case: Case, tmp_path: Path
) -> None:
    """In the first batch a task that makes rows is held, in the second one tasks that write are.

    Of these some have one batch of rows and are done; those with a second one are held.
    """
    hold, orders = held(case.add(2, rows=80), "task-wrote")
    ordinary = case.flag()
    ordinary.touch()
    log = tmp_path / "log"
    log.mkdir()
    eager = {
        "spark.speculation.interval": "10ms",
        "spark.speculation.multiplier": "1",
        "spark.speculation.quantile": "0.1",
        # Some tasks make the rows of a file.
        "spark.sql.files.maxPartitionBytes": "400",
        "spark.sql.files.openCostInBytes": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with (
        Apart(tmp_path / "cluster") as cluster,
        on_cluster(case, cluster, orders, eager, held=["0000-0000005", str(ordinary)]) as driver,
    ):
        arrived(ordinary, driver)
        seen = ordinary.with_suffix(".seen")
        first = seen.stat().st_mtime_ns
        wait_for(lambda: seen.stat().st_mtime_ns > first, "there was no second copy", 120.0)
        ordinary.unlink()
        arrived(hold, driver)
        time.sleep(5.0)
        hold.unlink()
        driver.succeeded()
    assert case.found() == case.wanted()
    stages = tasks_by_stage(log)
    assert sum(one.copies for one in stages if not one.is_barrier) > 0
    writing = [one for one in stages if one.is_barrier]
    assert [sorted(one.began) for one in writing] == [
        [(number, False) for number in range(one.wanted)] for one in writing
    ]
    assert [one.wanted for one in writing] == [4, 4]
    # Nothing was written twice, committed or not: the rest are the markers of two transactions.
    assert len(case.wanted()) < case.offsets() <= len(case.wanted()) + 2 * case.partitions


@BOTH
def test_shuffle_that_is_lost_under_the_write_fails_the_attempt_only(case: Case) -> None:
    hold, orders = held(case.add(1).add(1, rows=400_000).add(1), "task-begun")
    pieces = {
        "spark.sql.files.maxPartitionBytes": "500000",
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    }
    with case.driver(orders, settings=pieces) as driver:
        arrived(hold, driver)
        lost = list((case.folder / "local").rglob("shuffle_*.data"))
        assert len(lost) > 4
        for file in lost:
            file.unlink()
        hold.unlink()
        driver.succeeded()
        # Spark has taken it for a lost shuffle, and has not run the stage once more.
        (retry,) = re.findall(
            r"^sink\.retry 1 (.*?)^\s+at ", driver.log(), re.DOTALL | re.MULTILINE
        )
        assert "Could not recover from a failed barrier ResultStage" in retry
        assert "FetchFailed" in retry
    assert case.found() == case.wanted()
