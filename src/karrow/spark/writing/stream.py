"""``df.writeStream.format("karrow")``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from karrow.spark.writing.sink import Sink, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# Spark says overwrite in the output mode complete. Topics only grow, so the whole result is
# appended with every batch then, which is what Spark's own sink does.


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query, at least once."""

    def __init__(
        self,
        options: Mapping[str, str],
        schema: StructType,
        *,
        overwrite: bool,  # noqa: ARG002 - see above
    ) -> None:
        self._sink = Sink(options, schema)
        self._sink.check_topic()

    # Spark's own class for Arrow takes something else than its base, too.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:  # type: ignore[override]
        """Write the rows of a task; called where the task runs."""
        return self._sink.write(iterator)
