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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from karrow.spark.writing.columns import Columns
from karrow.spark.writing.producers import producer
from karrow.spark.writing.task import write_rows
from karrow.spark.writing.terms import Terms

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells of itself."""

    rows: int


class Sink:
    """Where the rows of a DataFrame go."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        terms = Terms.read(options)
        self._options = dict(options)
        self._columns = Columns(schema, terms.topic)

    def check_topic(self) -> None:
        """Raise if the topic of the option does not exist; memory tells, once it was found."""
        terms = Terms.read(self._options)
        if terms.topic is not None:
            producer(terms.config).partitions_for(terms.topic)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows of a task, and wait until the brokers have them."""
        terms = Terms.read(self._options)
        rows = map(self._columns.of, batches)
        return Written(write_rows(producer(terms.config), terms.topic, rows))
