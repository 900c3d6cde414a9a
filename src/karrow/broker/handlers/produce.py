"""Produce: record batches into logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.batchcheck import checked_batch
from karrow.broker.call import Call, handles
from karrow.wire.messages import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from karrow.broker.segment import Buffer
    from karrow.broker.topic import Partition, Topic

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = ProduceResponse.PartitionProduceResponse
ALL, NONE = -1, 0
HINTING = (errors.NotLeaderOrFollower, errors.FencedLeaderEpoch)


@handles("Produce")
def produce(call: Call, body: ProduceRequest) -> ProduceResponse | None:
    """Every partition succeeds or fails by itself; acks=0 gets no answer."""
    answers = [_topic(call, body, item) for item in body.topic_data]
    if body.acks == NONE:
        return None
    answer = ProduceResponse(responses=answers)
    if any(p.current_leader.leader_id >= 0 for t in answers for p in t.partition_responses):
        answer.node_endpoints = [
            ProduceResponse.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port)
            for node in call.cluster.visible
        ]
    return answer


def _topic(call: Call, body: ProduceRequest, item: ProduceRequest.TopicProduceData) -> TopicAnswer:
    try:
        by_id = call.version >= 13
        topic = call.cluster.topic_by_id(item.topic_id) if by_id else call.cluster.topic(item.name)
    except errors.BrokerError as error:
        answers = [_failed(data.index, error) for data in item.partition_data]
    else:
        answers = [_partition(call, body, topic, data) for data in item.partition_data]
    return TopicAnswer(name=item.name, topic_id=item.topic_id, partition_responses=answers)


def _partition(
    call: Call, body: ProduceRequest, topic: Topic, data: ProduceRequest.PartitionProduceData
) -> PartitionAnswer:
    try:
        partition = call.cluster.led_by(call.node_id, topic.name, data.index)
        _check_acks(body.acks, partition)
        return _append(call, partition, data.records)
    except errors.BrokerError as error:
        answer = _failed(data.index, error)
        if call.version >= 10 and isinstance(error, HINTING):
            known = topic.partitions[data.index]
            answer.current_leader = ProduceResponse.LeaderIdAndEpoch(
                leader_id=known.leader, leader_epoch=known.leader_epoch
            )
        return answer


def _append(call: Call, partition: Partition, data: Buffer | None) -> PartitionAnswer:
    now = call.cluster.clock.time_ms()
    batch, info = checked_batch(memoryview(data or b""), partition.topic, call.version, now)
    answer = PartitionAnswer(index=partition.index, log_start_offset=partition.log.start_offset)
    stored = partition.duplicate_of(info)
    if stored is not None:
        answer.base_offset = stored.base_offset
    else:
        answer.base_offset = partition.append(batch, info, now)
    answer.log_append_time_ms = now if info.timestamp_type == 1 else -1
    return answer


def _check_acks(acks: int, partition: Partition) -> None:
    if acks not in (ALL, NONE, 1):
        raise errors.InvalidRequiredAcks(f"acks={acks} is none of -1, 0 and 1")
    wanted = partition.topic.settings.number("min.insync.replicas")
    if acks == ALL and len(partition.isr) < wanted:
        raise errors.NotEnoughReplicas(
            f"the partition has {len(partition.isr)} replicas in sync, {wanted} are wanted"
        )


def _failed(index: int, error: errors.BrokerError) -> PartitionAnswer:
    return PartitionAnswer(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message or None
    )
