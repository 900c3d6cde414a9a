"""A pipeline in words: what is read, what is made of it, where it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from karrow.spark.pipeline.definition import (
    EXACTLY_ONCE,
    PARQUET,
    STOP,
    TOPIC,
    Definition,
    Sink,
    Source,
    Step,
)

if TYPE_CHECKING:
    from karrow.spark.pipeline.table import Setting

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pipeline would do; ``str`` is for people.

    ``schemas`` has the columns of every table as Spark DDL. Secrets are in none of it.
    """

    definition: Definition
    schemas: dict[str, str]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        one = self.definition
        yield f"pipeline {one.name} ({one.origin})"
        yield f"  checkpoint  {one.checkpoint or 'none'}"
        yield f"  trigger     {one.trigger or 'as soon as there is data'}"
        yield from _settings(one.spark)
        yield "sources"
        for source in one.sources.values():
            yield from _part(source.name, [*_source(source), f"gives {self.schemas[source.name]}"])
        if one.steps:
            yield "steps"
        for step in one.steps.values():
            yield from _part(step.name, [*_step(step), f"gives {self.schemas[step.name]}"])
        yield "sinks"
        for sink in one.sinks.values():
            yield from _part(sink.name, _sink(sink))


def _part(name: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"  {name}"
    for line in lines:
        yield f"    {line}"


def _settings(settings: Sequence[Setting]) -> Iterator[str]:
    for setting in settings:
        yield f"  {setting!r}"


def _source(source: Source) -> Iterator[str]:
    what = f"topics like {source.pattern}" if source.pattern else f"{_topics(source.topics)}"
    yield f"reads {what} at {source.bootstrap} as {source.format}, from {source.start}"
    if source.watermark is not None:
        yield f"watermark {source.watermark.column}, {source.watermark.delay}"
    if source.dead_letter is not None:
        letter = source.dead_letter
        kind = letter.delivery
        kind += f" as {letter.sink_id}" if letter.delivery == EXACTLY_ONCE else ""
        yield f"bad rows go to topic {letter.topic}, {kind}"
    elif source.schema is not None:
        yield f"bad rows {'stop it' if source.bad_rows == STOP else 'are dropped'}"
    yield from (repr(setting) for setting in (*source.kafka, *source.options))


def _topics(names: Sequence[str]) -> str:
    return f"topic{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _step(step: Step) -> Iterator[str]:
    if step.sql is not None:
        yield f"selects {' '.join(step.sql.split())}"
    else:
        name = step.function if isinstance(step.function, str) else repr(step.function)
        yield f"calls {name} with {', '.join(step.inputs)}"
    if step.watermark is not None:
        yield f"watermark {step.watermark.column}, {step.watermark.delay}"


def _sink(sink: Sink) -> Iterator[str]:
    if sink.kind == TOPIC:
        topic = f"topic {sink.topic}" if sink.topic else "the topics in column topic"
        yield f"writes {sink.table} to {topic} at {sink.bootstrap} as {sink.format}"
        promise = sink.delivery
        promise += f" as {sink.sink_id}" if sink.delivery == EXACTLY_ONCE else ""
        yield f"{promise}, {sink.mode}" + (f", key {sink.key}" if sink.key else "")
    elif sink.kind == PARQUET:
        parts = f" by {', '.join(sink.partition_by)}" if sink.partition_by else ""
        yield f"writes {sink.table} to Parquet files in {sink.path}{parts}"
        yield f"exactly-once, {sink.mode}"
    else:
        yield f"prints {sink.table}, {sink.mode}"
    if sink.trigger is not None:
        yield f"trigger {sink.trigger}"
    yield from (repr(setting) for setting in (*sink.kafka, *sink.options))
