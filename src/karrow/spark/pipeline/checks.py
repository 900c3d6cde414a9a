"""Everything that can be known of a pipeline before data moves, and what cannot be known here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from karrow.errors import ConfigError
from karrow.spark import login
from karrow.spark.pipeline.definition import AT_LEAST_ONCE, EXACTLY_ONCE, PARQUET, TOPIC
from karrow.spark.pipeline.folders import FILES, OFFSETS, Folder
from karrow.spark.pipeline.settings import (
    SOURCE_KEYS,
    exactly_once_options,
    lacks_login,
    letter_options,
    letter_settings,
    named,
    sink_options,
    source_options,
    unread,
)
from karrow.spark.reading.settings import Settings
from karrow.spark.writing.columns import Columns
from karrow.spark.writing.terms import Terms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrow.spark.pipeline.definition import Definition, Sink, Source
    from karrow.spark.pipeline.graph import Graph
    from karrow.spark.pipeline.queries import Flow
    from karrow.spark.pipeline.table import Setting

__all__ = ["Checked", "check_environment", "check_files", "check_options", "unchecked"]


@dataclass(frozen=True, slots=True)
class Checked:
    """A pipeline in which nothing wrong was found; ``unchecked`` is what nobody could look at."""

    name: str
    unchecked: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: nothing wrong was found"]
        return "\n".join([*lines, *(f"  not checked: {one}" for one in self.unchecked)])


def check_options(definition: Definition, graph: Graph) -> None:
    """Read options and columns as the source and the sink will."""
    for source in definition.sources.values():
        _check_source(source)
    for sink in definition.sinks.values():
        if sink.kind == TOPIC:
            _check_sink(sink, graph)
    _check_groups(definition, graph)


def check_environment(definition: Definition) -> None:
    """Raise for the first value, or login, that is to stand in the environment and does not."""
    for setting in _settings(definition):
        _ = setting.value
        if lacks_login(setting):
            what = f"{setting.where} finds no login: {login.NOT_SET}"
            raise ConfigError(what, hint=login.EVERYWHERE)


def check_files(flows: Iterable[Flow], spark: SparkSession) -> None:
    """Refuse folders whose files are of batches that the query's checkpoint does not know.

    Spark's file sink takes a batch for written whose number is in the folder's log, and drops its
    rows without a word: after a checkpoint was deleted, or in the folder of another query.
    """
    for flow in flows:
        if flow.format != PARQUET or flow.checkpoint is None:
            continue
        path, checkpoint = flow.options["path"], flow.checkpoint
        where = f"{flow.where} path"
        written = Folder(spark, path, where).last_batch(FILES)
        known = Folder(spark, checkpoint, where).last_batch(OFFSETS)
        if written > known:
            last = f"none after {known}" if known >= 0 else "none"
            raise ConfigError(
                f"{flow.where} path {path} has files of batches up to {written}, and the "
                f"checkpoint {checkpoint} knows {last}: Spark would drop rows as written already",
                hint="bring the checkpoint back that belongs to the files, or name another path",
            )


def unchecked(definition: Definition, *, asked: bool) -> tuple[str, ...]:
    """What was left out: values that are elsewhere, and brokers that were not asked."""
    settings = list(_settings(definition))
    missing = sorted({setting.raw for setting in settings if not setting.known})
    found = [f"{name} is not set here, nor what it is for" for name in missing]
    if any(map(lacks_login, settings)):
        found.append("KARROW_SASL_* and KARROW_TLS_* are not set here, nor what they are for")
    if not asked:
        found.append("topics and brokers, which were not asked")
    return tuple(found)


def _settings(definition: Definition) -> Iterator[Setting]:
    yield from definition.spark
    parts: list[Source | Sink] = [*definition.sources.values(), *definition.sinks.values()]
    for part in parts:
        yield from (*part.kafka, *part.options)
    for source in definition.sources.values():
        yield from letter_settings(source)


def _check_groups(definition: Definition, graph: Graph) -> None:
    """Every query reads for itself, and a group can only say where one of them is."""
    if len(graph.sinks) + len(graph.dead_letters) == 1:
        return
    for source in definition.sources.values():
        for setting in source.options:
            if setting.name.lower() == "commitgroup":
                hint = "only a pipeline with one sink, and without dead_letter, can commit"
                raise ConfigError(f"{setting.where} would be shared by several queries", hint=hint)


def _check_source(source: Source) -> None:
    if not unread((*source.kafka, *source.options)):
        with named(source.where, SOURCE_KEYS):
            Settings.for_stream(source_options(source))
    if source.dead_letter is not None and not unread(letter_settings(source)):
        with named(f"{source.where} dead_letter"):
            Terms.read(letter_options(source, source.dead_letter))


def _check_sink(sink: Sink, graph: Graph) -> None:
    if sink.delivery == EXACTLY_ONCE:
        exactly_once_options(sink)  # the names, whether or not their values are known
    with named(sink.where):
        Columns(graph.sinks[sink.name].schema, sink.topic)
        if sink.delivery == AT_LEAST_ONCE and not unread((*sink.kafka, *sink.options)):
            Terms.read(sink_options(sink))
