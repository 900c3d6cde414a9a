"""What holds for whatever group: who gets partitions, how many, and what stays."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow.aio.groups.assignment import Assignment
from karrow.aio.groups.assignors import BY_NAME, assignor
from karrow.aio.groups.sticky import Claim, decode_claim, encode_claim
from karrow.types import TopicPartition
from tests.property.subscribing import (
    Group,
    Members,
    equal_groups,
    groups,
    histories,
    owners,
    rejoined,
    subscribed,
)

STICKY = ("sticky", "cooperative-sticky")

every = pytest.mark.parametrize("name", BY_NAME)
sticky = pytest.mark.parametrize("name", STICKY)


def numbers(found: Mapping[str, Assignment]) -> list[int]:
    return sorted(len(one.partitions) for one in found.values())


def settled(name: str, cluster: Mapping[str, int], members: Members) -> dict[str, Assignment]:
    """What the members have after the second round, in which nothing is withheld any more."""
    found = assignor(name).assign(cluster, members)
    return dict(assignor(name).assign(cluster, rejoined(members, found)))


def spread(loads: list[int]) -> int:
    """A measure of imbalance: the less, the more equal."""
    return sum(load * load for load in loads)


def best_spread(cluster: Mapping[str, int], members: Members) -> int:
    """The least there is, found by giving each partition away and making room wherever it helps."""
    holder: dict[TopicPartition, str] = {}
    loads = dict.fromkeys(members, 0)
    for partition in subscribed(cluster, members):
        # Members to which something can be moved from one that wants this partition.
        came: dict[str, tuple[str | None, TopicPartition]] = {}
        line = [member for member, one in members.items() if partition.topic in one.topics]
        came.update((member, (None, partition)) for member in line)
        for member in line:
            for held, by in holder.items():
                if by == member:
                    for other, one in members.items():
                        if held.topic in one.topics and other not in came:
                            came[other] = (member, held)
                            line.append(other)
        end: str | None = min(line, key=loads.__getitem__)
        assert end is not None
        loads[end] += 1
        while end is not None:
            before, moved = came[end]
            holder[moved] = end
            end = before
    return spread(list(loads.values()))


@every
@given(group=groups())
def test_every_partition_has_one_owner_who_wants_it(name: str, group: Group) -> None:
    cluster, members = group
    found = assignor(name).assign(cluster, members)
    assert found.keys() == members.keys()
    given_to = owners(found)
    assert given_to.keys() == subscribed(cluster, members)
    assert all(one.topic in members[member].topics for one, member in given_to.items())


@every
@given(group=groups(), data=st.data())
def test_the_order_of_members_and_topics_does_not_matter(
    name: str, group: Group, data: st.DataObject
) -> None:
    cluster, members = group
    shuffled = dict(data.draw(st.permutations(list(members.items()))))
    turned = dict(reversed(cluster.items()))
    assert assignor(name).assign(turned, shuffled) == assignor(name).assign(cluster, members)


@pytest.mark.parametrize("name", ["roundrobin", *STICKY])
@given(group=equal_groups())
def test_equal_subscriptions_get_numbers_within_one(name: str, group: Group) -> None:
    found = numbers(assignor(name).assign(*group))
    assert found[-1] - found[0] <= 1


@given(group=groups(), data=st.data())
def test_sticky_gives_everything_once_whatever_members_claim(
    group: Group, data: st.DataObject
) -> None:
    cluster, members = group
    claiming = data.draw(histories(group))
    given_to = owners(assignor("sticky").assign(cluster, claiming))
    assert given_to.keys() == subscribed(cluster, members)
    assert all(one.topic in members[member].topics for one, member in given_to.items())


@given(group=groups(), data=st.data())
def test_sticky_is_as_balanced_as_can_be(group: Group, data: st.DataObject) -> None:
    cluster, members = group
    claiming = data.draw(histories(group))
    found = assignor("sticky").assign(cluster, claiming)
    assert spread(numbers(found)) == best_spread(cluster, members)


@sticky
@given(group=groups(), data=st.data())
def test_what_is_settled_does_not_move(name: str, group: Group, data: st.DataObject) -> None:
    cluster, members = group
    found = settled(name, cluster, data.draw(histories(group)))
    assert owners(found).keys() == subscribed(cluster, members)
    assert assignor(name).assign(cluster, rejoined(members, found)) == found


@sticky
@given(group=equal_groups(min_size=2), data=st.data())
def test_only_the_partitions_of_a_member_that_left_move(
    name: str, group: Group, data: st.DataObject
) -> None:
    cluster, members = group
    before = settled(name, cluster, members)
    gone = data.draw(st.sampled_from(sorted(members)))
    del members[gone]
    after = owners(assignor(name).assign(cluster, rejoined(members, before)))
    for partition, member in owners(before).items():
        assert member == gone or after[partition] == member


@given(group=equal_groups(min_size=2), data=st.data())
def test_a_new_member_gets_its_share_and_nothing_else_moves(
    group: Group, data: st.DataObject
) -> None:
    cluster, members = group
    newcomer = data.draw(st.sampled_from(sorted(members)))
    rest = {member: one for member, one in members.items() if member != newcomer}
    before = owners(settled("sticky", cluster, rest))
    joined = rejoined(members, settled("sticky", cluster, rest))
    after = owners(assignor("sticky").assign(cluster, joined))
    assert all(member in (before[one], newcomer) for one, member in after.items())


@given(group=groups(), data=st.data())
def test_cooperative_never_gives_what_another_owns(group: Group, data: st.DataObject) -> None:
    cluster = group[0]
    members = data.draw(histories(group))
    for partition, member in owners(
        assignor("cooperative-sticky").assign(cluster, members)
    ).items():
        claims = {
            one: members[one].generation
            for one in members
            if partition in members[one].owned_partitions
        }
        latest = [one for one in claims if claims[one] == max(claims.values())]
        assert not claims or latest == [member] or [*claims] == [member]


@given(group=groups(), data=st.data())
def test_cooperative_gives_in_the_second_round_what_it_withheld(
    group: Group, data: st.DataObject
) -> None:
    cluster, members = group
    by = assignor("cooperative-sticky")
    first = by.assign(cluster, data.draw(histories(group)))
    second = by.assign(cluster, rejoined(members, first))
    assert owners(second).keys() == subscribed(cluster, members)


@given(
    owned=st.frozensets(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1))),
    generation=st.integers(-1, 2**31 - 1),
)
def test_claims_survive_their_user_data(owned: frozenset[TopicPartition], generation: int) -> None:
    assert decode_claim(encode_claim(Claim(owned, generation))) == (owned, generation)


@given(data=st.binary(max_size=60))
def test_any_user_data_is_a_claim(data: bytes) -> None:
    assert decode_claim(data).generation >= -(2**31)
