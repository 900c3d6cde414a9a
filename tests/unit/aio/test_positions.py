"""Positions of a consumer: the rules one by one; tests/property has them against a model."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from karrow.aio.consuming.positions import (
    Commit,
    Fetch,
    Positions,
    State,
    Truncation,
    Validation,
    Watermarks,
)
from karrow.errors import ConfigError, StateError
from karrow.types import Offset, TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))
END = 1000
WATERMARKS = Watermarks(END, 900, 0)


def assigned(*partitions: TopicPartition, at: int = 0) -> Positions:
    """Partitions that are read from an offset on that their group has committed."""
    positions = Positions()
    positions.add(partitions or [A])
    for look_up in positions.to_look_up():
        positions.found_committed(look_up, at)
    return positions


def fetch_of(positions: Positions, partition: TopicPartition = A, now: float = 0.0) -> Fetch:
    return next(one for one in positions.to_fetch(now) if one.partition == partition)


def fetch(
    positions: Positions, to: int, partition: TopicPartition = A, epoch: int = 3, size: int = 10
) -> int:
    """Have data up to an offset, of a leader's epoch; gives the epoch that it is handed out in."""
    asked = fetch_of(positions, partition)
    assert positions.fetched(asked, to, WATERMARKS, leader_epoch=epoch, size=size)
    return asked.epoch


def read(positions: Positions, to: int, partition: TopicPartition = A, epoch: int = 3) -> None:
    """Fetch and hand out up to an offset."""
    assert positions.handed_out(
        partition, fetch(positions, to, partition, epoch), to, epoch, released=10
    )


def doubtful(leader_epoch: int = 4) -> tuple[Positions, Validation]:
    """Handed out to 10, fetched to 20, in epoch 3; then a new leader."""
    positions = assigned()
    read(positions, 10)
    fetch(positions, 20)
    positions.leader_is(A, leader_epoch)
    return positions, positions.to_validate()[0]


def offsets(commits: dict[TopicPartition, Commit]) -> dict[TopicPartition, int]:
    return {partition: commit.offset for partition, commit in commits.items()}


# ---- the assignment


def test_a_new_partition_waits_for_its_offset() -> None:
    positions = Positions()
    positions.add([A, B])
    assert positions.assignment == (A, B)
    assert [one.partition for one in positions.to_look_up()] == [A, B]
    assert positions.to_fetch(0.0) == []
    assert positions.to_commit() == positions.to_auto_commit() == {}


def test_a_committed_offset_is_where_it_begins_and_no_news() -> None:
    positions = assigned(at=7)
    assert fetch_of(positions).offset == 7
    assert positions.to_commit() == positions.to_auto_commit() == {}


def test_an_assignment_leaves_those_alone_that_stay() -> None:
    positions = assigned(A, B)
    read(positions, 10, B)
    epoch = positions[B].epoch
    positions.assign([B, C])
    assert positions.assignment == (B, C)
    assert (positions[B].position, positions[B].epoch) == (10, epoch)
    assert A not in positions


@pytest.mark.parametrize(
    "act",
    [
        lambda positions: positions.seek(A, 5),
        lambda positions: positions.reset_to(A, Offset.latest()),
        lambda positions: positions.pause([A]),
        lambda positions: positions.resume([A]),
    ],
)
def test_what_is_not_assigned_cannot_be_moved(act: Callable[[Positions], None]) -> None:
    with pytest.raises(StateError, match="orders-0 is not assigned"):
        act(Positions())


def test_one_partition_that_is_not_assigned_leaves_the_others_as_they_are() -> None:
    positions = assigned(A)
    with pytest.raises(StateError):
        positions.pause([A, B])
    assert positions.paused == ()


def test_a_removed_partition_yields_nothing_even_when_it_comes_back() -> None:
    positions = assigned()
    late = fetch_of(positions)
    epoch = fetch(positions, 10)
    positions.remove([A])
    assert not positions.handed_out(A, epoch, 10)
    assert positions.buffered_bytes == 0
    positions.add([A])
    positions.found_committed(positions.to_look_up()[0], 0)
    assert not positions.fetched(late, 10, WATERMARKS, size=10)
    assert not positions.handed_out(A, epoch, 10)
    assert (positions[A].position, positions.buffered_bytes) == (0, 0)


def test_an_offset_that_was_looked_up_for_an_older_assignment_does_not_count() -> None:
    positions = Positions()
    positions.add([A])
    late = positions.to_look_up()[0]
    positions.remove([A])
    positions.add([A])
    positions.found_committed(late, 5)
    assert positions[A].state is State.NEEDS_OFFSET


def test_a_leaving_partition_yields_nothing_but_can_be_committed() -> None:
    positions = assigned()
    read(positions, 10)
    epoch = fetch(positions, 20)
    positions.leave([A, B])
    assert not positions.handed_out(A, epoch, 20)
    assert positions.to_fetch(0.0) == []
    commits = positions.to_commit()
    assert offsets(commits) == {A: 10}
    positions.committed(commits)
    assert positions.to_commit() == {}
    positions.seek(A, 3)
    positions.reset_to(A, Offset.latest())
    assert positions[A].state is State.LEAVING
    positions.remove([A])
    assert positions.assignment == ()


def test_a_leaving_partition_that_is_given_again_begins_anew() -> None:
    positions = assigned()
    read(positions, 10)
    positions.leave([A])
    positions.assign([A])
    assert (positions[A].state, positions[A].position) == (State.NEEDS_OFFSET, None)


def test_the_epoch_stands_still_while_all_data_is_current() -> None:
    positions = assigned(A, B)
    before = positions.epoch
    read(positions, 10)
    positions.pause([A])
    positions.committed(positions.to_commit())
    assert positions.epoch == before
    positions.remove([B])
    assert positions.epoch > before


def test_a_recreated_topic_is_a_stranger() -> None:
    positions = assigned()
    positions.leader_is(A, 9)
    read(positions, 10, epoch=9)
    positions.pause([A])
    commits = positions.to_commit()
    positions.recreated(A)
    positions.committed(commits)
    cursor = positions[A]
    assert (cursor.state, cursor.position, cursor.committed) == (State.NEEDS_OFFSET, None, None)
    assert cursor.is_paused
    positions.leader_is(A, 0)
    assert cursor.leader_epoch == 0


# ---- fetching and handing out


def test_the_next_fetch_leaves_before_anything_is_handed_out() -> None:
    positions = assigned()
    fetch(positions, 10)
    assert fetch_of(positions).offset == 10
    assert positions[A].position == 0


def test_an_answer_counts_once() -> None:
    positions = assigned()
    asked = fetch_of(positions)
    assert positions.fetched(asked, 10, WATERMARKS, size=10)
    assert not positions.fetched(asked, 10, WATERMARKS, size=10)
    assert positions.buffered_bytes == 10


def test_an_answer_without_data_tells_the_watermarks() -> None:
    positions = assigned()
    assert positions.fetched(fetch_of(positions), 0, WATERMARKS)
    assert (positions[A].fetch_position, positions.buffered_bytes) == (0, 0)
    assert positions.lag() == {A: END}
    assert fetch_of(positions).offset == 0


def test_data_that_leads_nowhere_waits_to_be_read_and_is_not_asked_for_again() -> None:
    positions = assigned()
    epoch = fetch(positions, 10)
    changes = positions.changes
    assert positions.fetched(fetch_of(positions), 10, WATERMARKS, size=7)
    assert positions.changes > changes  # whoever asks has to look again
    assert (positions[A].fetch_position, positions.buffered_bytes) == (10, 17)
    assert positions.handed_out(A, epoch, 10, released=10)
    assert positions.to_fetch(0.0) == []
    positions.seek(A, 12)
    assert fetch_of(positions).offset == 12
    assert positions.buffered_bytes == 0


def test_what_is_handed_out_is_let_go() -> None:
    positions = assigned()
    epoch = fetch(positions, 10, size=100)
    assert positions.handed_out(A, epoch, 4, released=60)
    assert positions.buffered_bytes == positions[A].buffered_bytes == 40
    assert positions.handed_out(A, epoch, 10, released=40)
    assert positions.buffered_bytes == 0


@pytest.mark.parametrize("next_offset", [3, 11])
def test_nothing_is_handed_out_that_was_not_fetched_or_twice(next_offset: int) -> None:
    positions = assigned()
    epoch = fetch(positions, 10)
    positions.handed_out(A, epoch, 4)
    with pytest.raises(StateError, match="orders-0 cannot go from offset 4"):
        positions.handed_out(A, epoch, next_offset)
    assert positions[A].position == 4


def test_a_seek_wins_over_what_is_under_way_and_what_waits() -> None:
    positions = assigned()
    epoch = fetch(positions, 10)
    late = fetch_of(positions)
    positions.seek(A, 5)
    assert not positions.handed_out(A, epoch, 10)
    assert not positions.fetched(late, 20, WATERMARKS, size=10)
    assert not positions.is_current(A, epoch)
    assert positions.buffered_bytes == 0
    assert fetch_of(positions).offset == 5


def test_a_seek_to_where_it_is_drops_data_too() -> None:
    positions = assigned()
    epoch = fetch(positions, 10)
    positions.seek(A, 0)
    assert not positions.handed_out(A, epoch, 10)


def test_a_seek_in_front_of_the_log_is_refused() -> None:
    positions = assigned(at=7)
    with pytest.raises(ConfigError):
        positions.seek(A, -1)
    assert positions[A].position == 7


def test_a_paused_partition_keeps_what_it_has() -> None:
    positions = assigned()
    under_way = fetch_of(positions)
    positions.pause([A])
    assert positions.paused == (A,)
    assert positions.to_fetch(0.0) == []
    assert positions.fetched(under_way, 10, WATERMARKS, size=10)
    assert not positions.may_hand_out(A, under_way.epoch)
    assert positions.is_current(A, under_way.epoch)
    positions.resume([A])
    assert positions.may_hand_out(A, under_way.epoch)
    assert positions.handed_out(A, under_way.epoch, 10)


def test_a_seek_does_not_resume() -> None:
    positions = assigned()
    positions.pause([A])
    positions.seek(A, 5)
    assert positions.to_fetch(0.0) == []


def test_damaged_data_stops_a_partition_until_a_seek() -> None:
    positions = assigned(A, B)
    read(positions, 4)
    epoch = fetch(positions, 10)
    assert positions.stop(A, epoch)
    assert not positions.stop(A, epoch)
    assert [one.partition for one in positions.to_fetch(0.0)] == [B]
    assert (positions[A].position, positions.buffered_bytes) == (4, 0)
    positions.seek(A, 10)
    assert fetch_of(positions).offset == 10


# ---- resets, and offsets out of range


def test_a_place_is_asked_for_and_then_read_from() -> None:
    positions = assigned()
    positions.reset_to(A, Offset.latest())
    assert positions.to_fetch(0.0) == []
    (reset,) = positions.to_reset()
    assert reset.spec == Offset.latest()
    positions.found(reset, 50)
    assert positions.to_reset() == []
    assert fetch_of(positions).offset == 50


def test_a_plain_offset_needs_no_asking() -> None:
    positions = assigned()
    positions.reset_to(A, Offset.at(50))
    assert fetch_of(positions).offset == 50


def test_a_seek_wins_over_a_reset() -> None:
    positions = assigned()
    positions.reset_to(A, Offset.latest())
    (reset,) = positions.to_reset()
    positions.seek(A, 5)
    positions.found(reset, 50)
    assert positions[A].position == 5


def test_the_last_of_two_resets_wins() -> None:
    positions = assigned()
    positions.reset_to(A, Offset.latest())
    (late,) = positions.to_reset()
    positions.reset_to(A, Offset.earliest())
    positions.found(late, 50)
    assert [one.spec for one in positions.to_reset()] == [Offset.earliest()]


def test_an_offset_out_of_range_stops_the_partition_once() -> None:
    positions = assigned(at=7)
    asked = fetch_of(positions)
    assert positions.out_of_range(asked)
    assert not positions.out_of_range(asked)
    assert positions[A].state is State.STOPPED
    positions.reset_to(A, Offset.earliest())
    positions.found(positions.to_reset()[0], 100)
    assert fetch_of(positions).offset == 100


def test_only_the_offset_that_is_asked_for_now_is_out_of_range() -> None:
    positions = assigned(at=7)
    sought, late = fetch_of(positions), fetch_of(positions)
    positions.fetched(late, 10, WATERMARKS)
    assert not positions.out_of_range(late)
    positions.seek(A, 7)
    assert not positions.out_of_range(sought)
    assert positions[A].state is State.FETCHING


def test_a_followers_word_on_the_range_is_checked_with_the_leader() -> None:
    positions = assigned(at=7)
    positions.prefer(fetch_of(positions), 2, until=60.0)
    asked = fetch_of(positions)
    assert asked.replica == 2
    assert not positions.out_of_range(asked)
    assert fetch_of(positions).replica is None
    assert positions.out_of_range(fetch_of(positions))


def test_what_was_fetched_is_handed_out_before_a_partition_is_out_of_range() -> None:
    positions = assigned()
    epoch = fetch(positions, 10)
    assert not positions.out_of_range(fetch_of(positions))
    assert positions.to_fetch(0.0) == []
    positions.handed_out(A, epoch, 9)
    assert positions.to_fetch(0.0) == []
    positions.handed_out(A, epoch, 10, released=10)
    assert positions.out_of_range(fetch_of(positions))


# ---- leaders and replicas


def test_a_preferred_replica_is_asked_for_its_time() -> None:
    positions = assigned()
    positions.prefer(fetch_of(positions), 2, until=60.0)
    assert fetch_of(positions, now=59.9).replica == 2
    assert fetch_of(positions, now=60.0).replica is None


def test_a_new_leader_or_trouble_ends_the_preference() -> None:
    positions = assigned()
    asked = fetch_of(positions)
    positions.prefer(asked, 2, until=60.0)
    positions.leader_is(A, 4)
    assert fetch_of(positions).replica is None
    positions.prefer(asked, 2, until=60.0)
    assert fetch_of(positions).replica is None
    positions.prefer(fetch_of(positions), 2, until=60.0)
    positions.ask_leader(A)
    assert fetch_of(positions).replica is None


def test_leader_epochs_do_not_go_back() -> None:
    positions = assigned()
    for epoch in (5, 4, None, 5):
        positions.leader_is(A, epoch)
        assert fetch_of(positions).leader_epoch == 5
    positions.leader_is(B, 5)
    assert B not in positions


def test_a_new_leader_is_asked_whether_it_has_what_was_read() -> None:
    positions, asked = doubtful()
    assert (asked.offset, asked.offset_epoch, asked.leader_epoch) == (20, 3, 4)
    assert positions.to_fetch(0.0) == []
    assert positions.validated(asked, 20, 3) is None
    assert fetch_of(positions).offset == 20
    assert positions.to_validate() == []


def test_data_that_waits_is_handed_out_meanwhile() -> None:
    positions, asked = doubtful()
    assert positions.handed_out(A, asked.epoch, 15, 3)
    assert positions.validated(asked, 20, 3) is None
    assert positions.handed_out(A, asked.epoch, 20, 3)


def test_an_answer_of_the_old_leader_comes_too_late() -> None:
    positions = assigned()
    read(positions, 10)
    late = fetch_of(positions)
    positions.leader_is(A, 4)
    assert not positions.fetched(late, 20, WATERMARKS)
    assert not positions.out_of_range(late)
    assert positions[A].fetch_position == 10


def test_a_leader_that_cannot_tell_has_not_truncated() -> None:
    positions, asked = doubtful()
    assert positions.validated(asked, None) is None
    assert fetch_of(positions).offset == 20


def test_what_was_fetched_and_is_gone_is_fetched_again() -> None:
    positions, asked = doubtful()
    assert positions.validated(asked, 10, 3) is None
    assert not positions.handed_out(A, asked.epoch, 15, 3)
    assert fetch_of(positions).offset == 10
    assert positions.buffered_bytes == 0


def test_what_was_read_and_is_gone_is_reported_and_stops_the_partition() -> None:
    positions, asked = doubtful()
    assert positions.validated(asked, 9, 2) == Truncation(A, 10, 3, 9, 2)
    assert positions[A].state is State.STOPPED
    assert positions.validated(asked, 9, 2) is None
    positions.seek(A, 9, 2)
    assert positions[A].state is State.VALIDATING


def test_only_the_newest_leaders_word_counts() -> None:
    positions, late = doubtful()
    positions.leader_is(A, 5)
    assert positions.validated(late, 0, 3) is None
    (asked,) = positions.to_validate()
    assert asked.leader_epoch == 5
    assert positions.validated(asked, 20, 3) is None
    assert positions[A].state is State.FETCHING


def test_a_seek_wins_over_a_validation() -> None:
    positions, late = doubtful()
    positions.seek(A, 5)
    assert positions.validated(late, 0, 3) is None
    assert fetch_of(positions).offset == 5


def test_an_offset_of_an_older_epoch_is_validated() -> None:
    positions = Positions()
    positions.add([A])
    positions.leader_is(A, 4)
    positions.found_committed(positions.to_look_up()[0], 7, 3)
    assert positions[A].state is State.VALIDATING
    positions.seek(A, 7, 4)
    assert positions[A].state is State.FETCHING
    positions.seek(A, 7)
    assert positions[A].state is State.FETCHING


# ---- commits and lag


def test_a_commit_stores_what_was_handed_out_with_its_epoch() -> None:
    positions = assigned()
    epoch = fetch(positions, 10)
    positions.handed_out(A, epoch, 4, 3)
    commits = positions.to_commit()
    assert commits == {A: Commit(4, 3, positions[A].assignment)}
    positions.committed(commits)
    assert positions.to_commit() == {}


def test_who_commits_everything_is_done_with_it() -> None:
    positions = assigned()
    epoch = fetch(positions, 10)
    positions.handed_out(A, epoch, 4, 3)
    assignment = positions[A].assignment
    positions.committed({A: Commit(2, 3, assignment)})
    assert not positions.is_drained([A])
    positions.committed({A: Commit(4, 3, assignment + 1)})
    assert not positions.is_drained([A])
    positions.committed({A: Commit(4, 3, assignment)})
    assert positions.is_drained([A])
    assert positions.to_auto_commit() == {}


def test_commits_in_the_background_wait_until_the_application_asks_for_more() -> None:
    positions = assigned()
    epoch = fetch(positions, 10)
    positions.handed_out(A, epoch, 4, 3)
    assert positions.to_auto_commit() == {}
    positions.asked_for_more()
    assert offsets(positions.to_auto_commit()) == {A: 4}
    positions.handed_out(A, epoch, 10, 3)
    assert offsets(positions.to_auto_commit()) == {A: 4}
    assert offsets(positions.to_commit()) == {A: 10}


def test_a_place_that_was_chosen_is_committed_though_nothing_was_read() -> None:
    positions = assigned()
    positions.reset_to(A, Offset.latest())
    assert positions.to_commit() == positions.to_auto_commit() == {}
    positions.found(positions.to_reset()[0], 50)
    assert offsets(positions.to_auto_commit()) == {A: 50}


def test_a_seek_backwards_is_committed_too() -> None:
    positions = assigned(at=7)
    positions.seek(A, 3)
    assert offsets(positions.to_commit()) == offsets(positions.to_auto_commit()) == {A: 3}


def test_records_handed_out_before_a_seek_do_not_come_back_into_commits() -> None:
    positions = assigned()
    read(positions, 10)
    positions.seek(A, 3)
    positions.asked_for_more()
    assert offsets(positions.to_auto_commit()) == {A: 3}


def test_a_commit_of_an_older_assignment_says_nothing_of_this_one() -> None:
    positions = assigned()
    read(positions, 10)
    commits = positions.to_commit()
    positions.remove([A])
    positions.committed(commits)
    positions.add([A])
    positions.found_committed(positions.to_look_up()[0], 20)
    positions.committed(commits)
    assert positions[A].committed == 20


def test_lag_is_what_lies_before_the_position() -> None:
    positions = assigned(A, B)
    assert positions.lag() == {A: None, B: None}
    read(positions, 10)
    assert positions.lag() == {A: END - 10, B: None}
    positions.seek(A, END + 5)
    assert positions.lag()[A] == 0


def test_lag_ends_where_open_transactions_begin() -> None:
    positions = Positions(committed_only=True)
    positions.add([A])
    positions.seek(A, 0)
    positions.fetched(fetch_of(positions), 10, WATERMARKS)
    assert positions.lag() == {A: 900}
    positions.fetched(fetch_of(positions), 20, Watermarks(END))
    assert positions.lag() == {A: END}
