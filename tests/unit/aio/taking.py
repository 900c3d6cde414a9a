"""Arrow data through an accumulator without a producer: what came into which batch."""

from __future__ import annotations

from typing import Any

from karrow.aio._accumulator import Accumulator
from karrow.aio._batch import Batch
from karrow.aio._rows import ArrowRows
from karrow.records import Record, RecordReader
from karrow.records.typing import ArrowData

Contents = dict[tuple[str, int], list[Record]]


def accumulator(topics: dict[str, int] | None = None, **options: Any) -> Accumulator:
    """One that knows its topics, and whose sender sleeps."""
    defaults: dict[str, Any] = {
        "buffer_bytes": 1 << 26,
        "batch_bytes": 1_000_000,
        "record_bytes": 1 << 20,
        "partitioner": "murmur2",
        "adaptive": True,
    }
    made = Accumulator(**(defaults | options))
    made.waker = lambda: None
    for name, partitions in (topics or {"t": 4}).items():
        made.add_topic(name, partitions)
    return made


def prepared(target: Accumulator, data: ArrowData, topic: str | None = "t") -> ArrowRows:
    """Rows that are ready to be taken."""
    rows = ArrowRows(target, topic, data)
    rows.check()
    assert rows.unknown() == []
    assert rows.absent() is None
    rows.place()
    return rows


def take(target: Accumulator, data: ArrowData, topic: str | None = "t") -> ArrowRows:
    """Rows of which all are taken at once."""
    rows = prepared(target, data, topic)
    assert rows.step()
    assert rows.taken == rows.count
    return rows


def batches_of(target: Accumulator, topic: str = "t") -> dict[int, list[Batch]]:
    """The batches that wait, by partition, in their order."""
    found = target.topic(topic)
    assert found is not None
    lines = {p.number: [*p.queue, *filter(None, [p.open_batch])] for p in found.partitions}
    return {number: line for number, line in lines.items() if line}


def read(batch: Batch) -> list[Record]:
    """The records of a batch as a broker would find them."""
    batch.close()
    batch.stamp(False)
    where = batch.partition
    with memoryview(batch) as data:
        return list(RecordReader(bytes(data), topic=where.topic.name, partition=where.number))


def contents(target: Accumulator, *topics: str) -> Contents:
    """All records that wait, by topic and partition."""
    return {
        (topic, number): [record for batch in line for record in read(batch)]
        for topic in topics or ("t",)
        for number, line in batches_of(target, topic).items()
    }


def values(found: Contents) -> dict[tuple[str, int], list[Any]]:
    """Only the values."""
    return {where: [record.value for record in records] for where, records in found.items()}
