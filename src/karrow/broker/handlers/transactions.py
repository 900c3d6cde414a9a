"""What transactional producers ask of their coordinator.

InitProducerId: 3 names the identity to go on from (KIP-360), 4 PRODUCER_FENCED (KIP-588).
AddPartitionsToTxn: 2 PRODUCER_FENCED, 4 several transactions at once, from brokers (KIP-890).
AddOffsetsToTxn: 2 PRODUCER_FENCED. EndTxn: 2 PRODUCER_FENCED, 5 a new epoch with the answer.
"""

from __future__ import annotations

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.transactions.transaction import NOBODY, NONE, Identity, TopicPartition
from karrow.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
TransactionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
AddedTransaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
TRANSACTION = 1
BATCHED = 4
BUMPING = 5
# The first version in which each API says PRODUCER_FENCED.
FENCING = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}


@handles("InitProducerId")
def init_producer_id(call: Call, body: InitProducerIdRequest) -> InitProducerIdResponse:
    """Who the producer is from now on; older ones with its transactional id are refused."""
    try:
        expected = _expected(body)
        if body.transactional_id:
            call.cluster.check_coordinator(call.node_id, body.transactional_id, TRANSACTION)
        given = call.cluster.transactions.init_producer(
            body.transactional_id, body.transaction_timeout_ms, expected
        )
    except errors.BrokerError as error:
        return InitProducerIdResponse(
            error_code=_code(call, error), producer_id=NONE, producer_epoch=NONE
        )
    return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.epoch)


def _expected(body: InitProducerIdRequest) -> Identity | None:
    """What the producer had before, from version 3 on."""
    named = Identity(body.producer_id, body.producer_epoch)
    if named == NOBODY:
        return None
    if NONE in named:
        raise errors.InvalidRequest("producer id and epoch come together")
    return named


@handles("AddPartitionsToTxn")
def add_partitions_to_txn(
    call: Call, body: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """All partitions of a transaction are added, or none."""
    if call.version >= BATCHED:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[_added(call, item) for item in body.transactions]
        )
    one = AddedTransaction(
        transactional_id=body.v3_and_below_transactional_id,
        producer_id=body.v3_and_below_producer_id,
        producer_epoch=body.v3_and_below_producer_epoch,
        topics=body.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_added(call, one).topic_results)


def _added(call: Call, item: AddedTransaction) -> TransactionResult:
    wanted = [(topic.name, index) for topic in item.topics for index in topic.partitions]
    codes = _unknown(call, wanted)
    if not codes:
        try:
            codes = _add(call, item, wanted)
        except errors.BrokerError as error:
            codes = dict.fromkeys(wanted, _code(call, error))
    return TransactionResult(
        transactional_id=item.transactional_id,
        topic_results=[
            TopicResult(
                name=topic.name,
                results_by_partition=[
                    PartitionResult(
                        partition_index=index, partition_error_code=codes[topic.name, index]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in item.topics
        ],
    )


def _unknown(call: Call, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Codes for all partitions if some do not exist, else nothing."""
    codes = dict.fromkeys(wanted, errors.OperationNotAttempted.code)
    failed = False
    for key in wanted:
        try:
            call.check_fault(*key)
            call.cluster.partition(*key)
        except errors.BrokerError as error:
            codes[key] = error.code
            failed = True
    return codes if failed else {}


def _add(
    call: Call, item: AddedTransaction, wanted: list[TopicPartition]
) -> dict[TopicPartition, int]:
    producer = Identity(item.producer_id, item.producer_epoch)
    transactions = call.cluster.transactions
    if item.transactional_id:
        call.cluster.check_coordinator(call.node_id, item.transactional_id, TRANSACTION)
    codes = dict.fromkeys(wanted, 0)
    if not item.verify_only:
        transactions.add(item.transactional_id, producer, wanted)
        return codes
    for key in wanted:
        try:
            transactions.verify(item.transactional_id, producer, key)
        except errors.BrokerError as error:
            codes[key] = error.code
    return codes


@handles("AddOffsetsToTxn")
def add_offsets_to_txn(call: Call, body: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """A group's offsets will be part of the transaction."""
    try:
        if body.transactional_id:
            call.cluster.check_coordinator(call.node_id, body.transactional_id, TRANSACTION)
        producer = Identity(body.producer_id, body.producer_epoch)
        call.cluster.transactions.add_group(body.transactional_id, producer, body.group_id)
    except errors.BrokerError as error:
        return AddOffsetsToTxnResponse(error_code=_code(call, error))
    return AddOffsetsToTxnResponse()


@handles("EndTxn")
def end_txn(call: Call, body: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort."""
    try:
        if body.transactional_id:
            call.cluster.check_coordinator(call.node_id, body.transactional_id, TRANSACTION)
        after = call.cluster.transactions.end(
            body.transactional_id,
            Identity(body.producer_id, body.producer_epoch),
            commit=body.committed,
            version=2 if call.version >= BUMPING else 0,
        )
    except errors.BrokerError as error:
        return EndTxnResponse(error_code=_code(call, error), producer_id=NONE, producer_epoch=NONE)
    return EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.epoch)


def _code(call: Call, error: errors.BrokerError) -> int:
    """Old clients know an older name for the producer that was replaced."""
    if isinstance(error, errors.ProducerFenced) and call.version < FENCING[call.api]:
        return errors.InvalidProducerEpoch.code
    return error.code
