"""Message sets of magic 0 and 1."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from karrow import records
from karrow.errors import ConfigError, CorruptRecordError, LocalProtocolError
from tests.unit.records.crafting import batch_of, gzipped, message

GZIP = 1
APPEND_TIME = 0x08


def rows(data: bytes, **options: Any) -> list[dict[str, Any]]:
    taken: list[dict[str, Any]] = pa.record_batch(records.decode(data, **options)).to_pylist()
    return taken


def wrapper(offset: int, *inner: bytes, magic: int = 1, **fields: Any) -> bytes:
    fields.setdefault("attributes", GZIP)
    return message(offset, gzipped(b"".join(inner)), magic=magic, **fields)


def test_magic_0_has_no_timestamp() -> None:
    [row] = rows(message(7, b"v", b"k", magic=0))
    assert (row["offset"], row["key"], row["value"]) == (7, b"k", b"v")
    assert row["timestamp"] is None
    assert row["timestamp_type"] == -1
    [record] = records.RecordReader(message(7, magic=0))
    assert record.timestamp_ms is None


def test_magic_1_has_both_timestamp_types() -> None:
    data = message(0, timestamp=5) + message(1, timestamp=6, attributes=APPEND_TIME)
    taken = [(record.timestamp_ms, record.timestamp_type) for record in records.RecordReader(data)]
    assert taken == [(5, 0), (6, 1)]


def test_a_message_keeps_its_checksum_and_attributes() -> None:
    [record] = records.RecordReader(message(0, attributes=APPEND_TIME))
    assert record.crc is not None
    assert record.attributes == APPEND_TIME


def test_inner_offsets_are_absolute_in_magic_0() -> None:
    inner = [message(offset, magic=0) for offset in (40, 43, 45)]
    assert [row["offset"] for row in rows(wrapper(45, *inner, magic=0))] == [40, 43, 45]


def test_inner_offsets_are_relative_in_magic_1() -> None:
    inner = [message(offset) for offset in (0, 3, 5)]
    assert [row["offset"] for row in rows(wrapper(45, *inner))] == [40, 43, 45]


def test_the_wrappers_append_time_counts_for_all() -> None:
    inner = [message(0, timestamp=1), message(1, timestamp=2)]
    data = wrapper(1, *inner, attributes=GZIP | APPEND_TIME, timestamp=99)
    taken = [(record.timestamp_ms, record.timestamp_type) for record in records.RecordReader(data)]
    assert taken == [(99, 1), (99, 1)]


def test_inner_create_times_stay_their_own() -> None:
    data = wrapper(1, message(0, timestamp=1), message(1, timestamp=2), timestamp=99)
    assert [record.timestamp_ms for record in records.RecordReader(data)] == [1, 2]


def test_records_below_the_asked_offset_are_dropped_inside_a_wrapper() -> None:
    data = wrapper(12, *(message(i, b"%d" % i) for i in range(3))) + message(13, b"3")
    assert [row["value"] for row in rows(data, from_offset=11)] == [b"1", b"2", b"3"]


def test_all_formats_in_one_run_of_data() -> None:
    data = message(0, b"0", magic=0) + message(1, b"1") + wrapper(3, message(0), message(1))
    data += bytes(batch_of(b"4", base_offset=4)) + message(5, b"5", magic=0)
    decoded = records.decode(data)
    assert pa.record_batch(decoded)["offset"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert decoded.next_offset == 6


def test_many_plain_messages() -> None:
    many = 5000
    data = b"".join(message(i, b"%d" % i) for i in range(many))
    assert [row["value"] for row in rows(data)] == [b"%d" % i for i in range(many)]
    assert sum(1 for _ in records.RecordReader(data)) == many


def test_a_partial_message_at_the_end_is_ignored() -> None:
    data = message(0) + message(1)
    for cut in range(1, len(message(1))):
        reader = records.RecordReader(data[:-cut])
        assert len(list(reader)) == 1
        assert reader.partial_tail


@pytest.mark.parametrize(
    "data",
    [
        message(0, crc=1),
        message(-1),
        message(2**63 - 1),
        wrapper(1, message(0), message(1, crc=7)),
        wrapper(1, message(0), message(1)[:-1]),
        wrapper(1, message(0), bytes(11)),
        wrapper(1, message(0), message(1, magic=0)),
        wrapper(1, wrapper(0, message(0))),
        message(1, None, attributes=GZIP),
        message(1, b"no gzip", attributes=GZIP),
        message(1, b"", attributes=5),
    ],
    ids=[
        "checksum",
        "negative offset",
        "last offset",
        "inner checksum",
        "inner cut off",
        "inner too short",
        "inner of another magic",
        "wrapper in a wrapper",
        "wrapper without value",
        "not gzip",
        "unknown codec",
    ],
)
def test_damage_raises_and_can_be_passed_over(data: bytes) -> None:
    reader = records.RecordReader(message(0) + data + message(9))
    assert next(reader).offset == 0
    with pytest.raises(CorruptRecordError) as caught:
        next(reader)
    assert caught.value.position == len(message(0))
    assert reader.skip_damaged()
    assert [record.offset for record in reader] == [9]


def test_a_message_with_wrong_inner_sizes_is_damaged() -> None:
    data = bytearray(message(0, b"value"))
    data[-9:-5] = b"\x7f\xff\xff\xff"
    with pytest.raises(CorruptRecordError):
        list(records.RecordReader(data, check_crc=False))


@pytest.mark.parametrize("magic", [0, 1])
def test_magic_0_lz4_has_the_broken_frame_and_reads_back(magic: int) -> None:
    table = pa.table({"value": [b"abc" * 100]})
    data = records.encode(table, magic=magic, compression="lz4")
    frame = data[data.index(b"\x04\x22\x4d\x18") :]
    [row] = rows(data)
    assert row["value"] == b"abc" * 100
    fixed = records.encode(table, magic=1, compression="lz4")
    right = fixed[fixed.index(b"\x04\x22\x4d\x18") :]
    assert (frame[6] == right[6]) == (magic == 1)


def test_headers_cannot_be_written() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    column = pa.array([[{"key": "h", "value": b"1"}]], pa.list_(header))
    table = pa.table({"value": [b"v"], "headers": column})
    with pytest.raises(LocalProtocolError, match="headers"):
        records.encode(table, magic=1)
    with pytest.raises(LocalProtocolError, match="headers"):
        records.BatchBuilder(magic=0).append(None, b"v", headers=[("h", b"1")])


@pytest.mark.parametrize(
    "options", [{"compression": "zstd"}, {"producer_id": 1}, {"transactional": True}]
)
def test_what_the_old_formats_lack_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="magic"):
        records.encode(pa.table({"value": [b"v"]}), magic=1, **options)
