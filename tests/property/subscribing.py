"""Groups to draw: clusters and members, and what members say when they join again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import strategies as st

from karrow.aio.groups.assignment import Assignment, Subscription
from karrow.aio.groups.sticky import Claim, encode_claim
from karrow.types import TopicPartition

Members = dict[str, Subscription]
Group = tuple[dict[str, int], Members]

TOPICS = "abcde"
GENERATION = 7
IDS = st.integers(0, 99).map(lambda number: f"m{number:02}")
SIZES = st.integers(0, 9)


def clusters() -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(TOPICS), SIZES, min_size=1)


def topics() -> st.SearchStrategy[tuple[str, ...]]:
    # One more than any cluster has.
    names = st.sampled_from(TOPICS + "x")
    return st.lists(names, min_size=1, unique=True).map(tuple)


@st.composite
def groups_with(
    draw: st.DrawFn, topics: st.SearchStrategy[tuple[str, ...]], size: int = 1
) -> Group:
    """Members, some of them static, with instance ids in an order of their own."""
    ids = draw(st.lists(IDS, min_size=size, max_size=8, unique=True))
    members = {
        one: Subscription(draw(topics), instance_id=draw(st.sampled_from([None, one[::-1]])))
        for one in ids
    }
    return draw(clusters()), members


def equal_groups(min_size: int = 1) -> st.SearchStrategy[Group]:
    """Members that all want the same."""
    return topics().flatmap(lambda wanted: groups_with(st.just(wanted), min_size))


def unequal_groups() -> st.SearchStrategy[Group]:
    """Members each of which wants something else."""
    return groups_with(topics())


def groups() -> st.SearchStrategy[Group]:
    return equal_groups() | unequal_groups()


@st.composite
def histories(draw: st.DrawFn, group: Group) -> Members:
    """The members, with any claims: even false, late and contradicting ones."""
    cluster, members = group
    possible = [TopicPartition(topic, number) for topic in cluster for number in range(4)]
    claims = st.sets(st.sampled_from(possible)).map(lambda one: tuple(sorted(one)))
    return {
        member: claiming(one, draw(claims), draw(st.integers(-1, 3)))
        for member, one in members.items()
    }


def claiming(
    member: Subscription, owned: tuple[TopicPartition, ...], generation: int = GENERATION
) -> Subscription:
    """A member that joins again, in the ways of sticky and of cooperative-sticky."""
    told = encode_claim(Claim(frozenset(owned), generation))
    return replace(member, owned_partitions=owned, generation=generation, user_data=told)


def rejoined(members: Members, found: Mapping[str, Assignment]) -> Members:
    return {
        member: claiming(one, found[member].partitions if member in found else ())
        for member, one in members.items()
    }


def owners(found: Mapping[str, Assignment]) -> dict[TopicPartition, str]:
    """Partitions and their members; fails when a partition has two."""
    given = [(one, member) for member in found for one in found[member].partitions]
    assert len(dict(given)) == len(given)
    return dict(given)


def subscribed(cluster: Mapping[str, int], members: Members) -> set[TopicPartition]:
    """All that has to be given to somebody."""
    wanted = {topic for one in members.values() for topic in one.topics}
    return {
        TopicPartition(topic, number)
        for topic in wanted & cluster.keys()
        for number in range(cluster[topic])
    }
