"""What a pipeline is: sources, steps and sinks as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from karrow.spark.pipeline.table import Setting

__all__ = ["DeadLetter", "Definition", "Sink", "Source", "Step", "Watermark"]

TOPIC, PARQUET, CONSOLE = KINDS = ("topic", "parquet", "console")
JSON, RAW = FORMATS = ("json", "raw")
AT_LEAST_ONCE, EXACTLY_ONCE = DELIVERIES = ("at-least-once", "exactly-once")
STOP, DROP = BAD_ROWS = ("stop", "drop")
APPEND, UPDATE, COMPLETE = MODES = ("append", "update", "complete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How late a row may be, by the time in a column."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Where rows go that do not parse."""

    topic: str
    delivery: str
    sink_id: str
    kafka: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Topics as a table."""

    name: str
    where: str
    topics: tuple[str, ...]
    pattern: str | None
    bootstrap: str
    format: str
    schema: str | None
    start: str
    kafka_column: str | None
    watermark: Watermark | None
    dead_letter: DeadLetter | None
    bad_rows: str
    kafka: tuple[Setting, ...]
    options: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A table made of others."""

    name: str
    where: str
    sql: str | None
    function: str | Callable[..., Any] | None
    inputs: tuple[str, ...]
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where a table goes; fields that its kind does not have are None."""

    name: str
    where: str
    table: str
    kind: str
    mode: str
    trigger: str | None
    bootstrap: str
    topic: str | None
    format: str
    key: str | None
    delivery: str
    sink_id: str
    tasks: int | None
    path: str | None
    partition_by: tuple[str, ...]
    kafka: tuple[Setting, ...]
    options: tuple[Setting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A whole pipeline."""

    name: str
    origin: str
    folder: Path
    checkpoint: str | None
    trigger: str | None
    spark: tuple[Setting, ...]
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    sinks: Mapping[str, Sink]
