"""What the blocking Admin stands on: the AsyncAdmin that does the work, and the Client it holds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from karrow.aio.admin import AsyncAdmin
from karrow.sync.loop import run

if TYPE_CHECKING:
    from karrow.sync.client import Client

P = ParamSpec("P")
T = TypeVar("T")


class AdminTwin:
    """A blocking face of an AsyncAdmin that lives on karrow's own loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._twin = AsyncAdmin(client.twin)

    @property
    def client(self) -> Client:
        """The client it speaks through; its ``request`` sends what Admin has no call for."""
        return self._client

    @property
    def twin(self) -> AsyncAdmin:
        """The AsyncAdmin behind it; its coroutines belong to karrow's own loop."""
        return self._twin

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run(coroutine, type(self._twin).__name__)


def of_client(
    call: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AdminTwin, P], T]:
    """A call of the Client as one of Admin's, so that it is written once."""

    @functools.wraps(call)
    def delegate(self: AdminTwin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return call(self.client, *args, **kwargs)

    return delegate
