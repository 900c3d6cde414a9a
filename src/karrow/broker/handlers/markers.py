"""Transactions seen from outside (KIP-664): who has one, since when, how to end it by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.cluster import check_name
from karrow.broker.producers import Marker
from karrow.broker.transactions.coordinator import OFFSETS_TOPIC
from karrow.broker.transactions.transaction import State
from karrow.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from karrow.broker.producers import Producer
    from karrow.broker.transactions.transaction import Transaction

TRANSACTION = 1
Described = DescribeTransactionsResponse.TransactionState
TopicData = DescribeTransactionsResponse.TopicData
Producers = DescribeProducersResponse.PartitionResponse
ProducerState = DescribeProducersResponse.ProducerState
Written = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
GivenMarker = WriteTxnMarkersRequest.WritableTxnMarker


@handles("ListTransactions")
def list_transactions(call: Call, body: ListTransactionsRequest) -> ListTransactionsResponse:
    """Those that this node coordinates, by state, producer, age and pattern."""
    known = {state.value for state in State}
    unknown = [name for name in body.state_filters if name not in known]
    try:
        pattern = re.compile(body.transactional_id_pattern or "(?s:.*)")
    except (re.error, OverflowError, RecursionError):
        return ListTransactionsResponse(error_code=errors.InvalidRegularExpression.code)
    now = call.cluster.clock.time_ms()

    def is_wanted(found: Transaction) -> bool:
        if body.producer_id_filters and found.producer_id not in body.producer_id_filters:
            return False
        if body.state_filters and found.state.value not in body.state_filters:
            return False
        if body.duration_filter >= 0 and now - found.started_ms <= body.duration_filter:
            return False
        return bool(pattern.fullmatch(found.transactional_id))

    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=found.transactional_id,
                producer_id=found.producer_id,
                transaction_state=found.state.value,
            )
            for found in call.cluster.transactions
            if _is_mine(call, found.transactional_id) and is_wanted(found)
        ],
    )


@handles("DescribeTransactions")
def describe_transactions(
    call: Call, body: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """State, producer, start and partitions."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(call, name) for name in body.transactional_ids]
    )


def _describe(call: Call, transactional_id: str) -> Described:
    answer = Described(transactional_id=transactional_id)
    try:
        if not transactional_id:
            raise errors.InvalidRequest("a transactional id must not be empty")
        call.cluster.check_coordinator(call.node_id, transactional_id, TRANSACTION)
        found = call.cluster.transactions.find(transactional_id)
        if found is None:
            raise errors.TransactionalIdNotFound("the transactional id is not known")
    except errors.BrokerError as error:
        answer.error_code = error.code
        return answer
    answer.producer_id, answer.producer_epoch = found.identity
    answer.transaction_state = found.state.value
    answer.transaction_timeout_ms = found.timeout_ms
    answer.transaction_start_time_ms = found.started_ms
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        by_topic.setdefault(topic, []).append(index)
    answer.topics = [TopicData(topic=name, partitions=some) for name, some in by_topic.items()]
    return answer


def _is_mine(call: Call, transactional_id: str) -> bool:
    return call.cluster.coordinator_of(transactional_id, TRANSACTION).node_id == call.node_id


@handles("DescribeProducers")
def describe_producers(call: Call, body: DescribeProducersRequest) -> DescribeProducersResponse:
    """The producers that partitions remember."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_producers(call, topic.name, i) for i in topic.partition_indexes],
            )
            for topic in body.topics
        ]
    )


def _producers(call: Call, topic: str, index: int) -> Producers:
    try:
        call.check_fault(topic, index)
        check_name(topic)
        partition = call.cluster.led_by(call.node_id, topic, index)
    except errors.BrokerError as error:
        return Producers(
            partition_index=index, error_code=error.code, error_message=error.message or None
        )
    return Producers(
        partition_index=index,
        error_message=None,
        active_producers=[_state(producer) for producer in partition.producers],
    )


def _state(producer: Producer) -> ProducerState:
    start = producer.transaction_start
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=-1 if start is None else start,
    )


@handles("WriteTxnMarkers")
def write_txn_markers(call: Call, body: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """End transactions in single partitions; the coordinator is not asked."""
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            _write(call, marker, topic.name, index)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in body.markers
        ]
    )


def _write(call: Call, given: GivenMarker, topic: str, index: int) -> Written:
    answer = Written(partition_index=index)
    try:
        call.check_fault(topic, index)
        if topic == OFFSETS_TOPIC:
            call.cluster.groups.complete_transaction(given.producer_id, given.transaction_result)
            return answer
        call.cluster.led_by(call.node_id, topic, index).append_marker(
            given.producer_id,
            given.producer_epoch,
            Marker(given.transaction_result, given.coordinator_epoch),
            call.cluster.clock.time_ms(),
            given.transaction_version,
        )
    except errors.BrokerError as error:
        answer.error_code = error.code
    return answer
