"""Who gets which partition: the rules of each assignor, by example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from karrow.aio.groups.assignment import Assignment, Assignor, Remembering, Subscription
from karrow.aio.groups.assignors import BY_NAME, Range, RoundRobin, assignor, custom_assignor
from karrow.aio.groups.sticky import Claim, CooperativeSticky, Sticky, decode_claim, encode_claim
from karrow.errors import ConfigError
from karrow.types import TopicPartition


def partitions(text: str) -> tuple[TopicPartition, ...]:
    """a0 b12 -> partition 0 of a, partition 12 of b."""
    return tuple(TopicPartition(one[0], int(one[1:])) for one in text.split())


def claim(text: str, generation: int) -> bytes:
    return encode_claim(Claim(frozenset(partitions(text)), generation))


def assigned(
    by: Assignor, cluster: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, str]:
    """Everybody's partitions in the form of ``partitions``."""
    found = by.assign(cluster, members)
    assert found.keys() == members.keys()
    assert all(one.user_data is None for one in found.values())
    return {
        member: " ".join(f"{topic}{number}" for topic, number in found[member].partitions)
        for member in members
    }


def wanting(**topics: str) -> dict[str, Subscription]:
    """Members by id, with their topics."""
    return {member: Subscription(tuple(names)) for member, names in topics.items()}


def test_range_cuts_every_topic_into_runs() -> None:
    found = assigned(Range(), {"a": 3, "b": 3}, wanting(m1="ab", m0="ba"))
    assert found == {"m0": "a0 a1 b0 b1", "m1": "a2 b2"}


def test_range_counts_only_those_who_want_a_topic() -> None:
    found = assigned(Range(), {"a": 2, "b": 4, "unwanted": 3}, wanting(m0="a", m1="b", m2="bx"))
    assert found == {"m0": "a0 a1", "m1": "b0 b1", "m2": "b2 b3"}


def test_range_leaves_members_without_when_there_are_too_few_partitions() -> None:
    found = assigned(Range(), {"a": 1}, wanting(m0="a", m1="a"))
    assert found == {"m0": "a0", "m1": ""}


@pytest.mark.parametrize("by", [Range(), RoundRobin()], ids=lambda by: str(by.name))
def test_static_members_come_first_and_by_their_names(by: Assignor) -> None:
    members = {
        "id-0": Subscription(("a",)),
        "id-1": Subscription(("a",), instance_id="z"),
        "id-2": Subscription(("a",), instance_id="y"),
    }
    assert assigned(by, {"a": 3}, members) == {"id-2": "a0", "id-1": "a1", "id-0": "a2"}


def test_roundrobin_deals_partitions_of_all_topics() -> None:
    found = assigned(RoundRobin(), {"a": 3, "b": 3}, wanting(m0="ab", m1="ab"))
    assert found == {"m0": "a0 a2 b1", "m1": "a1 b0 b2"}


def test_roundrobin_passes_over_those_who_do_not_want_a_topic() -> None:
    found = assigned(RoundRobin(), {"a": 1, "b": 2, "c": 3}, wanting(m0="a", m1="ab", m2="abc"))
    assert found == {"m0": "a0", "m1": "b0", "m2": "b1 c0 c1 c2"}


@pytest.mark.parametrize("name", BY_NAME)
def test_topics_that_do_not_exist_are_passed_over(name: str) -> None:
    assert assigned(assignor(name), {"a": 1}, wanting(m0="x", m1="ax")) == {"m0": "", "m1": "a0"}
    assert assigned(assignor(name), {}, wanting(m0="x")) == {"m0": ""}


def test_sticky_begins_like_roundrobin() -> None:
    found = assigned(Sticky(), dict.fromkeys("abcd", 2), wanting(m0="abcd", m1="abcd", m2="abcd"))
    assert found == {"m0": "a0 b1 d0", "m1": "a1 c0 d1", "m2": "b0 c1"}


def test_sticky_gives_to_others_only_what_a_lost_member_had() -> None:
    members = {
        "m0": Subscription(tuple("abcd"), user_data=claim("a0 b1 d0", 1)),
        "m2": Subscription(tuple("abcd"), user_data=claim("b0 c1", 1)),
    }
    found = assigned(Sticky(), dict.fromkeys("abcd", 2), members)
    assert found == {"m0": "a0 b1 c0 d0", "m2": "a1 b0 c1 d1"}


def test_sticky_is_balanced_where_subscriptions_differ() -> None:
    cluster = {"a": 1, "b": 2, "c": 3}
    found = assigned(Sticky(), cluster, wanting(m0="a", m1="ab", m2="abc"))
    assert found == {"m0": "a0", "m1": "b0 b1", "m2": "c0 c1 c2"}
    left = {
        "m1": Subscription(("a", "b"), user_data=claim("b0 b1", 1)),
        "m2": Subscription(("a", "b", "c"), user_data=claim("c0 c1 c2", 1)),
    }
    assert assigned(Sticky(), cluster, left) == {"m1": "a0 b0 b1", "m2": "c0 c1 c2"}


def test_sticky_balances_down_a_chain_of_members() -> None:
    # m0 has nothing that m2 wants, but m1 takes from the one and gives to the other.
    members = {
        "m0": Subscription(("a",), user_data=claim("a0 a1 a2", 1)),
        "m1": Subscription(("a", "b"), user_data=claim("b0 b1", 1)),
        "m2": Subscription(("b",), user_data=claim("b2", 1)),
    }
    found = assigned(Sticky(), {"a": 3, "b": 3}, members)
    assert found == {"m0": "a0 a1", "m1": "a2 b0", "m2": "b1 b2"}


def test_sticky_moves_nothing_where_the_rest_can_be_handed_out_well() -> None:
    # a0 to m2, the poorest that wants it, would leave m0 with too little.
    members = {
        "m0": Subscription(("a", "c"), user_data=claim("c0", 1)),
        "m1": Subscription(("b", "c"), user_data=claim("b1 c1", 1)),
        "m2": Subscription(("a", "b")),
    }
    found = assigned(Sticky(), {"a": 1, "b": 3, "c": 2}, members)
    assert found == {"m0": "a0 c0", "m1": "b1 c1", "m2": "b0 b2"}


def test_sticky_takes_from_those_who_have_most() -> None:
    members = {
        "m0": Subscription(("a",), user_data=claim("a0 a1", 1)),
        "m1": Subscription(("a",), user_data=claim("a2 a3 a4", 1)),
        "m2": Subscription(("a",)),
    }
    assert assigned(Sticky(), {"a": 5}, members) == {"m0": "a0 a1", "m1": "a2 a3", "m2": "a4"}


def test_of_two_claims_the_later_generation_is_right() -> None:
    members = {
        "m0": Subscription(("a",), user_data=claim("a0 a1", 6)),
        "m1": Subscription(("a",), user_data=claim("a1 a2", 7)),
        "m2": Subscription(("a",), user_data=claim("a2", 5)),
    }
    assert assigned(Sticky(), {"a": 4}, members) == {"m0": "a0", "m1": "a1 a2", "m2": "a3"}


def test_claims_of_the_same_generation_cancel_out() -> None:
    members = {
        "m0": Subscription(("a",), user_data=claim("a0", 6)),
        "m1": Subscription(("a",), user_data=claim("a0 a1 a2", 6)),
    }
    assert assigned(Sticky(), {"a": 3}, members) == {"m0": "a0", "m1": "a1 a2"}


def test_nothing_is_kept_that_is_gone_or_no_longer_wanted() -> None:
    members = {
        "m0": Subscription(("a",), user_data=claim("a0 a7 b0 x0", 6)),
        "m1": Subscription(("b",), user_data=claim("a1", 6)),
    }
    found = assigned(Sticky(), {"a": 2, "b": 1}, members)
    assert found == {"m0": "a0 a1", "m1": "b0"}


def test_sticky_tells_what_it_was_given_last() -> None:
    sticky = Sticky()
    assert sticky.subscription(["a"], (), -1) is None
    sticky.assigned(Assignment(partitions("a1 b0 a0")), 5)
    told = sticky.subscription(["a"], (), -1)
    assert told is not None
    assert told == (b"\0\0\0\2\0\1a\0\0\0\2\0\0\0\0\0\0\0\1\0\1b\0\0\0\1\0\0\0\0\0\0\0\5")
    assert decode_claim(told) == (frozenset(partitions("a0 a1 b0")), 5)


def test_sticky_user_data_of_kafka_python_begins_with_its_version() -> None:
    assert decode_claim(b"\0\1" + claim("a0 b3", 5)) == (frozenset(partitions("a0 b3")), 5)


def test_sticky_user_data_without_a_generation_is_read() -> None:
    assert decode_claim(claim("a0 b3", 5)[:-4]) == (frozenset(partitions("a0 b3")), -1)


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"abc",
        claim("a0", 5)[:-6],
        b"\x7f\xff\xff\xff" * 4,
        b"\xff" * 12,
        b"\0\0\0\1\0\1\xff\0\0\0\0",
    ],
)
def test_user_data_that_makes_no_sense_claims_nothing(data: bytes | None) -> None:
    assert decode_claim(data) == (frozenset(), -1)
    members = {"m0": Subscription(("a",), user_data=data)}
    assert assigned(Sticky(), {"a": 1}, members) == {"m0": "a0"}


def test_cooperative_sticky_withholds_what_another_still_owns() -> None:
    first = {
        "m0": Subscription(("a",), partitions("a0 a1 a2 a3"), generation=1),
        "m1": Subscription(("a",)),
    }
    assert assigned(CooperativeSticky(), {"a": 4}, first) == {"m0": "a0 a1", "m1": ""}
    second = {
        "m0": Subscription(("a",), partitions("a0 a1"), generation=2),
        "m1": Subscription(("a",), generation=2),
    }
    assert assigned(CooperativeSticky(), {"a": 4}, second) == {"m0": "a0 a1", "m1": "a2 a3"}


def test_cooperative_sticky_gives_at_once_what_nobody_owns() -> None:
    members = {
        "m0": Subscription(("a",), partitions("a0 a1"), generation=1),
        "m1": Subscription(("a",), generation=1),
    }
    assert assigned(CooperativeSticky(), {"a": 4}, members) == {"m0": "a0 a1", "m1": "a2 a3"}


def test_cooperative_sticky_withholds_from_everybody_what_two_claim() -> None:
    members = {
        "m0": Subscription(("a",), partitions("a0"), generation=1),
        "m1": Subscription(("a",), partitions("a0 a1"), generation=1),
    }
    assert assigned(CooperativeSticky(), {"a": 2}, members) == {"m0": "", "m1": "a1"}


def test_cooperative_sticky_leaves_a_partition_with_its_latest_owner() -> None:
    members = {
        "m0": Subscription(("a",), partitions("a0"), generation=1),
        "m1": Subscription(("a",), partitions("a0"), generation=2),
    }
    assert assigned(CooperativeSticky(), {"a": 2}, members) == {"m0": "a1", "m1": "a0"}


def test_cooperative_sticky_withholds_what_one_owns_who_no_longer_wants_it() -> None:
    members = {
        "m0": Subscription(("b",), partitions("a0 b0"), generation=1),
        "m1": Subscription(("a",), generation=1),
    }
    assert assigned(CooperativeSticky(), {"a": 2, "b": 1}, members) == {"m0": "b0", "m1": "a1"}


def test_cooperative_generation_is_in_the_user_data_of_old_subscriptions() -> None:
    told = CooperativeSticky().subscription(["a"], partitions("a0"), 2)
    assert told == b"\0\0\0\2"
    members = {
        "m0": Subscription(("a",), partitions("a0"), user_data=told),
        "m1": Subscription(("a",), partitions("a0"), generation=1, user_data=b"\0\0\0\3"),
        "m2": Subscription(("a",), partitions("a0"), user_data=b"\0\3"),
    }
    assert assigned(CooperativeSticky(), {"a": 1}, members) == {"m0": "a0", "m1": "", "m2": ""}


def test_cooperative_user_data_of_librdkafka_ends_with_the_generation() -> None:
    members = {
        "m0": Subscription(("a",), partitions("a0"), user_data=claim("a0", 7)),
        "m1": Subscription(("a",), partitions("a0"), user_data=b"\0\0\0\6"),
    }
    assert assigned(CooperativeSticky(), {"a": 1}, members) == {"m0": "a0", "m1": ""}


def everything_to_the_last(
    members: Sequence[str], wanted: Sequence[TopicPartition]
) -> dict[str, Sequence[TopicPartition]]:
    return {members[-1]: wanted}


def in_pairs(
    members: Sequence[str], wanted: Sequence[TopicPartition]
) -> list[tuple[str, list[tuple[str, int]]]]:
    return [(members[0], [(topic, number)]) for topic, number in wanted[1:]]


def test_a_function_is_an_assignor() -> None:
    by = custom_assignor("mine", everything_to_the_last)
    assert (by.name, by.protocol, by.version) == ("mine", "eager", 0)
    assert by.subscription(["a"], (), 1) is None
    found = assigned(by, {"a": 2, "b": 1, "unwanted": 1}, wanting(m1="b", m0="a"))
    assert found == {"m0": "", "m1": "a0 a1 b0"}


def test_a_function_may_return_pairs_and_leave_partitions_out() -> None:
    found = assigned(custom_assignor("mine", in_pairs), {"a": 3}, wanting(m0="a", m1="a"))
    assert found == {"m0": "a1 a2", "m1": ""}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"m7": []}, "'mine' names 'm7', which is no member"),
        ({"m0": [("a", 2)]}, "'mine' gives a-2, which is given or unknown"),
        ({"m0": [("a", 0)], "m1": [("a", 0)]}, "'mine' gives a-0, which is given or unknown"),
    ],
)
def test_a_function_must_not_give_what_it_cannot(
    given: dict[str, list[tuple[str, int]]], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        custom_assignor("mine", lambda *_: given).assign({"a": 2}, wanting(m0="a", m1="a"))


def test_assignors_have_kafkas_names() -> None:
    found = {name: assignor(name) for name in BY_NAME}
    assert {name: one.name for name, one in found.items()} == {name: name for name in BY_NAME}
    assert {name: one.protocol for name, one in found.items()} == {
        "range": "eager",
        "roundrobin": "eager",
        "sticky": "eager",
        "cooperative-sticky": "cooperative",
    }


def test_every_consumer_gets_an_assignor_of_its_own() -> None:
    assert assignor("sticky") is not assignor("sticky")
    mine = custom_assignor("mine", everything_to_the_last)
    assert assignor(mine) is mine
    with pytest.raises(ConfigError, match="'stickier' is no assignor"):
        assignor("stickier")


def test_only_sticky_wants_to_hear_what_it_was_given() -> None:
    assert [name for name in BY_NAME if isinstance(assignor(name), Remembering)] == ["sticky"]
