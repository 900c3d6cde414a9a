"""The consumer group protocol (KIP-848). Version 1: ids that clients make, regular expressions.

Regular expressions are Python's, where Kafka has RE2: those of RE2 that people write mean the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.groups.consumer import LEAVE, Beat, ConsumerGroup
from karrow.broker.groups.reconciliation import NOTHING, ConsumerMember
from karrow.broker.handlers.groups import allowed_operations
from karrow.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from karrow.broker.groups.assignors import Partition

Described = ConsumerGroupDescribeResponse.DescribedGroup
Member = ConsumerGroupDescribeResponse.Member
Assignment = ConsumerGroupDescribeResponse.Assignment
TopicPartitions = ConsumerGroupDescribeResponse.TopicPartitions
CONSUMER_MEMBER = 1


@handles("ConsumerGroupHeartbeat")
def consumer_group_heartbeat(
    call: Call, body: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Join with epoch 0, stay, or leave with a negative one."""
    try:
        _check_enabled(call)
        if not body.group_id:
            raise errors.InvalidRequest("GroupId can't be empty.")
        call.cluster.check_coordinator(call.node_id, body.group_id)
        beaten = call.cluster.groups.consumer_heartbeat(body.group_id, _beat(call, body))
    except errors.BrokerError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    answer = ConsumerGroupHeartbeatResponse(
        member_id=beaten.member_id, member_epoch=beaten.epoch, assignment=None
    )
    if beaten.epoch > LEAVE:
        answer.heartbeat_interval_ms = round(call.cluster.heartbeat_interval * 1000)
    if beaten.assignment is not None:
        answer.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic, partitions=indexes)
                for topic, indexes in _by_topic(beaten.assignment).items()
            ]
        )
    return answer


def _check_enabled(call: Call) -> None:
    """Releases before 4.0 know the protocol, but have it switched off."""
    if call.cluster.release.finalized.get("group.version", 0) < 1:
        raise errors.UnsupportedVersion("The version of API is not supported.")


def _beat(call: Call, body: ConsumerGroupHeartbeatRequest) -> Beat:
    member_id = body.member_id
    if call.version == 0 and not member_id and body.member_epoch == 0:
        member_id = str(call.cluster.new_uuid())
    topics, owned, timeout_ms = (
        body.subscribed_topic_names,
        body.topic_partitions,
        body.rebalance_timeout_ms,
    )
    return Beat(
        member_id=member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        client_id=call.client_id or "",
        client_host=f"/{call.session.host}",
        rebalance_timeout=None if timeout_ms == -1 else timeout_ms / 1000,
        topics=None if topics is None else frozenset(topics),
        regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=None if owned is None else _partitions(owned),
    )


def _partitions(
    items: Iterable[ConsumerGroupHeartbeatRequest.TopicPartitions],
) -> frozenset[Partition]:
    return frozenset((item.topic_id, index) for item in items for index in item.partitions)


def _by_topic(partitions: frozenset[Partition]) -> dict[UUID, list[int]]:
    found: dict[UUID, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        found[topic].append(index)
    return found


@handles("ConsumerGroupDescribe")
def consumer_group_describe(
    call: Call, body: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """What members own, what they should own, and how far they have come."""
    groups = [_describe(call, group_id) for group_id in body.group_ids]
    for group in groups:
        if body.include_authorized_operations and not group.error_code:
            group.authorized_operations = allowed_operations(call)
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(call: Call, group_id: str) -> Described:
    try:
        _check_enabled(call)
        if not group_id:
            return Described(error_code=errors.InvalidGroupId.code)
        call.cluster.check_coordinator(call.node_id, group_id)
        return _described(call, call.cluster.groups.consumer(group_id))
    except errors.BrokerError as error:
        told = error.message if isinstance(error, errors.GroupIdNotFound) else None
        return Described(group_id=group_id, error_code=error.code, error_message=told)


def _described(call: Call, group: ConsumerGroup) -> Described:
    return Described(
        group_id=group.id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[
            _described_member(call, member, group.target.get(member.id, NOTHING))
            for member in group.members.values()
        ],
    )


def _described_member(call: Call, member: ConsumerMember, target: frozenset[Partition]) -> Member:
    return Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(call, member.assigned | member.revoking),
        target_assignment=_assignment(call, target),
        member_type=CONSUMER_MEMBER,
    )


def _assignment(call: Call, partitions: frozenset[Partition]) -> Assignment:
    """Topics that are gone meanwhile are left out."""
    names = {topic.id: topic.name for topic in call.cluster.topics.values()}
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, topic_name=names[topic], partitions=indexes)
            for topic, indexes in _by_topic(partitions).items()
            if topic in names
        ]
    )
