"""Record data in the format that old requests and answers have."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.log import LOG_APPEND_TIME, set_times
from karrow.records import BatchBuilder, Record, RecordReader, batches

if TYPE_CHECKING:
    from karrow.broker.segment import Buffer

FIRST_WITH_BATCHES = 4
FIRST_WITH_TIMES = 2
NEWEST = 2
NO_TIME = -1
# Where things stand in a message.
SIZE_AT, CRC_AT, MAGIC_AT, ATTRIBUTES_AT, TIME_AT = 8, 12, 16, 17, 18
SMALLEST = 14
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def down_convert(data: bytes, version: int) -> bytes:
    """Batches as a Fetch of this version wants them: message sets below version 4."""
    if version >= FIRST_WITH_BATCHES or not data:
        return data
    magic = 1 if version >= FIRST_WITH_TIMES else 0
    return b"".join(_message(record, magic) for record in RecordReader(data))


def _message(record: Record, magic: int) -> bytearray:
    """One record as a message of its own."""
    builder = BatchBuilder(magic=magic, max_bytes=1 << 30)
    builder.append(record.key, record.value, timestamp_ms=0)
    message = bytearray(builder.build(base_offset=record.offset))
    if magic:
        stamp = NO_TIME if record.timestamp_ms is None else record.timestamp_ms
        message[ATTRIBUTES_AT] = LOG_APPEND_TIME if record.timestamp_type == 1 else 0
        struct.pack_into(">q", message, TIME_AT, stamp)
        struct.pack_into(">I", message, CRC_AT, zlib.crc32(memoryview(message)[MAGIC_AT:]))
    return message


def up_convert(data: Buffer) -> Buffer:
    """What a Produce below version 3 brings as one batch; nothing if no message is whole."""
    try:
        found = batches(data)
        if not found:
            check_start(data)
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


def check_start(data: Buffer) -> None:
    """Refuse what is not even the beginning of a message."""
    if len(data) < MAGIC_AT + 1:
        return
    (size,) = struct.unpack_from(">i", data, SIZE_AT)
    if size < SMALLEST:
        raise errors.CorruptMessage(f"Record size {size} is less than the minimum ({SMALLEST})")
    if data[MAGIC_AT] > NEWEST:
        raise errors.CorruptMessage(f"Invalid magic found in record: {data[MAGIC_AT]}")
