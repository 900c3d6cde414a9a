"""The smaller example beside `make demo`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import karrow

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "orders.py"


def run(*arguments: str) -> str:
    command = [sys.executable, str(EXAMPLE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_example_brings_everything_back() -> None:
    assert "300,000 orders came back, and the totals agree" in run()


def test_the_example_runs_on_another_broker() -> None:
    with karrow.Broker(3) as broker:
        assert "the totals agree" in run(broker.bootstrap)
        with karrow.Admin(broker.bootstrap) as admin:
            assert admin.list_topics() == [], "it cleans up"
