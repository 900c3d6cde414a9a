"""Whole groups: our assignors against Kafka's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jars import NEW_KAFKA, OLD_KAFKA
from kafka_oracle import Oracle

from karrow.aio.groups.assignors import assignor
from karrow.types import TopicPartition
from tests.property.subscribing import (
    Group,
    Members,
    claiming,
    equal_groups,
    groups,
    histories,
    rejoined,
)

CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}

pytestmark = pytest.mark.java


@pytest.fixture(scope="module", params=[OLD_KAFKA, NEW_KAFKA])
def kafka(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    with Oracle(request.param) as oracle:
        yield oracle


Found = dict[str, list[TopicPartition]]


def ours(name: str, cluster: Mapping[str, int], members: Members) -> Found:
    found = assignor(name).assign(cluster, members)
    return {member: sorted(found[member].partitions) for member in found}


def theirs(oracle: Oracle, name: str, cluster: Mapping[str, int], members: Members) -> Found:
    # As Kafka calls its assignors: with the topics that exist, have partitions and are wanted.
    wanted = {topic for one in members.values() for topic in one.topics}
    known = {topic: size for topic, size in cluster.items() if size and topic in wanted}
    return oracle.assign(CLASSES[name], known, members)


def loads(found: Found) -> list[int]:
    return sorted(map(len, found.values()))


def spread(found: Found) -> int:
    return sum(load * load for load in loads(found))


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(group=groups())
def test_everybody_gets_the_same_as_from_kafka(kafka: Oracle, name: str, group: Group) -> None:
    assert ours(name, *group) == theirs(kafka, name, *group)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@given(group=equal_groups())
def test_a_new_group_of_equals_gets_the_same_as_from_kafka(
    kafka: Oracle, name: str, group: Group
) -> None:
    assert ours(name, *group) == theirs(kafka, name, *group)


@given(group=equal_groups(), data=st.data())
def test_equals_are_balanced_as_by_kafka(kafka: Oracle, group: Group, data: st.DataObject) -> None:
    cluster, members = group[0], existing(group[0], data.draw(histories(group)))
    assert loads(ours("sticky", cluster, members)) == loads(
        theirs(kafka, "sticky", cluster, members)
    )


@given(group=groups())
def test_others_are_balanced_no_worse_than_by_kafka(kafka: Oracle, group: Group) -> None:
    cluster, members = group
    first = theirs(kafka, "sticky", cluster, members)
    assert spread(ours("sticky", cluster, members)) <= spread(first)
    less = dict(sorted(members.items())[1:])
    again = {member: claiming(one, tuple(first[member])) for member, one in less.items()}
    if again:
        assert spread(ours("sticky", cluster, again)) <= spread(
            theirs(kafka, "sticky", cluster, again)
        )


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@given(group=groups())
def test_kafka_keeps_to_what_we_assigned_and_tell(kafka: Oracle, name: str, group: Group) -> None:
    cluster, members = group
    found = assignor(name).assign(cluster, members)
    told = theirs(kafka, name, cluster, rejoined(members, found))
    assert {member: sorted(one.partitions) for member, one in found.items()} == told


def existing(cluster: Mapping[str, int], members: Members) -> Members:
    """The members without claims to partitions beyond the end of a topic, which Kafka believes."""
    return {
        member: claiming(
            one,
            tuple(held for held in one.owned_partitions if held.partition < cluster[held.topic]),
            one.generation,
        )
        for member, one in members.items()
    }
