"""A task of the write: its partitions' rows into the driver's transaction.

Rules:
- Spark runs it once for an attempt, or fails the attempt: the stage is a barrier, and the last of
  its job. So nobody else writes to its partitions under the same identity.
- It returns when every row is acknowledged, and raises otherwise. What is under way then finds the
  attempt fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import cloudpickle

from karrow.aio.producing.coordinator_calls import Identity
from karrow.spark import pool
from karrow.spark.arriving import arrive
from karrow.spark.exactly import crash
from karrow.spark.exactly.part import PartProducer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karrow.spark.exactly.settings import Settings

Rows = Iterator[pa.RecordBatch]
WRITTEN = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("rows", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_sequence", pa.int64()),
    ]
)
REPORT = pa.schema(
    [
        ("task", pa.int32()),
        ("of", pa.int32()),
        ("producer_id", pa.int64()),
        ("epoch", pa.int32()),
        ("rows", pa.int64()),
        ("written", pa.list_(WRITTEN)),
    ]
)


def writer(
    settings: Settings, topic: str | None, batch: int, who: Identity, version: int
) -> Callable[[Rows], Rows]:
    """What Spark is to run in every task of an attempt."""
    given = (settings, topic, batch, who, version, crash.orders())
    # Spark pickles what follows with its code, and nothing in it may need karrow to be unpickled.
    home, name = __name__, in_task.__name__
    packed = cloudpickle.dumps(given)  # type: ignore[no-untyped-call]

    def write(batches: Rows) -> Rows:
        yield arrive(home, name, packed)(batches)

    return write


def in_task(packed: bytes) -> Callable[[Rows], pa.RecordBatch]:
    """What a task does, as it was sent to it."""
    settings, topic, batch, who, version, orders = cloudpickle.loads(packed)
    crash.use(orders, batch)
    return lambda batches: written(batches, settings, topic, who, version)


def written(
    batches: Iterable[pa.RecordBatch],
    settings: Settings,
    topic: str | None,
    who: Identity,
    version: int,
) -> pa.RecordBatch:
    """Write the rows of this task, and report."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    crash.crash_point("task-begun")
    counted = Counted(batches)
    producer_id, epoch = who
    part = PartProducer(
        pool.client(settings.client),
        who=Identity(producer_id, epoch),
        version=version,
        **settings.of_producer,
    )
    try:
        found = part.write(topic, counted)
    finally:
        part.close(timeout=0)
    crash.crash_point("task-done")
    report = {
        "task": context.partitionId(),
        "of": len(context.getTaskInfos()),
        "producer_id": producer_id,
        "epoch": epoch,
        "rows": counted.rows,
        "written": [one._asdict() for one in found],
    }
    return pa.RecordBatch.from_pylist([report], schema=REPORT)


class Counted:
    """Batches as they come, and how many rows they had."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Rows:
        for batch in self._batches:
            if self.rows:
                crash.crash_point("task-wrote")
            self.rows += batch.num_rows
            if batch.num_rows:
                yield batch
