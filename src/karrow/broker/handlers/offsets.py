"""ListOffsets and OffsetForLeaderEpoch: where logs begin and end, where a time or epoch is."""

from __future__ import annotations

from collections import Counter
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
# The first version that has each place which is no time.
SPECIAL = {
    LATEST: 0,
    EARLIEST: 0,
    NEWEST: 7,
    LOCAL_EARLIEST: 8,
    LAST_TIERED: 9,
    PENDING_UPLOAD: 11,
}
NEVER = 1 << 15
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
                partitions=_topic(call, body, topic),
            )
            for topic in body.topics
        ]
    )


def _topic(
    call: Call, body: ListOffsetsRequest, topic: ListOffsetsRequest.ListOffsetsTopic
) -> list[PartitionAnswer]:
    counts = Counter(item.partition_index for item in topic.partitions)
    items = {item.partition_index: item for item in topic.partitions}.values()
    found = []
    for item in topic.partitions if call.cluster.release.converts else items:
        if counts[item.partition_index] > 1:
            code = errors.InvalidRequest.code
            found.append(PartitionAnswer(partition_index=item.partition_index, error_code=code))
        else:
            found.append(_offset(call, body, topic.name, item))
    return found


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
        place = _place(call, item.timestamp)
        if call.version == 0:
            answer.old_style_offsets = _old_style(call, partition, place, item.max_num_offsets)
            return answer
        end = partition.high_watermark
        if body.isolation_level == COMMITTED:
            end = partition.last_stable_offset
        found = _find(partition, place, end)
        answer.offset, answer.timestamp = found.offset, found.timestamp_ms
        if call.version >= FIRST_WITH_EPOCHS:
            answer.leader_epoch = found.leader_epoch
    except errors.BrokerError as error:
        answer.error_code = error.code
    return answer


def _place(call: Call, timestamp: int) -> int:
    """A time, or one of the special places; early releases took those for times long ago."""
    if timestamp >= 0 or call.version >= SPECIAL.get(timestamp, NEVER):
        return timestamp
    if call.cluster.release.forwards:
        raise errors.UnsupportedVersion("this version has no such place")
    return 0


def _find(partition: Partition, place: int, end: int) -> Found:
    log = partition.log
    if place == LATEST:
        return Found(end, -1, partition.leader_epoch)
    if place in (EARLIEST, LOCAL_EARLIEST):
        return Found(log.start_offset, -1, log.epoch_at_start(partition.leader_epoch))
    if place == NEWEST:
        return log.find_newest() or NOTHING
    return (log.find_time(place, end) if place >= 0 else None) or NOTHING


def _old_style(call: Call, partition: Partition, place: int, count: int) -> list[int]:
    """Where segments begin before a time, the newest first, at most so many."""
    log, now = partition.log, call.cluster.clock.time_ms()
    if place == EARLIEST:
        found = [log.start_offset]
    else:
        found = log.segment_starts(now if place == LATEST else place)
        if place == LATEST or (found and place >= now):
            found.append(log.end_offset)
    return list(dict.fromkeys(reversed(found)))[: max(0, count)]


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
        answer.leader_epoch, answer.end_offset = partition.log.epoch_end(
            item.leader_epoch, partition.leader_epoch
        )
    except errors.BrokerError as error:
        answer.error_code = error.code
    return answer
