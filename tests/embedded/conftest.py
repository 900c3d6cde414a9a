"""Fixtures that several tests of the embedded broker share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from karrow.broker.threaded import Broker
from tests.embedded.working import Notes


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    """A broker for all tests of a file, which reset it."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def notes() -> Notes:
    """What workers were told."""
    return Notes()
