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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from karrow.errors import ConfigError, StateError
from karrow.spark.arriving import arrive
from karrow.spark.writing import driver
from karrow.spark.writing.columns import Columns
from karrow.spark.writing.parcel import Parcel, packed
from karrow.spark.writing.producers import producer
from karrow.spark.writing.task import write_rows
from karrow.spark.writing.terms import Terms

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_ID = "sql.streaming.queryId"
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
            limit = min(terms.config.call_timeout, LOOK_UP)
            finder = producer(terms.config.replace(api_timeout=limit))
            finder.partitions_for(terms.topic)  # memory tells after the first time

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

    def travel(self, module: str, name: str) -> tuple[Any, ...]:
        """How a writer with this sink is pickled; the function named makes one of options."""
        return arrive, (module, name, (self._options, self._schema))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Write what tasks have packed."""
        terms = self.terms()
        if terms.exactly_once is None:
            return
        parcels = [message for message in messages if isinstance(message, Parcel)]
        if len(parcels) != len(messages):
            raise StateError(f"{len(messages) - len(parcels)} tasks have sent no rows to commit")
        driver.commit(terms, terms.exactly_once, parcels, batch)


def _query() -> str:
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if query is None:
        raise ConfigError(
            "delivery=exactly-once is for streaming queries",
            hint="inside foreachBatch use karrow.spark.exactly_once",
        )
    return str(query)
