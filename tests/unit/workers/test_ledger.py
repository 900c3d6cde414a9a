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
    assert ledger.place(A) is None


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
    assert ledger.is_stored(A, 5)
    assert not ledger.is_stored(A, 8)


def test_nothing_goes_back(ledger: Ledger) -> None:
    ledger.done(A, 5, 5)
    ledger.done(A, 3, 3)
    ledger.stored({A: 5})
    ledger.stored({A: 4})
    assert ledger.due() == {}
    assert ledger.place(A) == 5
    assert ledger.waiting == 0


def test_place_is_what_is_stored_else_where_it_began(ledger: Ledger) -> None:
    ledger.given(A, 10)
    ledger.given(A, 12)
    assert ledger.place(A) == 10
    ledger.done(A, 12, 2)
    assert ledger.place(A) == 10
    ledger.stored(ledger.due())
    assert ledger.place(A) == 12


def test_partition_that_comes_back_begins_anew(ledger: Ledger) -> None:
    ledger.given(A, 10)
    ledger.done(A, 12, 2)
    ledger.remove(A)
    ledger.done(A, 13, 1)
    ledger.stored({A: 13})
    assert ledger.due([A, B]) == {}
    assert not ledger.is_stored(A, 1)
    ledger.add(A)
    assert ledger.due() == {}
    assert ledger.place(A) is None
