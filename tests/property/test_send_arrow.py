"""Rows in, rows out: of all Arrow data that is sent, each row is in one batch, at its place."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from karrow.aio._accumulator import Accumulator
from karrow.records import Record, partition_for
from tests.property.plain import header, timestamps
from tests.property.test_arrow import BYTES, TEXT, cut
from tests.unit.aio.taking import accumulator, prepared, read

TOPICS = {"first": 1, "second": 3, "third-topic-with-a-name": 5}
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
INTEGERS = [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.uint64()]


class Row(NamedTuple):
    """A row as it is sent; None stands for null."""

    topic: str | None
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: list[tuple[str, bytes | None]] | None


class Shape(NamedTuple):
    """How the same rows are laid out, and what room there is for them."""

    binary: pa.DataType
    topic: pa.DataType
    partition: pa.DataType
    columns: frozenset[str]
    pieces: list[int]
    batch_bytes: int
    buffer_bytes: int


# The numbers of partitions that every topic has, so that any topic fits any of them.
rows = st.lists(
    st.builds(
        Row,
        topic=st.none() | st.sampled_from(list(TOPICS)),
        partition=st.none() | st.just(0),
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=40) | st.just(b"." * 700),
        timestamp=st.none() | timestamps,
        headers=st.none() | st.lists(header, max_size=2),
    ),
    max_size=60,
)
shapes = st.builds(
    Shape,
    binary=st.sampled_from(BYTES),
    topic=st.sampled_from([*TEXT, pa.dictionary(pa.int8(), pa.string())]),
    partition=st.sampled_from(INTEGERS),
    columns=st.frozensets(st.sampled_from([name for name in Row._fields if name != "value"])),
    pieces=st.lists(st.integers(0, 60), max_size=3),
    batch_bytes=st.sampled_from([200, 1000, 5000, 1_000_000]),
    buffer_bytes=st.sampled_from([1, 1000, 5000, 100_000, 1 << 26]),
)


def table_of(sent: list[Row], shape: Shape) -> pa.Table:
    headers = [
        None if row.headers is None else [{"key": name, "value": v} for name, v in row.headers]
        for row in sent
    ]
    arrays = {
        "topic": pa.array([row.topic for row in sent], shape.topic),
        "partition": pa.array([row.partition for row in sent], shape.partition),
        "key": pa.array([row.key for row in sent], shape.binary),
        "timestamp": pa.array([row.timestamp for row in sent], pa.int64()),
        "headers": pa.array(headers, pa.list_(HEADER)),
    }
    chosen = {name: array for name, array in arrays.items() if name in shape.columns}
    chosen["value"] = pa.array([row.value for row in sent], shape.binary)
    return pa.table({name: cut(array, shape.pieces) for name, array in chosen.items()})


def drained(target: Accumulator) -> list[Record]:
    """What waits, in the order of each partition; then it is written."""
    found = []
    for partition in list(target.listed):
        target.close_batch(partition)
        for batch in partition.queue:
            found += read(batch)
            batch.succeed(0)
        partition.queue.clear()
        target.unlist(partition)
    return found


def as_sent(row: Row, record: Record, shape: Shape) -> Row:
    """The record in the words of its row: what was chosen for a null is null again."""
    given = {name: getattr(row, name) is not None and name in shape.columns for name in Row._fields}
    got: dict[str, Any] = {
        "topic": record.topic if given["topic"] else row.topic,
        "partition": record.partition if given["partition"] else row.partition,
        "key": record.key if "key" in shape.columns else row.key,
        "value": record.value,
        "timestamp": record.timestamp_ms if given["timestamp"] else row.timestamp,
        "headers": list(record.headers) if given["headers"] else row.headers,
    }
    return Row(**got)


@given(sent=rows, shape=shapes)
def test_rows_in_are_rows_out(sent: list[Row], shape: Shape) -> None:
    numbered = [row._replace(value=b"%d|" % n + (row.value or b"")) for n, row in enumerate(sent)]
    target = accumulator(TOPICS, batch_bytes=shape.batch_bytes, buffer_bytes=shape.buffer_bytes)
    taking = prepared(target, table_of(numbered, shape), "second")
    found: list[Record] = []
    for _ in range(1 + 2 * len(sent)):
        is_done = taking.step()
        found += drained(target)
        if is_done:
            break
    else:
        raise AssertionError("it does not come to an end")
    assert (target.bytes, target.incomplete) == (0, set())
    places = [int((record.value or b"").split(b"|")[0]) for record in found]
    assert sorted(places) == list(range(len(sent)))
    for place, record in zip(places, found, strict=True):
        assert as_sent(numbered[place], record, shape) == numbered[place]
        if "topic" not in shape.columns or numbered[place].topic is None:
            assert record.topic == "second"
        is_free = "partition" not in shape.columns or numbered[place].partition is None
        if is_free and record.key is not None:
            assert record.partition == partition_for(record.key, TOPICS[record.topic])
    for line in lines(found).values():
        assert line == sorted(line)


def lines(found: list[Record]) -> dict[tuple[str, int], list[int]]:
    """The numbers of the rows, by partition."""
    by_place = sorted(found, key=lambda record: (record.topic, record.partition))
    groups = itertools.groupby(by_place, key=lambda record: (record.topic, record.partition))
    return {
        where: [int((record.value or b"").split(b"|")[0]) for record in group]
        for where, group in groups
    }


@given(
    values=st.lists(st.none() | st.binary(max_size=30), max_size=40),
    kind=st.sampled_from(BYTES),
    pieces=st.lists(st.integers(0, 40), max_size=3),
)
def test_nulls_stay_null(values: list[bytes | None], kind: pa.DataType, pieces: list[int]) -> None:
    target = accumulator({"t": 1})
    array = cut(pa.array(values, kind), pieces)
    assert prepared(target, pa.table({"value": array, "key": array})).step()
    found = drained(target)
    assert [(record.key, record.value) for record in found] == [(v, v) for v in values]
