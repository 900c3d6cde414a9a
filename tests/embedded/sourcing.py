"""The source without Spark: readers made, pickled as Spark does, and asked as Spark asks."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

import karrow
from karrow.spark.reading.batch import BatchReader, batch_reader
from karrow.spark.reading.ranges import Range
from karrow.spark.reading.stream import StreamReader

QUICK = {
    "kafka.fetch.max.wait.ms": "50",
    "kafka.request.timeout.ms": "2000",
    "kafka.default.api.timeout.ms": "5000",
    "kafka.retry.backoff.ms": "10",
    "kafka.reconnect.backoff.ms": "10",
}
Rows = list[dict[str, Any]]


def options(bootstrap: str, **given: Any) -> CaseInsensitiveDict:
    """Options as Spark hands them over; ``kafka_x`` stands for ``kafka.x``."""
    named = {
        name.replace("kafka_", "kafka.", 1).replace("_", "."): str(value)
        for name, value in given.items()
    }
    return CaseInsensitiveDict({"kafka.bootstrap.servers": bootstrap, **QUICK, **named})


def batch(bootstrap: str, **given: Any) -> BatchReader:
    return batch_reader(options(bootstrap, **given))


def in_task(reader: Any, part: InputPartition) -> Rows:
    """What a task reads; reader and range come by pickle."""
    reader, part = pickle.loads(pickle.dumps((reader, part)))
    found = list(reader.read(part))
    assert all(one.num_rows for one in found)
    return pa.Table.from_batches(found).to_pylist() if found else []


def read(bootstrap: str, **given: Any) -> Rows:
    """All rows of a batch query, task after task."""
    reader = batch(bootstrap, **given)
    return [row for part in reader.partitions() for row in in_task(reader, part)]


def values(rows: Rows) -> list[bytes]:
    return [row["value"] for row in rows]


def places(rows: Rows) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows]


@dataclass
class Query:
    """A stream as Spark runs it: offsets are kept as texts, and batches follow each other."""

    bootstrap: str
    given: dict[str, Any]
    log: list[str] = field(default_factory=list)
    reader: StreamReader = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A new process with the same checkpoint."""
        self.reader = StreamReader(options(self.bootstrap, **self.given))
        self._initial = None if self.log else json.dumps(self.reader.initialOffset())

    def _start(self, batch: int) -> str:
        if batch:
            return self.log[batch - 1]
        if self._initial is None:
            self._initial = json.dumps(self.reader.initialOffset())
        return self._initial

    def next(self, limit: ReadLimit | None = None) -> Rows | None:
        """The next batch; None where there is nothing for one."""
        start = self._start(len(self.log))
        wanted = limit or self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(start), wanted))
        if end == start:
            return None
        self.log.append(end)
        return self.repeat(len(self.log) - 1)

    def repeat(self, batch: int) -> Rows:
        """The batch with that number, once more."""
        start, end = json.loads(self._start(batch)), json.loads(self.log[batch])
        parts = self.reader.partitions(start, end)
        return [row for part in parts for row in in_task(self.reader, part)]

    def forget_epochs(self) -> None:
        """Have a checkpoint as it was before epochs of leaders stood in it."""
        for number, text in enumerate(self.log):
            kept = {name: said for name, said in json.loads(text).items() if name != "@epochs"}
            self.log[number] = json.dumps(kept)

    def ranges(self, batch: int) -> list[Range]:
        start, end = json.loads(self._start(batch)), json.loads(self.log[batch])
        return [part for part in self.reader.partitions(start, end) if isinstance(part, Range)]


def stream(bootstrap: str, **given: Any) -> Query:
    return Query(bootstrap, given)


def numbers(*bounds: int) -> list[bytes]:
    """Values that are told apart."""
    return [b"%d" % number for number in range(*bounds)]


def put(client: karrow.Client, *bounds: int, partition: int = 0, topic: str = "orders") -> None:
    """Append numbers to a partition."""
    client.produce(topic, numbers(*bounds), partition=partition)


def query(broker: karrow.Broker, **given: Any) -> Query:
    """A stream of the topic ``orders``, if nothing else is given."""
    return stream(broker.bootstrap, **{"subscribe": "orders", **given})


def next_values(running: Query) -> list[bytes]:
    """The values of the next batch, which there has to be."""
    rows = running.next()
    assert rows is not None
    return values(rows)
