"""What karrow takes for granted of Spark, on whichever release runs: who calls what, and where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

ROOT = Path(__file__).parents[2]
BATCHES = 3
LARGE = 60_000_000


# The processes that get the classes below do not know this file, so their code has to travel.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Noting:
    """Notes what happens in a file."""

    def __init__(self, log: str) -> None:
        self.log = log

    def note(self, *words: object) -> None:
        with Path(self.log).open("a") as file:
            file.write(" ".join(map(str, words)) + "\n")


class Reader(Noting, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A row for each batch."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"n": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there stays the same."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self.note("looked", start["n"])
        return {"n": min(start["n"] + 1, BATCHES)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(number) for number in range(start["n"], end["n"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)

    def commit(self, end: dict[str, Any]) -> None:
        self.note("heard", end["n"])


class Message(WriterCommitMessage):
    """As much as a task has for the one that commits."""

    def __init__(self, size: int) -> None:
        self.data = bytes(size)


class Writer(Noting, DataSourceStreamWriter):
    def __init__(self, log: str, size: int) -> None:
        super().__init__(log)
        self.size = size
        self.note("made", os.getpid())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        names = ("streaming.sql.batchId", "sql.streaming.queryId")
        self.note("wrote", *map(context.getLocalProperty, names), len(list(iterator)))
        return Message(self.size)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.note("committed", batchId, os.getpid(), len(messages))
        self.note("received", *(len(one.data) for one in messages if isinstance(one, Message)))


class Observed(DataSource):
    """A source and a sink that note who calls them."""

    @classmethod
    def name(cls) -> str:
        return "observed"

    def schema(self) -> str:
        return "n int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return Reader(self.options["log"])

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return Writer(self.options["log"], int(self.options["size"]))


class Program:
    """A query from that source into that sink."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._log = folder / "log"
        spark.dataSource.register(Observed)

    def run(self, size: int = 0) -> tuple[str, list[list[str]]]:
        """The query's id, and what was noted; messages of tasks have that many bytes."""
        self._log.write_text("")
        options: dict[str, Any] = {"log": str(self._log), "size": size}
        rows = self._spark.readStream.format("observed").options(**options).load()
        writer = rows.writeStream.format("observed").options(**options).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()
        query.awaitTermination()
        return str(query.id), [line.split() for line in self._log.read_text().splitlines()]


def of(kind: str, noted: list[list[str]]) -> list[list[str]]:
    return [words for what, *words in noted if what == kind]


def test_a_writer_is_made_for_the_tasks_and_another_where_it_commits(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So nothing may be taken over when one is made: the second would fence the first."""
    query, noted = Program(spark, tmp_path).run()
    steps = [line for line in noted if line[0] in ("made", "wrote", "committed")]
    assert len(steps) == 4 * BATCHES
    for batch in range(BATCHES):
        before, task, after, commit = steps[4 * batch : 4 * batch + 4]
        assert task == ["wrote", str(batch), query, "1"]
        assert commit == ["committed", str(batch), after[1], "1"]
        assert (before[0], after[0]) == ("made", "made")
        assert before[1] != after[1]


def test_large_messages_arrive_and_the_processes_of_a_writer_stay(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So the driver can write what tasks send to it, and keep what it has open."""
    _, noted = Program(spark, tmp_path).run(LARGE)
    assert of("received", noted) == [[str(LARGE)]] * BATCHES
    for (process,) in of("made", noted):
        os.kill(int(process), 0)  # raises if it is no more


def test_the_last_batch_is_seen_as_a_beginning_but_not_heard_of(
    spark: SparkSession, tmp_path: Path
) -> None:
    """So offsets of groups are stored by both."""
    program = Program(spark, tmp_path)
    first, noted = program.run()
    assert of("heard", noted) == [["1"], ["2"]]
    assert of("looked", noted)[-1] == ["3"]
    again, noted = program.run()
    assert again == first
    assert of("heard", noted) == []
    assert of("committed", noted) == []


@pytest.mark.timeout(600)
def test_tasks_of_a_barrier_stage_that_ends_a_job_run_once(tmp_path: Path) -> None:
    """So a partition has one writer in each attempt. Elsewhere a task that fails is repeated."""
    subprocess.run(
        [sys.executable, "-m", "tests.spark.barrier_job", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools")])},
        check=True,
        timeout=500,
    )
    found = json.loads((tmp_path / "found").read_text())
    assert found["barrier"]["runs"] == [0, 1]
    assert "Could not recover from a failed barrier ResultStage" in found["barrier"]["said"]
    assert found["plain"]["runs"] == [0, 1, 1, 1, 1]
