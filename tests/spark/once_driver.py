"""A driver that writes a folder, or a topic, exactly once and ends: what tests kill."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import karrow.spark
from karrow import events
from tests.spark.once import frame, relayed
from tests.spark.sessions import SETTINGS


def session(task: dict[str, Any]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(task.get("master", "local[2]")).appName("karrow once")
    folder = Path(task["folder"])
    settings = {
        **SETTINGS,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.speculation": "true",
        # Few, so that tasks of small batches come by the point between two of them.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20",
        **task.get("settings", {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def source(task: dict[str, Any]) -> DataFrame:
    if "entry" in task:
        return relayed(session(task), task["bootstrap"], task["entry"])
    return frame(session(task), Path(task["source"]))


def held(rows: DataFrame, value: str, hold: str) -> DataFrame:
    """Have the task with that row wait in front of it while the file is there.

    The rows before it are with whoever writes them then.
    """

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = Path(hold)
        for batch in batches:
            if value in batch.column("value").to_pylist() and place.exists():
                place.with_suffix(".seen").write_text(value)
                while place.exists():
                    time.sleep(0.01)
            yield batch

    return rows.mapInArrow(wait, rows.schema)


def tell(event: events.Event) -> None:
    """Why an attempt failed, for tests that look for it in the log."""
    print("sink.retry", event.fields["batch"], event.fields["error"], flush=True)  # noqa: T201


def main() -> None:
    events.subscribe(tell, "sink.retry")
    task = json.loads(sys.argv[1])
    for left in range(task.get("restarts", 0), -1, -1):
        try:
            query(task).awaitTermination()
        except PySparkException:
            if not left:
                raise
        else:
            return


def query(task: dict[str, Any]) -> StreamingQuery:
    """Start it; it ends with its source."""
    lines = held(source(task), *task["held"]) if "held" in task else source(task)
    rows = lines.writeStream.trigger(availableNow=True)
    if "sink" in task:
        writer = rows.format("karrow").options(**task["sink"])
    else:
        sink = karrow.spark.exactly_once(
            task["bootstrap"], task["topic"], sink_id=task["sink_id"], **task.get("options", {})
        )
        writer = rows.foreachBatch(sink)
    return writer.option("checkpointLocation", task["checkpoint"]).start()


if __name__ == "__main__":
    main()
