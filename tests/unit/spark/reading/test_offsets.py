"""The offsets of a stream as texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow.errors import StateError
from karrow.spark.reading.offsets import Offsets, plain
from karrow.types import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 10)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d_e"]), st.integers(0, 20))
POSITIONS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=5)


def test_the_form_is_that_of_sparks_own_connector() -> None:
    assert plain({B: 7, A: 5}) == {"orders": {"0": 5, "10": 7}}
    assert Offsets({B: 7, A: 5}).to_json() == {"orders": {"0": 5, "10": 7}}


def test_what_that_form_cannot_say_stands_beside() -> None:
    found = Offsets({A: 5}, {"orders": "id"}, {A: 3}, is_initial=True, epochs={A: 2}).to_json()
    assert found == {
        "orders": {"0": 5},
        "@ids": {"orders": "id"},
        "@from": {"orders": {"0": 3}},
        "@epochs": {"orders": {"0": 2}},
        "@initial": True,
    }


@given(
    POSITIONS,
    st.dictionaries(st.sampled_from(["a", "b.c"]), st.text()),
    POSITIONS,
    st.booleans(),
    POSITIONS,
)
def test_texts_are_read_back(
    offsets: dict[TopicPartition, int],
    ids: dict[str, str],
    begins: dict[TopicPartition, int],
    is_initial: bool,
    epochs: dict[TopicPartition, int],
) -> None:
    whole = Offsets(offsets, ids, begins, is_initial, epochs)
    assert Offsets.from_json(json.loads(json.dumps(whole.to_json()))) == whole


@given(POSITIONS)
def test_equal_offsets_give_equal_texts(offsets: dict[TopicPartition, int]) -> None:
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(Offsets(offsets).to_json()) == json.dumps(Offsets(backwards).to_json())


@pytest.mark.parametrize(
    "read", [{"logOffset": 3}, {"orders": {"x": 1}}, {"orders": {"0": None}}, {"": 1}, {"@ids": 3}]
)
def test_what_is_none_of_ours_is_refused(read: dict[str, Any]) -> None:
    with pytest.raises(StateError, match="the checkpoint has no offsets of Kafka"):
        Offsets.from_json(read)


def test_topics_are_told_apart_by_their_ids() -> None:
    one = Offsets({A: 5}, {"orders": "1"})
    assert one.is_other_topic("orders", Offsets({A: 5}, {"orders": "2"}))
    assert not one.is_other_topic("orders", Offsets({A: 6}, {"orders": "1"}))
    assert not one.is_other_topic("orders", Offsets({A: 5}))


def test_partitions_that_are_further_than_others() -> None:
    one = Offsets({A: 5, B: 5}, {"orders": "1"})
    assert one.beyond(Offsets({A: 4, B: 5})) == {A}
    assert one.beyond(Offsets({A: 6})) == set()
    assert one.beyond(Offsets({A: 4}, {"orders": "2"})) == set()


def test_epochs_that_a_newer_leader_has_overruled() -> None:
    one = Offsets({A: 5, B: 5}, {"orders": "1"}, epochs={A: 3, B: 3})
    assert one.overruled(Offsets({A: 5, B: 5}, epochs={A: 4, B: 3})) == {A: 3}
    assert one.overruled(Offsets({A: 5}, epochs={A: 2})) == {}
    assert one.overruled(Offsets({A: 5})) == {}
    assert one.overruled(Offsets({A: 5}, {"orders": "2"}, epochs={A: 4})) == {}
    assert Offsets({A: 5}).overruled(Offsets({A: 5}, epochs={A: 4})) == {}


def test_epochs_do_not_go_back_within_a_topic() -> None:
    one = Offsets({A: 5, B: 5}, {"orders": "1"}, epochs={A: 3, B: 3})
    assert one.newest_epochs(Offsets({A: 5, B: 5}, epochs={A: 4})) == {A: 4, B: 3}
    assert one.newest_epochs(Offsets({A: 5}, epochs={A: 2})) == {A: 3}
    assert one.newest_epochs(Offsets({A: 5}, {"orders": "2"}, epochs={A: 0})) == {A: 0}
