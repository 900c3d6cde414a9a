"""The assignors that look at nothing but subscriptions, and all assignors by name.

range: of each topic every subscriber gets a run of partitions, the first ones one more where it
does not divide. Topics of the same size and with the same subscribers are cut alike.
roundrobin: all partitions of all topics in order, one to each member in turn, passing over those
that do not want the topic.
custom: whatever a function says, as long as everything it names exists and nothing is given twice.

Static members come first, by their instance ids, so that a restart does not shuffle anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from karrow.aio.groups.assignment import (
    Assignment,
    Assignor,
    Rebalance,
    Subscription,
    in_order,
    subscribed_topics,
)
from karrow.aio.groups.sticky import CooperativeSticky, Sticky
from karrow.errors import ConfigError
from karrow.types import TopicPartition

if TYPE_CHECKING:
    Shares = Iterable[tuple[str, Iterable[tuple[str, int]]]]
    AssignFunction = Callable[
        [Sequence[str], Sequence[TopicPartition]], Mapping[str, Iterable[tuple[str, int]]] | Shares
    ]


class _Memoryless:
    """An assignor that members tell nothing but their topics."""

    protocol: Rebalance = "eager"
    version = 0

    def subscription(
        self, _topics: Sequence[str], _owned: Sequence[TopicPartition], _generation: int, /
    ) -> bytes | None:
        """Nothing."""
        return None


class Range(_Memoryless):
    """Runs of partitions, topic by topic."""

    name = "range"

    def assign(
        self, cluster: Mapping[str, int], members: Mapping[str, Subscription], /
    ) -> dict[str, Assignment]:
        """Everybody's runs."""
        found: dict[str, list[TopicPartition]] = {member: [] for member in in_order(members)}
        topics = {member: frozenset(one.topics) for member, one in members.items()}
        for topic, size in subscribed_topics(cluster, members.values()).items():
            wanting = [member for member in found if topic in topics[member]]
            each, extra = divmod(size, len(wanting))
            start = 0
            for index, member in enumerate(wanting):
                end = start + each + (index < extra)
                found[member] += (TopicPartition(topic, number) for number in range(start, end))
                start = end
        return _assignments(found)


class RoundRobin(_Memoryless):
    """One partition to each member in turn."""

    name = "roundrobin"

    def assign(
        self, cluster: Mapping[str, int], members: Mapping[str, Subscription], /
    ) -> dict[str, Assignment]:
        """Everybody's partitions."""
        found: dict[str, list[TopicPartition]] = {member: [] for member in in_order(members)}
        topics = {member: frozenset(one.topics) for member, one in members.items()}
        turns = list(found)
        turn = 0
        for partition in _all_partitions(cluster, members):
            while partition.topic not in topics[turns[turn]]:
                turn = (turn + 1) % len(turns)
            found[turns[turn]].append(partition)
            turn = (turn + 1) % len(turns)
        return _assignments(found)


class _Custom(_Memoryless):
    def __init__(self, name: str, function: AssignFunction) -> None:
        self.name = name
        self._function = function

    def assign(
        self, cluster: Mapping[str, int], members: Mapping[str, Subscription], /
    ) -> dict[str, Assignment]:
        found: dict[str, list[TopicPartition]] = {member: [] for member in in_order(members)}
        partitions = _all_partitions(cluster, members)
        left = set(partitions)
        shares = self._function([*found], partitions)
        for member, share in shares.items() if isinstance(shares, Mapping) else shares:
            if member not in found:
                raise ConfigError(f"assignor {self.name!r} names {member!r}, which is no member")
            for topic, number in share:
                partition = TopicPartition(topic, number)
                if partition not in left:
                    raise ConfigError(
                        f"assignor {self.name!r} gives {partition}, which is given or unknown"
                    )
                left.remove(partition)
                found[member].append(partition)
        return _assignments(found)


def custom_assignor(name: str, function: AssignFunction) -> Assignor:
    """An assignor out of a function.

    It gets the ids of the members and all partitions of all topics that anybody subscribed to, and
    returns partitions by member, as a mapping or as pairs. Every member of the group has to offer
    the same name.

    >>> def all_to_one(members, partitions):
    ...     return {members[0]: partitions}
    >>> assignor = custom_assignor("all-to-one", all_to_one)
    """
    return _Custom(name, function)


BY_NAME: dict[str, Callable[[], Assignor]] = {
    "range": Range,
    "roundrobin": RoundRobin,
    "sticky": Sticky,
    "cooperative-sticky": CooperativeSticky,
}


def assignor(wanted: str | Assignor) -> Assignor:
    """An assignor by its name, new for each consumer, or the one that is given."""
    if not isinstance(wanted, str):
        return wanted
    made = BY_NAME.get(wanted)
    if made is None:
        raise ConfigError(f"{wanted!r} is no assignor", hint=f"known are {', '.join(BY_NAME)}")
    return made()


def _all_partitions(
    cluster: Mapping[str, int], members: Mapping[str, Subscription]
) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic, size in subscribed_topics(cluster, members.values()).items()
        for number in range(size)
    ]


def _assignments(found: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    return {member: Assignment(tuple(partitions)) for member, partitions in found.items()}
