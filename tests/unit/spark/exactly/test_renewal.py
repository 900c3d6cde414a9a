"""The thread that keeps a ledger alive: while its query is there, and no longer."""

from __future__ import annotations

import threading

import pytest

from karrow.errors import Disconnected, ProducerFenced
from karrow.spark.exactly.batches import Batches
from karrow.spark.exactly.renewal import Renewal

LIMIT = 10.0


class Idle(Batches):
    """Batches that only count how often they are to be renewed."""

    def __init__(self, broken_after: int = 1000, error: Exception | None = None) -> None:
        self.sink_id = "totals"
        self.asked = 0
        self._error = error
        self.enough = threading.Event()
        self._broken_after = broken_after

    @property
    def is_broken(self) -> bool:
        return self.asked >= self._broken_after

    def renew(self, older_than: float) -> bool:
        assert older_than == 1.0
        self.asked += 1
        if self.asked >= 3:
            self.enough.set()
        if self.is_broken:
            raise ProducerFenced("another has it")
        if self._error is not None:
            raise self._error
        return True


def ended(renewal: Renewal) -> bool:
    renewal._thread.join(LIMIT)
    return not renewal._thread.is_alive()


def test_it_looks_until_it_is_stopped() -> None:
    batches = Idle()
    renewal = Renewal(batches, lambda: True, interval=1.0, look=0.01)
    assert batches.enough.wait(LIMIT)
    renewal.stop()
    assert ended(renewal)


def test_an_entry_is_renewed_once_a_day() -> None:
    """Of a sink that says nothing else; it looks more often, or the day would become two."""
    ages: list[float] = []
    asked = threading.Event()

    class Noting(Idle):
        def renew(self, older_than: float) -> bool:
            ages.append(older_than)
            asked.set()
            return False

    renewal = Renewal(Noting(), lambda: True)
    assert renewal._look <= 3600
    renewal.stop()
    assert ended(renewal)
    assert ages == [], "it was not time to look yet"
    renewal = Renewal(Noting(), lambda: True, look=0.01)
    assert asked.wait(LIMIT)
    renewal.stop()
    assert ended(renewal)
    assert set(ages) == {24 * 60 * 60}


def test_it_ends_with_its_query() -> None:
    batches = Idle()
    renewal = Renewal(batches, lambda: not batches.enough.is_set(), interval=1.0, look=0.01)
    assert ended(renewal)
    assert batches.asked == 3


def test_it_ends_when_the_sink_is_another_ones() -> None:
    batches = Idle(broken_after=2)
    assert ended(Renewal(batches, lambda: True, interval=1.0, look=0.01))
    assert batches.asked == 2


@pytest.mark.parametrize("error", [Disconnected("gone"), OSError("no more files"), KeyError(1)])
def test_whatever_goes_wrong_is_told_and_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    batches = Idle(error=error)
    renewal = Renewal(batches, lambda: True, interval=1.0, look=0.01)
    assert batches.enough.wait(LIMIT)
    renewal.stop()
    assert ended(renewal)
    assert f"sink totals: its ledger was not renewed: {error}" in caplog.text
