"""``delivery=exactly-once``: the driver writes each batch in one transaction, with its ledger.

Rules:
- Spark commits in a process beside the driver which it uses again and again. What is open is kept
  there: a batch that follows the last one of this process goes on with it.
- Any other batch opens the sink anew, as a new process does: it may be that Spark has used another
  process meanwhile, that a batch is repeated, or that checkpoint and ledger do not agree. The
  ledger tells, and nothing is written before it was read.
- Rows are written task by task, in the order of tasks.
- After an error nothing is kept, here or by Spark, which ends the process.
- A query that has no rows for longer than the broker keeps offsets needs ``ledger=topic``: between
  batches there is no process that could renew an entry.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from karrow.errors import StateError
from karrow.spark import pool
from karrow.spark.exactly.batches import Batches
from karrow.spark.exactly.crash import crash_point
from karrow.spark.exactly.ledger import new_ledger
from karrow.spark.exactly.part import PartProducer
from karrow.spark.exactly.transaction import BlockingTransaction
from karrow.spark.writing.words import options_by_name

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.aio.producing.coordinator_calls import Identity
    from karrow.spark.writing.parcel import Parcel
    from karrow.spark.writing.terms import ExactlyOnce, Terms

kept: dict[Terms, DriverSink] = {}


def commit(terms: Terms, once: ExactlyOnce, parcels: Sequence[Parcel], batch: int) -> None:
    """Write a batch unless it is in."""
    sink = kept.pop(terms, None)
    with options_by_name():
        if sink is None or sink.next_batch != batch:
            sink = DriverSink(terms, once)
        sink.commit(parcels, batch)
    kept[terms] = sink


class DriverSink:
    """One sink, open in this process."""

    def __init__(self, terms: Terms, once: ExactlyOnce) -> None:
        self.next_batch: int | None = None
        self._topic = terms.topic
        self._settings = once.settings
        self._run = str(uuid.uuid4())
        self._ledger = new_ledger(once.ledger, once.sink_id, terms.topic, once.ledger_topic)
        self._transaction = BlockingTransaction(once.settings.config, self._ledger)
        self._batches = Batches(
            self._transaction,
            sink_id=once.sink_id,
            on_missing=once.on_missing,
        )

    def commit(self, parcels: Sequence[Parcel], batch: int) -> None:
        """Write a batch unless it is in."""

        def write(who: Identity, version: int) -> int:
            crash_point("prepared")
            rows = self._write(parcels, who, version)
            crash_point("written")
            return rows

        self._batches.run(_query_of(parcels), self._run, batch, write)
        self.next_batch = batch + 1

    def _write(self, parcels: Sequence[Parcel], who: Identity, version: int) -> int:
        self._transaction.partitions(_topics_of(parcels, self._topic))
        part = PartProducer(
            pool.client(self._settings.client),
            who=who,
            version=version,
            **self._settings.of_producer,
        )
        try:
            found = part.write(self._topic, _pieces(parcels))
        finally:
            part.close(timeout=0)
        written = sum(one.rows for one in found)
        wanted = sum(parcel.rows for parcel in parcels)
        if written != wanted:
            raise StateError(f"{written} of {wanted} rows were written")
        return written


def _pieces(parcels: Sequence[Parcel]) -> Iterator[pa.RecordBatch]:
    """The rows of all tasks; where the next are asked for, those before are on their way."""
    is_first = True
    for parcel in parcels:
        for batch in parcel.batches():
            if not is_first:
                crash_point("task-wrote")
            is_first = False
            yield batch


def _topics_of(parcels: Sequence[Parcel], topic: str | None) -> set[str]:
    """Where the rows go; the option counts before the column."""
    if topic is not None:
        return {topic}
    columns = (batch.column("topic") for parcel in parcels for batch in parcel.batches())
    return {name for column in columns for name in pc.unique(column).to_pylist()}  # type: ignore[attr-defined]


def _query_of(parcels: Sequence[Parcel]) -> str:
    """The query that the rows of all tasks are of."""
    queries = {parcel.query for parcel in parcels}
    if len(queries) != 1:
        raise StateError(f"a batch has tasks of {len(queries)} queries")
    return queries.pop()
