"""What must hold for any bytes that reach the record kernel.

Each target takes bytes and returns, or raises something that is a bug. An input's first byte
chooses the options, the rest is record data.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa

from karrow import records
from karrow.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES = 1 << 20
ABORTED = ((1, 0), (2, 5), (7, 0))
Row = tuple[int, int | None, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def reader(data: bytes, options: int) -> records.RecordReader:
    """A reader with the options of the first byte; unchecked, so that damage gets further in."""
    return records.RecordReader(
        data,
        topic="t" if options & 1 else None,
        partition=3 if options & 1 else None,
        from_offset=options & 0x30 or None,
        aborted=ABORTED if options & 2 else None,
        check_crc=bool(options & 4),
        max_decompressed_bytes=MAX_BYTES,
    )


def records_target(data: bytes) -> None:
    """The same rows come out as columns in pieces and one by one, and the same damage is seen."""
    if not data:
        return
    options, data = data[0], data[1:]
    assert by_columns(data, options) == by_records(data, options)


def headers_target(data: bytes) -> None:
    """Headers are listed or refused; every listed batch lies inside the data."""
    try:
        listed = records.batches(data)
    except CorruptRecordError:
        return
    assert sum(info.size_bytes for info in listed) <= len(data)


def by_columns(data: bytes, options: int) -> tuple[list[Row], list[str]]:
    """Everything through Arrow, skipping what is damaged."""
    source = reader(data, options)
    rows: list[Row] = []
    damage: list[str] = []
    while True:
        try:
            piece = source.read_arrow(
                max_records=7 if options & 8 else None, max_bytes=100 if options & 0x40 else None
            )
        except CorruptRecordError as error:
            damage.append(str(error))
            assert source.skip_damaged()
            continue
        if not len(piece):
            return rows, damage
        batch = pa.record_batch(piece)
        batch.validate(full=True)
        rows += as_rows(batch)


def as_rows(batch: pa.RecordBatch) -> list[Row]:
    times = batch["timestamp"].cast(pa.int64()).to_pylist()
    headers = [
        tuple((header["key"], header["value"]) for header in row)
        for row in batch["headers"].to_pylist()
    ]
    return list(
        zip(
            batch["offset"].to_pylist(),
            times,
            batch["timestamp_type"].to_pylist(),
            batch["key"].to_pylist(),
            batch["value"].to_pylist(),
            headers,
            strict=True,
        )
    )


def by_records(data: bytes, options: int) -> tuple[list[Row], list[str]]:
    """Everything as Record objects, skipping what is damaged."""
    source = reader(data, options)
    rows: list[Row] = []
    damage: list[str] = []
    while True:
        try:
            rows.extend(
                (r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers)
                for r in source
            )
        except CorruptRecordError as error:
            damage.append(str(error))
            assert source.skip_damaged()
            continue
        return rows, damage


def seeds(rng: random.Random) -> list[bytes]:
    """Valid data of every format and codec, with and without keys and headers."""
    made = [
        _options(rng) + _batch(rng, magic, codec) + _batch(rng, magic, None)
        for magic in (0, 1, 2)
        for codec in (None, "gzip", "snappy", "lz4", "zstd")
        if magic == 2 or codec != "zstd"
    ]
    return [*made, _options(rng) + b"".join(_transaction(rng) for _ in range(4))]


def _options(rng: random.Random) -> bytes:
    return bytes([rng.randrange(256)])


def _batch(
    rng: random.Random, magic: int, codec: str | None, producer_id: int | None = None
) -> bytes:
    builder = records.BatchBuilder(magic=magic, compression=codec)
    for _ in range(rng.randint(1, 200)):
        builder.append(
            rng.choice((None, b"", rng.randbytes(rng.randint(1, 30)))),
            rng.choice((None, b"", rng.randbytes(rng.randint(1, 300)))),
            timestamp_ms=rng.randrange(2 ** rng.randint(1, 45)),
            headers=_headers(rng) if magic == 2 else (),
        )
    base_offset = rng.randrange(2 ** rng.randint(1, 60))
    if producer_id is None:
        return builder.build(base_offset=base_offset)
    return builder.build(base_offset=base_offset, producer_id=producer_id, transactional=True)


def _headers(rng: random.Random) -> list[tuple[str, bytes | None]]:
    return [
        (rng.choice(("trace", "é" * 5, "")), rng.choice((None, b"", rng.randbytes(9))))
        for _ in range(rng.choice((0, 0, 1, 3)))
    ]


def _transaction(rng: random.Random) -> bytes:
    producer = rng.choice((1, 2, 3))
    data = _batch(rng, 2, None, producer)
    marker = records.BatchBuilder()
    marker.append(b"\x00\x00\x00" + rng.choice((b"\x00", b"\x01", b"\x09")), b"\x00" * 6)
    return data + marker.build(
        producer_id=producer, transactional=True, control=True, base_offset=rng.randrange(100)
    )


TARGETS: dict[str, Callable[[bytes], None]] = {"records": records_target, "headers": headers_target}
