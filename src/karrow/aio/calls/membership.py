"""Taking part in a classic group, step by step: join, sync, heartbeat, leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.aio.calls.groups import CONSUMER, assigned_partitions, checked
from karrow.errors import BrokerError, MemberIdRequired, RemoteProtocolError, error_for
from karrow.net.retry import is_consumer_group_retriable
from karrow.types import GroupAssignment, GroupMember, JoinedGroup, Node
from karrow.wire import decode_assignment, encode_assignment, encode_subscription

if TYPE_CHECKING:
    from karrow.net.connection import Connection
    from karrow.wire.codec import Body

    Assignment = (
        bytes | Mapping[str, Iterable[int]] | tuple[Mapping[str, Iterable[int]], bytes | None]
    )

T = TypeVar("T")

# The versions that brought static members, and several leaving members.
STATIC_JOIN = 5
STATIC_SYNC = 3
NAMED_SYNC = 5
STATIC_HEARTBEAT = 3
FIRST_WITH_LEAVERS = 3
ASSIGNMENT_VERSION = 0


class MembershipCalls(Calls):
    """Calls that a member makes."""

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
                return checked(
                    reply, "JoinGroup", lambda found: read_joined(found, group), group=group
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

        # From version 5 on a broker refuses who does not name the protocol agreed upon.
        most = None if protocol_type is not None and protocol is not None else NAMED_SYNC - 1
        return await self._coordinate(
            "SyncGroup",
            group,
            body,
            _read_assignment,
            api_version=api_version,
            retries=retries,
            most=most,
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
            "Heartbeat", group, body, nothing, api_version=api_version, retries=retries
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
        most: int | None = None,
    ) -> T:
        """A request to a group's coordinator whose answer begins with an error code."""
        return await self._call(
            Request(name, Node.coordinator(group), body, api_version, most=most),
            lambda reply: checked(reply, name, read, group=group),
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


def nothing(_: Reply) -> None:
    """An answer that only has to be without an error."""
    return


def read_joined(reply: Reply, group: str) -> JoinedGroup:
    """An answer to JoinGroup."""
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
    return GroupAssignment(assigned_partitions(decoded), user_data, data)


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
