"""What workers are done with, and where they go on after a crash."""

from __future__ import annotations

import pytest

from karrow.types import TopicPartition
from karrow.workers.ledger import Ledger

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


@pytest.fixture
def ledger() -> Ledger:
    found = Ledger()
    found.add(A)
    found.add(B)
    return found


def test_nothing_is_due_at_first(ledger: Ledger) -> None:
    assert ledger.due() == {}
    assert ledger.waiting == 0
    assert ledger.go_back(A) is None


def test_what_is_done_is_due_until_it_is_stored(ledger: Ledger) -> None:
    ledger.done(A, 5, 5)
    ledger.done(B, 7, 2)
    assert ledger.due() == {A: 5, B: 7}
    assert ledger.due([A]) == {A: 5}
    assert ledger.waiting == 7
    ledger.stored({A: 5})
    assert ledger.due() == {B: 7}
    assert ledger.waiting == 2


def test_what_is_done_meanwhile_waits_for_the_next_commit(ledger: Ledger) -> None:
    ledger.done(A, 5, 5)
    offsets = ledger.due()
    ledger.done(A, 8, 3)
    ledger.stored(offsets)
    assert ledger.due() == {A: 8}
    assert not ledger.is_owed(A, 5)
    assert ledger.is_owed(A, 8)


def test_nothing_goes_back(ledger: Ledger) -> None:
    ledger.done(A, 5, 5)
    ledger.done(A, 3, 3)
    ledger.stored({A: 5})
    ledger.stored({A: 4})
    assert ledger.due() == {}
    assert ledger.go_back(A) == 5
    assert ledger.waiting == 0


def test_place_is_what_is_stored_else_where_it_began(ledger: Ledger) -> None:
    ledger.given(A, 10)
    ledger.given(A, 12)
    assert ledger.go_back(A) == 10
    ledger.done(A, 12, 2)
    assert ledger.go_back(A) == 10
    ledger.stored(ledger.due())
    assert ledger.go_back(A) == 12


def test_partition_that_comes_back_begins_anew(ledger: Ledger) -> None:
    ledger.given(A, 10)
    ledger.done(A, 12, 2)
    ledger.remove(A)
    ledger.done(A, 13, 1)
    ledger.stored({A: 13})
    assert ledger.due([A, B]) == {}
    assert not ledger.is_owed(A, 1), "nobody is left to store it for"
    ledger.add(A)
    assert ledger.due() == {}
    assert ledger.go_back(A) is None


def test_what_comes_is_behind_what_was_reached_unless_the_log_was_cut(ledger: Ledger) -> None:
    assert not ledger.is_before(A, 0)
    ledger.given(A, 10)
    ledger.reached(A, 15, None)
    assert not ledger.is_before(A, 15)
    assert not ledger.is_before(A, None)
    assert ledger.is_before(A, 14)


def test_worker_that_goes_back_is_given_what_was_reached_before(ledger: Ledger) -> None:
    ledger.given(A, 10)
    ledger.reached(A, 15, None)
    assert ledger.go_back(A) == 10
    assert not ledger.is_before(A, 10)
    assert ledger.is_before(A, 9)


def test_epoch_is_the_last_that_was_known(ledger: Ledger) -> None:
    assert ledger.epoch(A) is None
    ledger.reached(A, 5, 3)
    ledger.reached(A, 6, None)
    assert ledger.epoch(A) == 3
    ledger.remove(A)
    assert ledger.epoch(A) is None


def test_log_is_that_of_the_partition_when_it_came(ledger: Ledger) -> None:
    ledger.add(A, 7)
    assert ledger.is_of(A, 7)
    assert not ledger.is_of(A, 8)
    ledger.remove(A)
    assert ledger.is_of(A, 8)
