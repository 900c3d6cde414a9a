"""The Spark of a pipeline: started, or a session of its own in the one that is given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from karrow.errors import ConfigError
from karrow.spark.pipeline.signals import deaf_to_interrupts

if TYPE_CHECKING:
    from karrow.spark.pipeline.definition import Definition

__all__ = ["opened", "use_this_python"]

PYTHON = "PYSPARK_PYTHON"
LOCAL = "local[*]"
# A pipeline has its own view, and more progress than Spark would keep between two looks at it.
DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def opened(
    definition: Definition,
    spark: SparkSession | None = None,
    master: str | None = None,
    log: Path | None = None,
) -> Iterator[SparkSession]:
    """A session in which the tables of a pipeline disturb nobody else's.

    Settings whose value is not to be had here are left out: a file can be checked without them,
    and is not started without them.
    """
    settings = {setting.name: setting.value for setting in definition.spark if setting.known}
    if spark is not None:
        yield _beside(spark, settings)
        return
    own = _started(definition.name, settings, master, log)
    try:
        yield own
    finally:
        own.stop()


def use_this_python(settings: Mapping[str, str]) -> None:
    """Spark's workers take whatever ``python3`` is, unless they are told."""
    python = settings.get("spark.pyspark.python") or os.environ.get(PYTHON) or sys.executable
    os.environ[PYTHON] = python


def _started(
    name: str, settings: Mapping[str, str], master: str | None, log: Path | None
) -> SparkSession:
    if SparkSession.getActiveSession() is not None:
        raise ConfigError("a Spark session is there already", hint="give it as spark=")
    use_this_python(settings)
    all_settings = {**DEFAULTS, **settings}
    if master is not None:
        all_settings["spark.master"] = master
    all_settings.setdefault("spark.master", LOCAL)
    if all_settings["spark.master"].startswith("local"):
        # A laptop's own name often leads nowhere.
        all_settings.setdefault("spark.driver.host", "127.0.0.1")
        all_settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
        all_settings.setdefault("spark.ui.enabled", "false")
        # Spark's own 200 is for clusters; a query keeps what it began with.
        all_settings.setdefault("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
    builder = SparkSession.builder.appName(name)
    for key, value in all_settings.items():
        builder = builder.config(key, value)
    with deaf_to_interrupts(), _stderr_into(log):
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            hint = "it needs Java 17 or newer; `java -version` tells"
            raise ConfigError("Spark did not start", hint=hint) from None


@contextmanager
def _stderr_into(log: Path | None) -> Iterator[None]:
    """What is started inside has a file as its stderr, for as long as it lives."""
    if log is None:
        yield
        return
    before = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _beside(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    own = spark.newSession()
    for key, value in {**DEFAULTS, **settings}.items():
        if own.conf.isModifiable(key):
            own.conf.set(key, value)
        elif key in settings and spark.conf.get(key, None) != value:
            raise ConfigError(f"{key} cannot be set in a Spark that runs already")
    return own
