"""How long callers may wait."""

from __future__ import annotations

import math
import time

import pytest

from karrow.aio.waiting import deadline_after, seconds_left
from karrow.errors import ConfigError


def test_a_deadline_is_so_many_seconds_away() -> None:
    before = time.monotonic()
    deadline = deadline_after(5)
    assert deadline is not None
    assert before + 5 <= deadline <= time.monotonic() + 5


@pytest.mark.parametrize("timeout", [None, math.inf, 1e300])
def test_what_no_lock_can_count_is_for_ever(timeout: float | None) -> None:
    assert seconds_left(deadline_after(timeout)) is None


@pytest.mark.parametrize("timeout", ["5", [], math.nan])
def test_what_is_no_number_of_seconds_is_refused(timeout: object) -> None:
    with pytest.raises(ConfigError, match=r"timeout=.* is not a number of seconds"):
        deadline_after(timeout)  # type: ignore[arg-type]
