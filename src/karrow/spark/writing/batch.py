"""``df.write.format("karrow")``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter

from karrow.errors import ConfigError
from karrow.spark.writing.sink import Sink, Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame, at least once."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(
                "mode('overwrite') is not possible: topics only grow", hint="use mode('append')"
            )
        self._sink = Sink(options, schema)
        self._sink.check_topic()

    # Spark's own class for Arrow takes something else than its base, too.
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:  # type: ignore[override]
        """Write the rows of a task; called where the task runs."""
        return self._sink.write(iterator)
