"""Groups: how they are listed and described, their members, their committed offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karrow.errors import KarrowError
    from karrow.types.topics import TopicPartition

__all__ = [
    "CommittedOffset",
    "GroupAssignment",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "JoinedGroup",
    "MemberDescription",
]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as ListGroups names it.

    ``state`` is known since Kafka 2.6 (KIP-518), ``type`` ("classic", "consumer", "share", ...)
    since 3.8 (KIP-848).
    """

    __module__ = "karrow"

    group: str
    protocol_type: str = ""
    state: str | None = None
    type: str | None = None
    broker_id: int | None = None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group and what it was given.

    ``topics`` and ``assignment`` are None when they are not in the consumer protocol; the bytes
    are the member's own, as it sent and got them (empty in the protocol of KIP-848).
    """

    __module__ = "karrow"

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack: str | None = None
    topics: tuple[str, ...] | None = None
    assignment: tuple[TopicPartition, ...] | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    member_epoch: int | None = None
    metadata_bytes: bytes = b""
    assignment_bytes: bytes = b""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its state and its members; ``error`` is set when it could not be described.

    ``protocol`` is the assignor the members agreed on. ``epoch`` only exists in the protocol of
    KIP-848.
    """

    __module__ = "karrow"

    group: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    type: str = "classic"
    members: tuple[MemberDescription, ...] = ()
    coordinator_id: int | None = None
    epoch: int | None = None
    authorized_operations: frozenset[str] | None = None
    error: KarrowError | None = field(default=None, compare=False)

    @property
    def active(self) -> bool:
        """Whether it has members, so that its offsets must not be changed from outside."""
        return bool(self.members)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as the leader of a classic group sees it after joining."""

    __module__ = "karrow"

    member_id: str
    metadata_bytes: bytes
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who a consumer is in its group, for offsets that are part of a transaction (KIP-447).

    With a generation and a member's id the broker refuses offsets of a member that was replaced;
    the name of the group alone is for those who read without being members.
    """

    __module__ = "karrow"

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class JoinedGroup:
    """Answer to JoinGroup: this member's place in the new generation.

    ``members`` is empty except for the leader, who assigns partitions to them in SyncGroup.
    """

    __module__ = "karrow"

    group: str
    generation: int
    member_id: str
    leader_id: str
    protocol: str | None
    protocol_type: str | None = None
    members: tuple[GroupMember, ...] = ()
    skip_assignment: bool = False

    @property
    def is_leader(self) -> bool:
        """Whether this member computes the assignment."""
        return self.member_id == self.leader_id


@dataclass(frozen=True, slots=True)
class GroupAssignment:
    """What a member got in SyncGroup; ``user_data`` is the leader's, as are the raw bytes."""

    __module__ = "karrow"

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
    assignment_bytes: bytes = b""

    @property
    def topics(self) -> Mapping[str, tuple[int, ...]]:
        """The partitions by topic."""
        topics: dict[str, tuple[int, ...]] = {}
        for topic, partition in self.partitions:
            topics[topic] = (*topics.get(topic, ()), partition)
        return topics


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The position a group stored for a partition: the next offset to read.

    ``offset`` is None when nothing is stored.
    """

    __module__ = "karrow"

    offset: int | None
    leader_epoch: int | None = None
    metadata: str = ""
    error: KarrowError | None = field(default=None, compare=False)
