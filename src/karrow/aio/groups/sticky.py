"""The assignors that leave partitions where they are: sticky and cooperative-sticky.

1. Members tell what they owned and since which generation. Where two claim a partition, the later
   generation is right; in the same generation neither is, and the partition is nobody's.
2. What a member no longer subscribes to and what no longer exists is not its own.
3. Then partitions are balanced (see balance.py).
4. sticky is eager: members give up everything before they join, so what they owned travels in the
   user data, in the form of Kafka's own StickyAssignor.
5. cooperative-sticky keeps what it owns while joining, so that stands in the subscription; the user
   data only repeats the generation, for leaders that read subscriptions before version 2.
6. cooperative-sticky withholds a partition that somebody else still claims. That one sees that it
   lost it, gives it up and joins again; then it is free.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from karrow.aio.groups.assignment import (
    NO_GENERATION,
    Assignment,
    Rebalance,
    Subscription,
    subscribed_topics,
)
from karrow.aio.groups.balance import balanced
from karrow.types import TopicPartition

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")


class Claim(NamedTuple):
    """What a member says it owns, and in which generation it got it."""

    partitions: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION


class Sticky:
    """Balanced, and as much as possible as it was; eager."""

    name = "sticky"
    protocol: Rebalance = "eager"
    version = 0

    def __init__(self) -> None:
        self._last: Claim | None = None

    def subscription(
        self, _topics: Sequence[str], _owned: Sequence[TopicPartition], _generation: int, /
    ) -> bytes | None:
        """What the member was given last: by now it owns nothing any more."""
        return None if self._last is None else encode_claim(self._last)

    def assigned(self, assignment: Assignment, generation: int, /) -> None:
        """Remember it for the next time."""
        self._last = Claim(frozenset(assignment.partitions), generation)

    def assign(
        self, cluster: Mapping[str, int], members: Mapping[str, Subscription], /
    ) -> dict[str, Assignment]:
        """A balance that keeps to what members owned."""
        claims = {member: decode_claim(one.user_data) for member, one in members.items()}
        found = _assign(cluster, members, _owners(claims))
        return {member: Assignment(tuple(found[member])) for member in members}


class CooperativeSticky:
    """Balanced, and as much as possible as it was; members read on while partitions move."""

    name = "cooperative-sticky"
    protocol: Rebalance = "cooperative"
    version = 0

    def subscription(
        self, _topics: Sequence[str], _owned: Sequence[TopicPartition], generation: int, /
    ) -> bytes | None:
        """The generation."""
        return INT32.pack(generation)

    def assign(
        self, cluster: Mapping[str, int], members: Mapping[str, Subscription], /
    ) -> dict[str, Assignment]:
        """A balance that keeps to what members own, without what others have to give up first."""
        claims = {member: _claim(one) for member, one in members.items()}
        owners = _owners(claims)
        claimants = Counter(one for claim in claims.values() for one in claim.partitions)

        def free(partition: TopicPartition, member: str) -> bool:
            others = claimants[partition] - (partition in claims[member].partitions)
            return not others or owners.get(partition) == member

        found = _assign(cluster, members, owners)
        return {
            member: Assignment(tuple(one for one in found[member] if free(one, member)))
            for member in members
        }


def _assign(
    cluster: Mapping[str, int],
    members: Mapping[str, Subscription],
    owners: Mapping[TopicPartition, str],
) -> dict[str, list[TopicPartition]]:
    sizes = subscribed_topics(cluster, members.values())
    wanted = {member: frozenset(one.topics).intersection(sizes) for member, one in members.items()}
    sound = {
        partition: member
        for partition, member in owners.items()
        if partition.topic in wanted[member] and 0 <= partition.partition < sizes[partition.topic]
    }
    return balanced(sizes, wanted, sound)


def _owners(claims: Mapping[str, Claim]) -> dict[TopicPartition, str]:
    """Whose each claimed partition is; without those that are nobody's."""
    latest: dict[TopicPartition, int] = {}
    found: dict[TopicPartition, str] = {}
    for member, claim in claims.items():
        for partition in claim.partitions:
            known = latest.get(partition)
            if known is None or claim.generation > known:
                latest[partition] = claim.generation
                found[partition] = member
            elif claim.generation == known:
                found.pop(partition, None)
    return found


def _claim(member: Subscription) -> Claim:
    """What a cooperative member claims; before version 2 the generation is in the user data.

    Kafka's own clients put nothing else there, librdkafka what belongs to the eager assignor.
    """
    generation, data = member.generation, member.user_data
    if generation < 0 and data is not None:
        alone = len(data) == INT32.size
        generation = INT32.unpack(data)[0] if alone else decode_claim(data).generation
    return Claim(frozenset(member.owned_partitions), generation)


def encode_claim(claim: Claim) -> bytes:
    """A claim as Kafka's StickyAssignor writes it, in version 1: with the generation."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(claim.partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [INT32.pack(len(topics))]
    for topic, partitions in topics.items():
        name = topic.encode()
        parts += INT16.pack(len(name)), name, INT32.pack(len(partitions))
        parts += map(INT32.pack, partitions)
    return b"".join([*parts, INT32.pack(claim.generation)])


def decode_claim(data: bytes | None) -> Claim:
    """What a member claims; nothing if that cannot be read.

    Version 0 has no generation, and only kafka-python says which version it is, in front.
    """
    for start in (0, INT16.size):
        reader = _Reader(data or b"", start)
        try:
            partitions = frozenset(reader.partitions())
            with_generation = reader.left >= INT32.size
            return Claim(partitions, reader.number(INT32) if with_generation else NO_GENERATION)
        except (struct.error, ValueError):
            continue
    return Claim()


class _Reader:
    """Numbers and names out of user data, or ValueError or struct.error."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._at = start

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self, kind: struct.Struct) -> int:
        (found,) = kind.unpack_from(self._data, self._at)
        self._at += kind.size
        return int(found)

    def partitions(self) -> Iterable[TopicPartition]:
        for _ in range(self._count(INT32)):
            length = self._count(INT16)
            topic = self._data[self._at : self._at + length].decode()
            self._at += length
            for _ in range(self._count(INT32)):
                yield TopicPartition(topic, self.number(INT32))

    def _count(self, kind: struct.Struct) -> int:
        found = self.number(kind)
        if not 0 <= found <= self.left:
            raise ValueError(f"{found} of something, with {self.left} bytes left")
        return found
