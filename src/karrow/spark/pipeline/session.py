"""The Spark of a pipeline: started, or a session of its own in the one that is given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from karrow.errors import ConfigError
from karrow.spark.pipeline.running import told
from karrow.spark.pipeline.signals import deaf_to_interrupts

if TYPE_CHECKING:
    from karrow.spark.pipeline.definition import Definition
    from karrow.spark.pipeline.table import Setting

__all__ = ["opened", "said", "use_this_python"]

PYTHON = "PYSPARK_PYTHON"
LOCAL = "local[*]"
# Spark shows the options of streams in plans, and hides those that are called so: passwords by a
# setting of its own, by this one addresses (its default), logins and private keys in PEM.
REDACTED = "spark.sql.redaction.options.regex"
SECRETS = r"(?i)url|jaas|\.key$"
# A pipeline has its own view, and more progress than Spark would keep between two looks at it.
DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.session.timeZone": "UTC",
    REDACTED: SECRETS,
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
    settings = [setting for setting in definition.spark if setting.known]
    if spark is not None:
        yield _beside(spark, settings)
        return
    own = _started(definition.name, settings, master, log)
    try:
        with _starting(settings):
            _ = own.conf  # Spark looks at some of its settings only now
        yield own
    finally:
        own.stop()


def use_this_python(settings: Mapping[str, str]) -> None:
    """Spark's workers take whatever ``python3`` is, unless they are told."""
    python = settings.get("spark.pyspark.python") or os.environ.get(PYTHON) or sys.executable
    os.environ[PYTHON] = python


def said(error: Exception) -> str:
    """The first line of what Spark says, which goes on with plans and places; or Python's last."""
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.getMessage() or error.java_exception.toString())
    else:
        text = (isinstance(error, PySparkException) and error.getMessage()) or str(error)
    if "Traceback (most recent call last)" in text:
        return told(text)
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line), type(error).__name__)


def _started(
    name: str, settings: Sequence[Setting], master: str | None, log: Path | None
) -> SparkSession:
    if SparkSession.getActiveSession() is not None:
        raise ConfigError("a Spark session is there already", hint="give it as spark=")
    all_settings = {**DEFAULTS, **{setting.name: setting.value for setting in settings}}
    use_this_python(all_settings)
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
    with deaf_to_interrupts(), _stderr_into(log), _starting(settings):
        return builder.getOrCreate()


@contextmanager
def _starting(settings: Sequence[Setting]) -> Iterator[None]:
    """What keeps Spark from its start, in a line; its own words name the setting."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if _is_without_java(error):
            hint = "it needs Java 17 or newer; `java -version` tells"
            raise ConfigError("Spark did not start", hint=hint) from None
        raise ConfigError(f"Spark did not start: {_shown(said(error), settings)}") from None


def _is_without_java(error: Exception) -> bool:
    gone = "JAVA_GATEWAY_EXITED"
    return isinstance(error, PySparkRuntimeError) and error.getCondition() == gone


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


def _beside(spark: SparkSession, settings: Sequence[Setting]) -> SparkSession:
    own = spark.newSession()
    # Whoever has started Spark may have secrets of other names.
    hidden = f"(?:{spark.conf.get(REDACTED)})|{SECRETS}"
    for key, value in {**DEFAULTS, REDACTED: hidden}.items():
        if own.conf.isModifiable(key):
            own.conf.set(key, value)
    for setting in settings:
        if not _is_set(own, setting) and spark.conf.get(setting.name, None) != setting.value:
            raise ConfigError(f"{setting.name} cannot be set in a Spark that runs already")
    return own


def _is_set(own: SparkSession, setting: Setting) -> bool:
    """Set what may be set in a session, and say whether it may."""
    if not own.conf.isModifiable(setting.name):
        return False
    try:
        own.conf.set(setting.name, setting.value)
    except PySparkException as error:
        raise ConfigError(f"{setting.where} {_shown(said(error), [setting])}") from None
    return True


def _shown(text: str, settings: Iterable[Setting]) -> str:
    """A text without values that are nobody's business."""
    for setting in settings:
        text = text.replace(setting.value, setting.shown) if setting.value else text
    return text
