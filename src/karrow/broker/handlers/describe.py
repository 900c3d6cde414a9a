"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs: what there is, and how large.

DescribeCluster: 1 asks for brokers or controllers, 2 for brokers that are down too. Everybody may
do everything here, so all operations are authorized.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.cluster import check_name
from karrow.broker.rights import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, UNKNOWN
from karrow.broker.topic import NO_LEADER
from karrow.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

if TYPE_CHECKING:
    from karrow.broker.topic import Partition, Topic

BrokerInfo = DescribeClusterResponse.DescribeClusterBroker
TopicInfo = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionInfo = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor
Folder = DescribeLogDirsResponse.DescribeLogDirsResult
FolderTopic = DescribeLogDirsResponse.DescribeLogDirsTopic
FolderPartition = DescribeLogDirsResponse.DescribeLogDirsPartition
BROKERS, CONTROLLERS = 1, 2
# max.request.partition.size.limit
MAX_PARTITIONS = 2000
FOLDER = "/karrow"


@handles("DescribeCluster")
def describe_cluster(call: Call, body: DescribeClusterRequest) -> DescribeClusterResponse:
    """The nodes and who changes topics."""
    if body.endpoint_type != BROKERS:
        known = body.endpoint_type == CONTROLLERS
        error = errors.MismatchedEndpointType if known else errors.UnsupportedEndpointType
        return DescribeClusterResponse(
            error_code=error.code, error_message="this node speaks for brokers", controller_id=-1
        )
    cluster = call.cluster
    shown = {node.node_id for node in cluster.visible}
    wanted = cluster.nodes if body.include_fenced_brokers else shown
    return DescribeClusterResponse(
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=cluster.id,
        controller_id=cluster.controller_id,
        brokers=[
            BrokerInfo(
                broker_id=node_id,
                host=node.host,
                port=node.port,
                rack=None,
                is_fenced=node_id not in shown,
            )
            for node_id, node in sorted(cluster.nodes.items())
            if node_id in wanted
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else UNKNOWN
        ),
    )


@handles("DescribeTopicPartitions")
def describe_topic_partitions(
    call: Call, body: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics in the order of their names, so many partitions at a time (KIP-966)."""
    names = sorted({item.name for item in body.topics} or set(call.cluster.topics))
    first = 0
    if body.cursor is not None:
        if body.cursor.partition_index < 0 or (body.topics and body.cursor.topic_name not in names):
            code = errors.InvalidRequest.code
            refused = [TopicInfo(name=item.name, error_code=code) for item in body.topics]
            return DescribeTopicPartitionsResponse(topics=refused)
        names = [name for name in names if name >= body.cursor.topic_name]
        if names and names[0] == body.cursor.topic_name:
            first = body.cursor.partition_index
    left = max(1, min(MAX_PARTITIONS, body.response_partition_limit))
    answer = DescribeTopicPartitionsResponse(next_cursor=None)
    for name in names:
        if left == 0:
            answer.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        info, rest = _topic(call, name, first, left)
        answer.topics.append(info)
        left -= len(info.partitions)
        if rest is not None:
            answer.next_cursor = Cursor(topic_name=name, partition_index=rest)
            break
        first = 0
    return answer


def _topic(call: Call, name: str, first: int, limit: int) -> tuple[TopicInfo, int | None]:
    """A topic, and the partition that the next answer has to begin with."""
    answer = TopicInfo(name=name, topic_authorized_operations=TOPIC_OPERATIONS)
    try:
        call.check_fault(name)
        check_name(name)
        topic = call.cluster.topic(name)
    except errors.BrokerError as error:
        answer.error_code = error.code
        return answer, None
    answer.topic_id = topic.id
    shown = topic.partitions[first : first + limit]
    answer.partitions = [_partition(call, partition) for partition in shown]
    end = first + limit
    return answer, end if end < len(topic.partitions) else None


def _partition(call: Call, partition: Partition) -> PartitionInfo:
    code = errors.LeaderNotAvailable.code if partition.leader == NO_LEADER else 0
    return PartitionInfo(
        error_code=code,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[id_ for id_ in partition.replicas if id_ in call.cluster.down],
    )


@handles("DescribeLogDirs")
def describe_log_dirs(call: Call, body: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """How many bytes the node's replicas have; there is one folder, of unknown size."""
    wanted = body.topics
    asked = None if wanted is None else {item.topic: set(item.partitions) for item in wanted}
    topics = []
    for topic in call.cluster.topics.values():
        partitions = _sizes(call, topic, None if asked is None else asked.get(topic.name, set()))
        if partitions:
            topics.append(FolderTopic(name=topic.name, partitions=partitions))
    return DescribeLogDirsResponse(
        results=[Folder(log_dir=FOLDER, topics=topics, total_bytes=-1, usable_bytes=-1)]
    )


def _sizes(call: Call, topic: Topic, asked: set[int] | None) -> list[FolderPartition]:
    return [
        FolderPartition(
            partition_index=partition.index, partition_size=partition.log.size_bytes, offset_lag=0
        )
        for partition in topic.partitions
        if call.node_id in partition.replicas and (asked is None or partition.index in asked)
    ]
