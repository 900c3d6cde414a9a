"""Where the queries of a pipeline begin that have not begun yet: all of them at the same places.

Rules:
- Queries are started one after the other. Each would look for the end of a topic by itself, and a
  row that came between two of them would be in one sink and not in the other, or, if it is bad, in
  neither a sink nor the dead letters. So what does not stay where it is (``latest``, an age, the
  offsets of a group) is looked for once, before the first of them is started.
- What was found is noted in the checkpoint of each query before any is started: a pipeline that is
  killed in between goes on from there, not from where the topics end by then.
- A query that has a batch of its own is where its checkpoint says. One that has none, nor a note,
  takes the note of another that has not begun either, or else looks for itself: it is a sink that
  was added later.
- Partitions that have come since the note was written are new, and are read from their beginning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from karrow.errors import ConfigError, KarrowError
from karrow.spark import pool
from karrow.spark.pipeline.folders import OFFSETS, Folder
from karrow.spark.pipeline.settings import SOURCE_KEYS, named, source_options
from karrow.spark.reading.offsets import plain
from karrow.spark.reading.places import OTHERS
from karrow.spark.reading.planning import beginnings
from karrow.spark.reading.settings import Settings
from karrow.sync.loop import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrow.spark.pipeline.definition import Definition, Source

__all__ = ["beginning_together"]

# The options that say where to begin, beside the key ``start``.
_STARTING = {
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
}


@dataclass(frozen=True, slots=True)
class _Query:
    """A query, and what is in its checkpoint: None without one."""

    name: str
    notes: Folder | None
    has_begun: bool

    def note(self, source: str) -> str | None:
        return None if self.notes is None else self.notes.read(source)


def beginning_together(
    definition: Definition, checkpoints: Mapping[str, str | None], spark: SparkSession
) -> dict[str, Definition]:
    """The pipeline as each of its queries is to see it; their checkpoints may not exist yet."""
    queries = [_query(name, folder, spark) for name, folder in checkpoints.items()]
    seen = dict.fromkeys(checkpoints, definition)
    for source in definition.sources.values():
        with named(source.where, SOURCE_KEYS):
            settings = Settings.for_stream(source_options(source))
            if settings.start.is_lasting:
                continue
            starts = _starts(queries, source, settings)
        for name, start in starts.items():
            seen[name] = _with(seen[name], _begun_at(source, start))
    return seen


def _query(name: str, checkpoint: str | None, spark: SparkSession) -> _Query:
    if checkpoint is None:
        return _Query(name, None, has_begun=False)
    notes = Folder(spark, f"{checkpoint}/beginnings", name)
    has_begun = Folder(spark, checkpoint, name).last_batch(OFFSETS) >= 0
    return _Query(name, notes, has_begun=has_begun)


def _starts(queries: Sequence[_Query], source: Source, settings: Settings) -> dict[str, str]:
    """Where queries begin to read a source; those that have begun are left out."""
    waiting = {query: query.note(source.name) for query in queries if not query.has_begun}
    if None not in waiting.values():
        return {query.name: note for query, note in waiting.items() if note is not None}
    known = next((note for note in waiting.values() if note is not None), None)
    start = _found(source, settings) if known is None else known
    for query, note in waiting.items():
        if note is None and query.notes is not None:
            query.notes.write(source.name, start)
    return {query.name: note or start for query, note in waiting.items()}


def _found(source: Source, settings: Settings) -> str:
    client = pool.client(settings.config)
    try:
        found = run(beginnings(settings, client.twin), "AsyncClient")
    except ConfigError:
        raise
    except KarrowError as error:
        hint = f"asked {source.bootstrap} where to begin"
        raise ConfigError(f"start: {error}", hint=hint) from error
    return json.dumps({**plain(found.offsets), OTHERS: "earliest"})


def _begun_at(source: Source, start: str) -> Source:
    options = tuple(one for one in source.options if one.name.lower() not in _STARTING)
    return replace(source, start=start, options=options)


def _with(definition: Definition, source: Source) -> Definition:
    return replace(definition, sources={**definition.sources, source.name: source})
