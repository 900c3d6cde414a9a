"""What `make demo` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.mark.gate
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_by_a_killed_driver() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--orders", "240000"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL, with the transaction of karrow.sink.orders.totals open" in done.stdout
    assert done.stdout.count(" yes ") == 4
