"""Arrow tables into batches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from karrow import records
from karrow.errors import ConfigError, LocalProtocolError

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def read(data: bytes) -> list[records.Record]:
    return list(records.RecordReader(data))


def values(data: bytes) -> list[bytes | None]:
    return [record.value for record in read(data)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_table_comes_back(codec: str | None) -> None:
    table = pa.table(
        {
            "key": pa.array([b"k", None, b""]),
            "value": pa.array([b"v" * 1000, b"", None]),
            "timestamp": pa.array([5, 1_700_000_000_000, 6], pa.timestamp("ms", "UTC")),
            "headers": pa.array(
                [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], [], None],
                pa.list_(HEADER),
            ),
        }
    )
    data = records.encode(table, compression=codec)
    columns = ["key", "value", "timestamp", "headers"]
    decoded = pa.record_batch(records.decode(data, columns=columns)).to_pylist()
    expected = table.to_pylist()
    expected[2]["headers"] = []
    assert decoded == expected


def test_only_value_is_needed_and_time_is_now() -> None:
    before = datetime.now(UTC).timestamp() * 1000
    [record] = read(records.encode(pa.table({"value": [b"v"]})))
    assert record.key is None
    assert record.timestamp_ms is not None
    assert before - 1 <= record.timestamp_ms <= datetime.now(UTC).timestamp() * 1000 + 1


def test_missing_timestamps_are_now_and_others_kept() -> None:
    table = pa.table({"value": [b"a", b"b"], "timestamp": pa.array([None, 7], pa.int64())})
    first, second = read(records.encode(table))
    assert (first.timestamp_ms or 0) > 1_700_000_000_000
    assert second.timestamp_ms == 7


@pytest.mark.parametrize(
    ("kind", "number", "expected"),
    [
        (pa.timestamp("s"), 3, 3000),
        (pa.timestamp("ms"), 3, 3),
        (pa.timestamp("us", "Europe/Berlin"), 3999, 3),
        (pa.timestamp("ns", "UTC"), 3_999_999, 3),
        (pa.int64(), 3, 3),
    ],
)
def test_timestamps_of_any_unit(kind: pa.DataType, number: int, expected: int) -> None:
    table = pa.table({"value": [b"v"], "timestamp": pa.array([number], pa.int64()).cast(kind)})
    assert read(records.encode(table))[0].timestamp_ms == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.binary(3),
    ],
    ids=str,
)
def test_every_layout_of_bytes(kind: pa.DataType) -> None:
    column = pa.array([b"abc", None, b"xyz"], pa.binary(3) if kind == pa.binary(3) else pa.binary())
    if kind != column.type:
        column = column.cast(pa.string()).cast(kind) if "string" in str(kind) else column.cast(kind)
    data = records.encode(pa.table({"key": column, "value": column}))
    assert values(data) == [b"abc", None, b"xyz"]
    assert [record.key for record in read(data)] == [b"abc", None, b"xyz"]


def test_long_views_point_into_other_buffers() -> None:
    long = [b"x" * 13, b"short", b"y" * 100_000, None]
    column = pa.array(long, pa.binary_view())
    assert values(records.encode(pa.table({"value": column}))) == long


def test_a_column_of_nulls() -> None:
    table = pa.table({"key": pa.nulls(2), "value": pa.nulls(2), "timestamp": pa.nulls(2)})
    assert [(record.key, record.value) for record in read(records.encode(table))] == [
        (None,) * 2
    ] * 2


def test_slices_chunks_batches_and_readers() -> None:
    table = pa.table(
        {"key": [b"%d" % i for i in range(10)], "value": [b"v%d" % i for i in range(10)]}
    )
    expected = [b"v%d" % i for i in range(3, 8)]
    part = table.slice(3, 5)
    assert values(records.encode(part)) == expected
    assert values(records.encode(part.to_batches()[0])) == expected
    assert (
        values(records.encode(pa.concat_tables([table.slice(3, 2), table.slice(5, 3)]))) == expected
    )
    assert values(records.encode(part.to_reader(max_chunksize=2))) == expected


def test_slices_of_headers_and_structs() -> None:
    lists = [[{"key": f"h{i}", "value": b"%d" % i}] * (i % 3) for i in range(9)]
    table = pa.table({"value": [b"v"] * 9, "headers": pa.array(lists, pa.list_(HEADER))})
    taken = [record.headers for record in read(records.encode(table.slice(4)))]
    assert taken == [((f"h{i}", b"%d" % i),) * (i % 3) for i in range(4, 9)]


def test_polars_frames_go_straight_in() -> None:
    frame = pl.DataFrame(
        {
            "key": ["a", None],
            "value": [b"x" * 40, b"y"],
            "timestamp": [datetime(2026, 1, 1, tzinfo=UTC)] * 2,
            "headers": [[{"key": "h", "value": b"1"}], []],
        }
    )
    first, second = read(records.encode(frame))
    assert (first.key, first.value, first.headers) == (b"a", b"x" * 40, (("h", b"1"),))
    assert first.timestamp_ms == 1_767_225_600_000
    assert (second.key, second.headers) == (None, ())


def test_decoded_columns_go_straight_back_in() -> None:
    data = records.encode(pa.table({"value": [b"a", b"b"], "offset": [5, 9]}))
    again = records.encode(records.decode(data, topic="t", partition=1))
    assert [record.offset for record in read(again)] == [5, 9]
    assert again == data


def test_offsets_keep_their_distance_and_may_be_moved() -> None:
    table = pa.table({"value": [b"a", b"b"], "offset": [100, 103]})
    assert [record.offset for record in read(records.encode(table))] == [100, 103]
    moved = records.encode(table, base_offset=7)
    assert [record.offset for record in read(moved)] == [7, 10]
    assert records.batches(moved)[0].last_offset == 10


def test_no_rows_give_no_bytes() -> None:
    assert records.encode(pa.table({"value": pa.array([], pa.binary())})) == b""


def test_the_header_says_what_was_asked() -> None:
    [info] = records.batches(
        records.encode(
            pa.table({"value": [b"a", b"b"], "timestamp": [9, 4]}),
            compression="lz4",
            base_offset=50,
            producer_id=12,
            producer_epoch=3,
            base_sequence=77,
            leader_epoch=6,
            transactional=True,
            control=True,
        )
    )
    assert (info.base_offset, info.last_offset, info.count) == (50, 51, 2)
    assert (info.producer_id, info.producer_epoch, info.base_sequence) == (12, 3, 77)
    assert (info.leader_epoch, info.transactional, info.control, info.codec) == (6, True, True, 3)
    assert (info.base_timestamp_ms, info.max_timestamp_ms, info.timestamp_type) == (9, 9, 0)


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"key": [b"k"]}, "no column 'value'"),
        ({"value": [1]}, "'value'"),
        ({"value": [b"v"], "key": [1.5]}, "'key'"),
        ({"value": [b"v"], "timestamp": ["now"]}, "'timestamp'"),
        ({"value": [b"v"], "offset": [b"1"]}, "'offset'"),
        ({"value": [b"v"], "headers": [b"h"]}, "'headers'"),
        ({"value": [b"v"], "headers": [["h"]]}, "'headers'"),
        ({"value": [b"v"], "vlaue": [b"v"]}, "'vlaue'"),
        ({"value": [b"v"], "timestamp": [-1]}, "'timestamp'"),
        ({"value": [b"v"] * 2, "offset": [4, 4]}, "'offset'.*row 1"),
        ({"value": [b"v"] * 2, "offset": [4, 2**40]}, "'offset'"),
    ],
    ids=str,
)
def test_a_wrong_column_is_named(columns: dict[str, Any], named: str) -> None:
    with pytest.raises(LocalProtocolError, match=named):
        records.encode(pa.table(columns))


def test_a_header_without_a_key_is_refused() -> None:
    column = pa.array([[{"key": None, "value": b"x"}]], pa.list_(HEADER))
    with pytest.raises(LocalProtocolError, match="without a key"):
        records.encode(pa.table({"value": [b"v"], "headers": column}))


def test_a_dictionary_column_is_refused_by_name() -> None:
    column = pa.array([b"a", b"b"]).dictionary_encode()
    with pytest.raises(LocalProtocolError, match=r"'value'.*dictionary"):
        records.encode(pa.table({"value": column}))


def test_a_column_given_twice_is_refused() -> None:
    twice = pa.table([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])
    with pytest.raises(LocalProtocolError, match="twice"):
        records.encode(twice)


@pytest.mark.parametrize("data", [b"bytes", [1, 2], None])
def test_what_is_no_arrow_data_is_refused(data: Any) -> None:
    with pytest.raises(LocalProtocolError, match=type(data).__name__):
        records.encode(data)


def test_a_single_column_is_no_table() -> None:
    with pytest.raises(LocalProtocolError, match="record batch"):
        records.encode(pa.array([b"a"]))


def test_a_stream_that_fails_says_why() -> None:
    def batches() -> Any:
        yield pa.record_batch({"value": [b"a"]})
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("value", pa.binary())]), batches())
    with pytest.raises(LocalProtocolError, match="the disk is gone"):
        records.encode(reader)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"compression": "brotli"}, "compression='brotli'"),
        ({"compression": "gzip", "level": 11}, "level=11"),
        ({"compression": "snappy", "level": 1}, "no levels"),
        ({"level": 3}, "level=3"),
        ({"magic": 3}, "magic=3"),
        ({"base_offset": -1}, "base_offset=-1"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        records.encode(pa.table({"value": [b"v"]}), **options)


@pytest.mark.parametrize(
    ("codec", "levels"), [("gzip", (1, 9)), ("zstd", (1, 19)), ("lz4", (1, 12))]
)
def test_levels_trade_size(codec: str, levels: tuple[int, int]) -> None:
    table = pa.table({"value": [b"%d some text %d" % (i % 700, i % 13) for i in range(20_000)]})
    low, high = (len(records.encode(table, compression=codec, level=level)) for level in levels)
    assert high < low
