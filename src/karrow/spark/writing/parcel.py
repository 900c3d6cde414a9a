"""The rows of a task on their way to the driver, which writes those of all tasks at once.

Rules:
- Rows travel as Arrow. To encode them is the least of the work, and only the driver knows as whom
  they are written.
- A task finds what is wrong with its rows, so that nothing is in the transaction yet. Topics and
  partitions are looked for as when rows are written.
- All that a batch has goes through the driver, so a task that has too much says so early, instead
  of Spark or a driver without memory after the work is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc
from pyspark.sql.datasource import WriterCommitMessage

from karrow.aio._rows import ArrowRows
from karrow.errors import StateError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from karrow.sync.producer import Producer

# Spark's own limit, spark.driver.maxResultSize, is 1 GiB for all tasks unless it was raised.
MOST_BYTES = 2**29


@dataclass(frozen=True, slots=True)
class Parcel(WriterCommitMessage):
    """The rows of one task, and the query that they are of."""

    query: str
    rows: int
    data: bytes = field(repr=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they came."""
        if self.rows:
            yield from ipc.open_stream(self.data)


def packed(
    producer: Producer,
    topic: str | None,
    query: str,
    batches: Iterable[pa.RecordBatch],
    most_bytes: int = MOST_BYTES,
) -> Parcel:
    """Look at all rows of a task, and pack them; the producer knows topics, and sends nothing."""
    rows = 0
    into = pa.BufferOutputStream()
    writer = None
    for batch in batches:
        if not batch.num_rows:
            continue
        _check(producer, topic, batch)
        writer = writer or ipc.new_stream(into, batch.schema)
        writer.write_batch(batch)
        rows += batch.num_rows
        if into.tell() > most_bytes:
            raise StateError(
                f"a task has more than {most_bytes} bytes for the driver, after {rows} rows",
                hint="with delivery=exactly-once a batch goes through the driver: give the source "
                "maxBytesPerTrigger or maxOffsetsPerTrigger, or use karrow.spark.exactly_once",
            )
    if writer is not None:
        writer.close()
    return Parcel(query, rows, into.getvalue().to_pybytes())


def _check(producer: Producer, topic: str | None, batch: pa.RecordBatch) -> None:
    rows = ArrowRows(producer.accumulator, topic, batch)
    rows.check()
    for name in rows.unknown():
        producer.partitions_for(name)
    absent = rows.absent()
    if absent is not None:
        name, partition, row = absent
        error = UnknownTopicOrPartition(
            f"column 'partition' asks for what is not there (row {row})",
            hint=f"the topic has partitions 0 to {producer.partitions_for(name) - 1}",
            topic=name,
            partition=partition,
        )
        error.retriable = False
        raise error
