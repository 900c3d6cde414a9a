"""How often workers may crash."""

from __future__ import annotations

from karrow.workers.restarts import Restarts


def test_so_many_in_a_window() -> None:
    restarts = Restarts(3, 5.0)
    assert [restarts.allow(now) for now in (0.0, 1.0, 2.0, 3.0)] == [True, True, True, False]


def test_window_moves_on() -> None:
    restarts = Restarts(3, 5.0)
    assert all(restarts.allow(now) for now in (0.0, 1.0, 2.0, 5.0, 6.0, 7.0))
    assert not restarts.allow(9.9)
    assert restarts.allow(10.0)


def test_none_at_all() -> None:
    assert not Restarts(0, 5.0).allow(0.0)
