"""A request on its way to its handler, and the table of handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from karrow.broker.cluster import Cluster
    from karrow.broker.session import Session
    from karrow.errors import BrokerError


@dataclass(slots=True)
class Call:
    """What a handler knows beside the request's body."""

    cluster: Cluster
    node_id: int
    session: Session
    api: str
    version: int
    client_id: str | None
    # An injected error that every part of the request fails with.
    failing: BrokerError | None = None

    def check_fault(self, topic: str, partition: int | None = None) -> None:
        """Raise the error that was injected for a topic or partition, if there is one."""
        if self.failing is not None:
            raise self.failing
        if self.cluster.faults:
            self.cluster.faults.check(self, topic, partition)


class Raw(NamedTuple):
    """Bytes to send instead of an answer."""

    data: bytes


class Damaged(NamedTuple):
    """An answer to be sent with one bit wrong; ``bit`` picks it, counted from the body's begin."""

    body: Any
    bit: int


class Throttled(NamedTuple):
    """An answer after which the connection is not read for a while (KIP-219)."""

    body: Any
    seconds: float


class Ending(Enum):
    """The outcome of a request that is not answered."""

    HANGUP = "the connection ends"
    SILENCE = "the connection stays open, and nothing is ever answered on it again"


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
