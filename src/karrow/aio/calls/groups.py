"""Groups as others see them: their coordinators, their states, their members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.errors import (
    GroupIdNotFound,
    RemoteProtocolError,
    error_for,
)
from karrow.types import (
    Coordinator,
    CoordinatorKind,
    GroupDescription,
    GroupListing,
    MemberDescription,
    Node,
    TopicPartition,
)
from karrow.types.acls import operations_in
from karrow.wire import (
    decode_assignment,
    decode_subscription,
)

if TYPE_CHECKING:
    from karrow.net.connection import Connection

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


def checked(reply: Reply, name: str, read: Callable[[Reply], T], **more: Any) -> T:
    """Raise the error of an answer, or read it."""
    error = error_for(reply.message.error_code, **reply.context(name, **more))
    if error is not None:
        raise error
    return read(reply)


def assigned_partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    """The partitions in an assignment of the consumer protocol."""
    return tuple(
        TopicPartition(entry.topic, partition)
        for entry in assignment.assigned_partitions
        for partition in entry.partitions
    )


def _read_listing(reply: Reply) -> list[GroupListing]:
    return checked(
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
        assignment = assigned_partitions(decode_assignment(entry.member_assignment))
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
