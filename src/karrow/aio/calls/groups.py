"""Groups: their coordinators, their members, and the steps by which a member takes part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.errors import (
    BrokerError,
    GroupIdNotFound,
    MemberIdRequired,
    RemoteProtocolError,
    error_for,
)
from karrow.net.retry import is_consumer_group_retriable
from karrow.types import (
    Coordinator,
    CoordinatorKind,
    GroupAssignment,
    GroupDescription,
    GroupListing,
    GroupMember,
    JoinedGroup,
    MemberDescription,
    Node,
    TopicPartition,
)
from karrow.types.acls import operations_in
from karrow.wire import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

if TYPE_CHECKING:
    from karrow.net.connection import Connection
    from karrow.wire.codec import Body

    Assignment = (
        bytes | Mapping[str, Iterable[int]] | tuple[Mapping[str, Iterable[int]], bytes | None]
    )

T = TypeVar("T")

CONSUMER = "consumer"
# The versions that brought filters of listings, static members, several leaving members.
FIRST_WITH_STATES = 4
FIRST_WITH_TYPES = 5
STATIC_JOIN = 5
STATIC_SYNC = 3
STATIC_HEARTBEAT = 3
FIRST_WITH_LEAVERS = 3
ASSIGNMENT_VERSION = 0


class GroupCalls(Calls):
    """Calls about groups."""

    async def find_coordinator(
        self,
        key: str,
        kind: CoordinatorKind = "group",
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> Coordinator:
        """The broker that coordinates a group or a transactional id, asked for now."""

        async def attempt() -> Coordinator:
            found = await self._cluster.coordinators.find(kind, key, api_version=api_version)
            if found.error is not None:
                raise found.error
            return found

        return await self._attempts(attempt, retries=retries)

    async def list_groups(
        self,
        broker: int | None = None,
        *,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[GroupListing]:
        """The groups that one broker coordinates, or all of them."""
        if broker is None:
            found = await self._attempts(lambda: self._cluster.refresh(()), retries=retries)
            brokers = sorted(found.brokers)
        else:
            brokers = [broker]

        def body(version: int, connection: Connection) -> dict[str, Any]:
            require = connection.versions.require
            if states:
                require("ListGroups", version, "states", FIRST_WITH_STATES)
            if types:
                require("ListGroups", version, "types", FIRST_WITH_TYPES)
            filters = {"states_filter": list(states), "types_filter": list(types)}
            return {name: value for name, value in filters.items() if value}

        parts = await asyncio.gather(
            *(
                self._call(
                    Request("ListGroups", Node.id(broker_id), body, api_version),
                    _read_listing,
                    retries=retries,
                )
                for broker_id in brokers
            )
        )
        return [listing for part in parts for listing in part]

    async def describe_group(
        self,
        group: str,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> GroupDescription:
        """A group's state and members; a group of the new protocol (KIP-848) is found as well."""
        request = Request(
            "DescribeGroups",
            Node.coordinator(group),
            lambda _version, _connection: {"groups": [group]},
            api_version,
        )
        try:
            return await self._call(
                request, lambda reply: _read_description(reply, group), retries=retries
            )
        except GroupIdNotFound:
            if api_version is not None:
                raise
            found = await self._describe_new(group, retries)
            if found is None:
                raise
            return found

    async def _describe_new(self, group: str, retries: int | None) -> GroupDescription | None:
        """A group of KIP-848; None when the broker knows no such thing."""
        connection = await self._cluster.connection(Node.coordinator(group))
        if "ConsumerGroupDescribe" not in connection.versions:
            return None
        request = Request(
            "ConsumerGroupDescribe",
            Node.coordinator(group),
            lambda _version, _connection: {"group_ids": [group]},
        )
        try:
            return await self._call(
                request, lambda reply: _read_new_description(reply, group), retries=retries
            )
        except GroupIdNotFound:
            return None

    async def join_group(
        self,
        group: str,
        protocols: Iterable[tuple[str, bytes]],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        protocol_type: str = CONSUMER,
        session_timeout: float = 10.0,
        rebalance_timeout: float | None = None,
        reason: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> JoinedGroup:
        """Join a group and wait until the generation is complete.

        ``protocols`` are (name, metadata) pairs, most wanted first; ``default_protocol`` makes one.
        A new member first gets its id and joins with it again (KIP-394). ``rebalance_timeout`` is
        how long the others have to join, by default as long as the session.
        """
        patience = session_timeout if rebalance_timeout is None else rebalance_timeout
        offered = [{"name": name, "metadata": metadata} for name, metadata in protocols]
        member = member_id

        def body(version: int, connection: Connection) -> dict[str, Any]:
            if instance_id is not None:
                require = connection.versions.require
                require("JoinGroup", version, "an instance id", STATIC_JOIN)
            return {
                "group_id": group,
                "session_timeout_ms": round(session_timeout * 1000),
                "rebalance_timeout_ms": round(patience * 1000),
                "member_id": member,
                "group_instance_id": instance_id,
                "protocol_type": protocol_type,
                "protocols": offered,
                "reason": reason,
            }

        request = Request(
            "JoinGroup",
            Node.coordinator(group),
            body,
            api_version,
            self._config.request_timeout + patience,
        )

        async def attempt() -> JoinedGroup:
            nonlocal member
            try:
                reply = await self._send(request)
                if reply.message.error_code == MemberIdRequired.code and not member:
                    member = reply.message.member_id
                    reply = await self._send(request)
                return _checked(
                    reply, "JoinGroup", lambda found: _read_joined(found, group), group=group
                )
            except BrokerError as error:
                self._cluster.learn(error, request.to)
                raise

        return await self._attempts(attempt, retries=retries, retryable=is_consumer_group_retriable)

    async def sync_group(
        self,
        group: str,
        *,
        generation: int,
        member_id: str,
        assignments: Mapping[str, Assignment] | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> GroupAssignment:
        """Hand out assignments, if this member is the leader, and get one's own.

        An assignment is a mapping of topics to partitions, such a mapping and user data, or bytes
        in a protocol of one's own.
        """
        handed = [
            {"member_id": member, "assignment": _assignment_bytes(assignment)}
            for member, assignment in (assignments or {}).items()
        ]

        def body(version: int, connection: Connection) -> dict[str, Any]:
            if instance_id is not None:
                connection.versions.require("SyncGroup", version, "an instance id", STATIC_SYNC)
            return {
                "group_id": group,
                "generation_id": generation,
                "member_id": member_id,
                "group_instance_id": instance_id,
                "protocol_type": protocol_type,
                "protocol_name": protocol,
                "assignments": handed,
            }

        return await self._coordinate(
            "SyncGroup", group, body, _read_assignment, api_version=api_version, retries=retries
        )

    async def heartbeat(
        self,
        group: str,
        *,
        generation: int,
        member_id: str,
        instance_id: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Tell the coordinator that a member is alive; RebalanceInProgress says to join again."""

        def body(version: int, connection: Connection) -> dict[str, Any]:
            if instance_id is not None:
                connection.versions.require(
                    "Heartbeat", version, "an instance id", STATIC_HEARTBEAT
                )
            return {
                "group_id": group,
                "generation_id": generation,
                "member_id": member_id,
                "group_instance_id": instance_id,
            }

        await self._coordinate(
            "Heartbeat", group, body, _nothing, api_version=api_version, retries=retries
        )

    async def leave_group(
        self,
        group: str,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        reason: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Take a member out of its group; a static one is named by its instance id alone."""

        def body(version: int, connection: Connection) -> dict[str, Any]:
            if version >= FIRST_WITH_LEAVERS:
                member = {"member_id": member_id, "group_instance_id": instance_id}
                return {"group_id": group, "members": [{**member, "reason": reason}]}
            if instance_id is not None:
                connection.versions.require(
                    "LeaveGroup", version, "an instance id", FIRST_WITH_LEAVERS
                )
            return {"group_id": group, "member_id": member_id}

        await self._coordinate(
            "LeaveGroup", group, body, _read_left, api_version=api_version, retries=retries
        )

    async def _coordinate(
        self,
        name: str,
        group: str,
        body: Callable[[int, Connection], Body],
        read: Callable[[Reply], T],
        *,
        api_version: int | None,
        retries: int | None,
    ) -> T:
        """A request to a group's coordinator whose answer begins with an error code."""
        return await self._call(
            Request(name, Node.coordinator(group), body, api_version),
            lambda reply: _checked(reply, name, read, group=group),
            retries=retries,
            retryable=is_consumer_group_retriable,
        )

    @staticmethod
    def default_protocol(
        name: str = "range",
        version: int = 0,
        topics: Iterable[str] = (),
        user_data: bytes | None = None,
    ) -> tuple[str, bytes]:
        """A protocol to offer in ``join_group``: its name, and a subscription to topics."""
        body = {"topics": list(topics), "user_data": user_data}
        return name, encode_subscription(body, version)


def _checked(reply: Reply, name: str, read: Callable[[Reply], T], **more: Any) -> T:
    """Raise the error of an answer, or read it."""
    error = error_for(reply.message.error_code, **reply.context(name, **more))
    if error is not None:
        raise error
    return read(reply)


def _nothing(_: Reply) -> None:
    return None


def _read_listing(reply: Reply) -> list[GroupListing]:
    return _checked(
        reply,
        "ListGroups",
        lambda _: [
            GroupListing(
                one.group_id,
                one.protocol_type,
                one.group_state or None,
                one.group_type or None,
                reply.connection.peer.broker_id,
            )
            for one in reply.message.groups
        ],
    )


def _read_description(reply: Reply, group: str) -> GroupDescription:
    found = _only(reply, "DescribeGroups", reply.message.groups, group)
    members = tuple(_member(one) for one in found.members)
    return GroupDescription(
        group,
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        members=members,
        coordinator_id=reply.connection.peer.broker_id,
        authorized_operations=operations_in(found.authorized_operations),
    )


def _only(reply: Reply, name: str, groups: Iterable[Any], group: str) -> Any:
    """The entry about a group, which has its own error."""
    context = reply.context(name, group=group)
    found = next((one for one in groups if one.group_id == group), None)
    if found is None:
        raise RemoteProtocolError("the answer does not speak of the group", **context)
    error = error_for(found.error_code, found.error_message, **context)
    if error is not None:
        raise error
    return found


def _member(entry: Any) -> MemberDescription:
    topics, assignment = None, None
    try:
        topics = tuple(decode_subscription(entry.member_metadata).topics)
        assignment = _partitions(decode_assignment(entry.member_assignment))
    except RemoteProtocolError:
        pass  # the group speaks a protocol of its own; its bytes are there
    return MemberDescription(
        entry.member_id,
        entry.client_id,
        entry.client_host,
        entry.group_instance_id,
        topics=topics,
        assignment=assignment,
        metadata_bytes=bytes(entry.member_metadata),
        assignment_bytes=bytes(entry.member_assignment),
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(entry.topic, partition)
        for entry in assignment.assigned_partitions
        for partition in entry.partitions
    )


def _read_new_description(reply: Reply, group: str) -> GroupDescription:
    found = _only(reply, "ConsumerGroupDescribe", reply.message.groups, group)
    members = tuple(
        MemberDescription(
            one.member_id,
            one.client_id,
            one.client_host,
            one.instance_id,
            one.rack_id,
            tuple(one.subscribed_topic_names),
            _new_partitions(one.assignment),
            _new_partitions(one.target_assignment),
            one.member_epoch,
        )
        for one in found.members
    )
    return GroupDescription(
        group,
        found.group_state,
        CONSUMER,
        found.assignor_name,
        CONSUMER,
        members,
        reply.connection.peer.broker_id,
        found.group_epoch,
        operations_in(found.authorized_operations),
    )


def _new_partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(entry.topic_name, partition)
        for entry in assignment.topic_partitions
        for partition in entry.partitions
    )


def _read_joined(reply: Reply, group: str) -> JoinedGroup:
    answer = reply.message
    return JoinedGroup(
        group,
        answer.generation_id,
        answer.member_id,
        answer.leader,
        answer.protocol_name,
        answer.protocol_type,
        tuple(
            GroupMember(one.member_id, bytes(one.metadata), one.group_instance_id)
            for one in answer.members
        ),
        answer.skip_assignment,
    )


def _read_assignment(reply: Reply) -> GroupAssignment:
    data = bytes(reply.message.assignment)
    if not data:
        return GroupAssignment(())
    try:
        decoded = decode_assignment(data)
    except RemoteProtocolError:
        return GroupAssignment((), assignment_bytes=data)
    user_data = None if decoded.user_data is None else bytes(decoded.user_data)
    return GroupAssignment(_partitions(decoded), user_data, data)


def _read_left(reply: Reply) -> None:
    for member in reply.message.members:
        error = error_for(member.error_code, **reply.context("LeaveGroup", member=member.member_id))
        if error is not None:
            raise error


def _assignment_bytes(assignment: Assignment) -> bytes:
    if isinstance(assignment, bytes):
        return assignment
    topics, user_data = assignment if isinstance(assignment, tuple) else (assignment, None)
    assigned = [{"topic": topic, "partitions": [*numbers]} for topic, numbers in topics.items()]
    body = {"assigned_partitions": assigned, "user_data": user_data}
    return encode_assignment(body, ASSIGNMENT_VERSION)
