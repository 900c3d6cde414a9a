"""Record data in the format that old requests and answers have."""

from __future__ import annotations

from karrow.records import BatchBuilder, RecordReader

FIRST_WITH_BATCHES = 4
FIRST_WITH_TIMES = 2


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
