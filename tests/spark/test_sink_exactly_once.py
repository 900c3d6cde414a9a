"""delivery=exactly-once: the driver writes, and it, or its process for the sink, is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import karrow
from karrow.records import partition_for
from tests.brokers import KafkaCluster
from tests.spark.driven import Driven
from tests.spark.once import Driver, committed, wait_for
from tests.spark.standalone import Standalone, parent, running

# Transactions of version 2, and of version 1.
BOTH = pytest.mark.parametrize("kafka_version", ["4.3.1", "3.9.2"], indirect=True)
LONG = pytest.mark.timeout(1800)


@pytest.fixture
def case(kafka_version: KafkaCluster, tmp_path: Path) -> Driven:
    return Driven(kafka_version, tmp_path)


@pytest.fixture
def newest(kafka: KafkaCluster, tmp_path: Path) -> Driven:
    return Driven(kafka, tmp_path)


@pytest.mark.gate
def test_batches_are_written_once_even_if_spark_repeats_one(
    spark: SparkSession, newest: Driven
) -> None:
    newest.add(2).write(spark)
    newest.repeat_last()
    newest.add(1).write(spark)
    assert newest.found() == newest.wanted()
    for partition, value in committed(newest.bootstrap, newest.topic):
        if value[-1:] < b"5":  # those have keys
            assert partition == partition_for(value, newest.partitions)


@BOTH
@pytest.mark.parametrize("ledger", ["group", "topic"])
def test_a_query_goes_on_where_it_was(spark: SparkSession, case: Driven, ledger: str) -> None:
    case.add(2).write(spark, ledger=ledger)
    case.add(1, rows=0).write(spark, ledger=ledger)
    case.repeat_last()
    case.add(2).write(spark, ledger=ledger)
    assert case.found() == case.wanted()


@BOTH
def test_new_checkpoint_on_an_old_sink_stops(spark: SparkSession, case: Driven) -> None:
    case.add(2).write(spark)
    shutil.rmtree(case.checkpoint)
    assert "belongs to the query" in case.refusal(spark)
    assert case.found() == case.wanted()


@BOTH
def test_ledger_that_is_gone_stops_unless_told_otherwise(spark: SparkSession, case: Driven) -> None:
    case.add(2).write(spark)
    with karrow.Admin(case.bootstrap) as admin:
        admin.delete_groups([f"karrow.ledger.{case.sink_id}"])
    case.repeat_last()
    assert "onMissingLedger='redo' or 'skip'" in case.refusal(spark)
    case.add(1).write(spark, onMissingLedger="skip")
    assert case.found() == case.wanted()


def test_rows_may_name_their_topics(spark: SparkSession, newest: Driven) -> None:
    other = newest.kafka.create_topic(partitions=1)
    names = f"if(right(value, 1) < '3', '{other}', '{newest.topic}') AS topic"
    newest.add(2).write(spark, "value", names, topic="", ledgerTopic=other)
    there, here = committed(newest.bootstrap, other), committed(newest.bootstrap, newest.topic)
    assert sorted(value.decode() for _, value in there + here) == newest.wanted()
    assert {value[-1:] for _, value in there} == {b"0", b"1", b"2"}


@BOTH
def test_a_task_that_fails_writes_nothing(spark: SparkSession, case: Driven) -> None:
    case.add(1)
    said = case.refusal(spark, "value", "if(right(value, 2) = '39', 7, 0) AS partition")
    assert "the topic has partitions 0 to 2" in said
    assert case.offsets() == 0
    case.write(spark)
    assert case.found() == case.wanted()


@pytest.mark.gate
def test_a_batch_write_is_refused_with_the_reason(spark: SparkSession, newest: Driven) -> None:
    rows = spark.range(1).selectExpr("'v' AS value")
    with pytest.raises(PySparkException, match="has no number by which its repetition"):
        rows.write.format("karrow").mode("append").options(**newest.options()).save()


# ---- processes that die

# Where, and in which batch, which is fenced if it has failed.
POINTS = (
    "open-claimed@0",
    "opened@0",
    "prepared@1",
    "task-wrote@2",
    "written@3",
    "checked@4",
    "stored@5",
    "ended@6",
    "committed@7",
    "raise=written@8,fence-looked@8",
    "raise=written@9,fenced@9",
)
BATCHES = 11


def order(case: Driven, point: str, kind: str = "") -> tuple[str, Path]:
    """What is to happen at a point, and the flag that tells whether it has."""
    *failures, last = point.split(",")
    flag = case.flag()
    before = [f"{failure}:{case.flag()}" for failure in failures]
    return ",".join([*before, f"{kind}{last}:{flag}"]), flag


@LONG
@BOTH
def test_every_batch_is_written_once_wherever_the_process_of_the_sink_dies(case: Driven) -> None:
    """The query ends with it, and its driver starts it again."""
    case.add(BATCHES)
    hold = case.flag()
    hold.touch()
    deaths = [order(case, point) for point in POINTS]
    text = ",".join([f"wait=task-wrote@2:{hold}", *(one for one, _ in deaths)])
    with case.driver(text, sink=case.options(), restarts=len(deaths)) as driver:
        driver.reaches(hold)
        wait_for(case.open_rows, "no row is out")
        hold.unlink()
        driver.succeeded()
    assert [flag.name for _, flag in deaths if not flag.exists()] == []
    assert case.found() == case.wanted()


@LONG
@BOTH
def test_every_batch_is_written_once_wherever_the_driver_dies(case: Driven) -> None:
    """The process of the sink goes on as if nothing had happened."""
    case.add(BATCHES)
    for point in POINTS:
        text, flag = order(case, point, "wait=")
        flag.touch()
        with case.program(text) as driver:
            driver.reaches(flag)
            if point.startswith("task-wrote"):
                wait_for(case.open_rows, "no row is out")
        flag.unlink()  # what is left of it, if anything is, goes on
    with case.program() as driver:
        driver.succeeded()
    assert case.found() == case.wanted()


@LONG
@BOTH
def test_executors_that_are_lost_while_tasks_pack_rows_leave_no_trace(
    case: Driven, tmp_path: Path
) -> None:
    """Spark runs the tasks again; nobody but the driver has a transaction, and it writes once."""
    hold = case.flag()
    hold.touch()
    case.add(1).add(1, rows=200).add(1)
    more: dict[str, Any] = {
        "sink": case.options(),
        "held": ["0001-0000150", str(hold)],
        "settings": {"spark.executor.memory": "512m", "spark.cores.max": "4"},
    }
    with (
        Standalone(tmp_path / "cluster") as cluster,
        case.driver(master=cluster.master, **more) as driver,
    ):
        driver.reaches(hold)
        before = set(cluster.executors())
        assert before
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: set(cluster.executors()) - before, "no new executors")
        hold.unlink()
        driver.succeeded()
    assert case.found() == case.wanted()
    # Nothing was written twice, committed or not: the rest are the markers of three transactions.
    assert case.offsets() <= len(case.wanted()) + 3 * case.partitions


@LONG
def test_executors_that_come_and_go_are_no_matter(newest: Driven, tmp_path: Path) -> None:
    """Under dynamic allocation all of them are gone while the driver writes."""
    hold = newest.flag()
    hold.touch()
    settings = {
        "spark.executor.memory": "512m",
        "spark.cores.max": "4",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
    }
    task: dict[str, Any] = {"sink": newest.add(3).options(), "settings": settings}
    with (
        Standalone(tmp_path / "cluster") as cluster,
        newest.driver(f"wait=stored@1:{hold}", master=cluster.master, **task) as driver,
    ):
        driver.reaches(hold)
        wait_for(lambda: not cluster.executors(), "executors without work stay")
        hold.unlink()
        driver.succeeded()
    assert newest.found() == newest.wanted()


def python_workers(driver: Driver) -> list[int]:
    """The processes that run tasks of a local Spark, without the one that forks them."""
    found = []
    for pid in running("pyspark.daemon\0pyspark.worker"):
        with contextlib.suppress(ProcessLookupError):  # of another test, and it has just ended
            if os.getsid(pid) == driver.process.pid:
                found.append(pid)
    return [pid for pid in found if parent(pid) in found]


@LONG
@BOTH
def test_python_workers_that_are_killed_while_they_pack_rows_leave_no_trace(case: Driven) -> None:
    """Spark runs their tasks again, if it may: a local one may only when it is told so."""
    hold = case.flag()
    hold.touch()
    case.add(1).add(1, rows=200).add(1)
    more: dict[str, Any] = {"held": ["0001-0000150", str(hold)], "master": "local[2,4]"}
    with case.driver(sink=case.options(), **more) as driver:
        driver.reaches(hold)
        workers = python_workers(driver)
        assert len(workers) > 1, "who makes the rows, and who packs them"
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        hold.unlink()
        driver.succeeded()
    assert case.found() == case.wanted()
    # Nothing was written twice, committed or not: the rest are the markers of three transactions.
    assert case.offsets() <= len(case.wanted()) + 3 * case.partitions


@LONG
@BOTH
def test_a_driver_that_was_replaced_cannot_commit(case: Driven) -> None:
    case.add(3)
    flag = case.flag()
    flag.touch()
    with case.program(f"wait=stored@1:{flag}") as first:
        first.reaches(flag)
        with case.program() as second:
            second.succeeded()
        flag.unlink()
        assert first.ended() != 0
    assert case.found() == case.wanted()
