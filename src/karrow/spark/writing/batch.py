"""``df.write.format("karrow")``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from karrow.errors import ConfigError
from karrow.spark.writing.sink import Sink
from karrow.spark.writing.terms import Terms

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
        if Terms.read(options).exactly_once is not None:
            raise ConfigError(
                "delivery=exactly-once is for writeStream: a batch write has no number by which "
                "its repetition could be known",
                hint="leave out delivery; inside foreachBatch use karrow.spark.exactly_once",
            )
        self._sink = Sink(options, schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._sink.travel(__name__, in_task.__name__)

    # Spark's own class for Arrow takes something else than its base, too.
    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write the rows of a task; called where the task runs."""
        return self._sink.write(iterator)


def in_task(given: tuple[Mapping[str, str], StructType]) -> BatchWriter:
    """A writer as it was sent to a task."""
    made = BatchWriter.__new__(BatchWriter)
    made._sink = Sink(*given, is_checked=True)  # noqa: SLF001 - a part of the class
    return made
