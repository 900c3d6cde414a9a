"""``df.writeStream.format("karrow")``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from karrow.spark.writing.sink import Sink, Writer

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Spark says overwrite in the output mode complete. Topics only grow, so the whole result is
# appended with every batch then, which is what Spark's own sink does.


# Spark's own class for Arrow takes something else than its base, too.
class StreamWriter(Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes the batches of a streaming query, at least once or exactly once."""

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        *,
        overwrite: bool,
    ) -> None:
        self._sink = Sink(options, schema)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Write what the tasks have packed, if they have."""
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task has failed: nothing that tasks do has to be undone."""
