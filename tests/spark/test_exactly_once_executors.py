"""Executors and shuffles that are lost, on a standalone cluster too: each row is there once."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def on_cluster(case: Case, cluster: Standalone, orders: str, **settings: str) -> Driver:
    chosen: dict[str, Any] = {
        "spark.executor.memory": "512m",
        "spark.cores.max": "4",
        **settings,
    }
    return case.driver(orders, master=cluster.master, settings=chosen)


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
    with on_cluster(case, cluster, orders, **quick) as driver:
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


@BOTH
def test_task_that_is_slow_gets_no_second_copy(case: Case, cluster: Standalone) -> None:
    """Some tasks have one batch of rows and are done; those with a second one are held."""
    hold, orders = held(case.add(1).add(1, rows=80), "task-wrote")
    eager = {
        "spark.speculation.interval": "10ms",
        "spark.speculation.multiplier": "1",
        "spark.speculation.quantile": "0.1",
    }
    with on_cluster(case, cluster, orders, **eager) as driver:
        arrived(hold, driver)
        time.sleep(5.0)
        hold.unlink()
        driver.succeeded()
    assert case.found() == case.wanted()
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
