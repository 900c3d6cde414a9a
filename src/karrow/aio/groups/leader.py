"""What a member does for its group: its subscription for the leader, and the leader's assignment.

Rules:
- Subscriptions go out in the newest version: older readers ignore what they do not know.
- What a member says that cannot be read counts as no subscription: it gets nothing, and the others
  are served all the same.
- Topics that do not exist are passed over, and watched: when they come, the group is divided anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from karrow.aio.calls.groups import assigned_partitions
from karrow.aio.groups.assignment import Assignment, Assignor, Subscription
from karrow.errors import InconsistentGroupProtocol, RemoteProtocolError, UnknownTopicOrPartition
from karrow.types import ClusterMetadata, GroupMember, TopicPartition
from karrow.wire import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

if TYPE_CHECKING:
    from karrow.net.cluster import Cluster

# Fields have only been added to subscriptions; assignments are alike in all versions.
ASSIGNMENT_VERSION = 0


def offered(
    assignors: Iterable[Assignor],
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
) -> list[tuple[str, bytes]]:
    """The protocols of a join: for each assignor what it wants the leader to know."""
    names, kept = sorted(topics), sorted(owned)
    fields = {
        "topics": names,
        "owned_partitions": _by_topic(kept),
        "generation_id": generation,
        "rack_id": rack,
    }
    return [
        (
            one.name,
            encode_subscription({**fields, "user_data": one.subscription(names, kept, generation)}),
        )
        for one in assignors
    ]


def understood(member: GroupMember) -> Subscription:
    """What a member said of itself."""
    try:
        said = decode_subscription(member.metadata_bytes)
    except RemoteProtocolError:
        return Subscription((), instance_id=member.instance_id)
    return Subscription(
        tuple(said.topics),
        tuple(
            TopicPartition(entry.topic, number)
            for entry in said.owned_partitions
            for number in entry.partitions
        ),
        None if said.user_data is None else bytes(said.user_data),
        said.generation_id,
        said.rack_id,
        member.instance_id,
    )


def received(data: bytes) -> Assignment:
    """A member's own assignment; no bytes are no partitions."""
    if not data:
        return Assignment()
    found = decode_assignment(data)
    user_data = None if found.user_data is None else bytes(found.user_data)
    return Assignment(assigned_partitions(found), user_data)


def handed(assignments: Mapping[str, Assignment]) -> dict[str, bytes]:
    """Everybody's assignment, as a sync carries it."""
    return {
        member: encode_assignment(
            {"assigned_partitions": _by_topic(one.partitions), "user_data": one.user_data},
            ASSIGNMENT_VERSION,
        )
        for member, one in assignments.items()
    }


def agreed(assignors: Iterable[Assignor], name: str | None) -> Assignor:
    """The assignor that the group has chosen."""
    for one in assignors:
        if one.name == name:
            return one
    raise InconsistentGroupProtocol(f"the group has chosen {name!r}, which was not offered")


class Census:
    """How many partitions the group's topics have, and whether that is still so."""

    def __init__(self, cluster: Cluster, topics: Iterable[str]) -> None:
        self._cluster = cluster
        self._topics = frozenset(topics)
        # Topics that do not exist have none.
        self.sizes: dict[str, int] = {}

    @property
    def known(self) -> dict[str, int]:
        """The topics that exist."""
        return {topic: size for topic, size in self.sizes.items() if size}

    @property
    def is_complete(self) -> bool:
        """Whether all topics exist."""
        return len(self.known) == len(self._topics)

    @property
    def is_whole(self) -> bool:
        """Whether all topics exist, and none of them has gone missing since."""
        return self.is_complete and self._topics <= self._cluster.cache.snapshot.topics.keys()

    async def take(self) -> None:
        """Count."""
        self.sizes = dict.fromkeys(self._topics, 0) | self._counted(await self._ask())

    async def take_again(self) -> bool:
        """Ask, and tell whether anything has changed."""
        return self._differs(self._counted(await self._ask()))

    def has_changed(self) -> bool:
        """Whether anything is known by now that has changed, without asking."""
        return self._differs(self._counted(self._cluster.cache.snapshot))

    async def _ask(self) -> ClusterMetadata:
        if not self._topics:
            return ClusterMetadata()
        return await self._cluster.refresh(self._topics)

    def _counted(self, said: ClusterMetadata) -> dict[str, int]:
        """Only what is certain: a topic that cannot be described now has not changed."""
        found: dict[str, int] = {}
        for name in self._topics:
            topic = said.topics.get(name)
            if topic is None:
                continue
            if topic.partitions:
                found[name] = len(topic.partitions)
            elif isinstance(topic.error, UnknownTopicOrPartition):
                found[name] = 0
        return found

    def _differs(self, counted: Mapping[str, int]) -> bool:
        return any(self.sizes.get(topic, 0) != size for topic, size in counted.items())


def _by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]
