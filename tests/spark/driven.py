"""Programs with delivery=exactly-once, in this process or in one that dies."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import karrow
from tests.spark.once import Case, Driver, frame


class Driven(Case):
    """A source, a checkpoint, and a sink that is a format."""

    def options(self, **more: str) -> dict[str, str]:
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.topic,
            "delivery": "exactly-once",
            "sinkId": self.sink_id,
            **more,
        }
        return {name: value for name, value in given.items() if value}

    def begin(self, spark: SparkSession, *columns: str, **more: str) -> StreamingQuery:
        """Start a query that ends with the source."""
        rows = frame(spark, self.source).selectExpr(*(columns or ("*",)))
        writer = rows.writeStream.format("karrow").trigger(availableNow=True)
        place = {"checkpointLocation": str(self.checkpoint)}
        return writer.options(**place, **self.options(**more)).start()

    def write(self, spark: SparkSession, *columns: str, **more: str) -> None:
        """Write everything that the source has."""
        self.begin(spark, *columns, **more).awaitTermination()

    def refusal(self, spark: SparkSession, *columns: str, **more: str) -> str:
        with pytest.raises(PySparkException) as caught:
            self.write(spark, *columns, **more)
        return str(caught.value)

    def program(self, crash_orders: str = "", **more: str) -> Driver:
        """The same in a process of its own."""
        return self.driver(crash_orders, sink=self.options(**more))

    def done(self) -> int:
        """How many batches Spark has heard the end of."""
        numbers = [int(path.name) for path in (self.checkpoint / "commits").glob("[0-9]*")]
        return max(numbers, default=-1) + 1

    def open_rows(self) -> int:
        """How many offsets are taken by a transaction that is open."""
        with karrow.Client(self.bootstrap) as client:
            return self.offsets() - sum(
                client.latest_offset(self.topic, one, isolation="read_committed")
                for one in range(self.partitions)
            )

    def repeat_last(self) -> None:
        """Have Spark believe that it has not heard of the last batch's end."""
        for path in (self.checkpoint / "commits").glob(f"*{self.done() - 1}*"):
            path.unlink()
