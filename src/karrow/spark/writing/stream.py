"""``df.writeStream.format("karrow")``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from karrow.spark.writing.sink import Sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# Spark says overwrite in the output mode complete. Topics only grow, so the whole result is
# appended with every batch then, which is what Spark's own sink does.


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, at least once or exactly once."""

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        *,
        overwrite: bool,
    ) -> None:
        self._sink = Sink(options, schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._sink.travel(__name__, in_task.__name__)

    # Spark's own class for Arrow takes something else than its base, too.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write or pack the rows of a task; called where the task runs."""
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Write what the tasks have packed, if they have."""
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task has failed: nothing that tasks do has to be undone."""


def in_task(given: tuple[Mapping[str, str], StructType]) -> StreamWriter:
    """A writer as it was sent to a task."""
    made = StreamWriter.__new__(StreamWriter)
    made._sink = Sink(*given, is_checked=True)  # noqa: SLF001 - a part of the class
    return made
