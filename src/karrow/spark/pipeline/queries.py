"""The queries of a pipeline: one for each sink, and one for each source's dead letters.

Rules:
- Spark has one sink per query. So every sink has a query, which reads its sources for itself and
  has its own folder below the checkpoint: one that is slow does not hold back the others, and each
  goes on from where it was.
- Bad rows have a query of their own as well. Inside the query of a sink they would be written once
  for each sink that reads the source, and not at all by sinks that are no ``foreachBatch``. A query
  of its own sees each row of the source once; with ``exactly-once``, which is the default for dead
  letters, it writes it once, too. Whether a row is bad depends on its bytes alone, so that the
  queries agree about it without speaking.
- Files need nothing of ours: Spark's own sink notes in ``_spark_metadata`` which of them count.
- Somebody who stops a pipeline waits for the transaction that is open (``Gate``): left behind, it
  would hold back readers of committed data until the broker aborts it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from karrow import spark
from karrow.errors import StateError
from karrow.spark.pipeline.definition import APPEND, EXACTLY_ONCE, TOPIC
from karrow.spark.pipeline.settings import SERVERS, letter_options, sink_options
from karrow.spark.pipeline.tracker import OBSERVED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from karrow.spark.pipeline.definition import Definition, Sink, Source
    from karrow.spark.pipeline.graph import Graph

__all__ = ["Flow", "Gate", "flows"]

# Few rows are bad, and one task never has to wait for others.
_LETTER_TASKS = 1

BatchFunction = Callable[["DataFrame", int], None]


class Gate:
    """Lets batches of ``foreachBatch`` through until it is closed."""

    def __init__(self, function: BatchFunction) -> None:
        self._function = function
        self._inside = threading.Lock()
        self._closed = False

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Called by Spark with every batch."""
        with self._inside:
            if self._closed:
                raise StateError("the pipeline stops")
            self._function(rows, batch)

    def close(self, timeout: float) -> None:
        """Let no batch in any more, and wait for the one that is inside."""
        self._closed = True
        if self._inside.acquire(timeout=timeout):
            self._inside.release()


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows and where they go: a query that can be started."""

    name: str
    where: str
    rows: DataFrame
    mode: str
    trigger: str | None
    checkpoint: str | None
    format: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...] = ()
    gate: Gate | None = None

    def start(self, *, once: bool) -> StreamingQuery:
        """Start the query, which goes on where its checkpoint says."""
        counted = self.rows.observe(OBSERVED, f.count(f.lit(1)).alias("rows"))
        writer = counted.writeStream.queryName(self.name).outputMode(self.mode)
        if self.checkpoint is not None:
            writer = writer.option("checkpointLocation", self.checkpoint)
        if once:
            writer = writer.trigger(availableNow=True)
        elif self.trigger is not None:
            writer = writer.trigger(processingTime=self.trigger)
        return self._into(writer).start()

    def _into(self, writer: DataStreamWriter) -> DataStreamWriter:
        if self.gate is not None:
            return writer.foreachBatch(self.gate)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        return writer.format(self.format).options(**self.options)


def flows(definition: Definition, graph: Graph) -> list[Flow]:
    """The queries of a pipeline, not started yet."""
    sinks = [_sink(definition, sink, graph.sinks[sink.name]) for sink in definition.sinks.values()]
    letters = [
        _letters(definition, definition.sources[name], rows)
        for name, rows in graph.dead_letters.items()
    ]
    return [*sinks, *letters]


def _sink(definition: Definition, sink: Sink, rows: DataFrame) -> Flow:
    about: dict[str, Any] = {
        "name": sink.name,
        "where": sink.where,
        "rows": rows,
        "mode": sink.mode,
        "trigger": sink.trigger or definition.trigger,
        "checkpoint": _folder(definition, sink.name),
    }
    if sink.kind == TOPIC:
        options = sink_options(sink)
        return Flow(**about, **_topic(rows, options, sink.delivery, sink.sink_id, sink.tasks))
    options = {setting.name: setting.value for setting in sink.options}
    if sink.path is not None:
        options["path"] = sink.path
    return Flow(**about, format=sink.kind, options=options, partition_by=sink.partition_by)


def _letters(definition: Definition, source: Source, rows: DataFrame) -> Flow:
    letter = source.dead_letter
    if letter is None:
        raise StateError(f"{source.where} has no dead_letter")
    name = f"{source.name}.dead-letter"
    options = letter_options(source, letter)
    return Flow(
        name=name,
        where=f"{source.where} dead_letter",
        rows=rows,
        mode=APPEND,
        trigger=definition.trigger,
        checkpoint=_folder(definition, name),
        **_topic(rows, options, letter.delivery, letter.sink_id, _LETTER_TASKS),
    )


def _folder(definition: Definition, name: str) -> str | None:
    return None if definition.checkpoint is None else f"{definition.checkpoint}/{name}"


def _topic(
    rows: DataFrame, options: Mapping[str, str], delivery: str, sink_id: str, tasks: int | None
) -> dict[str, Any]:
    """How a topic is written: by tasks, or with a transaction for each batch."""
    if delivery != EXACTLY_ONCE:
        return {"format": "karrow", "options": options}
    if rows.sparkSession.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        # Spark has no barriers then, which transactions of several tasks need.
        return {
            "format": "karrow",
            "options": {**options, "delivery": EXACTLY_ONCE, "sinkId": sink_id},
        }
    others = {name: value for name, value in options.items() if name not in (SERVERS, "topic")}
    write = spark.exactly_once(
        options[SERVERS], options.get("topic"), sink_id=sink_id, tasks=tasks, **others
    )
    return {"format": "foreachBatch", "options": {}, "gate": Gate(write)}
