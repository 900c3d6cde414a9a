"""Both faces of Admin: each test runs once with Admin, once with AsyncAdmin.

AsyncAdmin's calls are awaited on a loop of the test, so one text serves both.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

import karrow
from tests.fix_any import AnyKafka

OPTIONS: Any = {"client_id": "admin", "api_timeout": 20.0}
PATIENCE = 20.0


class Awaited:
    """An Async object whose calls are awaited one by one."""

    def __init__(self, twin: Any, runner: asyncio.Runner) -> None:
        self.twin = twin
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.twin, name)
        if not callable(found):
            return Awaited(found, self._runner)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._runner.run(found(*args, **kwargs))

        return call


@pytest.fixture(params=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Iterator[Callable[..., karrow.Admin]]:
    """Makes an Admin, which is closed after the test."""
    made: list[karrow.Admin] = []
    with asyncio.Runner() as runner:

        def make(*args: Any, **options: Any) -> karrow.Admin:
            if request.param == "sync":
                made.append(karrow.Admin(*args, **options))
            else:
                twin = karrow.AsyncAdmin(*args, **options)
                made.append(cast(karrow.Admin, Awaited(twin, runner)))
            return made[-1]

        yield make
        for one in made:
            one.close()


@pytest.fixture
def admin(any_kafka: AnyKafka, face: Callable[..., karrow.Admin]) -> karrow.Admin:
    """Admin of the cluster with one node, embedded or real."""
    return face(any_kafka.bootstrap, **OPTIONS)


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def eventually(condition: Callable[[], object]) -> None:
    """Wait until it holds: brokers learn a moment later what the controller has decided."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
