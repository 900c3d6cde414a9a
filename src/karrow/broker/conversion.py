"""Record data in the format that old requests and answers have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.log import set_times
from karrow.records import BatchBuilder, RecordReader, batches

if TYPE_CHECKING:
    from karrow.broker.segment import Buffer

FIRST_WITH_BATCHES = 4
FIRST_WITH_TIMES = 2
NEWEST = 2
NO_TIME = -1
MAGIC_AT = 16
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def down_convert(data: bytes, version: int) -> bytes:
    """Batches as a Fetch of this version wants them: message sets below version 4."""
    if version >= FIRST_WITH_BATCHES or not data:
        return data
    magic = 1 if version >= FIRST_WITH_TIMES else 0
    parts = []
    for record in RecordReader(data):
        builder = BatchBuilder(magic=magic, max_bytes=1 << 30)
        stamp = record.timestamp_ms if magic else None
        builder.append(record.key, record.value, timestamp_ms=stamp)
        parts.append(builder.build(base_offset=record.offset))
    return b"".join(parts)


def up_convert(data: Buffer) -> Buffer:
    """What a Produce below version 3 brings as one batch; nothing if no message is whole."""
    try:
        found = batches(data)
        if not found:
            check_magic(data)
            return b""
        if found[0].magic == NEWEST:
            return data
        builder = BatchBuilder(compression=CODECS[found[0].codec], max_bytes=1 << 30)
        for record in RecordReader(data):
            builder.append(record.key, record.value, timestamp_ms=record.timestamp_ms or 0)
    except errors.CorruptRecordError as error:
        raise errors.CorruptMessage(error.message) from None
    batch = bytearray(builder.build())
    if found[0].magic == 0:
        set_times(batch, NO_TIME)
    return batch


def check_magic(data: Buffer) -> None:
    """Refuse what is not even the beginning of a message."""
    if len(data) > MAGIC_AT and data[MAGIC_AT] > NEWEST:
        raise errors.CorruptMessage(f"Invalid magic found in record: {data[MAGIC_AT]}")
