"""Arrow in, Arrow out: whatever layout a table has, the same records come back."""

from __future__ import annotations

import itertools

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow import records
from tests.property.plain import CODECS, header, repeated, timestamps

BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXT = [pa.string(), pa.large_string(), pa.string_view()]
STAMPS = [pa.timestamp(unit, tz) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC")]
PER_MS = {"s": 1 / 1000, "ms": 1, "us": 1000, "ns": 1_000_000}

# View layouts keep up to 12 bytes inline: lengths on both sides of that matter.
texts = st.none() | st.text(max_size=30)
binaries = st.none() | st.binary(max_size=30) | repeated
headers = st.none() | st.lists(header, max_size=3)


def cut(array: pa.Array, pieces: list[int]) -> pa.ChunkedArray:
    """The same values in chunks that start inside their buffers; a chunk may be empty."""
    bounds = [0, *sorted(piece % (len(array) + 1) for piece in pieces), len(array)]
    # A parent with one more value in front gives every chunk an offset other than 0.
    parent = pa.concat_arrays([pa.nulls(1, array.type), array])
    chunks = [parent.slice(1 + low, high - low) for low, high in itertools.pairwise(bounds)]
    return pa.chunked_array(chunks, array.type)


def decoded(data: bytes, columns: list[str], unit: str = "ms") -> pa.RecordBatch:
    batch = pa.record_batch(records.decode(data, columns=columns, timestamp_unit=unit))
    batch.validate(full=True)
    return batch


@pytest.mark.parametrize("kind", [*BYTES, *TEXT], ids=str)
@given(data=st.data())
def test_every_layout_of_keys_and_values(kind: pa.DataType, data: st.DataObject) -> None:
    contents = st.lists(texts if kind in TEXT else binaries, min_size=1, max_size=20)
    values = data.draw(contents)
    keys = list(reversed(values))
    pieces = st.lists(st.integers(0, 20), max_size=3)
    table = pa.table(
        {
            "key": cut(pa.array(keys, kind), data.draw(pieces)),
            "value": cut(pa.array(values, kind), data.draw(pieces)),
        }
    )
    batch = decoded(records.encode(table), ["key", "value"])
    expected = {"key": as_bytes(keys), "value": as_bytes(values)}
    assert batch.to_pydict() == expected


def as_bytes(values: list[str | bytes | None]) -> list[bytes | None]:
    return [value.encode() if isinstance(value, str) else value for value in values]


@given(values=st.lists(st.none() | st.binary(min_size=5, max_size=5), min_size=1, max_size=20))
def test_values_of_one_width(values: list[bytes | None]) -> None:
    array = pa.array(values, pa.binary(5))
    batch = decoded(records.encode(pa.table({"value": cut(array, [3, 3, 9])})), ["value"])
    assert batch["value"].to_pylist() == values


@given(
    rows=st.lists(headers, min_size=1, max_size=12),
    pieces=st.lists(st.integers(0, 12), max_size=3),
    large=st.booleans(),
    kinds=st.tuples(st.sampled_from(TEXT), st.sampled_from(BYTES)),
)
def test_every_layout_of_headers(
    rows: list[list[tuple[str, bytes | None]] | None],
    pieces: list[int],
    large: bool,
    kinds: tuple[pa.DataType, pa.DataType],
) -> None:
    pair = pa.struct([("key", kinds[0]), ("value", kinds[1])])
    kind = pa.large_list(pair) if large else pa.list_(pair)
    column = pa.array([row and [{"key": k, "value": v} for k, v in row] for row in rows], kind)
    table = pa.table({"value": pa.nulls(len(rows), pa.binary()), "headers": cut(column, pieces)})
    batch = decoded(records.encode(table), ["headers"])
    found = [[(h["key"], h["value"]) for h in row] for row in batch["headers"].to_pylist()]
    assert found == [row or [] for row in rows]


@pytest.mark.parametrize("kind", STAMPS, ids=str)
@given(stamps=st.lists(timestamps.map(lambda ms: ms // 2**6), min_size=1, max_size=12))
def test_timestamps_of_every_unit(kind: pa.TimestampType, stamps: list[int]) -> None:
    seconds = [stamp // 1000 for stamp in stamps]
    column = pa.array([int(s * 1000 * PER_MS[kind.unit]) for s in seconds], pa.int64()).cast(kind)
    table = pa.table({"value": pa.nulls(len(stamps), pa.binary()), "timestamp": column})
    written = records.encode(table)
    for unit in ("ms", "us"):
        found = decoded(written, ["timestamp"], unit)["timestamp"]
        assert found.type == pa.timestamp(unit, "UTC")
        assert found.cast(pa.int64()).to_pylist() == [int(s * 1000 * PER_MS[unit]) for s in seconds]


@pytest.mark.parametrize("codec", CODECS)
@given(rows=st.lists(st.tuples(binaries, binaries, timestamps), min_size=1, max_size=10))
def test_decoded_columns_encode_again(
    codec: str | None, rows: list[tuple[bytes | None, bytes | None, int]]
) -> None:
    keys, values, stamps = zip(*rows, strict=True)
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(stamps, pa.timestamp("ms", "UTC")),
        }
    )
    names = ["key", "value", "timestamp", "headers"]
    first = records.decode(records.encode(table, compression=codec), columns=names)
    second = records.decode(records.encode(first, compression=codec), columns=names)
    assert pa.record_batch(first).equals(pa.record_batch(second))


@given(rows=st.lists(st.tuples(texts, binaries), min_size=1, max_size=20), at=st.integers(0, 19))
def test_polars_frames(rows: list[tuple[str | None, bytes | None]], at: int) -> None:
    schema = {"key": pl.String, "value": pl.Binary}
    whole = pl.DataFrame(rows, schema=schema, orient="row")
    # Appending keeps two chunks, slicing leaves offsets behind.
    frame = whole.head(at).vstack(whole.slice(at))
    batch = decoded(records.encode(frame), ["key", "value"])
    keys, values = zip(*rows, strict=True)
    assert batch.to_pydict() == {"key": as_bytes(list(keys)), "value": list(values)}
    back = pl.DataFrame(records.decode(records.encode(frame), columns=["value"]))
    assert back["value"].to_list() == list(values)


@given(rows=st.lists(st.tuples(binaries, binaries), min_size=1, max_size=10), data=st.data())
def test_projection_is_a_cut_of_all_columns(
    rows: list[tuple[bytes | None, bytes | None]], data: st.DataObject
) -> None:
    keys, values = zip(*rows, strict=True)
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    written = records.encode(table)
    whole = pa.record_batch(records.decode(written, topic="orders", partition=3))
    names = data.draw(st.lists(st.sampled_from(whole.column_names), min_size=1, unique=True))
    part = pa.record_batch(records.decode(written, columns=names, topic="orders", partition=3))
    assert part.equals(whole.select(part.column_names))
    assert set(part.column_names) == set(names)
