"""The tables of a pipeline as DataFrames, and everything Spark can say of them without data."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType

from karrow.config.option import nearest
from karrow.errors import ConfigError
from karrow.spark.pipeline import functions, parsing
from karrow.spark.pipeline.define import missing_table
from karrow.spark.pipeline.definition import CONSOLE, JSON, PARQUET, STOP, TOPIC
from karrow.spark.pipeline.session import said
from karrow.spark.pipeline.settings import source_options

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from karrow.spark.pipeline.definition import Definition, Sink, Source, Step, Watermark

__all__ = ["Graph", "build"]

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


@dataclass(slots=True)
class Graph:
    """Every table by name, the rows of every sink, and the bad rows of sources."""

    tables: dict[str, DataFrame] = field(default_factory=dict)
    sinks: dict[str, DataFrame] = field(default_factory=dict)
    dead_letters: dict[str, DataFrame] = field(default_factory=dict)


def build(definition: Definition, spark: SparkSession) -> Graph:
    """Make all tables in a session; raises where names, schemas or SQL do not fit."""
    graph = Graph()
    with _without_their_logs():
        for source in definition.sources.values():
            with _named(source.where):
                rows = _read(graph, source, spark)
            _add(graph, source, rows)
        for step in definition.steps.values():
            in_sql = step.sql is not None
            made = (
                _selected(definition, step, spark) if in_sql else _called(definition, step, graph)
            )
            _add(graph, step, made)
        for sink in definition.sinks.values():
            rows = graph.tables[sink.table]
            with _named(sink.where):
                _check_columns(sink, rows)
                graph.sinks[sink.name] = _records(sink, rows) if sink.kind == TOPIC else rows
                _check_mode(sink, graph.sinks[sink.name], spark)
    return graph


@contextmanager
def _without_their_logs() -> Iterator[None]:
    """PySpark prints an error of SQL as it raises it; here it is told in one line."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    try:
        for logger in loggers:
            logger.disabled = True
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


@contextmanager
def _named(where: str, hint: str | None = None) -> Iterator[None]:
    """What Spark refuses inside is told in a line that begins with the place in the file."""
    try:
        yield
    except PySparkException as error:
        raise ConfigError(f"{where} {said(error)}", hint=hint) from None


def _add(graph: Graph, part: Source | Step, rows: DataFrame) -> None:
    if part.watermark is not None:
        with _named(f"{part.where} watermark"):
            rows = _watermarked(rows, part.watermark, part.where)
    rows.createOrReplaceTempView(part.name)
    graph.tables[part.name] = rows


# ---- sources


def _read(graph: Graph, source: Source, spark: SparkSession) -> DataFrame:
    options = source_options(source)
    records = spark.readStream.format("karrow").options(**options).load()
    if source.schema is None:
        return records
    schema = _schema(source)
    with _named(f"{source.where} schema", "texts are STRING, and so are the keys of a MAP"):
        rows = parsing.parsed(records, schema)
        stop = source.bad_rows == STOP and source.dead_letter is None
        if source.dead_letter is not None:
            graph.dead_letters[source.name] = parsing.bad_rows(rows, schema)
        return parsing.good_rows(rows, schema, stop=stop, kafka=source.kafka_column)


def _schema(source: Source) -> StructType:
    try:
        found = StructType.fromDDL(source.schema or "")
    except PySparkException as error:
        hint = 'write it as in CREATE TABLE: "id BIGINT NOT NULL, amount DOUBLE"'
        raise ConfigError(f"{source.where} schema {said(error)}", hint=hint) from None
    if not isinstance(found, StructType):
        raise ConfigError(f"{source.where} schema has no columns")
    names = [name.lower() for name in found.fieldNames()]
    if source.kafka_column is not None:
        names.append(source.kafka_column.lower())
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{source.where} schema has two columns {name!r}")
    if parsing.BAD in names:
        hint = "karrow parses with one of that name"
        raise ConfigError(f"{source.where} schema cannot have a column {parsing.BAD!r}", hint=hint)
    return found


def _watermarked(rows: DataFrame, watermark: Watermark, where: str) -> DataFrame:
    column = watermark.column
    fields = {field.name: field.dataType for field in rows.schema.fields}
    if column not in fields:
        raise ConfigError(f"{where} watermark {_no_column(column, rows)}")
    if not isinstance(fields[column], TimestampType):
        kind = fields[column].simpleString()
        raise ConfigError(f"{where} watermark column {column!r} is {kind}, and no timestamp")
    return rows.withWatermark(_quoted(column), watermark.delay)


# ---- steps


def _selected(definition: Definition, step: Step, spark: SparkSession) -> DataFrame:
    try:
        made = spark.sql(step.sql or "")
    except AnalysisException as error:
        if error.getCondition() == _NOT_FOUND:
            name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
            what = missing_table(definition, step, name)
            raise ConfigError(f"{step.where} sql {what}") from None
        raise ConfigError(f"{step.where} sql {said(error)}") from None
    except PySparkException as error:
        raise ConfigError(f"{step.where} sql {said(error)}") from None
    if not made.columns:
        raise ConfigError(f"{step.where} sql gives no table", hint="it has to be a SELECT")
    return made


def _called(definition: Definition, step: Step, graph: Graph) -> DataFrame:
    function = functions.load(step, definition.folder)
    try:
        made = function(*(graph.tables[name] for name in step.inputs))
    except Exception as error:  # whatever a user's function raises
        what = f"{type(error).__name__}: {said(error)}"
        raise ConfigError(f"{step.where} function raised {what}") from error
    if not isinstance(made, DataFrame):
        raise ConfigError(f"{step.where} function gave {made!r}, and no DataFrame")
    return made


# ---- sinks


def _records(sink: Sink, rows: DataFrame) -> DataFrame:
    """Rows as records: their columns as they are, or all of them as one JSON object."""
    if sink.format != JSON:
        return rows
    columns: list[Column] = []
    if sink.key is not None:
        if sink.key not in rows.columns:
            raise ConfigError(f"{sink.where} key {_no_column(sink.key, rows)}")
        kind = rows.schema[sink.key].dataType
        key = f.col(_quoted(sink.key))
        as_it_is = isinstance(kind, StringType | BinaryType)
        columns.append((key if as_it_is else key.cast("string")).alias("key"))
    columns.append(f.to_json(f.struct(*map(_quoted, rows.columns))).alias("value"))
    return rows.select(columns)


def _check_columns(sink: Sink, rows: DataFrame) -> None:
    if not rows.isStreaming:
        raise ConfigError(f"{sink.where} from {sink.table!r} gives no stream")
    if sink.kind != CONSOLE:
        _check_each_once(sink, rows)
    for name in sink.partition_by:
        if name not in rows.columns:
            raise ConfigError(f"{sink.where} partition_by {_no_column(name, rows)}")


def _check_each_once(sink: Sink, rows: DataFrame) -> None:
    """Spark writes files that have a column twice, and cannot read them, nor tell ID from id."""
    seen: set[str] = set()
    for name in rows.columns:
        known_as = name.lower() if sink.kind == PARQUET else name
        if known_as in seen:
            what = f"from {sink.table!r} has two columns {name!r}"
            raise ConfigError(f"{sink.where} {what}", hint="name them with AS")
        seen.add(known_as)


def _check_mode(sink: Sink, rows: DataFrame, spark: SparkSession) -> None:
    """What Spark would say when the query starts, when others may be running already."""
    jvm = spark._jvm  # noqa: SLF001 - Spark has no other way to ask
    if jvm is None:
        return
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.mode.capitalize())()
    with _named(f"{sink.where} mode {sink.mode}:"):
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)  # noqa: SLF001


def _quoted(name: str) -> str:
    """A column by nothing but its name: Spark takes dots in it, as of 1.19, for fields."""
    return f"`{name.replace('`', '``')}`"


def _no_column(name: str, rows: DataFrame) -> str:
    near = nearest(name, rows.columns)
    hint = f"did you mean {near!r}?" if near else f"the columns are {', '.join(rows.columns)}"
    return f"names no column {name!r}; {hint}"
