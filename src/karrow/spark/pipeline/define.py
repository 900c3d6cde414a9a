"""A pipeline's file into values, checked as far as that goes without Spark.

Rules:
- Sources and steps share one set of names, the tables of SQL; sinks have names of their own, which
  are also the names of their folders below the checkpoint.
- A step knows the sources and the steps that stand before it. So there are no cycles.
- A restart has to find what it left: whatever has data to lose needs a checkpoint.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from karrow.config import ConsumerConfig, ProducerConfig
from karrow.config.option import nearest
from karrow.errors import ConfigError
from karrow.spark.pipeline.definition import (
    APPEND,
    AT_LEAST_ONCE,
    BAD_ROWS,
    CONSOLE,
    DELIVERIES,
    EXACTLY_ONCE,
    FORMATS,
    JSON,
    KINDS,
    MODES,
    PARQUET,
    RAW,
    STOP,
    TOPIC,
    UPDATE,
    DeadLetter,
    Definition,
    Sink,
    Source,
    Step,
    Watermark,
)
from karrow.spark.pipeline.settings import check_known, known_to
from karrow.spark.pipeline.table import Setting, Table

__all__ = ["define", "read_file"]

_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ID = re.compile(r"[A-Za-z0-9._-]+")
_PART = r"(\d+)\s*(milliseconds?|ms|seconds?|s|minutes?|hours?|days?)\b"
_INTERVAL = re.compile(rf"(\s*{_PART})+\s*", re.IGNORECASE)
# What Spark does not know, in its own words.
_UNITS = {"ms": "milliseconds", "s": "seconds"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_ADDRESS = re.compile(r"^(?:([A-Za-z][A-Za-z0-9+.-]+:)(?://([^/]*))?)?(.*)", re.DOTALL)
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
# What is no table in SQL: comments and texts.
_ASIDE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)


def read_file(path: Path) -> dict[str, Any]:
    """The values of a TOML file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What the top of the file, or the caller, says for all sources and sinks."""

    name: str
    folder: Path
    override: str | None
    bootstrap: str | None
    delivery: str
    kafka: tuple[Setting, ...]

    def servers(self, table: Table) -> str:
        """Where the topics of a table are."""
        own = table.text("bootstrap")
        found = self.override or own or self.bootstrap
        if found is None:
            hint = 'bootstrap = "HOST:PORT" there, or at the top for all'
            raise ConfigError(f"{table.where()} has no 'bootstrap'", hint=hint)
        return found


def define(
    values: Mapping[str, Any], *, origin: str, folder: Path, bootstrap: str | None = None
) -> Definition:
    """Read a pipeline; ``bootstrap`` goes before every one in it."""
    top = Table(values, origin)
    shared = _Shared(
        name=_identifier(top, "name", top.required("name", "it is part of its sinks' ids")),
        folder=folder,
        override=bootstrap,
        bootstrap=top.text("bootstrap"),
        delivery=top.choice("delivery", DELIVERIES, AT_LEAST_ONCE),
        kafka=top.settings("kafka", "kafka."),
    )
    check_known(shared.kafka)
    checkpoint = top.text("checkpoint")
    tables = {key: top.tables(key) for key in ("sources", "steps", "sinks")}
    trigger, spark = _interval(top, "trigger"), top.settings("spark")
    top.done()
    found = Definition(
        name=shared.name,
        origin=origin,
        folder=folder,
        checkpoint=None if checkpoint is None else _located(checkpoint, folder),
        trigger=trigger,
        spark=spark,
        sources={name: _source(name, table, shared) for name, table in tables["sources"].items()},
        steps={name: _step(name, table) for name, table in tables["steps"].items()},
        sinks={name: _sink(name, table, shared) for name, table in tables["sinks"].items()},
    )
    _check_names(found)
    _check_references(found)
    _check_sink_ids(found)
    _check_paths(found)
    _check_checkpoint(found)
    return found


# ---- the parts


def _source(name: str, table: Table, shared: _Shared) -> Source:
    topics, pattern = table.texts("topic"), table.text("pattern")
    if bool(topics) == bool(pattern):
        hint = "one of topic and pattern says what is read"
        raise ConfigError(f"{table.where()} has {'both' if topics else 'no topic'}", hint=hint)
    form = table.choice("format", FORMATS, JSON)
    schema = table.text("schema")
    if form == JSON and schema is None:
        hint = 'schema = "id BIGINT NOT NULL, amount DOUBLE", as in CREATE TABLE'
        raise ConfigError(f"{table.where()} has no 'schema', which json needs", hint=hint)
    own = table.settings("kafka", "kafka.")
    found = Source(
        name=name,
        where=table.where(),
        topics=topics,
        pattern=pattern,
        bootstrap=shared.servers(table),
        format=form,
        schema=schema,
        start=table.text("start") or "earliest",
        kafka_column=table.text("kafka_column"),
        watermark=_watermark(table),
        dead_letter=_dead_letter(table, name, shared, own),
        bad_rows=table.choice("bad_rows", BAD_ROWS, STOP),
        kafka=_merged(known_to(ConsumerConfig, shared.kafka), own),
        options=table.settings("options"),
    )
    table.done()
    if form == RAW:
        for key in ("schema", "dead_letter", "bad_rows", "kafka_column"):
            if key in table:
                raise table.error(key, "is of no use with format raw, which parses nothing")
    if found.dead_letter is not None and "bad_rows" in table:
        raise table.error("bad_rows", "and dead_letter exclude each other")
    _check_letters_are_not_read(table, found)
    return found


def _check_letters_are_not_read(table: Table, found: Source) -> None:
    """What is bad stays bad: read again, it would be written again, and so without end."""
    searched = _pattern(table, found.pattern)
    if found.dead_letter is None:
        return
    if found.dead_letter.topic in found.topics:
        raise table.error("dead_letter", "is the topic that is read")
    if searched is not None and searched.search(found.dead_letter.topic):
        hint = "name a topic that it does not match; '^orders$' matches nothing but orders"
        raise table.error("dead_letter", "is a topic that the pattern matches", hint)


def _pattern(table: Table, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        what = f"cannot be {text!r}, which is no regular expression: {error}"
        raise table.error("pattern", what) from None


def _dead_letter(
    table: Table, name: str, shared: _Shared, own: Sequence[Setting]
) -> DeadLetter | None:
    """A topic's name, or a table with more; of the source's own settings what producers have."""
    if "dead_letter" not in table:
        return None
    sink_id = f"{shared.name}.{name}.dead-letter"
    kafka = known_to(ProducerConfig, _merged(shared.kafka, own))
    if isinstance(table.take("dead_letter"), str):
        topic = table.required("dead_letter", "a topic")
        return DeadLetter(topic=topic, delivery=EXACTLY_ONCE, sink_id=sink_id, kafka=kafka)
    inner = table.table("dead_letter")
    found = DeadLetter(
        topic=inner.required("topic", "where rows go that do not parse"),
        delivery=inner.choice("delivery", DELIVERIES, EXACTLY_ONCE),
        sink_id=_identifier(inner, "sink_id", inner.text("sink_id") or sink_id),
        kafka=kafka,
    )
    inner.done()
    return found


def _watermark(table: Table) -> Watermark | None:
    if "watermark" not in table:
        return None
    inner = table.table("watermark")
    column = inner.required("column", "the column with the time of the row")
    delay = _interval(inner, "delay")
    inner.done()
    if delay is None:
        raise ConfigError(f"{inner.where()} has no 'delay'", hint="how late a row may be")
    return Watermark(column=column, delay=delay)


def _step(name: str, table: Table) -> Step:
    sql, function = table.text("sql"), table.take("function")
    if (sql is None) == (function is None):
        have = "neither sql nor function" if sql is None else "both sql and function"
        raise ConfigError(f"{table.where()} has {have}", hint="a step is one of the two")
    if isinstance(function, str) and not _FUNCTION.fullmatch(function):
        raise table.error("function", f"is {function!r}", "it has to be 'module:function'")
    if function is not None and not (isinstance(function, str) or callable(function)):
        raise table.error("function", f"is {function!r}", "it has to be 'module:function'")
    inputs = table.texts("inputs")
    if function is not None and not inputs:
        hint = "the tables that are its arguments, in order"
        raise ConfigError(f"{table.where()} has no 'inputs'", hint=hint)
    if sql is not None and inputs:
        raise table.error("inputs", "is for functions; SQL names its tables itself")
    found = Step(
        name=name,
        where=table.where(),
        sql=sql,
        function=function,
        inputs=inputs,
        watermark=_watermark(table),
    )
    table.done()
    return found


def _sink(name: str, table: Table, shared: _Shared) -> Sink:
    kind = table.choice("kind", KINDS, "") if "kind" in table else _missing_kind(table)
    on_topic, on_path = kind == TOPIC, kind == PARQUET
    delivery = table.choice("delivery", DELIVERIES, shared.delivery) if on_topic else AT_LEAST_ONCE
    form = table.choice("format", FORMATS, JSON) if on_topic else JSON
    own = table.settings("kafka", "kafka.") if on_topic else ()
    sink_id = f"{shared.name}.{name}"
    path = table.required("path", "the folder of its files") if on_path else None
    found = Sink(
        name=name,
        where=table.where(),
        table=table.required("from", "the source or step whose rows it takes"),
        kind=kind,
        mode=table.choice("mode", MODES, APPEND),
        trigger=_interval(table, "trigger"),
        bootstrap=shared.servers(table) if on_topic else "",
        topic=_sink_topic(table, form) if on_topic else None,
        format=form,
        key=table.text("key") if on_topic else None,
        delivery=delivery,
        sink_id=_sink_id(table, sink_id, delivery) if on_topic else sink_id,
        tasks=table.count("tasks") if on_topic else None,
        path=None if path is None else _located(path, shared.folder),
        partition_by=table.texts("partition_by") if on_path else (),
        kafka=_merged(known_to(ProducerConfig, shared.kafka), own) if on_topic else (),
        options=table.settings("options"),
    )
    table.done(f" (a {kind} sink)")
    if on_path and found.mode != APPEND:
        raise table.error("mode", f"cannot be {found.mode!r}", "files are only appended to")
    if on_topic and found.mode == UPDATE and delivery != EXACTLY_ONCE:
        hint = 'Spark has it for delivery = "exactly-once" only'
        raise table.error("mode", f"cannot be {found.mode!r}", hint)
    if form == RAW and found.key is not None:
        raise table.error("key", "is for format json", "a raw sink takes the column named key")
    if found.tasks is not None and delivery != EXACTLY_ONCE:
        raise table.error("tasks", "is for delivery exactly-once")
    return found


def _missing_kind(table: Table) -> str:
    raise ConfigError(f"{table.where()} has no 'kind'", hint=f"one of {', '.join(KINDS)}")


def _sink_topic(table: Table, form: str) -> str | None:
    """A raw sink may have a column with the topic of each row."""
    if form == RAW:
        return table.text("topic")
    return table.required("topic", "where the rows go")


def _sink_id(table: Table, default: str, delivery: str) -> str:
    if "sink_id" in table and delivery != EXACTLY_ONCE:
        raise table.error("sink_id", "is for delivery exactly-once")
    return _identifier(table, "sink_id", table.text("sink_id") or default)


def _interval(table: Table, key: str) -> str | None:
    """A time as Spark writes it, which wants whole words and a space in front of them."""
    found = table.text(key)
    if found is None:
        return None
    if not _INTERVAL.fullmatch(found):
        raise table.error(key, f"cannot be {found!r}", "a time such as '10 seconds'")
    parts = re.findall(_PART, found.lower())
    return " ".join(f"{number} {_UNITS.get(unit, unit)}" for number, unit in parts)


def _identifier(table: Table, key: str, text: str) -> str:
    if not _ID.fullmatch(text):
        raise table.error(key, f"cannot be {text!r}", "letters, digits, '.', '_' and '-'")
    return text


def _merged(shared: Iterable[Setting], own: Iterable[Setting]) -> tuple[Setting, ...]:
    return tuple({setting.name: setting for setting in (*shared, *own)}.values())


def _located(text: str, folder: Path) -> str:
    """A path of its own, an address such as s3a://bucket/x, or one below the folder."""
    return text if _SCHEME.match(text) else str(folder / text)


# ---- how they fit together


def _check_names(found: Definition) -> None:
    for kind, parts in (("sources", found.sources), ("sinks", found.sinks)):
        if not parts:
            raise ConfigError(f"{found.origin} has no {kind}", hint=f"such as [{kind}.orders]")
    tables: list[Source | Step] = [*found.sources.values(), *found.steps.values()]
    _check_each_once(found, tables)
    _check_each_once(found, list(found.sinks.values()))


def _check_each_once(found: Definition, parts: Sequence[Source | Step | Sink]) -> None:
    """Spark's tables, and some file systems, do not tell capital letters from small ones."""
    seen: dict[str, str] = {}
    for part in parts:
        if not _TABLE_NAME.fullmatch(part.name):
            hint = "names are letters, digits and '_'"
            raise ConfigError(f"{part.where} cannot have that name", hint=hint)
        if part.name.lower() in seen:
            raise ConfigError(f"{part.where} has the name of {seen[part.name.lower()]}")
        seen[part.name.lower()] = part.where.removeprefix(f"{found.origin}: ")


def _check_references(found: Definition) -> None:
    known = list(found.sources)
    for step in found.steps.values():
        for name in step.inputs:
            if name not in known:
                raise ConfigError(f"{step.where} inputs {missing_table(found, step, name)}")
        known.append(step.name)
    for sink in found.sinks.values():
        if sink.table not in known:
            raise ConfigError(f"{sink.where} from {no_table(sink.table, known)}")


def missing_table(found: Definition, step: Step, name: str) -> str:
    """Why a step cannot use a table: it is unknown, comes later, or needs the step itself."""
    names = list(found.steps)
    later = names[names.index(step.name) :]
    if name not in later:
        return no_table(name, [*found.sources, *names[: names.index(step.name)]])
    if _needs(found, name, step.name, set()):
        circle = "itself" if name == step.name else f"{name!r}, which uses {step.name!r}"
        return f"forms a cycle: {step.name!r} uses {circle}"
    return f"uses {name!r}, which comes later; steps are made in the order of the file"


def no_table(name: str, known: Iterable[str]) -> str:
    """That a table is unknown, with the nearest that is known."""
    near = nearest(name, list(known))
    hint = f"did you mean {near!r}?" if near else f"the tables are {', '.join(known)}"
    return f"names no table {name!r}; {hint}"


def _needs(found: Definition, name: str, wanted: str, seen: set[str]) -> bool:
    """Whether a step uses another, over however many steps; of SQL, by the words in it."""
    if name == wanted:
        return True
    seen.add(name)
    step = found.steps[name]
    words = set(step.inputs) | set(re.findall(r"\w+", _ASIDE.sub(" ", step.sql or "")))
    return any(_needs(found, word, wanted, seen) for word in words & set(found.steps) - seen)


def _check_sink_ids(found: Definition) -> None:
    ids: dict[str, str] = {}
    letters = [(source.where, source.dead_letter) for source in found.sources.values()]
    sinks = [(sink.where, sink) for sink in found.sinks.values() if sink.kind == TOPIC]
    for where, part in (*letters, *sinks):
        if part is None or part.delivery != EXACTLY_ONCE:
            continue
        if part.sink_id in ids:
            other = ids[part.sink_id]
            raise ConfigError(f"{where} has the sink id {part.sink_id!r} of {other}")
        ids[part.sink_id] = where.removeprefix(f"{found.origin}: ")


def _check_paths(found: Definition) -> None:
    """Spark's file sink counts the batches of its folder, and passes over those that it has."""
    seen: dict[str, str] = {}
    for sink in found.sinks.values():
        if sink.path is None:
            continue
        place = _normalised(sink.path)
        if place in seen:
            hint = "a folder has the files of one sink; UNION ALL in a step brings tables together"
            raise ConfigError(f"{sink.where} has the path of {seen[place]}", hint=hint)
        seen[place] = sink.where.removeprefix(f"{found.origin}: ")


def _normalised(path: str) -> str:
    """One text for all ways to write a path; ``file:`` and nothing in front of it are the same."""
    scheme, host, inside = _ADDRESS.findall(path)[0]
    return f"{scheme.lower() or 'file:'}//{host}/{posixpath.normpath('/' + inside).lstrip('/')}"


def _check_checkpoint(found: Definition) -> None:
    kept = [sink.name for sink in found.sinks.values() if sink.kind != CONSOLE]
    letters = [source.name for source in found.sources.values() if source.dead_letter]
    if found.checkpoint is None and (kept or letters):
        hint = "a folder where queries note how far they are, so that a restart goes on there"
        raise ConfigError(f"{found.origin} has no 'checkpoint'", hint=hint)
