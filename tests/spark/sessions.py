"""Spark sessions for tests: karrow's source beside Spark's own Kafka connector."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import jars
import pyspark
from pyspark.sql import SparkSession

CONNECTOR_OF = "4.2.0"
# Spark's own connector, without the parent pom, whose repository may not answer.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}


def connector() -> list[Path]:
    """The jars of Spark's own Kafka source and sink, where they fit this Spark."""
    if pyspark.__version__ != CONNECTOR_OF:
        return []
    return [jars.jar(artifact) for artifact in CONNECTOR]


def session(
    folder: Path, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session that has both connectors; what it writes of its own accord goes into the folder."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("karrow tests")
    for name, value in {
        **SETTINGS,
        "spark.jars": ",".join(map(str, connector())),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        **(settings or {}),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
