"""What `make demo` runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "demo.py"
ORDERS = 240_000
# It takes less than a minute, but other tests may run beside it.
SECONDS = 300


@pytest.mark.gate
@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_by_a_killed_driver() -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--orders", str(ORDERS)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "120"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL, with the transaction of karrow.sink.orders.totals open" in done.stdout
    assert done.stdout.count(" yes ") == 4
    assert time.monotonic() - began < SECONDS
    table = done.stdout.partition("the totals")[2]
    rows = re.findall(r"^│ (.+?) +│ +([\d,]+) │ +[\d,.]+ │$", table, re.MULTILINE)
    assert len(rows) == 6, done.stdout
    # One in a thousand is no order.
    assert rows[-1] == ("all 50", f"{ORDERS - ORDERS // 1000:,}")
    for line in (
        rf"^{ORDERS:,} orders, .* and a crash \([\d,]+/s\)$",
        r"^full batches, .*: median [\d,]+/s each, best [\d,]+/s$",
    ):
        assert re.search(line, done.stdout, re.MULTILINE), done.stdout
