"""Batches into Arrow columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from karrow import records
from karrow.errors import ConfigError, LocalProtocolError
from tests.unit.records.crafting import Batch, batch_of, gzipped, record


def rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    batch = pa.record_batch(records.decode(data, **options))
    batch.validate(full=True)
    taken: list[dict[str, Any]] = batch.to_pylist()
    return taken


def values(data: bytes, **options: Any) -> list[bytes | None]:
    return [row["value"] for row in rows(data, columns=["value"], **options)]


def test_columns_have_the_types_of_the_contract() -> None:
    batch = pa.record_batch(records.decode(bytes(Batch()), topic="orders", partition=3))
    assert batch.schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("timestamp_type", pa.int8()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )


def test_null_and_empty_stay_apart() -> None:
    payload = record(0, None, b"") + record(1, b"", None)
    data = bytes(Batch(payload, last_delta=1, count=2))
    assert [(row["key"], row["value"]) for row in rows(data)] == [(b"", None), (None, b"")]


def test_headers_keep_order_duplicates_and_nulls() -> None:
    headers = ((b"a", b"1"), (b"a", None), ("ü".encode(), b""))
    [row] = rows(bytes(Batch(record(headers=headers))))
    assert [(h["key"], h["value"]) for h in row["headers"]] == [
        ("a", b"1"),
        ("a", None),
        ("ü", b""),
    ]


def test_a_header_name_that_is_no_utf8_is_repaired_as_java_does() -> None:
    many = b"".join(record(i, headers=((b"caf\xe9", b"x"),)) for i in range(200))
    taken = rows(bytes(Batch(many, last_delta=199, count=200)))
    assert {row["headers"][0]["key"] for row in taken} == {"caf\ufffd"}


def test_topic_and_partition_are_columns_only_when_given() -> None:
    data = bytes(Batch())
    assert "topic" not in rows(data)[0]
    [row] = rows(data, topic="orders", partition=7)
    assert (row["topic"], row["partition"]) == ("orders", 7)


def test_columns_come_in_the_order_asked_for_and_no_others() -> None:
    decoded = records.decode(bytes(Batch()), columns=["offset", "value"])
    assert pa.record_batch(decoded).schema.names == ["offset", "value"]
    assert decoded.column_names == ["offset", "value"]


def test_no_columns_still_count_rows() -> None:
    assert len(records.decode(bytes(batch_of(b"a", b"b")), columns=[])) == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"columns": ["values"]}, "values"),
        ({"columns": ["topic"]}, "topic"),
        ({"columns": ["value", "value"]}, "twice"),
        ({"timestamp_unit": "h"}, "timestamp_unit"),
        ({"max_decompressed_bytes": 0}, "max_decompressed_bytes"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        records.decode(bytes(Batch()), **options)


def test_offsets_and_timestamps_are_relative_to_their_batch() -> None:
    payload = record(0, timestamp_delta=-5) + record(9, timestamp_delta=200_000)
    data = bytes(Batch(payload, base_offset=100, last_delta=9, count=2, base_timestamp=50_000))
    taken = rows(data)
    assert [row["offset"] for row in taken] == [100, 109]
    assert [row["timestamp"].timestamp() for row in taken] == [49.995, 250.0]


@pytest.mark.parametrize(("unit", "number"), [("ms", 1234), ("us", 1234_000), ("ns", 1234_000_000)])
def test_timestamps_in_every_unit(unit: str, number: int) -> None:
    decoded = records.decode(bytes(Batch(base_timestamp=1234)), timestamp_unit=unit)
    column = pa.record_batch(decoded)["timestamp"]
    assert column.type == pa.timestamp(unit, "UTC")
    assert column.cast(pa.int64()).to_pylist() == [number]


def test_a_timestamp_past_the_unit_is_clamped() -> None:
    decoded = records.decode(bytes(Batch(base_timestamp=2**62)), timestamp_unit="ns")
    assert pa.record_batch(decoded)["timestamp"].cast(pa.int64()).to_pylist() == [2**63 - 1]


def test_log_append_time_comes_from_the_batch() -> None:
    payload = record(0, timestamp_delta=5) + record(1, timestamp_delta=6)
    data = bytes(Batch(payload, attributes=0x08, last_delta=1, count=2, max_timestamp=9000))
    taken = rows(data)
    assert [row["timestamp"].timestamp() for row in taken] == [9.0, 9.0]
    assert [row["timestamp_type"] for row in taken] == [1, 1]


def test_the_delete_horizon_flag_changes_no_timestamp() -> None:
    [row] = rows(bytes(Batch(record(timestamp_delta=7), attributes=0x40, base_timestamp=1000)))
    assert row["timestamp"].timestamp() == 1.007


def test_records_below_the_asked_offset_are_dropped() -> None:
    data = bytes(batch_of(b"a", b"b", b"c", base_offset=10)) + bytes(batch_of(b"d", base_offset=13))
    assert values(data, from_offset=11) == [b"b", b"c", b"d"]
    assert values(data, from_offset=13) == [b"d"]
    assert values(data, from_offset=99) == []


def test_a_partial_batch_at_the_end_is_ignored() -> None:
    whole = bytes(batch_of(b"a"))
    for cut in range(len(whole)):
        data = whole + bytes(batch_of(b"b", base_offset=1))[:cut]
        reader = records.RecordReader(data)
        assert [r.value for r in reader] == [b"a"]
        assert reader.partial_tail == (cut > 0)
        assert reader.next_offset == 1


def test_an_empty_batch_moves_the_position() -> None:
    data = bytes(Batch(b"", base_offset=5, last_delta=4, count=0))
    decoded = records.decode(data)
    assert len(decoded) == 0
    assert decoded.next_offset == 10


def test_a_compacted_batch_moves_the_position_past_its_gap() -> None:
    payload = record(2, b"a") + record(5, b"b")
    decoded = records.decode(bytes(Batch(payload, base_offset=100, last_delta=9, count=2)))
    assert pa.record_batch(decoded)["offset"].to_pylist() == [102, 105]
    assert decoded.next_offset == 110


def test_no_data_gives_no_rows_and_valid_columns() -> None:
    batch = pa.record_batch(records.decode(b"", topic="t", partition=0))
    batch.validate(full=True)
    assert batch.num_rows == 0
    assert batch.num_columns == 8


def test_a_batch_of_another_library_with_a_codec() -> None:
    plain = batch_of(b"a", b"b")
    data = bytes(plain.but(payload=gzipped(plain.payload), attributes=1))
    assert values(data) == [b"a", b"b"]


def test_long_fields_and_long_varints() -> None:
    big = bytes(range(256)) * 5000
    payload = record(0, big, big[:70_000], ((b"h" * 300, big[:20_000]),), timestamp_delta=2**40)
    payload += record(2**20, b"x", timestamp_delta=-(2**40))
    data = bytes(Batch(payload, last_delta=2**20, count=2, base_timestamp=2**41))
    first, second = rows(data)
    assert first["value"] == big
    assert first["key"] == big[:70_000]
    assert first["headers"] == [{"key": "h" * 300, "value": big[:20_000]}]
    assert second["offset"] == 2**20


def test_taking_pieces_gives_the_same_rows() -> None:
    many = [b"%d" % i * (i % 50) for i in range(1000)]
    data = b"".join(
        bytes(batch_of(*many[at : at + 100], base_offset=at)) for at in range(0, 1000, 100)
    )
    whole = rows(data)
    for max_records, max_bytes in ((1, None), (7, None), (333, None), (None, 1), (None, 5000)):
        reader = records.RecordReader(data)
        taken: list[dict[str, Any]] = []
        while True:
            piece = reader.read_arrow(max_records=max_records, max_bytes=max_bytes)
            if not len(piece):
                break
            assert len(piece) <= (max_records or 1000)
            taken += pa.record_batch(piece).to_pylist()
            assert piece.next_offset == taken[-1]["offset"] + 1
        assert taken == whole


def test_a_piece_ends_with_the_row_that_reaches_max_bytes() -> None:
    reader = records.RecordReader(bytes(batch_of(*[b"x" * 100] * 300)))
    assert len(reader.read_arrow(max_bytes=1000)) == 10
    assert len(reader.read_arrow(max_bytes=1001)) == 11


def test_columns_and_records_mix_in_one_reader() -> None:
    reader = records.RecordReader(bytes(batch_of(b"a", b"b", b"c", b"d")))
    assert next(reader).value == b"a"
    piece = reader.read_arrow(max_records=2, columns=["value"])
    assert pa.record_batch(piece)["value"].to_pylist() == [b"b", b"c"]
    assert next(reader).value == b"d"
    with pytest.raises(StopIteration):
        next(reader)


@pytest.mark.parametrize("limit", [{"max_records": 0}, {"max_bytes": -1}])
def test_an_impossible_piece_is_refused(limit: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="max_records"):
        records.RecordReader(bytes(Batch())).read_arrow(**limit)


def test_a_reader_cannot_be_started_twice() -> None:
    reader = records.RecordReader(bytes(Batch()))
    with pytest.raises(LocalProtocolError, match="once"):
        reader.__init__(bytes(Batch()))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(kind: type) -> None:
    assert values(kind(bytes(Batch()))) == [b"v"]


def test_columns_outlive_what_they_came_from() -> None:
    data = bytearray(bytes(batch_of(*[b"value-%d" % i for i in range(500)])))
    batch = pa.record_batch(records.decode(data, topic="t", partition=0))
    data[:] = bytes(len(data))
    del data
    column = batch["value"]
    del batch
    assert column.to_pylist() == [b"value-%d" % i for i in range(500)]


def test_an_export_nobody_takes_is_freed_and_may_be_repeated() -> None:
    decoded = records.decode(bytes(batch_of(b"a", b"b")))
    decoded.__arrow_c_array__()
    decoded.__arrow_c_schema__()
    assert pa.record_batch(decoded).num_rows == pa.record_batch(decoded).num_rows == 2
