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
- No two queries have a table in common, so all tables are made anew for each: Spark notes in a plan
  which frames were made of it, in a set that no lock guards and that every copy of the plan has.
  Two queries that write into it break it for good, and what it is part of can be sent to no task
  any more ("Task not serializable").
- Files need little of ours: Spark's own sink notes in ``_spark_metadata`` which of them count. It
  counts by the numbers of batches, so a folder belongs to one checkpoint (checks.py).
- Somebody who stops a pipeline waits for the transaction that is open (``Gate``): left behind, it
  would hold back readers of committed data until the broker aborts it. Where the driver writes,
  Spark commits in a process of its own, which no gate of ours is in front of.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from karrow import spark
from karrow.errors import ConfigError, StateError
from karrow.spark.options import SERVERS
from karrow.spark.pipeline.definition import APPEND, EXACTLY_ONCE, TOPIC, UPDATE
from karrow.spark.pipeline.settings import (
    exactly_once_options,
    letter_options,
    letter_settings,
    named,
    sink_options,
    unread,
)
from karrow.spark.pipeline.tracker import OBSERVED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from karrow.spark.pipeline.definition import DeadLetter, Definition, Sink, Source
    from karrow.spark.pipeline.graph import Graph

__all__ = ["Flow", "Gate", "checkpoints", "flows"]

# Few rows are bad, and one task never has to wait for others.
_LETTER_TASKS = 1
# The same arguments in the words of the writer in the driver.
_DRIVERS_NAMES = {"ledger_topic": "ledgerTopic", "on_missing_ledger": "onMissingLedger"}

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
    # Takes the sink over for a query that was started, before it has a batch.
    open: Callable[[StreamingQuery], None] | None = None

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


def checkpoints(definition: Definition) -> dict[str, str | None]:
    """The queries of a pipeline by name, and the folders of their checkpoints."""
    letters = [one for one in definition.sources.values() if one.dead_letter is not None]
    names = [*definition.sinks, *map(_letters_name, letters)]
    return {name: _folder(definition, name) for name in names}


def flows(definition: Definition, graph_of: Callable[[str], Graph]) -> list[Flow]:
    """The queries of a pipeline, not started yet, each of the graph that it gets by its name.

    Those whose settings are not to be had here are left out: a file can be checked without them,
    and is not started without them.
    """
    sinks = [
        _sink(definition, sink, graph_of(sink.name).sinks[sink.name])
        for sink in definition.sinks.values()
        if not unread((*sink.kafka, *sink.options))
    ]
    letters = [
        _letters(
            definition,
            source,
            source.dead_letter,
            graph_of(_letters_name(source)).dead_letters[source.name],
        )
        for source in definition.sources.values()
        if source.dead_letter is not None and not unread(letter_settings(source))
    ]
    return [*sinks, *letters]


def _sink(definition: Definition, sink: Sink, rows: DataFrame) -> Flow:
    if sink.kind != TOPIC:
        options = {setting.name: setting.value for setting in sink.options}
        options |= {} if sink.path is None else {"path": sink.path}
        into: dict[str, Any] = {"format": sink.kind, "options": options}
    elif sink.delivery == EXACTLY_ONCE:
        more = exactly_once_options(sink)
        if _driver_writes(rows):
            _check_drivers(sink, more)
        with named(sink.where):
            into = _exactly_once(
                rows, sink.bootstrap, sink.topic, sink.sink_id, more, tasks=sink.tasks
            )
    else:
        into = {"format": "karrow", "options": sink_options(sink)}
    if into["format"] == "karrow" and sink.mode == UPDATE:
        # Spark itself refuses it for sinks in Python, but only when the query runs already.
        raise ConfigError(
            f"{sink.where} mode cannot be {sink.mode!r} here",
            hint="Spark has it only where spark.dynamicAllocation.enabled is off",
        )
    return Flow(
        name=sink.name,
        where=sink.where,
        rows=rows,
        mode=sink.mode,
        trigger=sink.trigger or definition.trigger,
        checkpoint=_folder(definition, sink.name),
        partition_by=sink.partition_by,
        **into,
    )


def _letters(definition: Definition, source: Source, letter: DeadLetter, rows: DataFrame) -> Flow:
    options = letter_options(source, letter)
    name, where = _letters_name(source), f"{source.where} dead_letter"
    into: dict[str, Any] = {"format": "karrow", "options": options}
    if letter.delivery == EXACTLY_ONCE:
        more: dict[str, Any] = {
            name: value for name, value in options.items() if name not in (SERVERS, "topic")
        }
        with named(where):
            into = _exactly_once(
                rows, source.bootstrap, letter.topic, letter.sink_id, more, tasks=_LETTER_TASKS
            )
    return Flow(
        name=name,
        where=where,
        rows=rows,
        mode=APPEND,
        trigger=definition.trigger,
        checkpoint=_folder(definition, name),
        **into,
    )


def _letters_name(source: Source) -> str:
    return f"{source.name}.dead-letter"


def _folder(definition: Definition, name: str) -> str | None:
    return None if definition.checkpoint is None else f"{definition.checkpoint}/{name}"


def _driver_writes(rows: DataFrame) -> bool:
    """Whether tasks may come and go, so that there are never as many at once as are wanted."""
    return rows.sparkSession.conf.get("spark.dynamicAllocation.enabled", "false") == "true"


def _check_drivers(sink: Sink, more: Mapping[str, Any]) -> None:
    """Refuse what only a write from all tasks has: the driver would not look at it."""
    given = {"tasks": sink.tasks, "options retries": more.get("retries")}
    for key, value in given.items():
        if value is not None:
            hint = "leave it out, or switch spark.dynamicAllocation.enabled off"
            raise ConfigError(f"{sink.where} {key} is of no use where the driver writes", hint=hint)


def _exactly_once(
    rows: DataFrame,
    bootstrap: str,
    topic: str | None,
    sink_id: str,
    more: Mapping[str, Any],
    *,
    tasks: int | None,
) -> dict[str, Any]:
    """A transaction for each batch: of all tasks at once, or of the driver where that cannot be."""
    if not _driver_writes(rows):
        write = spark.exactly_once(bootstrap, topic, sink_id=sink_id, tasks=tasks, **more)
        opening = functools.partial(write.open, rows.sparkSession)
        return {"format": "foreachBatch", "options": {}, "gate": Gate(write), "open": opening}
    options = {SERVERS: bootstrap, "delivery": EXACTLY_ONCE, "sinkId": sink_id}
    options |= {} if topic is None else {"topic": topic}
    options |= {_DRIVERS_NAMES.get(name, name): str(value) for name, value in more.items()}
    return {"format": "karrow", "options": options}
