"""Both event loops: asyncio's own, and uvloop, which the sync face takes where it is installed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from karrow.sync import loop

FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}
TIMEOUT = 60.0

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=list(FACTORIES))
def on_loop(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine on one loop and then, in another test, on the other."""
    with asyncio.Runner(loop_factory=FACTORIES[request.param]) as runner:
        yield lambda main: runner.run(asyncio.wait_for(main, TIMEOUT))


@pytest.fixture(params=list(FACTORIES))
def background(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[asyncio.AbstractEventLoop]:
    """The loop behind every sync call of the test, of one kind and then of the other."""
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)  # as if it were not installed
    monkeypatch.setattr(loop, "_process", loop._Process())
    found = loop.background()
    assert type(found.loop).__module__.split(".")[0] == request.param
    yield found.loop
    found.stop()
