"""``df.write.format("karrow")``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter

from karrow.errors import ConfigError
from karrow.spark.writing.sink import Sink, Writer
from karrow.spark.writing.terms import Terms

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


# Spark's own class for Arrow takes something else than its base, too.
class BatchWriter(Writer, DataSourceArrowWriter):  # type: ignore[misc]
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
