"""The Python face of the kernel: whole record data in, Arrow columns out, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow.records._reader import RecordReader
from karrow.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karrow.records._export import RecordColumns
    from karrow.records.typing import Buffer


def decode(
    data: Buffer,
    *,
    columns: Sequence[str] | None = None,
    timestamp_unit: str = "ms",
    topic: str | None = None,
    partition: int | None = None,
    from_offset: int | None = None,
    aborted: Iterable[tuple[int, int]] | None = None,
    check_crc: bool = True,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> RecordColumns:
    """Decode all batches and message sets in ``data`` into one run of Arrow columns.

    ``columns`` is any of key, value, topic, partition, offset, timestamp, timestamp_type, headers.
    A partial batch at the end is ignored, as Kafka's fetch leaves one; damage raises
    CorruptRecordError. ``RecordReader`` takes the same data piece by piece.

    Example::

        batch = pyarrow.record_batch(karrow.records.decode(data, columns=["offset", "value"]))
    """
    reader = RecordReader(
        data,
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        aborted=aborted,
        check_crc=check_crc,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    decoded = reader.read_arrow(columns=columns, timestamp_unit=timestamp_unit)
    reader.expect_end()
    return decoded
