"""``format("karrow")``: what Spark asks for by name, and which part of the room answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from karrow.spark.arriving import arrive

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

# Spark makes readers and writers in processes of their own, so each loads only what it needs.


class KarrowDataSource(DataSource):
    """Kafka's topics as tables."""

    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (__name__, KarrowDataSource.__name__, self.options)

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(...)``."""
        return "karrow"

    def schema(self) -> StructType:
        """The columns of Spark's own Kafka source, with ``headers`` where they are wanted."""
        from karrow.spark.reading.schema import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        from karrow.spark.reading.batch import batch_reader
        from karrow.spark.reading.schema import check_schema

        check_schema(schema, self.options)
        return batch_reader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        from karrow.spark.reading.schema import check_schema
        from karrow.spark.reading.stream import StreamReader

        check_schema(schema, self.options)
        return StreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        from karrow.spark.writing.batch import BatchWriter

        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For ``df.writeStream``."""
        from karrow.spark.writing.stream import StreamWriter

        return StreamWriter(self.options, schema, overwrite=overwrite)
