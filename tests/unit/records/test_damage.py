"""Damaged record data: a clear error, nothing handed out of a bad batch, the rest readable."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from karrow import records
from karrow.errors import CorruptRecordError, RemoteProtocolError
from tests.unit.records.crafting import Batch, batch_of, gzipped, record, sized, varint

GOOD = bytes(batch_of(b"a", b"b"))


def body_of(*fields: bytes) -> bytes:
    whole = b"".join(fields)
    return varint(len(whole)) + whole


def long_varint(count: int) -> bytes:
    return b"\xff" * count + b"\x01"


START = (b"\x00", varint(0), varint(0))  # attributes, timestamp delta, offset delta

DAMAGED = {
    "checksum": Batch(crc=1),
    "record length past the end": Batch(varint(100) + b"abc"),
    "record length negative": Batch(varint(-2) + record()),
    "record length of nothing": Batch(varint(0) + bytes(20)),
    "varint cut off": Batch(b"\xff\xff\xff\xff\xff\xff\xff\xff"),
    "varint too long": Batch(
        body_of(b"\x00", long_varint(10), varint(0), sized(b"k"), sized(b"v"))
    ),
    "offset varint too long": Batch(body_of(b"\x00", varint(0), long_varint(5), sized(b"key"))),
    "offset outside the batch": Batch(record(5)),
    "offset negative": Batch(record(-1)),
    "key length past the record": Batch(
        body_of(*START, varint(50), b"short", sized(b"v"), b"\x00")
    ),
    "key length below -1": Batch(body_of(*START, varint(-2), sized(b"v"), b"\x00")),
    "value length past the record": Batch(body_of(*START, sized(b"k"), varint(500), b"v\x00")),
    "value length below -1": Batch(body_of(*START, sized(b"k"), varint(-7), b"\x00")),
    "no header count": Batch(body_of(*START, sized(b"k"), sized(b"v"))),
    "header count negative": Batch(body_of(*START, sized(b"k"), sized(b"v"), varint(-1))),
    "header count huge": Batch(body_of(*START, sized(None), sized(b"v"), varint(2**30))),
    "header without a name": Batch(
        body_of(*START, sized(None), sized(b"v"), varint(1), varint(-1), sized(b"x"))
    ),
    "header past the record": Batch(
        body_of(*START, sized(None), sized(b"v"), varint(1), varint(90), b"name")
    ),
    "record fields too short": Batch(body_of(*START, sized(b"k"), sized(b"v"), b"\x00", b"junk")),
    "bytes after the last record": Batch(record() + b"\x00"),
    "a record too many": Batch(record(0) + record(0)),
    "a record too few": Batch(record(), count=2),
    "bytes in an empty batch": Batch(record(), count=0),
    "count huge": Batch(record(), count=2**31 - 1),
    "count negative": Batch(record(), count=-1),
    "last delta negative": Batch(record(), last_delta=-1),
    "base offset negative": Batch(record(), base_offset=-1),
    "offsets overflow": Batch(record(), base_offset=2**63 - 1),
    "unknown codec": Batch(record(), attributes=5),
    "unknown magic": Batch(record(), magic=3),
    "magic negative": Batch(record(), magic=-1),
    "not gzip": Batch(record(), attributes=1),
    "not snappy": Batch(b"\xff\xff\xff\xff\xff\xff", attributes=2),
    "snappy length impossible": Batch(b"\xff\xff\xff\xff\x0f" + bytes(9), attributes=2),
    "xerial block past the end": Batch(
        b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2 + b"\x7f\xff\xff\xff", attributes=2
    ),
    "not lz4": Batch(record(), attributes=3),
    "not zstd": Batch(record(), attributes=4),
    "nothing compressed": Batch(b"", attributes=4),
    "length below a header": Batch(length=20),
    "length tiny": Batch(length=3),
    "length negative": Batch(length=-5),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_raises_with_its_place(name: str) -> None:
    damaged = bytes(DAMAGED[name])
    for data, position in ((damaged, 0), (GOOD + damaged + GOOD, len(GOOD))):
        with pytest.raises(CorruptRecordError) as caught:
            records.decode(data)
        assert caught.value.position == position
        assert caught.value.offset == DAMAGED[name].base_offset
        assert not caught.value.retriable


@pytest.mark.parametrize("name", DAMAGED)
def test_what_comes_before_damage_is_handed_out_first(name: str) -> None:
    data = GOOD + bytes(DAMAGED[name].but(base_offset=DAMAGED[name].base_offset))
    reader = records.RecordReader(data)
    assert pa.record_batch(reader.read_arrow())["value"].to_pylist()[:2] == [b"a", b"b"]
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            reader.read_arrow()
    one_by_one = records.RecordReader(data)
    assert [next(one_by_one).value for _ in range(2)] == [b"a", b"b"]
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            list(one_by_one)


@pytest.mark.parametrize(
    "name", [name for name in DAMAGED if not name.startswith(("length", "unknown magic"))]
)
def test_a_damaged_batch_can_be_passed_over(name: str) -> None:
    after = bytes(batch_of(b"z", base_offset=50))
    reader = records.RecordReader(GOOD + bytes(DAMAGED[name]) + after)
    taken: list[bytes | None] = []
    while taken[-1:] != [b"z"]:
        try:
            taken.append(next(reader).value)
        except CorruptRecordError:
            assert reader.skip_damaged()
    assert taken[:2] == [b"a", b"b"]
    assert taken[-1] == b"z"
    assert reader.next_offset == 51
    assert not reader.skip_damaged()


def test_without_a_usable_length_the_rest_is_given_up() -> None:
    reader = records.RecordReader(bytes(Batch(length=-5)) + GOOD)
    with pytest.raises(CorruptRecordError):
        list(reader)
    assert reader.skip_damaged()
    assert list(reader) == []


def test_nothing_of_a_batch_with_a_wrong_checksum_comes_out() -> None:
    data = bytearray(bytes(batch_of(*[b"x" * 20] * 100)))
    data[-1] ^= 1
    reader = records.RecordReader(data)
    with pytest.raises(CorruptRecordError, match="checksum"):
        next(reader)


def test_the_checksum_can_be_left_unchecked() -> None:
    data = bytes(Batch(crc=1))
    assert len(records.decode(data, check_crc=False)) == 1


@pytest.mark.parametrize("bit", range(0, 8 * len(GOOD), 3))
def test_any_flipped_bit_is_noticed_or_harmless(bit: int) -> None:
    data = bytearray(GOOD)
    data[bit // 8] ^= 1 << bit % 8
    outside_checksum = bit // 8 < 21
    try:
        decoded = records.decode(data)
    except RemoteProtocolError:
        return
    assert outside_checksum
    assert len(decoded) in (0, 2)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_bomb_stops_at_the_cap(codec: str) -> None:
    table = pa.table({"value": [bytes(10_000_000)]})
    data = records.encode(table, compression=codec)
    assert len(data) < 2_000_000
    with pytest.raises(CorruptRecordError, match="1000000 bytes") as caught:
        records.decode(data, max_decompressed_bytes=1_000_000)
    assert "max_decompressed_bytes" in str(caught.value)
    assert caught.value.next_offset == 1
    assert len(records.decode(data, max_decompressed_bytes=11_000_000)) == 1


def test_a_declared_gzip_size_is_only_a_guess() -> None:
    packed = bytearray(gzipped(record()))
    packed[-4:] = b"\xff\xff\xff\x7f"
    with pytest.raises(CorruptRecordError):
        records.decode(bytes(Batch(bytes(packed), attributes=1)))


def test_the_error_pickles_with_its_place() -> None:
    with pytest.raises(CorruptRecordError) as caught:
        records.decode(bytes(Batch(crc=1, base_offset=7)))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.offset, error.next_offset, error.position) == (7, 8, 0)
    assert str(error) == str(caught.value)


@pytest.mark.parametrize("flipped", range(4))
def test_the_next_batch_knows_better_where_a_damaged_one_ends(flipped: int) -> None:
    """A flip in the delta of the last offset breaks the checksum, and the end with it."""
    second = pa.table({"value": pa.array([b"c"], pa.binary())})
    data = bytearray(GOOD + records.encode(second, base_offset=2))
    data[23 + flipped] ^= 0x40
    with pytest.raises(CorruptRecordError) as caught:
        list(records.RecordReader(bytes(data), topic="t", partition=0))
    assert caught.value.next_offset == 2
