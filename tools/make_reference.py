"""Writes the tables of options, properties and events into docs/, from the code that has them.

Each table stands between two comments, ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path

from generated import write_or_check

from karrow import events
from karrow.config import ClientConfig, ConsumerConfig, ProducerConfig, WorkerConfig
from karrow.config.dialects import Dialect, properties
from karrow.config.option import Option

DOCS = Path(__file__).parent.parent / "docs"
DIALECTS: tuple[Dialect, ...] = ("librdkafka", "java")
WITH_TABLES: tuple[type[ClientConfig], ...] = (
    ClientConfig,
    ProducerConfig,
    ConsumerConfig,
    WorkerConfig,
)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def default(field: dataclasses.Field[object]) -> str:
    about: Option = field.metadata["option"]
    if about.unit == "bytes" and isinstance(field.default, int):
        return f"{field.default:,}"
    return code(repr(field.default))


def options(config: type[ClientConfig]) -> str:
    """Every option of a set that the nearest set with a table of its own has not."""
    parent = next((one for one in config.__mro__[1:] if one in WITH_TABLES), None)
    inherited = set() if parent is None else set(parent.describe())
    rows = []
    for field in dataclasses.fields(config):
        if field.name in inherited:
            continue
        about: Option = field.metadata["option"]
        limits = " ".join(filter(None, [about.unit, about.range]))
        limits = limits or " or ".join(map(repr, about.choices))
        rows.append((code(field.name), default(field), limits, about.doc))
    return table(("option", "default", "values", "what it does"), rows)


def foreign(dialect: Dialect, config: type[ClientConfig]) -> str:
    """Every property of a dialect that a set treats otherwise than its parent."""
    words = {"ignored": "no effect", "refused": "refused"}
    told = {} if config is ClientConfig else properties(dialect, ClientConfig)
    rows = [
        (code(row.name), code(row.option) if row.option else words[row.treatment], row.reason)
        for row in properties(dialect, config).values()
        if told.get(row.name) != row
    ]
    return table(("property", "option", "why"), rows)


def of_set(prefix: str, config: type[ClientConfig]) -> dict[str, str]:
    """The tables of one option set, by their names in the document."""
    return {
        f"{prefix}options": options(config),
        **{f"{prefix}properties-{dialect}": foreign(dialect, config) for dialect in DIALECTS},
    }


def event_names() -> str:
    """Every event and its fields."""
    rows = [(code(name), ", ".join(map(code, events.fields(name)))) for name in events.names()]
    return table(("event", "fields"), rows)


def filled(path: Path, tables: dict[str, str]) -> str:
    """The document with its tables replaced."""
    text = path.read_text("utf-8")
    for name, content in tables.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"
    return text


def files() -> dict[Path, str]:
    """The documents as they should be."""
    tables = {
        **of_set("", ClientConfig),
        **of_set("producer-", ProducerConfig),
        **of_set("consumer-", ConsumerConfig),
    }
    configuration, telemetry = DOCS / "configuration.md", DOCS / "events.md"
    workers = DOCS / "workers.md"
    return {
        configuration: filled(configuration, tables),
        telemetry: filled(telemetry, {"events": event_names()}),
        workers: filled(workers, {"worker-options": options(WorkerConfig)}),
    }


if __name__ == "__main__":
    write_or_check(files(), sys.argv[1:])
