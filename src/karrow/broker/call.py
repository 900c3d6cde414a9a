"""A request on its way to its handler, and the table of handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from karrow.broker.cluster import Cluster
    from karrow.broker.session import Session


@dataclass(slots=True)
class Call:
    """What a handler knows beside the request's body."""

    cluster: Cluster
    node_id: int
    session: Session
    api: str
    version: int
    client_id: str | None


class Raw(NamedTuple):
    """Bytes to send instead of an answer."""

    data: bytes


class Hangup:
    """The outcome of a request that ends its connection."""


HANGUP = Hangup()

# A handler gives the answer's body, something to await for it, or None for no answer at all.
Handler = Callable[[Call, Any], Any | Awaitable[Any] | None]
H = TypeVar("H", bound=Handler)

HANDLERS: dict[str, Handler] = {}


def handles(api: str) -> Callable[[H], H]:
    """Register a function as the handler of an API."""

    def register(handler: H) -> H:
        HANDLERS[api] = handler
        return handler

    return register
