"""Produce: record batches into logs.

Versions: 3 batches and transactions, 7 zstd, 8 record errors, 10 leader hints (KIP-951), 11 an
error that says to abort (KIP-890), 12 partitions join transactions with their first batch, 13 topic
ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.batchcheck import Rejected, checked_batch
from karrow.broker.call import Call, Ending, handles
from karrow.broker.conversion import check_start, up_convert
from karrow.broker.transactions.transaction import Identity
from karrow.wire.messages import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from karrow.broker.topic import Partition, Topic
    from karrow.records import BatchInfo

TopicAnswer = ProduceResponse.TopicProduceResponse
PartitionAnswer = ProduceResponse.PartitionProduceResponse
RecordError = ProduceResponse.BatchIndexAndErrorMessage
ALL, NONE = -1, 0
HINTING = (errors.NotLeaderOrFollower, errors.FencedLeaderEpoch)
# From these versions on: TRANSACTION_ABORTABLE is understood; partitions join by themselves.
ABORTABLE, JOINING = 11, 12
# Below this version there are messages of the old formats.
WITH_BATCHES = 3


@handles("Produce")
def produce(call: Call, body: ProduceRequest) -> ProduceResponse | Ending | None:
    """Every partition succeeds or fails by itself; with acks=0 a failure ends the connection.

    Data of which not even the beginning makes sense fails the whole request.
    """
    if call.version < WITH_BATCHES and not call.cluster.release.converts:
        return Ending.HANGUP  # advertised for the sake of old clients, but not there (KIP-896)
    try:
        for item in body.topic_data:
            for data in item.partition_data:
                check_start(data.records or b"")
    except errors.CorruptMessage as error:
        answers = [_failed_topic(item, error) for item in body.topic_data]
    else:
        answers = [_topic(call, body, item) for item in body.topic_data]
    if body.acks == NONE:
        failed = any(p.error_code for t in answers for p in t.partition_responses)
        return Ending.HANGUP if failed else None
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
        return _failed_topic(item, error)
    answers = [_partition(call, body, topic, data) for data in item.partition_data]
    return TopicAnswer(name=item.name, topic_id=item.topic_id, partition_responses=answers)


def _partition(
    call: Call, body: ProduceRequest, topic: Topic, data: ProduceRequest.PartitionProduceData
) -> PartitionAnswer:
    try:
        call.check_fault(topic.name, data.index)
        partition = call.cluster.led_by(call.node_id, topic.name, data.index)
        _check_acks(body.acks, partition)
        return _append(call, body, partition, data)
    except Rejected as rejected:
        answer = _failed(data.index, rejected.error)
        answer.log_start_offset = topic.partitions[data.index].log.start_offset
        answer.record_errors = [
            RecordError(batch_index=at, batch_index_error_message=rejected.error.message)
            for at in rejected.records
        ]
        return answer
    except errors.BrokerError as error:
        answer = _failed(data.index, error)
        if call.version >= 10 and isinstance(error, HINTING):
            known = topic.partitions[data.index]
            answer.current_leader = ProduceResponse.LeaderIdAndEpoch(
                leader_id=known.leader, leader_epoch=known.leader_epoch
            )
        return answer


def _append(
    call: Call,
    body: ProduceRequest,
    partition: Partition,
    data: ProduceRequest.PartitionProduceData,
) -> PartitionAnswer:
    now = call.cluster.clock.time_ms()
    answer = PartitionAnswer(index=partition.index, log_start_offset=partition.log.start_offset)
    records = data.records or b""
    if call.version < WITH_BATCHES:
        records = up_convert(records)
        if not records:
            answer.base_offset = -1
            return answer
    batch, info = checked_batch(records, partition.topic, call.version, now)
    begins = info.transactional and _check_transaction(call, body, partition, info)
    stored = partition.producers.check(info, begins=begins)
    if stored is not None:
        # Kafka tells the time of the first copy, whoever has set it.
        answer.base_offset, answer.log_append_time_ms = stored.base_offset, stored.timestamp_ms
        return answer
    answer.base_offset = partition.append(batch, info, now)
    if info.timestamp_type == 1:
        answer.log_append_time_ms = now
    return answer


def _check_transaction(
    call: Call, body: ProduceRequest, partition: Partition, info: BatchInfo
) -> bool:
    """Refuse a batch outside a transaction; says whether its partition has joined just now."""
    if body.transactional_id is None:
        raise errors.TransactionalIdAuthorizationFailed("the request has no transactional id")
    producer = Identity(info.producer_id, info.producer_epoch)
    if not call.cluster.release.verifies or partition.producers.has_open(*producer):
        return False
    partition.producers.check_epoch(*producer)
    key = (partition.topic.name, partition.index)
    try:
        if call.version >= JOINING:
            call.cluster.transactions.add(body.transactional_id, producer, [key])
            return True
        call.cluster.transactions.verify(body.transactional_id, producer, key)
    except errors.ProducerFenced as error:
        # Producers understand this of Produce, and abort (KIP-588).
        raise errors.InvalidProducerEpoch(error.message) from None
    except errors.TransactionAbortable as error:
        if call.version < ABORTABLE:
            raise errors.InvalidTxnState(error.message) from None
        raise
    except errors.ConcurrentTransactions as error:
        if call.version < JOINING:
            # Older producers try again after this, and do not ask for metadata first.
            raise errors.NotEnoughReplicas(error.message) from None
        raise
    return False


def _check_acks(acks: int, partition: Partition) -> None:
    if acks not in (ALL, NONE, 1):
        raise errors.InvalidRequiredAcks(f"acks={acks} is none of -1, 0 and 1")
    wanted = partition.topic.rules.min_in_sync
    if acks == ALL and len(partition.isr) < wanted:
        raise errors.NotEnoughReplicas(
            f"the partition has {len(partition.isr)} replicas in sync, {wanted} are wanted"
        )


def _failed_topic(item: ProduceRequest.TopicProduceData, error: errors.BrokerError) -> TopicAnswer:
    answers = [_failed(data.index, error) for data in item.partition_data]
    return TopicAnswer(name=item.name, topic_id=item.topic_id, partition_responses=answers)


def _failed(index: int, error: errors.BrokerError) -> PartitionAnswer:
    return PartitionAnswer(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message or None
    )
