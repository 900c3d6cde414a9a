"""What every test run does first: check the kernel, choose the seed, say what is being tested."""

from __future__ import annotations

import os
import random
import signal
from datetime import UTC, datetime
from pathlib import Path

import hypothesis
import pytest

import karrow
from tests import kernel

# Each after those that it imports.
pytest_plugins = ["tests.fix_kafka", "tests.fix_any", "tests.fix_admin", "tests.fix_loops"]

SOURCES = Path(__file__).parent.parent / "src"
BUILT = Path(karrow.__file__).parent.parent
PROFILE = os.environ.get("KARROW_TEST_PROFILE", "gate")

hypothesis.settings.register_profile("gate", max_examples=60, deadline=None, print_blob=True)
hypothesis.settings.register_profile("full", max_examples=1_000, deadline=None, print_blob=True)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse to test a kernel older than its sources, and seed everything with one number."""
    outdated = kernel.outdated(SOURCES, BUILT)
    if outdated:
        raise pytest.UsageError(
            f"not compiled since last change: {', '.join(outdated)}; run `make setup`"
        )
    # A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.load_profile(PROFILE)
    if config.getoption("randomly_seed", "default") == "default":
        config.option.randomly_seed = random.SystemRandom().getrandbits(32)
    if config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(config.getoption("randomly_seed"))


def pytest_report_header() -> list[str]:
    """The kernel under test and how much is drawn; pytest-randomly prints the seed itself."""
    built = max(path.stat().st_mtime for path in kernel.extensions(BUILT))
    time = f"{datetime.fromtimestamp(built, UTC):%Y-%m-%d %H:%M} UTC"
    return [
        f"kernel: {karrow.records.build_info()}, {time}",
        f"profile: {PROFILE} (KARROW_TEST_PROFILE)",
    ]
