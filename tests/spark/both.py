"""The same program with both connectors: what Spark's own gives or refuses, karrow must too."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

THEIRS, OURS = "kafka", "karrow"
FORMATS = (THEIRS, OURS)
PATIENCE = 120

# Spark's connector tries thrice before it refuses, and has the broker wait at ends of partitions.
QUICK = {
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "10",
    "kafka.fetch.max.wait.ms": "20",
}

# What one task read of a partition: topic, partition, first and last offset, rows.
Span = tuple[str, int, int, int, int]


def in_json(topic: str, places: Mapping[int, int]) -> str:
    """Offsets or timestamps of a topic's partitions as options want them."""
    return json.dumps({topic: {str(partition): place for partition, place in places.items()}})


def spans(rows: Sequence[Any]) -> list[Span]:
    """What each task read, from rows whose last column is the task's number."""
    found: dict[tuple[int, str, int], list[int]] = {}
    for row in rows:
        found.setdefault((row[-1], row.topic, row.partition), []).append(row.offset)
    return sorted(
        (topic, partition, offsets[0], offsets[-1], len(offsets))
        for (_, topic, partition), offsets in found.items()
    )


def in_order(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows by their place in Kafka, whichever task read them."""
    ordered = sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))
    return [tuple(row)[:-1] for row in ordered]


def same(theirs: Any, ours: Any) -> None:
    """Compare, and tell the first difference; pytest would print all rows."""
    if isinstance(theirs, list):
        for index, (one, other) in enumerate(itertools.zip_longest(theirs, ours)):
            assert one == other, f"[{index}] {THEIRS}: {one}, {OURS}: {other}"
    assert theirs == ours, f"{THEIRS}: {theirs}, {OURS}: {ours}"


def started(writer: DataStreamWriter) -> StreamingQuery:
    """A query whose source is there; a busy machine may need more than Spark's ten seconds."""
    while True:
        query = writer.start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(0.02)
        if "worker failed to connect back" not in str(query.exception()):
            return query


def collected(frame: DataFrame) -> list[Any]:
    """All rows. Tasks of a job that was given up may still hold consumers of Spark's connector."""
    for _ in range(10):
        try:
            return frame.collect()
        except (PySparkException, Py4JJavaError) as error:
            if "KafkaConsumer is not safe for multi-threaded access" not in str(error):
                raise
            time.sleep(0.5)
    return frame.collect()


def with_task(frame: DataFrame) -> DataFrame:
    return frame.withColumn("task", functions.spark_partition_id())


@dataclass
class Query:
    """A streaming query that notes what every micro-batch brought."""

    running: StreamingQuery
    batches: list[list[Span]]
    rows: list[tuple[Any, ...]]

    @property
    def done(self) -> list[list[Span]]:
        """Its micro-batches with rows. Karrow has an empty one first, to have its start noted."""
        return [read for read in self.batches if read]


@dataclass
class Pair:
    """The same query twice."""

    theirs: Query
    ours: Query

    def settle(self) -> None:
        """Wait until both have read what is there."""
        for query in (self.theirs, self.ours):
            query.running.processAllAvailable()

    def alike(self) -> list[list[Span]]:
        """What micro-batches read, the same with both."""
        same(self.theirs.rows, self.ours.rows)
        same(self.theirs.done, self.ours.done)
        return self.ours.done


@dataclass
class Both:
    """Runs programs on one broker with each connector and compares."""

    spark: SparkSession
    bootstrap: str
    folder: Path
    _names: Iterator[int] = field(default_factory=itertools.count)

    # ---- batch

    def frame(self, connector: str, **options: Any) -> DataFrame:
        """A batch read with one of the two."""
        return self.spark.read.format(connector).options(**self._options(options)).load()

    def read(self, **options: Any) -> list[Any]:
        """All rows, the same with both, by the same tasks."""
        theirs, ours = (collected(with_task(self.frame(one, **options))) for one in FORMATS)
        same(in_order(theirs), in_order(ours))
        same(spans(theirs), spans(ours))
        return sorted(ours, key=lambda row: (row.topic, row.partition, row.offset))

    def tasks(self, **options: Any) -> list[Span]:
        """How both split the read."""
        theirs, ours = (self.frame(one, **options).rdd.getNumPartitions() for one in FORMATS)
        same(theirs, ours)
        rows = self.read(**options)
        found = spans(rows)
        assert len(found) == ours
        return found

    def refused(self, **options: Any) -> str:
        """What karrow says to a batch read that both refuse."""
        return self._refusals(
            {one: lambda one=one: self.frame(one, **options).collect() for one in FORMATS}
        )

    # ---- streams

    def stream(self, connector: str, **options: Any) -> DataFrame:
        """A streaming read with one of the two."""
        return self.spark.readStream.format(connector).options(**self._options(options)).load()

    def start(self, connector: str, name: str, trigger: Mapping[str, Any], **options: Any) -> Query:
        """Start a query; one that had that name goes on where it was."""
        batches: list[list[Span]] = []
        rows: list[tuple[Any, ...]] = []

        def note(batch: DataFrame, _: int) -> None:
            found = with_task(batch).collect()
            rows.extend(in_order(found))
            batches.append(spans(found))

        writer = self.stream(connector, **options).writeStream.foreachBatch(note).trigger(**trigger)
        place = self.folder / f"{name}-{connector}"
        running = started(writer.option("checkpointLocation", str(place)))
        return Query(running, batches, rows)

    @contextmanager
    def running(self, name: str | None = None, **options: Any) -> Iterator[Pair]:
        """Both queries, until the block is left."""
        name = name or self.new_name()
        trigger = {"processingTime": "0 seconds"}
        queries = [self.start(one, name, trigger, **options) for one in FORMATS]
        try:
            yield Pair(*queries)
        finally:
            for query in queries:
                query.running.stop()

    def drain(self, name: str | None = None, **options: Any) -> list[list[Span]]:
        """What micro-batches read of all that is there (Trigger.AvailableNow)."""
        name = name or self.new_name()
        pair = Pair(*(self.drained(one, name, options) for one in FORMATS))
        return pair.alike()

    def stream_refused(self, name: str | None = None, **options: Any) -> str:
        """What karrow says to a stream that both refuse."""
        name = name or self.new_name()
        return self._refusals(
            {one: lambda one=one: self.drained(one, name, options) for one in FORMATS}
        )

    def new_name(self) -> str:
        return f"query-{next(self._names)}"

    def drained(self, connector: str, name: str, options: Mapping[str, Any]) -> Query:
        """A query with one of the two that has read what is there, and ended."""
        query = self.start(connector, name, {"availableNow": True}, **options)
        assert query.running.awaitTermination(PATIENCE)
        return query

    # ---- both

    def _options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {"kafka.bootstrap.servers": self.bootstrap, **QUICK, **options}

    def _refusals(self, attempts: Mapping[str, Any]) -> str:
        said = ""
        for connector, attempt in attempts.items():
            try:
                given = attempt()
            except (PySparkException, Py4JJavaError) as error:
                said = str(error)
            else:
                raise AssertionError(f"{connector} takes it and gives {given}")
        return in_short(said)


def in_short(said: str) -> str:
    """karrow's own line of what Spark says with all its stacks."""
    found = re.findall(r"^(?:.*\s)?karrow\.[.\w]+: (.*)", said, re.MULTILINE)
    assert found, said
    return str(found[-1])
