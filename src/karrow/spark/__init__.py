"""Kafka as a source and a sink of PySpark, without a JAR.

``format("karrow")`` is there as soon as karrow is installed; ``register`` names it for a session
that looks for no data sources of its own accord.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrow.spark.exactly import exactly_once as exactly_once
    from karrow.spark.listening import LagListener as LagListener
    from karrow.spark.pipeline import Pipeline as Pipeline
    from karrow.spark.pipeline import PipelineFailed as PipelineFailed

__all__ = ["LagListener", "Pipeline", "PipelineFailed", "exactly_once", "register"]

_HOMES = {
    "LagListener": "karrow.spark.listening",
    "Pipeline": "karrow.spark.pipeline",
    "PipelineFailed": "karrow.spark.pipeline",
    "exactly_once": "karrow.spark.exactly",
}


def register(spark: SparkSession) -> None:
    """Make ``format("karrow")`` known to a session, be it installed or not."""
    from karrow.spark.data_source import KarrowDataSource

    spark.dataSource.register(KarrowDataSource)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'karrow.spark' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
