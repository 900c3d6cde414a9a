"""The example of workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "billing.py"


def test_two_members_bill_everything() -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "200,000 orders are billed, and the totals agree" in done.stdout
    assert done.stderr == ""
