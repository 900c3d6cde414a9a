"""The classic group protocol, and groups as administrators see them.

JoinGroup: version 0 has one time-out for session and rebalance, 4 gives members their ids first
(KIP-394), 5 static members, 9 leaders that need not assign (KIP-814). LeaveGroup: 3 several
members. ListGroups: 4 filters by state, 5 by type. DescribeGroups: 6 has an error for groups that
are not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from karrow import errors
from karrow.broker.call import Call, handles
from karrow.broker.groups.classic import ClassicGroup, State
from karrow.broker.groups.members import Join, Joined, Member, Sync, Synced
from karrow.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

DescribedGroup = DescribeGroupsResponse.DescribedGroup
DEAD = "Dead"
# What may be done with a group, as bits of AclOperation: read, delete, describe, and its configs.
ALLOWED = sum(1 << operation for operation in (3, 6, 8))
ALLOWED_CONFIGS = sum(1 << operation for operation in (10, 11))


@handles("JoinGroup")
def join_group(
    call: Call, body: JoinGroupRequest
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Answered when the generation is complete."""
    try:
        call.cluster.check_coordinator(call.node_id, body.group_id)
        waiting = call.cluster.groups.join(body.group_id, _wish(call, body))
    except errors.BrokerError as error:
        return _not_joined(call, body, error)
    return _when_joined(call, body, waiting)


def _wish(call: Call, body: JoinGroupRequest) -> Join:
    rebalance_ms = body.session_timeout_ms if call.version == 0 else body.rebalance_timeout_ms
    return Join(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        client_id=call.client_id or "",
        client_host=f"/{call.session.host}",
        session_timeout=body.session_timeout_ms / 1000,
        rebalance_timeout=rebalance_ms / 1000,
        protocol_type=body.protocol_type,
        protocols=tuple((item.name, bytes(item.metadata)) for item in body.protocols),
        takes_id_first=call.version >= 4,
        can_skip_assignment=call.version >= 9,
    )


async def _when_joined(
    call: Call, body: JoinGroupRequest, waiting: asyncio.Future[Joined]
) -> JoinGroupResponse:
    try:
        joined = await waiting
    except errors.BrokerError as error:
        return _not_joined(call, body, error)
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(joined.protocol_name),
            )
            for member in joined.members
        ],
    )


def _not_joined(call: Call, body: JoinGroupRequest, error: errors.BrokerError) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=error.code,
        generation_id=-1,
        protocol_name=None if call.version >= 7 else "",
        member_id=error.context.get("member_id", body.member_id),
    )


@handles("SyncGroup")
def sync_group(
    call: Call, body: SyncGroupRequest
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Answered when the leader has sent the assignment."""
    try:
        if call.version >= 5 and (body.protocol_type is None or body.protocol_name is None):
            raise errors.InconsistentGroupProtocol("the protocol's type and name must be given")
        call.cluster.check_coordinator(call.node_id, body.group_id)
        waiting = call.cluster.groups.sync(
            body.group_id,
            Sync(
                member_id=body.member_id,
                instance_id=body.group_instance_id,
                generation=body.generation_id,
                protocol_type=body.protocol_type,
                protocol_name=body.protocol_name,
                assignments={i.member_id: bytes(i.assignment) for i in body.assignments},
            ),
        )
    except errors.BrokerError as error:
        return SyncGroupResponse(error_code=error.code)
    return _when_synced(waiting)


async def _when_synced(waiting: asyncio.Future[Synced]) -> SyncGroupResponse:
    try:
        synced = await waiting
    except errors.BrokerError as error:
        return SyncGroupResponse(error_code=error.code)
    return SyncGroupResponse(
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


@handles("Heartbeat")
def heartbeat(call: Call, body: HeartbeatRequest) -> HeartbeatResponse:
    """Stay a member."""
    try:
        call.cluster.check_coordinator(call.node_id, body.group_id)
        call.cluster.groups.heartbeat(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id
        )
    except errors.BrokerError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse()


@handles("LeaveGroup")
def leave_group(call: Call, body: LeaveGroupRequest) -> LeaveGroupResponse:
    """One member before version 3, several from then on."""
    leaving = [(item.member_id, item.group_instance_id) for item in body.members]
    if call.version < 3:
        leaving = [(body.member_id, None)]
    try:
        call.cluster.check_coordinator(call.node_id, body.group_id)
        outcomes = call.cluster.groups.leave(body.group_id, leaving)
    except errors.BrokerError as error:
        return LeaveGroupResponse(error_code=error.code)
    if call.version < 3:
        return LeaveGroupResponse(error_code=_code(outcomes[0][2]))
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member_id, group_instance_id=instance_id, error_code=_code(error)
            )
            for member_id, instance_id, error in outcomes
        ]
    )


def _code(error: errors.BrokerError | None) -> int:
    return 0 if error is None else error.code


@handles("DescribeGroups")
def describe_groups(call: Call, body: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Members tell their metadata and assignment only while the group is stable."""
    groups = [_describe(call, group_id) for group_id in body.groups]
    for group in groups:
        if body.include_authorized_operations and not group.error_code:
            group.authorized_operations = allowed_operations(call)
    return DescribeGroupsResponse(groups=groups)


def allowed_operations(call: Call) -> int:
    """What the caller may do with a group: everything there is, since there are no ACLs."""
    has_configs = call.cluster.release.finalized.get("group.version", 0) > 0
    return ALLOWED | ALLOWED_CONFIGS if has_configs else ALLOWED


def _describe(call: Call, group_id: str) -> DescribedGroup:
    try:
        call.cluster.check_coordinator(call.node_id, group_id)
        return _described(call.cluster.groups.classic(group_id))
    except errors.GroupIdNotFound as error:
        if call.version < 6:
            return DescribedGroup(group_id=group_id, group_state=DEAD)
        return DescribedGroup(
            group_id=group_id,
            group_state=DEAD,
            error_code=error.code,
            error_message=error.message,
        )
    except errors.BrokerError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)


def _described(group: ClassicGroup) -> DescribedGroup:
    protocol = group.protocol_name if group.state is State.STABLE else None
    return DescribedGroup(
        group_id=group.id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_described_member(member, protocol) for member in group.members.values()],
    )


def _described_member(
    member: Member, protocol: str | None
) -> DescribeGroupsResponse.DescribedGroupMember:
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol),
        member_assignment=member.assignment,
    )


@handles("ListGroups")
def list_groups(call: Call, body: ListGroupsRequest) -> ListGroupsResponse:
    """The groups of this node."""
    states = {state.strip().lower() for state in body.states_filter}
    kinds = {kind.strip().lower() for kind in body.types_filter}
    return ListGroupsResponse(
        groups=[
            ListGroupsResponse.ListedGroup(
                group_id=group.id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.kind,
            )
            for group in call.cluster.groups.of_node(call.node_id)
            if (not states or group.state_name.lower() in states)
            and (not kinds or group.kind in kinds)
        ]
    )


@handles("DeleteGroups")
def delete_groups(call: Call, body: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Each group by itself."""
    results = []
    for group_id in dict.fromkeys(body.groups_names):
        result = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id)
        try:
            call.cluster.check_coordinator(call.node_id, group_id)
            call.cluster.groups.delete(group_id)
        except errors.BrokerError as error:
            result.error_code = error.code
        results.append(result)
    return DeleteGroupsResponse(results=results)
