"""ListOffsets and OffsetForLeaderEpoch: where logs begin and end, where a time or epoch is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.log import Found
from karrow.wire.messages import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

if TYPE_CHECKING:
    from karrow.broker.topic import Partition

PartitionAnswer = ListOffsetsResponse.ListOffsetsPartitionResponse
EpochAnswer = OffsetForLeaderEpochResponse.EpochEndOffset
LATEST, EARLIEST, NEWEST, LOCAL_EARLIEST, LAST_TIERED, PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
COMMITTED = 1
FIRST_WITH_EPOCHS = 4
NOTHING = Found(-1, -1, -1)


@handles("ListOffsets")
def list_offsets(call: Call, body: ListOffsetsRequest) -> ListOffsetsResponse:
    """Version 0 gives lists of offsets, later ones one offset with its time and epoch."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_offset(call, body, topic.name, item) for item in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _offset(
    call: Call,
    body: ListOffsetsRequest,
    topic: str,
    item: ListOffsetsRequest.ListOffsetsPartition,
) -> PartitionAnswer:
    answer = PartitionAnswer(partition_index=item.partition_index)
    try:
        call.check_fault(topic, item.partition_index)
        partition = call.cluster.led_by(
            call.node_id, topic, item.partition_index, item.current_leader_epoch
        )
        if call.version == 0:
            answer.old_style_offsets = _old_style(partition, item)
            return answer
        end = partition.high_watermark
        if body.isolation_level == COMMITTED:
            end = partition.last_stable_offset
        found = _find(partition, item.timestamp, end, call.version)
        answer.offset, answer.timestamp = found.offset, found.timestamp_ms
        if call.version >= FIRST_WITH_EPOCHS:
            answer.leader_epoch = found.leader_epoch
    except errors.BrokerError as error:
        answer.error_code = error.code
    return answer


def _find(partition: Partition, timestamp: int, end: int, version: int) -> Found:
    log = partition.log
    if timestamp == LATEST:
        return Found(end, -1, partition.leader_epoch)
    if timestamp in (EARLIEST, LOCAL_EARLIEST):
        epoch = next((e for e, start in reversed(log.epochs) if start <= log.start_offset), -1)
        return Found(log.start_offset, -1, epoch if log.end_offset > log.start_offset else -1)
    if timestamp == NEWEST and version >= 7:
        return log.find_newest() or NOTHING
    if timestamp < 0:
        return NOTHING
    return log.find_time(timestamp, end) or NOTHING


def _old_style(partition: Partition, item: ListOffsetsRequest.ListOffsetsPartition) -> list[int]:
    """Where segments begin before a time, the newest first, at most so many."""
    log = partition.log
    if item.timestamp == LATEST:
        found = [log.end_offset, *reversed(log.segment_starts)]
    elif item.timestamp == EARLIEST:
        found = [log.start_offset]
    else:
        found = list(reversed(log.segment_starts))
    return list(dict.fromkeys(found))[: max(0, item.max_num_offsets)]


@handles("OffsetForLeaderEpoch")
def offset_for_leader_epoch(
    call: Call, body: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """The end of an epoch, or of the largest one before it (KIP-320)."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(call, topic.topic, item) for item in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _epoch_end(
    call: Call, topic: str, item: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> EpochAnswer:
    answer = EpochAnswer(partition=item.partition)
    try:
        call.check_fault(topic, item.partition)
        partition = call.cluster.led_by(
            call.node_id, topic, item.partition, item.current_leader_epoch
        )
        answer.leader_epoch, answer.end_offset = partition.log.epoch_end(item.leader_epoch)
    except errors.BrokerError as error:
        answer.error_code = error.code
    return answer
