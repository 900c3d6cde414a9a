"""What members of groups ask of their coordinator: how, and the requests of classic groups.

Rules:
- Each of them is sent once; whether and when it is sent again is up to the membership. After a
  failure that may mean so, the coordinator is looked for again with the next one.
- Joins and syncs of classic groups are held by the broker and travel alone. Heartbeats have a
  connection of their own: behind a commit that waits for replicas they would be late.
- A join may take as long as the group has for it, and a little more; ``request_timeout`` would cut
  it off in every rebalance that takes its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.aio.calls.groups import CONSUMER, checked
from karrow.aio.calls.membership import nothing, read_joined
from karrow.errors import ConfigError, MemberIdRequired, error_for
from karrow.types import GroupMetadata, JoinedGroup, Node

if TYPE_CHECKING:
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection
    from karrow.wire.codec import Body

T = TypeVar("T")

# The versions that brought static members (KIP-345), lists of leaving members, and the need to
# name the protocol when asking for the assignment (KIP-559).
STATIC_JOIN = 5
STATIC_SYNC = 3
STATIC_HEARTBEAT = 3
FIRST_WITH_LEAVERS = 3
NEWEST_UNNAMED_SYNC = 4
# Newer questions for versions say who asks.
NEWEST_BARE_VERSIONS = 2
# What a join may take beyond the rebalance: the broker begins to count when it has read it.
SLACK = 5.0
# Brokers store reasons (KIP-800); they need not be novels.
LONGEST_REASON = 255


class IdGiven(NamedTuple):
    """A new member's id, to join with in earnest (KIP-394)."""

    member_id: str


class CoordinatorCalls(Calls):
    """A request to the coordinator, sent once."""

    _config: ConsumerConfig

    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        super().__init__(config, cluster)
        if config.group is None:
            raise ConfigError("a member needs the option group")
        self.group = config.group
        self._to = Node.coordinator(config.group)


class ClassicCalls(CoordinatorCalls):
    """The requests of classic groups."""

    async def _join_group(
        self, member_id: str, protocols: Iterable[tuple[str, bytes]], reason: str
    ) -> JoinedGroup | IdGiven:
        """Join, and wait until the generation is complete; or be told the id to do it with."""
        config = self._config
        offered = [{"name": name, "metadata": metadata} for name, metadata in protocols]

        def body(version: int, connection: Connection) -> dict[str, Any]:
            self._require_static("JoinGroup", version, connection, STATIC_JOIN)
            return {
                "group_id": self.group,
                "session_timeout_ms": round(config.session_timeout * 1000),
                "rebalance_timeout_ms": round(config.rebalance_time * 1000),
                "member_id": member_id,
                "group_instance_id": config.instance_id,
                "protocol_type": CONSUMER,
                "protocols": offered,
                "reason": reason[:LONGEST_REASON],
            }

        def read(reply: Reply) -> JoinedGroup | IdGiven:
            if reply.message.error_code == MemberIdRequired.code and not member_id:
                return IdGiven(reply.message.member_id)
            return checked(
                reply, "JoinGroup", lambda found: read_joined(found, self.group), group=self.group
            )

        limit = max(config.request_timeout, config.rebalance_time + SLACK)
        return await self._once(Request("JoinGroup", self._to, body, limit=limit), read)

    async def _sync_group(self, joined: JoinedGroup, assignments: Mapping[str, bytes]) -> bytes:
        """Hand out assignments, as the leader, and get one's own."""
        handed = [{"member_id": member, "assignment": data} for member, data in assignments.items()]

        def body(version: int, connection: Connection) -> dict[str, Any]:
            self._require_static("SyncGroup", version, connection, STATIC_SYNC)
            return {
                **self._named(joined.generation, joined.member_id),
                "protocol_type": joined.protocol_type,
                "protocol_name": joined.protocol,
                "assignments": handed,
            }

        # A broker that did not name the type in the join does not want to hear it either.
        most = NEWEST_UNNAMED_SYNC if joined.protocol_type is None else None
        return await self._coordinate(
            "SyncGroup", body, lambda reply: bytes(reply.message.assignment), most=most
        )

    async def _heartbeat(self, member: GroupMetadata, limit: float) -> None:
        """Tell that a member is alive; within ``limit`` seconds, or not on this connection."""

        def body(version: int, connection: Connection) -> dict[str, Any]:
            self._require_static("Heartbeat", version, connection, STATIC_HEARTBEAT)
            return self._named(member.generation, member.member_id)

        await self._coordinate("Heartbeat", body, nothing, limit=limit)

    async def _ask_for_life(self) -> None:
        """Ask what every broker answers at once, whoever asks."""
        asked = Request("ApiVersions", self._to, lambda *_: {}, most=NEWEST_BARE_VERSIONS)
        await self._once(asked, lambda _: None)

    async def _leave_group(self, member_id: str, reason: str) -> None:
        """Take the member out of the group."""

        def body(version: int, connection: Connection) -> dict[str, Any]:
            if version < FIRST_WITH_LEAVERS:
                self._require_static("LeaveGroup", version, connection, FIRST_WITH_LEAVERS)
                return {"group_id": self.group, "member_id": member_id}
            member = {
                "member_id": member_id,
                "group_instance_id": self._config.instance_id,
                "reason": reason[:LONGEST_REASON],
            }
            return {"group_id": self.group, "members": [member]}

        await self._coordinate("LeaveGroup", body, _left)

    # ---- how

    def _named(self, generation: int, member_id: str) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": self._config.instance_id,
        }

    def _require_static(self, name: str, version: int, way: Connection, since: int) -> None:
        if self._config.instance_id is not None:
            way.versions.require(name, version, "an instance id", since)

    async def _coordinate(
        self,
        name: str,
        body: Callable[[int, Connection], Body],
        read: Callable[[Reply], T],
        *,
        limit: float | None = None,
        most: int | None = None,
    ) -> T:
        return await self._once(
            Request(name, self._to, body, limit=limit, most=most),
            lambda reply: checked(reply, name, read, group=self.group),
        )


def _left(reply: Reply) -> None:
    for member in reply.message.members:
        error = error_for(member.error_code, **reply.context("LeaveGroup", member=member.member_id))
        if error is not None:
            raise error
