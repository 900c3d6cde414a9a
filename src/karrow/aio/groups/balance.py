"""Partitions over members: as equal as subscriptions allow, and as little moved as that allows.

1. A partition stays with its owner as long as that does not stand in the way of balance.
2. Where all subscriptions are equal, the members' numbers differ by at most one, and those that own
   the most keep one more.
3. Where they are not, nobody has two more than a member that could get one of them: directly, or
   down a chain in which each hands one on to the next. Whatever the criterion, there is no better
   balance than one without such a chain.
4. Nothing that is owned moves where handing out the rest well is enough for that balance. So a
   group that was balanced and then lost some partitions on their way to others, as cooperative ones
   do, is complete again in the next round instead of moving others in turn.
5. The outcome depends on names and numbers, never on the order in which they were told.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import pairwise

from karrow.types import TopicPartition


def balanced(
    sizes: Mapping[str, int],
    wanted: Mapping[str, frozenset[str]],
    owners: Mapping[TopicPartition, str],
) -> dict[str, list[TopicPartition]]:
    """Partitions by member.

    ``sizes`` has the topics and their numbers of partitions, ``wanted`` the members' topics and
    ``owners`` who owns what. Nothing is wanted or owned that is not in ``sizes``, and owners want
    what they own.
    """
    takers = {member: wanted[member] for member in sorted(wanted) if wanted[member]}
    alike = len(set(takers.values())) == 1
    found = _level(sizes, takers, owners) if alike else _Scales(sizes, takers, owners).level()
    return {member: sorted(found.get(member, ())) for member in wanted}


def _level(
    sizes: Mapping[str, int],
    members: Mapping[str, frozenset[str]],
    owners: Mapping[TopicPartition, str],
) -> dict[str, list[TopicPartition]]:
    """The simple case: all members want the same."""
    (topics,) = set(members.values())
    found: dict[str, list[TopicPartition]] = {member: [] for member in members}
    # By number first: what a member has too many of is then spread over its topics.
    for partition in sorted(owners, key=lambda one: (one.partition, one.topic)):
        found[owners[partition]].append(partition)
    each, extra = divmod(sum(sizes[topic] for topic in topics), len(members))
    quota = {}
    for rank, member in enumerate(sorted(found, key=lambda one: (-len(found[one]), one))):
        quota[member] = each + (rank < extra)
        del found[member][quota[member] :]
    kept = {partition for partitions in found.values() for partition in partitions}
    poorest = [(len(found[one]), one) for one in found if len(found[one]) < quota[one]]
    heapq.heapify(poorest)
    for topic in sorted(topics):
        for partition in _partitions(topic, sizes[topic]):
            if partition not in kept:
                number, member = poorest[0]
                found[member].append(partition)
                if number + 1 < quota[member]:
                    heapq.heapreplace(poorest, (number + 1, member))
                else:
                    heapq.heappop(poorest)
    return found


class _Scales:
    """The general case: members that want different topics."""

    def __init__(
        self,
        sizes: Mapping[str, int],
        members: Mapping[str, frozenset[str]],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self._sizes = sizes
        self._wanted = members
        self._owners = owners
        self._load = dict.fromkeys(members, 0)
        # By topic and member.
        self._held: dict[str, dict[str, set[TopicPartition]]] = {topic: {} for topic in sizes}
        # Members that nothing can be done for any more, with all that could hand them anything.
        self._settled: set[str]
        self._settled_topics: set[str]

    def level(self) -> dict[str, list[TopicPartition]]:
        for member in self._owners.values():
            self._load[member] += 1
        self._hand_out_the_rest()
        # As long as what is owned is not held, it cannot move.
        self._even_out()
        for partition in sorted(self._owners):
            self._hold(partition, self._owners[partition])
        self._even_out()
        found: dict[str, list[TopicPartition]] = {member: [] for member in self._wanted}
        for holders in self._held.values():
            for member, partitions in holders.items():
                found[member] += partitions
        return found

    def _hand_out_the_rest(self) -> None:
        """Each to the poorest that wants it; first those that fewest want."""
        wanting: dict[str, list[str]] = {topic: [] for topic in self._sizes}
        for member, topics in self._wanted.items():
            for topic in topics:
                wanting[topic].append(member)
        for topic in sorted(self._sizes, key=lambda one: (len(wanting[one]), one)):
            poorest = [(self._load[member], member) for member in wanting[topic]]
            heapq.heapify(poorest)
            for partition in _partitions(topic, self._sizes[topic]):
                if partition not in self._owners:
                    member = poorest[0][1]
                    self._hold(partition, member)
                    self._load[member] += 1
                    heapq.heapreplace(poorest, (self._load[member], member))

    def _even_out(self) -> None:
        """Shorten chains from rich to poor until there is none.

        Poorest first: a member that has no chain then can never get one, since whatever changes
        later has no part in what it can reach.
        """
        self._settled, self._settled_topics = set(), set()
        poorest = [(load, member) for member, load in self._load.items()]
        heapq.heapify(poorest)
        while poorest:
            load, member = heapq.heappop(poorest)
            if member in self._settled or load != self._load[member]:
                continue
            chain = self._chain_to(member)
            for giver, taker in pairwise(chain):
                self._hand_on(giver, taker)
            for one in chain[:1] + chain[-1:]:
                heapq.heappush(poorest, (self._load[one], one))

    def _chain_to(self, poor: str) -> list[str]:
        """From the richest of the nearest members that have two more; empty if there is none."""
        takers: dict[str, str | None] = {poor: None}
        topics = set(self._settled_topics)
        nearest = [poor]
        while nearest:
            nearest = self._givers(nearest, takers, topics)
            rich = max(nearest, key=lambda one: (self._load[one], one), default=poor)
            if self._load[rich] >= self._load[poor] + 2:
                chain = [rich]
                while (taker := takers[chain[-1]]) is not None:
                    chain.append(taker)
                return chain
        self._settled.update(takers)
        self._settled_topics = topics
        return []

    def _givers(
        self, members: list[str], takers: dict[str, str | None], topics: set[str]
    ) -> list[str]:
        """Who holds what these members want, without those and the topics that were met before."""
        found = []
        for taker in members:
            for topic in sorted(self._wanted[taker] - topics):
                topics.add(topic)
                for giver in self._held[topic]:
                    if giver not in takers and giver not in self._settled:
                        takers[giver] = taker
                        found.append(giver)
        return found

    def _hand_on(self, giver: str, taker: str) -> None:
        """The partition that hurts least: the taker's own, or else none of the giver's own."""

        def painless(partition: TopicPartition) -> tuple[bool, bool, int, str]:
            owner = self._owners.get(partition)
            return owner == taker, owner != giver, partition.partition, partition.topic

        partition = max(
            (
                partition
                for topic in self._wanted[taker] & self._wanted[giver]
                for partition in self._held[topic].get(giver, ())
            ),
            key=painless,
        )
        holders = self._held[partition.topic]
        holders[giver].remove(partition)
        if not holders[giver]:
            del holders[giver]
        self._hold(partition, taker)
        self._load[giver] -= 1
        self._load[taker] += 1

    def _hold(self, partition: TopicPartition, member: str) -> None:
        self._held[partition.topic].setdefault(member, set()).add(partition)


def _partitions(topic: str, size: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(size)]
