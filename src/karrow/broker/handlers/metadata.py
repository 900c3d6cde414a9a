"""Metadata: brokers, and topics with their leaders."""

from __future__ import annotations

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.cluster import check_name
from karrow.broker.rights import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, UNKNOWN
from karrow.broker.topic import NO_LEADER, Topic
from karrow.wire.messages import MetadataRequest, MetadataResponse
from karrow.wire.structs import NO_UUID

BrokerInfo = MetadataResponse.MetadataResponseBroker
TopicInfo = MetadataResponse.MetadataResponseTopic
PartitionInfo = MetadataResponse.MetadataResponsePartition
FIRST_BY_ID = 12
Wanted = MetadataRequest.MetadataRequestTopic


@handles("Metadata")
def metadata(call: Call, body: MetadataRequest) -> MetadataResponse:
    """Version 0 asks for everything with an empty list, later ones with null."""
    cluster = call.cluster
    rights = TOPIC_OPERATIONS if body.include_topic_authorized_operations else UNKNOWN
    wants_all = body.topics is None or (call.version == 0 and not body.topics)
    if call.version < FIRST_BY_ID and any(_is_by_id(item) for item in body.topics or []):
        code = errors.InvalidRequest.code
        refused = [TopicInfo(error_code=code, name=item.name or "") for item in body.topics or []]
        return MetadataResponse(topics=refused)
    if wants_all:
        topics = [topic_info(call, topic) for topic in cluster.topics.values()]
    else:
        create = call.version < 4 or body.allow_auto_topic_creation
        wanted = {(item.name, item.topic_id): item for item in body.topics or []}
        topics = [_asked(call, item, create=create) for item in wanted.values()]
    for topic in topics:
        if topic.error_code == 0:
            topic.topic_authorized_operations = rights
    return MetadataResponse(
        brokers=[
            BrokerInfo(node_id=node.node_id, host=node.host, port=node.port)
            for node in cluster.visible
        ],
        cluster_id=cluster.id,
        controller_id=cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else UNKNOWN
        ),
    )


def topic_info(call: Call, topic: Topic) -> TopicInfo:
    """A topic as Metadata tells it."""
    return TopicInfo(
        name=topic.name,
        topic_id=topic.id,
        partitions=[
            PartitionInfo(
                error_code=(errors.LeaderNotAvailable.code if partition.leader == NO_LEADER else 0),
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=[id_ for id_ in partition.replicas if id_ in call.cluster.down],
            )
            for partition in topic.partitions
        ],
    )


def _asked(call: Call, item: Wanted, *, create: bool) -> TopicInfo:
    cluster = call.cluster
    by_id = item.topic_id != NO_UUID
    try:
        if by_id:
            found = cluster.topic_by_id(item.topic_id)
            call.check_fault(found.name)
            return topic_info(call, found)
        name = item.name or ""
        call.check_fault(name)
        check_name(name)
        if name not in cluster.topics and create and cluster.auto_create_topics:
            cluster.create_topic(name)
        return topic_info(call, cluster.topic(name))
    except errors.BrokerError as error:
        named = None if by_id else item.name or ""
        return TopicInfo(error_code=error.code, name=named, topic_id=item.topic_id)


def _is_by_id(item: Wanted) -> bool:
    return item.name is None or item.topic_id != NO_UUID
