"""What a broker checks of record data before it stores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.conversion import MAGIC_AT, NEWEST, check_start
from karrow.broker.log import stamp_append_time
from karrow.records import BatchInfo, RecordReader, batches, decode

if TYPE_CHECKING:
    from karrow.broker.segment import Buffer
    from karrow.broker.topic import Topic

ZSTD = 4
# The header of a batch.
OVERHEAD = 61
FOREVER = 0x7FFFFFFFFFFFFFFF


class Rejected(Exception):
    """Single records of a batch that are refused, and so the whole batch (KIP-467)."""

    def __init__(self, error: errors.BrokerError, records: list[int]) -> None:
        super().__init__(error.message)
        self.error = error
        self.records = records


def checked_batch(
    data: Buffer, topic: Topic, version: int, now: int
) -> tuple[bytearray, BatchInfo]:
    """The one batch in a produce request's data, ready to be stored; raises what is answered."""
    batch = bytearray(data)
    info = _only_batch(batch)
    _check_header(info, topic, version)
    _check_records(batch, info, topic)
    if topic.rules.stamps:
        stamp_append_time(batch, now)
        info = batches(batch)[0]
    else:
        _check_times(batch, info, topic, now)
    return batch, info


def _only_batch(batch: bytearray) -> BatchInfo:
    check_start(batch)
    try:
        found = batches(batch)
    except errors.CorruptRecordError as error:
        if len(batch) >= OVERHEAD and batch[MAGIC_AT] == NEWEST:
            raise errors.InvalidRecord(error.message) from None
        raise errors.CorruptMessage(error.message) from None
    if len(found) == 1 and found[0].size_bytes == len(batch):
        return found[0]
    raise errors.InvalidRecord(
        "Produce requests with version 3 or higher must contain exactly one record batch"
    )


def _check_header(info: BatchInfo, topic: Topic, version: int) -> None:
    if info.magic != 2:
        raise errors.InvalidRecord(
            "Produce requests with version 3 or higher are only allowed to contain record batches "
            "with magic version 2"
        )
    if info.codec == ZSTD and version < 7:
        raise errors.UnsupportedCompressionType(
            "Produce requests with version less than 7 are not allowed to use ZStandard compression"
        )
    if info.size_bytes > topic.rules.max_message_bytes:
        raise errors.MessageTooLarge(
            f"The record batch size is {info.size_bytes} bytes which exceeds the maximum "
            f"configured value of {topic.rules.max_message_bytes} bytes."
        )
    if info.base_offset != 0:
        raise errors.InvalidRecord(
            f"The baseOffset of the record batch should be 0, but it is {info.base_offset}"
        )
    if info.count <= 0 or info.last_offset - info.base_offset != info.count - 1:
        raise errors.InvalidRecord("the batch's record count does not fit its offsets")
    if info.control:
        raise errors.InvalidRecord("Clients are not allowed to write control records")
    if info.producer_id >= 0 and (info.producer_epoch < 0 or info.base_sequence < 0):
        raise errors.InvalidRecord("a batch with a producer id needs an epoch and a sequence")


def _check_records(batch: bytearray, info: BatchInfo, topic: Topic) -> None:
    """The checksum, and every record; compacted topics want keys."""
    try:
        columns = decode(batch, columns=["offset"])
    except errors.CorruptRecordError as error:
        raise errors.CorruptMessage(error.message) from None
    if columns.num_rows != info.count:
        raise errors.InvalidRecord("the batch has fewer records than it says")
    if topic.rules.compacts:
        without = [at for at, record in enumerate(RecordReader(batch)) if record.key is None]
        if without:
            raise Rejected(
                errors.InvalidRecord("Compacted topic cannot accept message without key"), without
            )


def _check_times(batch: bytearray, info: BatchInfo, topic: Topic, now: int) -> None:
    rules = topic.rules
    if info.max_timestamp_ms - now <= rules.max_ahead_ms and rules.max_behind_ms == FOREVER:
        return  # which is nearly always so, and needs no look at single records
    newest, oldest = now + rules.max_ahead_ms, now - rules.max_behind_ms
    wrong = [
        at
        for at, record in enumerate(RecordReader(batch))
        if record.timestamp_ms not in (None, -1) and not oldest <= record.timestamp_ms <= newest
    ]
    if wrong:
        raise Rejected(
            errors.InvalidTimestamp(
                f"Timestamps must be from {oldest} to {newest} at a broker whose clock says {now}"
            ),
            wrong,
        )
