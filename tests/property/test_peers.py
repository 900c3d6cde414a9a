"""The kernel against kafka-python's and aiokafka's record code, both ways."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow import records
from tests.property.peers import AIOKAFKA, KAFKA_PYTHON, PEERS, Peer, stamp_on_append
from tests.property.plain import CODECS, FORMATS, Plain, plain_records, timestamps

EVERY = pytest.mark.parametrize(
    ("peer", "magic", "codec"),
    [
        pytest.param(peer, magic, codec, id=f"{peer}-v{magic}-{codec}")
        for peer in PEERS
        for magic, codec in FORMATS
        if peer.supports(magic, codec)
    ],
)

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("headers", HEADERS),
    ]
)


def as_objects(data: bytes) -> list[Plain]:
    """Read with karrow's per-record reader."""
    return [
        Plain(r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers)
        for r in records.RecordReader(data)
    ]


def as_columns(data: bytes) -> list[Plain]:
    """Read with karrow's columnar decoder."""
    batch = pa.record_batch(records.decode(data))
    batch.validate(full=True)
    stamps = batch["timestamp"].cast(pa.int64()).to_pylist()
    return [
        Plain(
            row["offset"],
            stamp,
            row["timestamp_type"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row, stamp in zip(batch.drop_columns(["timestamp"]).to_pylist(), stamps, strict=True)
    ]


def as_table(taken: list[Plain], magic: int) -> pa.Table:
    rows = [
        {
            "key": r.key,
            "value": r.value,
            "timestamp": r.timestamp_ms,
            "headers": [{"key": key, "value": value} for key, value in r.headers],
        }
        for r in taken
    ]
    table = pa.Table.from_pylist(rows, SCHEMA)
    # Old formats have no headers at all, and magic 0 no timestamps either.
    return table.select(["key", "value", "timestamp", "headers"][: 2 + magic])


def appended(taken: list[Plain], magic: int, codec: str | None) -> bytes:
    builder = records.BatchBuilder(magic=magic, compression=codec, max_bytes=1 << 24)
    for index, r in enumerate(taken):
        place = builder.append(r.key, r.value, timestamp_ms=r.timestamp_ms, headers=r.headers)
        assert place == index
    return builder.build(base_offset=taken[0].offset)


@EVERY
@given(data=st.data())
def test_karrow_reads_what_a_peer_writes(
    peer: Peer, magic: int, codec: str | None, data: st.DataObject
) -> None:
    taken = data.draw(plain_records(magic))
    written = peer.write(taken, magic, CODECS[codec])
    assert as_objects(written) == taken
    assert as_columns(written) == taken


@EVERY
@given(data=st.data())
def test_a_peer_reads_what_karrow_encodes(
    peer: Peer, magic: int, codec: str | None, data: st.DataObject
) -> None:
    taken = data.draw(plain_records(magic, gaps=False))
    written = records.encode(
        as_table(taken, magic), magic=magic, compression=codec, base_offset=taken[0].offset
    )
    assert peer.read(written) == taken


@EVERY
@given(data=st.data())
def test_a_peer_reads_what_karrow_appends(
    peer: Peer, magic: int, codec: str | None, data: st.DataObject
) -> None:
    taken = data.draw(plain_records(magic, gaps=False))
    assert peer.read(appended(taken, magic, codec)) == taken


@EVERY
@given(data=st.data())
def test_batches_one_after_another_read_as_one(
    peer: Peer, magic: int, codec: str | None, data: st.DataObject
) -> None:
    first = data.draw(plain_records(magic))
    shift = first[-1].offset + 1
    second = [r._replace(offset=r.offset + shift) for r in data.draw(plain_records(magic))]
    tail = data.draw(st.integers(0, 25))
    written = peer.write(first, magic, CODECS[codec]) + peer.write(second, magic, CODECS[codec])
    # A fetch answer may end inside a batch, which then does not count; no message is so short.
    cut = written + written[:tail]
    assert as_objects(cut) == first + second
    assert as_columns(cut) == first + second


@pytest.mark.parametrize(
    ("magic", "codec"), [(1, "gzip"), (1, "snappy"), (1, "lz4"), *((2, codec) for codec in CODECS)]
)
@given(data=st.data())
def test_the_time_of_append_replaces_the_producers(
    magic: int, codec: str | None, data: st.DataObject
) -> None:
    taken = data.draw(plain_records(magic))
    stamp = data.draw(timestamps)
    written = stamp_on_append(KAFKA_PYTHON.write(taken, magic, CODECS[codec]), stamp)
    expected = [r._replace(timestamp_ms=stamp, timestamp_type=1) for r in taken]
    assert KAFKA_PYTHON.read(written) == AIOKAFKA.read(written) == expected
    assert as_objects(written) == as_columns(written) == expected


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
@given(taken=plain_records(1, gaps=False))
def test_a_wrapper_without_a_brokers_offset_keeps_its_inner_offsets(
    codec: str, taken: list[Plain]
) -> None:
    # What a producer sends: wrapper offset 0, inner offsets from 0.
    sent = [r._replace(offset=number) for number, r in enumerate(taken)]
    written = bytearray(KAFKA_PYTHON.write(sent, 1, CODECS[codec]))
    written[:8] = bytes(8)
    assert KAFKA_PYTHON.read(bytes(written)) == sent
    assert as_objects(bytes(written)) == as_columns(bytes(written)) == sent
