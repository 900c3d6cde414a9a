"""Groups as others see them: their coordinators, their states, their members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.errors import (
    GroupIdNotFound,
    KarrowError,
    RemoteProtocolError,
    UnsupportedVersion,
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
# What brokers before 4.0 say of a group that does not exist (KIP-1043), and the oldest of one that
# has stored offsets and nothing else.
DEAD = "Dead"
DESCRIBE_NEW = "ConsumerGroupDescribe"
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
        to = Node.coordinator(group)

        async def ask(left: list[str]) -> Mapping[str, GroupDescription | KarrowError]:
            outcomes = await self._described(to, left, api_version)
            self._learn_all(outcomes.values(), to)
            return outcomes

        return (await self._call_many([group], ask, "describe_group", retries=retries))[group]

    async def _described(
        self, to: Node, groups: list[str], api_version: int | None = None
    ) -> dict[str, GroupDescription | KarrowError]:
        """Groups of one coordinator, asked for in the old protocol and then in the new one.

        Before version 6 the old one knows groups of the new one as dead, and calls those dead as
        well that do not exist.
        """
        request = Request(
            "DescribeGroups", to, lambda _version, _connection: {"groups": groups}, api_version
        )
        reply = await self._send(request)
        outcomes = _read_all(reply, request.name, groups, _description)
        absent = [group for group in groups if _is_absent(outcomes[group])]
        if absent and api_version is None and DESCRIBE_NEW in reply.connection.versions:
            outcomes |= await self._described_new(to, absent)
        return outcomes

    async def _described_new(
        self, to: Node, groups: list[str]
    ) -> dict[str, GroupDescription | KarrowError]:
        """Those among the groups that are of KIP-848."""
        request = Request(DESCRIBE_NEW, to, lambda _version, _connection: {"group_ids": groups})
        outcomes = _read_all(await self._send(request), request.name, groups, _new_description)
        # 3.9 advertises the API even where the new protocol is switched off.
        unknown = (GroupIdNotFound, UnsupportedVersion)
        return {group: found for group, found in outcomes.items() if not isinstance(found, unknown)}


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


def _is_absent(outcome: GroupDescription | KarrowError) -> bool:
    if isinstance(outcome, GroupDescription):
        return outcome.state == DEAD
    return isinstance(outcome, GroupIdNotFound)


def _read_all(
    reply: Reply, name: str, groups: list[str], read: Callable[[Any], GroupDescription]
) -> dict[str, GroupDescription | KarrowError]:
    """What the answer says of each group: a description, or an error of its own."""
    outcomes: dict[str, GroupDescription | KarrowError] = {}
    # 3.9 asks each partition of the topic with the offsets for all the groups, not only for its
    # own, and answers with everything it has heard: the entry that knows the group is the one.
    entries = {entry.group_id: entry for entry in reply.message.groups if entry.error_code}
    entries |= {entry.group_id: entry for entry in reply.message.groups if not entry.error_code}
    for group in groups:
        context = reply.context(name, group=group)
        entry = entries.get(group)
        if entry is None:
            text = "the answer does not speak of the group"
            outcomes[group] = RemoteProtocolError(text, **context)
            continue
        error = error_for(entry.error_code, entry.error_message, **context)
        found = replace(read(entry), coordinator_id=reply.connection.peer.broker_id)
        outcomes[group] = error or found
    return outcomes


def _description(found: Any) -> GroupDescription:
    return GroupDescription(
        found.group_id,
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        members=tuple(_member(one) for one in found.members),
        authorized_operations=operations_in(found.authorized_operations),
    )


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


def _new_description(found: Any) -> GroupDescription:
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
        found.group_id,
        found.group_state,
        CONSUMER,
        found.assignor_name,
        CONSUMER,
        members,
        epoch=found.group_epoch,
        authorized_operations=operations_in(found.authorized_operations),
    )


def _new_partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(entry.topic_name, partition)
        for entry in assignment.topic_partitions
        for partition in entry.partitions
    )
