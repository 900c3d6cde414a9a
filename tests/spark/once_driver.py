"""A driver that writes a folder, or a topic, exactly once and ends: what tests kill."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

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


def tell(event: events.Event) -> None:
    """Why an attempt failed, for tests that look for it in the log."""
    print("sink.retry", event.fields["batch"], event.fields["error"], flush=True)  # noqa: T201


def main() -> None:
    events.subscribe(tell, "sink.retry")
    task = json.loads(sys.argv[1])
    rows = source(task).writeStream.trigger(availableNow=True)
    if "sink" in task:
        writer = rows.format("karrow").options(**task["sink"])
    else:
        sink = karrow.spark.exactly_once(
            task["bootstrap"], task["topic"], sink_id=task["sink_id"], **task.get("options", {})
        )
        writer = rows.foreachBatch(sink)
    writer.option("checkpointLocation", task["checkpoint"]).start().awaitTermination()


if __name__ == "__main__":
    main()
