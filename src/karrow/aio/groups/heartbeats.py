"""The heartbeats of groups whose partitions the broker divides (KIP-848): one request for all.

Rules:
- A heartbeat says only what has changed since the last one that was answered; after a failure, and
  when it joins, it says everything.
- Version 1 lets the member choose its id (KIP-1082), which it keeps for its whole life, and has
  patterns, which the broker matches (KIP-848, RE2). In version 0 the broker gives the id.
- Topics are named by their ids.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from karrow.aio.calls.base import Request
from karrow.aio.groups.coordinator import CoordinatorCalls
from karrow.errors import (
    InvalidRegularExpression,
    KarrowError,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
    error_for,
)
from karrow.types import Node

if TYPE_CHECKING:
    from karrow.aio.calls.base import Reply
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection

API = "ConsumerGroupHeartbeat"
FIRST_BY_CLIENTS = 1  # ids and patterns
METADATA_BY_ID = 12
# Epochs with a meaning: to join, to leave, and to leave while the instance's place is kept.
JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
NO_PATTERN = ""

HINTS: Mapping[type[KarrowError], str] = {
    UnsupportedVersion: (
        "protocol='consumer' needs Kafka 4.0, or an older one with the feature group.version "
        "switched on; protocol='classic' works with all"
    ),
    UnsupportedAssignor: (
        "remote_assignor names it; brokers have those of group.consumer.assignors"
    ),
    UnreleasedInstanceId: "a member has this instance_id, until it leaves or its session ends",
    InvalidRegularExpression: "brokers match patterns by RE2",
}

IdPartition = tuple[UUID, int]


class Wishes(NamedTuple):
    """What a member says of itself; ``claimed`` is what it owns, or is about to."""

    topics: frozenset[str]
    pattern: str | None
    claimed: frozenset[IdPartition]


class Beaten(NamedTuple):
    """The answer: the assignment is None where it is as before."""

    member_id: str | None
    epoch: int
    interval: float
    assignment: frozenset[IdPartition] | None


class HeartbeatCalls(CoordinatorCalls):
    """The request, sent once."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        super().__init__(config, cluster)
        self.member_id = ""
        self._made_id = str(uuid.uuid4())
        self._said: dict[str, Any] = {}

    async def _consumer_heartbeat(self, epoch: int, wishes: Wishes, limit: float) -> Beaten:
        """Join, or tell that a member is alive and what has changed of it."""
        before, self._said = ({} if epoch == JOIN else self._said), {}
        said: dict[str, Any] = {}

        def body(version: int, _: Connection) -> dict[str, Any]:
            said.update(self._everything(version, wishes))
            news = {name: value for name, value in said.items() if before.get(name) != value}
            return {**self._identity(version, epoch), **news}

        found = await self._beaten(Request(API, self._to, body, limit=limit))
        self._said = said
        if found.assignment is not None:
            del said["topic_partitions"]  # said again, whether it has changed or not: it is heard
        return found

    async def _depart_for(self, epoch: int) -> None:
        """Leave, for good or for a while."""

        def body(version: int, _: Connection) -> dict[str, Any]:
            return self._identity(version, epoch)

        await self._beaten(Request(API, self._to, body))

    async def _names_of(self, ids: Iterable[UUID]) -> dict[UUID, str]:
        """The names of those topics that the cluster knows."""
        topics = [{"topic_id": one, "name": None} for one in ids]

        def body(version: int, connection: Connection) -> dict[str, Any]:
            connection.versions.require("Metadata", version, "topic ids", METADATA_BY_ID)
            return {"topics": topics, "allow_auto_topic_creation": False}

        reply = await self._send(Request("Metadata", Node.any(), body))
        return {one.topic_id: one.name for one in reply.message.topics if one.name is not None}

    # ---- what is said

    def _identity(self, version: int, epoch: int) -> dict[str, Any]:
        if not self.member_id and version >= FIRST_BY_CLIENTS:
            self.member_id = self._made_id
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": self._config.instance_id,
        }

    def _everything(self, version: int, wishes: Wishes) -> dict[str, Any]:
        config = self._config
        said: dict[str, Any] = {
            "rebalance_timeout_ms": round(config.rebalance_time * 1000),
            "subscribed_topic_names": [] if wishes.pattern is not None else sorted(wishes.topics),
            "topic_partitions": _by_topic(wishes.claimed),
        }
        if version >= FIRST_BY_CLIENTS:
            said["subscribed_topic_regex"] = wishes.pattern or NO_PATTERN
        elif wishes.pattern is not None:
            text = f"the broker does not match patterns, which takes {API} v{FIRST_BY_CLIENTS}"
            raise UnsupportedVersion(text, hint="name the topics", api=API, group=self.group)
        if config.remote_assignor is not None:
            said["server_assignor"] = config.remote_assignor
        if config.rack is not None:
            said["rack_id"] = config.rack
        return said

    # ---- how

    async def _beaten(self, request: Request) -> Beaten:
        try:
            return await self._once(request, self._read_beaten)
        except KarrowError as error:
            error.hint = error.hint or HINTS.get(type(error))
            raise

    def _read_beaten(self, reply: Reply) -> Beaten:
        answer = reply.message
        context = reply.context(API, group=self.group)
        error = error_for(answer.error_code, answer.error_message, **context)
        if error is not None:
            raise error
        given = None
        if answer.assignment is not None:
            given = frozenset(
                (one.topic_id, number)
                for one in answer.assignment.topic_partitions
                for number in one.partitions
            )
        interval = answer.heartbeat_interval_ms / 1000
        return Beaten(answer.member_id, answer.member_epoch, interval, given)


def _by_topic(partitions: Iterable[IdPartition]) -> list[dict[str, Any]]:
    topics: dict[UUID, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return [{"topic_id": topic, "partitions": numbers} for topic, numbers in topics.items()]
