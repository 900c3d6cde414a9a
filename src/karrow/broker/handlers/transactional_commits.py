"""TxnOffsetCommit: offsets that count when their transaction commits.

Versions: 3 the member behind the producer (KIP-447), 4 an error that says to abort, 5 the group
joins the transaction by itself (KIP-890).
"""

from __future__ import annotations

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.groups import Commit, Place
from karrow.broker.handlers.commits import MAX_METADATA
from karrow.broker.transactions.transaction import Identity
from karrow.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

TopicAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
Given = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
# From these versions on: TRANSACTION_ABORTABLE is understood; groups join by themselves.
ABORTABLE, JOINING = 4, 5


@handles("TxnOffsetCommit")
def txn_offset_commit(call: Call, body: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Partitions that do not exist fail by themselves; the rest is refused or kept as a whole."""
    answers, accepted = _sorted_out(call, body)
    if accepted:
        try:
            _check(call, body)
        except errors.BrokerError as error:
            for answer in answers:
                for partition in answer.partitions:
                    partition.error_code = partition.error_code or error.code
        else:
            call.cluster.groups.add_pending_offsets(body.group_id, body.producer_id, accepted)
    return TxnOffsetCommitResponse(topics=answers)


def _sorted_out(
    call: Call, body: TxnOffsetCommitRequest
) -> tuple[list[TopicAnswer], dict[Place, Commit]]:
    answers, accepted = [], {}
    for topic in body.topics:
        answer = TopicAnswer(name=topic.name)
        for item in topic.partitions:
            partition = PartitionAnswer(partition_index=item.partition_index)
            try:
                call.check_fault(topic.name, item.partition_index)
                call.cluster.partition(topic.name, item.partition_index)
                accepted[topic.name, item.partition_index] = _commit(call, item)
            except errors.BrokerError as error:
                partition.error_code = error.code
            answer.partitions.append(partition)
        answers.append(answer)
    return answers, accepted


def _commit(call: Call, item: Given) -> Commit:
    metadata = item.committed_metadata or ""
    if len(metadata) > MAX_METADATA:
        raise errors.OffsetMetadataTooLarge(f"at most {MAX_METADATA} characters are kept")
    now = call.cluster.clock.time_ms()
    return Commit(item.committed_offset, item.committed_leader_epoch, metadata, now)


def _check(call: Call, body: TxnOffsetCommitRequest) -> None:
    """Refuse what is outside a transaction, or not the group's to store."""
    if not body.group_id:
        raise errors.InvalidGroupId("a group's id must not be empty")
    call.cluster.check_coordinator(call.node_id, body.group_id)
    _check_transaction(call, body)
    call.cluster.groups.check_transactional_commit(
        body.group_id, body.generation_id_or_member_epoch, body.member_id, body.group_instance_id
    )


def _check_transaction(call: Call, body: TxnOffsetCommitRequest) -> None:
    producer = Identity(body.producer_id, body.producer_epoch)
    transactions = call.cluster.transactions
    try:
        if call.version >= JOINING:
            transactions.add_group(body.transactional_id, producer, body.group_id)
        elif call.cluster.release.verifies:
            transactions.verify_group(body.transactional_id, producer, body.group_id)
        else:
            transactions.check_epoch(body.transactional_id, producer)
    except errors.ProducerFenced as error:
        raise errors.InvalidProducerEpoch(error.message) from None
    except errors.TransactionAbortable as error:
        if call.version < ABORTABLE:
            raise errors.InvalidTxnState(error.message) from None
        raise
