"""Points at which tests have processes fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from karrow.spark.exactly import crash


@pytest.fixture(autouse=True)
def peace() -> Iterator[None]:
    yield
    crash.use("")


def test_points_do_nothing_unless_told() -> None:
    for point in crash.POINTS:
        crash.crash_point(point)


def test_point_fails_once_in_its_batch(tmp_path: Path) -> None:
    crash.use(f"raise=stored@2:{tmp_path / 'flag'}", 1)
    crash.crash_point("stored")
    crash.note_batch(2)
    crash.crash_point("ended")
    with pytest.raises(crash.CrashError, match="stored"):
        crash.crash_point("stored")
    crash.crash_point("stored")


def test_point_waits_while_its_file_is_there(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    crash.use(f"wait=opened:{hold}")
    waiting = threading.Thread(target=crash.crash_point, args=["opened"])
    waiting.start()
    while not hold.with_suffix(".seen").exists():
        assert waiting.is_alive()
    hold.unlink()
    waiting.join(10)
    assert not waiting.is_alive()


@pytest.mark.parametrize("text", ["nowhere:file", "stored", "stored@2"])
def test_wrong_orders_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="KARROW_CRASH"):
        crash.use(text)
