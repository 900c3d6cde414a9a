"""Programs that write exactly once, and whether they have: in this process, or in one that dies.

The source is a folder of text files, one for each batch, or a topic; what was committed is read
back by confluent-kafka.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

import karrow
import karrow.spark
from karrow.spark.exactly import crash
from tests.brokers import KafkaCluster
from tests.spark.committed import LIMIT, read_committed

ROOT = Path(__file__).parents[2]
ROWS = 40


def committed(bootstrap: str, topic: str) -> list[tuple[int, bytes]]:
    """What readers of committed data see of a topic: partitions and values."""
    return [(one.partition() or 0, one.value() or b"") for one in read_committed(bootstrap, topic)]


def values(bootstrap: str, topic: str) -> list[str]:
    """The committed values, sorted."""
    return sorted(value.decode() for _, value in committed(bootstrap, topic))


@contextlib.contextmanager
def orders(text: str) -> Iterator[None]:
    """Points at which this process, and the tasks that it starts, are to fail."""
    crash.use(text)
    try:
        yield
    finally:
        crash.use("")


def wait_for(condition: Any, what: str, limit: float = LIMIT) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@dataclass
class Case:
    """A source, a checkpoint, and a sink."""

    kafka: KafkaCluster
    folder: Path
    partitions: int = 3
    topic: str = ""
    sink_id: str = field(default_factory=lambda: f"sink-{uuid.uuid4().hex[:10]}")
    files: int = 0

    def __post_init__(self) -> None:
        self.topic = self.topic or self.kafka.create_topic(partitions=self.partitions)
        self.source.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return self.kafka.bootstrap()

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def flag(self, name: str = "flag") -> Path:
        """A file for a crash point."""
        return self.folder / f"{name}-{uuid.uuid4().hex[:6]}"

    def add(self, batches: int = 1, rows: int = ROWS) -> Self:
        """Add rows to the source, in one file for each batch."""
        for _ in range(batches):
            lines = [f"{self.files:04}-{row:07}" for row in range(rows)]
            made = self.folder / "made"
            made.write_text("\n".join(lines))
            os.utime(made, (1_000_000_000 + self.files * 10,) * 2)
            made.rename(self.source / f"{self.files:04}.txt")
            self.files += 1
        return self

    def wanted(self) -> list[str]:
        """All rows of the source."""
        return sorted(
            line for file in self.source.iterdir() for line in file.read_text().splitlines()
        )

    def found(self) -> list[str]:
        return values(self.bootstrap, self.topic)

    def offsets(self) -> int:
        """How many offsets of the topic are taken, whatever became of them."""
        with karrow.Client(self.bootstrap) as client:
            return sum(client.latest_offset(self.topic, one) for one in range(self.partitions))

    def sink(self, **options: Any) -> Any:
        given: dict[str, Any] = {"sink_id": self.sink_id, **options}
        topic = given.pop("topic", self.topic)
        return karrow.spark.exactly_once(self.bootstrap, topic, **given)

    def start(self, spark: SparkSession, sink: Any) -> Any:
        """Start a query that ends with the source."""
        return (
            frame(spark, self.source)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, spark: SparkSession, sink: Any = None, **options: Any) -> None:
        """Write everything that the source has."""
        query = self.start(spark, self.sink(**options) if sink is None else sink)
        query.awaitTermination()

    def driver(self, crash_orders: str = "", **more: Any) -> Driver:
        """The same in a process of its own."""
        task = {
            "bootstrap": self.bootstrap,
            "topic": self.topic,
            "sink_id": self.sink_id,
            "source": str(self.source),
            "checkpoint": str(self.checkpoint),
            "folder": str(self.folder),
            **more,
        }
        return Driver(task, crash_orders, self.folder / f"driver-{uuid.uuid4().hex[:6]}.log")


class Relay(Case):
    """The same from topic to topic: what is added to the folder is sent to a topic as well."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.entry = self.kafka.create_topic(partitions=2)

    def add(self, batches: int = 1, rows: int = ROWS) -> Self:
        for number in range(self.files, self.files + batches):
            super().add(1, rows)
            with karrow.Producer(self.bootstrap) as producer:
                for line in (self.source / f"{number:04}.txt").read_text().splitlines():
                    producer.send(self.entry, line)
        return self

    def driver(self, crash_orders: str = "", **more: Any) -> Driver:
        return super().driver(crash_orders, entry=self.entry, **more)


def frame(spark: SparkSession, source: Path) -> DataFrame:
    """A stream of the rows of a folder, a file at a time; half of the rows have keys."""
    return _keyed(spark.readStream.option("maxFilesPerTrigger", 1).text(str(source)))


def relayed(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The same of a topic, as many rows at a time."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(ROWS),
    }
    records = spark.readStream.format("karrow").options(**options).load()
    return _keyed(records.selectExpr("cast(value AS string) AS value"))


def _keyed(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("if(right(value, 1) < '5', value, null) AS key", "value")


class Driver:
    """A driver in a process of its own, that may be killed."""

    def __init__(self, task: Mapping[str, Any], crash_orders: str, log: Path) -> None:
        self._log = log
        self._output = log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.once_driver", json.dumps(task)],
            cwd=ROOT,
            env={
                **os.environ,
                crash.VARIABLE: crash_orders,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools")]),
            },
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._output.close()

    def kill(self) -> None:
        """SIGKILL of the driver alone; what it started is left to itself."""
        self.process.kill()
        self.process.wait()

    def reaches(self, flag: Path) -> None:
        """Wait until it waits at the point of that flag."""
        seen = flag.with_suffix(".seen")
        wait_for(lambda: seen.exists() or self.process.poll() is not None, "point not reached")
        assert seen.exists(), self.log()[-3000:]

    @property
    def has_ended(self) -> bool:
        """Whether it is gone already."""
        return self.process.poll() is not None

    def ended(self, limit: float = LIMIT) -> int:
        """Wait for its end; how it ended."""
        return self.process.wait(limit)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def succeeded(self) -> None:
        assert self.ended() == 0, self.log()[-3000:]

    def was_killed(self) -> None:
        assert self.ended() == -signal.SIGKILL, self.log()[-3000:]
