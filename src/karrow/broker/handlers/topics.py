"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.defaults import OF_ALL_BROKERS, OF_KAFKA, OF_TOPIC
from karrow.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from karrow.wire.structs import NO_UUID

if TYPE_CHECKING:
    from karrow.broker.topic import Topic

Created = CreateTopicsResponse.CreatableTopicResult
Deleted = DeleteTopicsResponse.DeletableTopicResult
Grown = CreatePartitionsResponse.CreatePartitionsTopicResult
Trimmed = DeleteRecordsResponse.DeleteRecordsPartitionResult
HIGH_WATERMARK = -1


@handles("CreateTopics")
def create_topics(call: Call, body: CreateTopicsRequest) -> CreateTopicsResponse:
    """Each topic by itself; a name given twice is refused."""
    counts = Counter(item.name for item in body.topics)
    answers = []
    for item in {item.name: item for item in body.topics}.values():
        answer = Created(
            name=item.name, num_partitions=-1, replication_factor=-1, error_message=None
        )
        try:
            _check_controller(call)
            if counts[item.name] > 1:
                raise errors.InvalidRequest("Duplicate topic name.")
            _describe(answer, _create(call, item, validate_only=body.validate_only))
        except errors.BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
    return CreateTopicsResponse(topics=answers)


def _create(call: Call, item: CreateTopicsRequest.CreatableTopic, *, validate_only: bool) -> Topic:
    assignments = None
    if item.assignments:
        if item.num_partitions != -1 or item.replication_factor != -1:
            raise errors.InvalidRequest(
                "A manual partition assignment was specified, but numPartitions or "
                "replicationFactor was not set to -1."
            )
        by_index = {a.partition_index: a.broker_ids for a in item.assignments}
        if sorted(by_index) != list(range(len(item.assignments))):
            raise errors.InvalidReplicaAssignment("partitions must be numbered from 0 on")
        assignments = [by_index[index] for index in range(len(by_index))]
    return call.cluster.create_topic(
        item.name,
        item.num_partitions,
        item.replication_factor,
        assignments=assignments,
        config={config.name: config.value or "" for config in item.configs},
        validate_only=validate_only,
    )


def _describe(answer: Created, topic: Topic) -> None:
    answer.topic_id = topic.id
    answer.num_partitions = len(topic.partitions)
    answer.replication_factor = topic.replication_factor
    answer.configs = [
        CreateTopicsResponse.CreatableTopicConfigs(
            name=name,
            value=topic.settings.text(name),
            config_source=_source(topic, name),
        )
        for name in sorted(topic.settings.table)
    ]


def _source(topic: Topic, name: str) -> int:
    if name in topic.settings.given:
        return OF_TOPIC
    return OF_ALL_BROKERS if name in topic.settings.inherited else OF_KAFKA


@handles("DeleteTopics")
def delete_topics(call: Call, body: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """By name, or from version 6 on by id; what is named twice is refused."""
    if call.version < 6:
        wanted: list[tuple[str | None, UUID]] = [(name, NO_UUID) for name in body.topic_names]
    else:
        wanted = [(item.name, item.topic_id) for item in body.topics]
    answers = []
    for key, count in Counter(wanted).items():
        answer = Deleted(name=key[0], topic_id=key[1], error_message=None)
        try:
            _check_controller(call)
            if count > 1:
                raise errors.InvalidRequest("Duplicate topic name or id.")
            found = _named(call, *key)
            answer.name, answer.topic_id = found.name, found.id
            call.cluster.delete_topic(found.name)
        except errors.BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
    return DeleteTopicsResponse(responses=answers)


def _named(call: Call, name: str | None, topic_id: UUID) -> Topic:
    if (name is None) == (topic_id == NO_UUID):
        raise errors.InvalidRequest("a topic is named by its name or by its id")
    return call.cluster.topic_by_id(topic_id) if name is None else call.cluster.topic(name)


@handles("CreatePartitions")
def create_partitions(call: Call, body: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """More partitions for topics that exist."""
    counts = Counter(item.name for item in body.topics)
    answers = []
    for item in {item.name: item for item in body.topics}.values():
        answer = Grown(name=item.name, error_message=None)
        try:
            _check_controller(call)
            if counts[item.name] > 1:
                raise errors.InvalidRequest("Duplicate topic name.")
            assignments = (
                None if item.assignments is None else [a.broker_ids for a in item.assignments]
            )
            call.cluster.grow_topic(
                call.cluster.topic(item.name),
                item.count,
                assignments,
                validate_only=body.validate_only,
            )
        except errors.BrokerError as error:
            answer.error_code, answer.error_message = error.code, error.message
        answers.append(answer)
    return CreatePartitionsResponse(results=answers)


@handles("DeleteRecords")
def delete_records(call: Call, body: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Everything below an offset becomes unreadable."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_trim(call, topic.name, item) for item in topic.partitions],
            )
            for topic in body.topics
        ]
    )


def _trim(call: Call, topic: str, item: DeleteRecordsRequest.DeleteRecordsPartition) -> Trimmed:
    answer = Trimmed(partition_index=item.partition_index, low_watermark=-1)
    try:
        call.check_fault(topic, item.partition_index)
        partition = call.cluster.led_by(call.node_id, topic, item.partition_index)
        if not partition.topic.rules.deletes:
            raise errors.PolicyViolation("the topic's cleanup policy does not delete")
        end = partition.high_watermark
        offset = end if item.offset == HIGH_WATERMARK else item.offset
        if not 0 <= offset <= end:
            raise errors.OffsetOutOfRange(f"the log ends at {end}")
        partition.delete_before(offset)
        answer.low_watermark = partition.log.start_offset
    except errors.BrokerError as error:
        answer.error_code = error.code
    return answer


def _check_controller(call: Call) -> None:
    """Brokers with a quorum forward such requests; older ones want them at the controller."""
    if not call.cluster.release.forwards and call.node_id != call.cluster.controller_id:
        raise errors.NotController("This is not the correct controller for this cluster.")
