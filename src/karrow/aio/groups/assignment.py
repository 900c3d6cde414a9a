"""What assignors are given and give back, and what an assignor is.

Every member offers assignors by name. The group agrees on one that all of them offer, and the
member that leads the group asks its own assignor of that name who gets what.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from karrow.types import TopicPartition

Rebalance = Literal["eager", "cooperative"]
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member said of itself when it joined.

    ``owned_partitions`` are those it still reads, given to it in ``generation``; ``user_data`` is
    its assignor's. ``instance_id`` is the name of a static member.
    """

    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member is to read; ``user_data`` goes from the leader's assignor to the member's."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


class Assignor(Protocol):
    """Decides who gets which partition; one object serves one consumer."""

    @property
    def name(self) -> str:
        """What the members of a group know it by."""

    @property
    def protocol(self) -> Rebalance:
        """What members do before they join again.

        Those of an eager one give up everything they own. Those of a cooperative one keep it, so
        it must not give a partition to a member while another one owns it.
        """

    @property
    def version(self) -> int:
        """The version of its user data and rules."""

    def subscription(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int, /
    ) -> bytes | None:
        """User data for the leader.

        ``owned`` is what the member keeps while it joins, and when that was given to it.
        """

    def assign(
        self, cluster: Mapping[str, int], members: Mapping[str, Subscription], /
    ) -> Mapping[str, Assignment]:
        """Everybody's assignment, by member id; ``cluster`` has the topics' partition counts.

        Topics that the cluster does not have are passed over.
        """


@runtime_checkable
class Remembering(Assignor, Protocol):
    """An assignor that wants to hear what its own member was given."""

    def assigned(self, assignment: Assignment, generation: int, /) -> None:
        """The member has got an assignment, as the leader or not."""


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Member ids, static members first and by the names that outlive their ids."""

    def place(member: str) -> tuple[bool, str]:
        instance = members[member].instance_id
        return instance is None, member if instance is None else instance

    return sorted(members, key=place)


def subscribed_topics(
    cluster: Mapping[str, int], members: Iterable[Subscription]
) -> dict[str, int]:
    """The topics of the cluster that anybody wants, with their sizes, by name."""
    wanted = {topic for member in members for topic in member.topics}
    return {topic: cluster[topic] for topic in sorted(wanted) if topic in cluster}
