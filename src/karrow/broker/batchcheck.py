"""What a broker checks of record data before it stores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.log import stamp_append_time
from karrow.records import BatchInfo, RecordReader, batches, decode

if TYPE_CHECKING:
    from karrow.broker.segment import Buffer
    from karrow.broker.topic import Topic

ZSTD = 4


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
        _check_times(info, topic, now)
    return batch, info


def _only_batch(batch: bytearray) -> BatchInfo:
    try:
        found = batches(batch)
    except errors.CorruptRecordError as error:
        raise errors.CorruptMessage(error.message) from None
    if not found or found[0].size_bytes != len(batch):
        if len(found) > 1:
            raise errors.InvalidRecord(
                "Produce requests with version 3 or higher must contain exactly one record batch"
            )
        raise errors.CorruptMessage("the record batch is cut short")
    return found[0]


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
    if topic.rules.compacts and any(record.key is None for record in RecordReader(batch)):
        raise errors.InvalidRecord("Compacted topic cannot accept message without key")


def _check_times(info: BatchInfo, topic: Topic, now: int) -> None:
    newest = info.max_timestamp_ms
    if newest < 0:
        return
    rules = topic.rules
    if newest - now > rules.max_ahead_ms or now - newest > rules.max_behind_ms:
        raise errors.InvalidTimestamp(
            f"Timestamp {newest} of message is out of range for a broker whose clock says {now}"
        )
