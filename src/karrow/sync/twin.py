"""What every blocking class has: the Async object that does the work, and the way to it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.sync.loop import run

if TYPE_CHECKING:
    from karrow.aio.client import AsyncClient

T = TypeVar("T")


class ClientTwin:
    """A blocking face of an AsyncClient that lives on karrow's own loop."""

    def __init__(self, twin: AsyncClient) -> None:
        self._twin = twin

    @property
    def twin(self) -> AsyncClient:
        """The AsyncClient behind it; its coroutines belong to karrow's own loop."""
        return self._twin

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run(coroutine, type(self._twin).__name__)
