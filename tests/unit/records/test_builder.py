"""Open batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from karrow import records
from karrow.errors import ConfigError, LocalProtocolError

FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in (None, "gzip", "snappy", "lz4")]


def values(data: bytes) -> list[bytes | None]:
    return [record.value for record in records.RecordReader(data)]


@pytest.mark.parametrize(("magic", "codec"), [*FORMATS, (2, "zstd")])
def test_records_come_back_in_order(magic: int, codec: str | None) -> None:
    builder = records.BatchBuilder(magic=magic, compression=codec)
    for i in range(100):
        assert builder.append(b"k%d" % i, b"v%d" % i, timestamp_ms=i) == i
    taken = list(records.RecordReader(builder.build(base_offset=40)))
    assert [(r.offset, r.key, r.value) for r in taken] == [
        (40 + i, b"k%d" % i, b"v%d" % i) for i in range(100)
    ]
    assert [r.timestamp_ms for r in taken] == ([*range(100)] if magic else [None] * 100)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_size_is_known_at_every_moment(magic: int) -> None:
    builder = records.BatchBuilder(magic=magic)
    for i in range(50):
        builder.append(b"k" * i, b"v" * i * i, timestamp_ms=i)
        assert builder.size_bytes == len(builder.build())
        assert builder.count == len(builder) == i + 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_full_batch_takes_no_more(magic: int) -> None:
    builder = records.BatchBuilder(magic=magic, max_bytes=1000)
    while builder.append(None, b"x" * 50) is not None:
        pass
    assert 850 < builder.size_bytes <= 1000
    assert builder.append(None, b"x" * 50) is None
    assert len(values(builder.build())) == builder.count


def test_the_first_record_is_always_taken() -> None:
    builder = records.BatchBuilder(max_bytes=100)
    assert builder.append(None, b"x" * 5000) == 0
    assert builder.append(None, b"x") is None


def test_building_again_with_other_numbers() -> None:
    builder = records.BatchBuilder(compression="zstd")
    builder.append(None, b"a")
    first = builder.build(producer_id=1, producer_epoch=0, base_sequence=0)
    second = builder.build(producer_id=1, producer_epoch=1, base_sequence=5)
    assert [records.batches(data)[0].base_sequence for data in (first, second)] == [0, 5]
    builder.append(None, b"b")
    assert values(builder.build()) == [b"a", b"b"]
    assert values(first) == values(second) == [b"a"]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_splitting_keeps_every_record_in_order(magic: int) -> None:
    builder = records.BatchBuilder(magic=magic, compression="gzip")
    for i in range(40):
        headers = [("h", b"%d" % i)] if magic == 2 else []
        builder.append(b"k%d" % i, b"v" * i, timestamp_ms=1000 - i, headers=headers)
    parts = builder.split(400)
    assert len(parts) > 3
    assert all(part.size_bytes <= 400 for part in parts)
    assert all(part.compression == "gzip" for part in parts)
    taken = [record for part in parts for record in records.RecordReader(part.build())]
    whole = list(records.RecordReader(builder.build()))
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in taken] == [
        (r.key, r.value, r.headers, r.timestamp_ms) for r in whole
    ]


def test_a_record_larger_than_the_split_gets_its_own_part() -> None:
    builder = records.BatchBuilder()
    for size in (10, 5000, 10):
        builder.append(None, b"x" * size)
    assert [part.count for part in builder.split(200)] == [1, 1, 1]


def test_arrow_rows_fill_the_batch_as_far_as_they_fit() -> None:
    table = pa.table({"key": [b"k%d" % i for i in range(100)], "value": [b"v" * 100] * 100})
    start = 0
    taken: list[records.Record] = []
    while start < 100:
        builder = records.BatchBuilder(max_bytes=2000)
        count = builder.append_arrow(table, start)
        assert 10 < count < 20 or start + count == 100
        assert builder.size_bytes <= 2000
        taken += records.RecordReader(builder.build())
        start += count
    assert [record.key for record in taken] == [b"k%d" % i for i in range(100)]


def test_arrow_rows_over_several_chunks_and_after_single_records() -> None:
    chunked = pa.concat_tables([pa.table({"value": [b"%d" % i]}) for i in range(5)])
    builder = records.BatchBuilder()
    builder.append(None, b"first")
    assert builder.append_arrow(chunked) == 5
    assert builder.append_arrow(chunked, 3) == 2
    assert values(builder.build()) == [b"first", b"0", b"1", b"2", b"3", b"4", b"3", b"4"]


def test_an_oversized_first_row_is_taken_alone() -> None:
    builder = records.BatchBuilder(max_bytes=100)
    table = pa.table({"value": [b"x" * 1000, b"y"]})
    assert builder.append_arrow(table) == 1
    assert builder.append_arrow(table, 1) == 0


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        ((1, b"v"), {}, "key"),
        ((b"k", 1.5), {}, "value"),
        ((b"k", b"v"), {"timestamp_ms": -1}, "timestamp_ms"),
        ((b"k", b"v"), {"headers": [(b"name", b"v")]}, "header name"),
        ((b"k", b"v"), {"headers": [("name", 5)]}, "header value"),
        ((b"k", b"v"), {"headers": ["name"]}, "pair"),
    ],
)
def test_bad_input_is_refused_and_loses_nothing(
    arguments: tuple[Any, Any], options: dict[str, Any], named: str
) -> None:
    builder = records.BatchBuilder()
    builder.append(None, b"before")
    with pytest.raises(LocalProtocolError, match=named):
        builder.append(*arguments, **options)
    builder.append(None, b"after")
    assert values(builder.build()) == [b"before", b"after"]


def test_a_bad_row_loses_nothing_that_was_taken() -> None:
    builder = records.BatchBuilder()
    builder.append(None, b"before")
    table = pa.table({"value": [b"good", b"bad"], "timestamp": [5, -5]})
    with pytest.raises(LocalProtocolError, match="row 1"):
        builder.append_arrow(table)
    assert values(builder.build()) == [b"before", b"good"]


@pytest.mark.parametrize("given", [bytearray(b"text"), memoryview(b"text"), "text"])
def test_keys_and_values_may_be_text_or_any_buffer(given: Any) -> None:
    builder = records.BatchBuilder()
    builder.append(given, given, headers=(pair for pair in [("h", given)]))
    [record] = records.RecordReader(builder.build())
    assert (record.key, record.value, record.headers) == (b"text", b"text", (("h", b"text"),))


@pytest.mark.parametrize(
    ("options", "named"),
    [({"magic": 5}, "magic=5"), ({"max_bytes": 0}, "max_bytes=0"), ({"compression": "x"}, "'x'")],
)
def test_a_wrong_option_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        records.BatchBuilder(**options)


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(LocalProtocolError, match="empty"):
        records.BatchBuilder().build()


def test_old_formats_have_no_producer() -> None:
    builder = records.BatchBuilder(magic=1)
    builder.append(None, b"v")
    with pytest.raises(LocalProtocolError, match="magic=1"):
        builder.build(producer_id=4)
