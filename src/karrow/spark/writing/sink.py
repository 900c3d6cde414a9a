"""What both writers have: the checks before anything moves, and the way of a task's rows.

Rules:
- Spark makes a writer in a process beside the driver, pickles it for the tasks, and makes another
  one in a third process before it commits; for a streaming query all of it with every batch. So
  making one is cheap, and its pickle has the options as they came and nothing that was read of
  them: passwords and providers are for each process to read.
- What can be known about columns and options is said when the writer is made. That a topic is
  missing is said then too; topics of a column are found by the tasks.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from karrow.errors import ConfigError, StateError, UnknownTopicOrPartition
from karrow.spark.arriving import arrive
from karrow.spark.exactly.batches import QUERY_ID
from karrow.spark.writing import driver
from karrow.spark.writing.columns import Columns
from karrow.spark.writing.parcel import Parcel, packed
from karrow.spark.writing.producers import producer
from karrow.spark.writing.task import write_rows
from karrow.spark.writing.terms import Terms

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from karrow.config import ProducerConfig

# How long a topic is looked for; whoever has mistyped an address waits for this.
LOOK_UP = 30.0


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells of itself."""

    rows: int


class Sink:
    """Where the rows of a DataFrame go."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, *, is_checked: bool = False
    ) -> None:
        self._options = dict(options)
        self._schema = schema
        terms = self.terms()
        self._columns = Columns(schema, terms.topic)
        if terms.topic is not None and not is_checked:
            _find(terms.config, terms.topic)

    def terms(self) -> Terms:
        """What the options say."""
        return Terms.read(self._options)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written | Parcel:
        """What a task does: write its rows and wait for brokers, or pack them for the driver."""
        terms = self.terms()
        rows = map(self._columns.of, batches)
        if terms.exactly_once is None:
            return Written(write_rows(producer(terms.config), terms.topic, rows))
        return packed(producer(terms.config), terms.topic, _query(), rows)

    def travel(self, writer: type[Writer]) -> tuple[Any, ...]:
        """How a writer with this sink is pickled: its class by name, which arrives everywhere."""
        given = (writer.__module__, writer.__name__, self._options, self._schema)
        return arrive, (__name__, in_task.__name__, given)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Write what tasks have packed."""
        terms = self.terms()
        if terms.exactly_once is None:
            return
        parcels = [message for message in messages if isinstance(message, Parcel)]
        if len(parcels) != len(messages):
            raise StateError(f"{len(messages) - len(parcels)} tasks have sent no rows to commit")
        driver.commit(terms, terms.exactly_once, parcels, batch)


class Writer:
    """What both writers are: a sink, sent to tasks as its options."""

    _sink: Sink

    def __reduce__(self) -> tuple[Any, ...]:
        return self._sink.travel(type(self))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write or pack the rows of a task; called where the task runs."""
        return self._sink.write(iterator)


def _find(config: ProducerConfig, topic: str) -> None:
    """Raise for a topic that is not there; what was found once is known from memory."""
    limit = min(config.call_timeout, LOOK_UP)
    try:
        producer(config.replace(api_timeout=limit)).partitions_for(topic)
    except UnknownTopicOrPartition as error:
        raise UnknownTopicOrPartition(
            error.message, hint="create it first, or name another by the option topic", topic=topic
        ) from error


def in_task(given: tuple[str, str, Mapping[str, str], StructType]) -> Writer:
    """A writer as it was sent to a task."""
    module, name, options, schema = given
    kind: type[Writer] = getattr(importlib.import_module(module), name)
    made = kind.__new__(kind)
    made._sink = Sink(options, schema, is_checked=True)  # noqa: SLF001 - a part of the class
    return made


def _query() -> str:
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if query is None:
        raise ConfigError(
            "delivery=exactly-once is for streaming queries",
            hint="inside foreachBatch use karrow.spark.exactly_once",
        )
    return str(query)
