"""Who gets which partition: the assignors that the broker has itself (KIP-848)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

Partition = tuple[UUID, int]
"""A topic's id and a partition."""

Assignment = dict[str, frozenset[Partition]]
"""Partitions by member."""


class Subscriber(NamedTuple):
    """A member, as assignors see it; ``order`` is what members are sorted by."""

    order: tuple[bool, str]
    topics: frozenset[UUID]
    owned: frozenset[Partition]


Assignor = Callable[[Mapping[str, Subscriber], Mapping[UUID, int]], Assignment]


def uniform(members: Mapping[str, Subscriber], sizes: Mapping[UUID, int]) -> Assignment:
    """As equal as subscriptions allow, and as little moved as that allows.

    ``sizes`` are the topics' numbers of partitions.
    """
    owned = {
        member_id: {p for p in member.owned if p[0] in member.topics and p[1] < sizes[p[0]]}
        for member_id, member in members.items()
    }
    taken = set().union(*owned.values())
    for topic, size in sorted(sizes.items()):
        wanting = [member_id for member_id, member in members.items() if topic in member.topics]
        for partition in range(size):
            if wanting and (topic, partition) not in taken:
                poorest = min(wanting, key=lambda member_id: len(owned[member_id]))
                owned[poorest].add((topic, partition))
    while _move_one(members, owned):
        pass
    return {member_id: frozenset(partitions) for member_id, partitions in owned.items()}


def _move_one(members: Mapping[str, Subscriber], owned: dict[str, set[Partition]]) -> bool:
    """Move a partition from a member that has two more than another one that wants it."""
    poorest = sorted(members, key=lambda member_id: len(owned[member_id]))
    for giver in reversed(poorest):
        for taker in poorest:
            if len(owned[giver]) - len(owned[taker]) < 2:
                break
            movable = [p for p in owned[giver] if p[0] in members[taker].topics]
            if movable:
                moved = max(movable)
                owned[giver].remove(moved)
                owned[taker].add(moved)
                return True
    return False


def by_range(members: Mapping[str, Subscriber], sizes: Mapping[UUID, int]) -> Assignment:
    """Of each topic a run of partitions per member, in the order of members: partitions with the
    same number of different topics meet in the same member.
    """
    found: dict[str, set[Partition]] = defaultdict(set)
    ordered = sorted(members, key=lambda member_id: members[member_id].order)
    for topic, size in sizes.items():
        wanting = [member_id for member_id in ordered if topic in members[member_id].topics]
        start = 0
        for index, member_id in enumerate(wanting):
            end = start + size // len(wanting) + (index < size % len(wanting))
            found[member_id].update((topic, partition) for partition in range(start, end))
            start = end
    return {member_id: frozenset(found[member_id]) for member_id in members}


# The first one is used where members name none.
ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": by_range}
