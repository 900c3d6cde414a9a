"""A member of a classic group, what it asks for, and what it is told."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from karrow import errors

if TYPE_CHECKING:
    from karrow.broker.clock import Timer

T = TypeVar("T")

Protocols = tuple[tuple[str, bytes], ...]
"""Names with metadata, the member's favourite first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A member's wish to join; versions are told apart by what their clients can do."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: Protocols
    # From version 4 on a new member is given an id first and joins with that (KIP-394).
    takes_id_first: bool = True
    # From version 9 on a leader can be told to leave the assignment as it is (KIP-814).
    can_skip_assignment: bool = True


class Joined(NamedTuple):
    """The answer to a join; only the leader is told of the others."""

    generation: int
    protocol_type: str
    protocol_name: str
    leader: str
    member_id: str
    members: tuple[Member, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A member's wish for its assignment; the leader's has everyone's."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes]


class Synced(NamedTuple):
    """A member's part of the leader's assignment."""

    protocol_type: str
    protocol_name: str
    assignment: bytes


@dataclass(slots=True, eq=False)
class Member:
    """One member, with the requests of it that wait."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: Protocols
    assignment: bytes = b""
    # Until its first join is answered, a member cannot know its id, nor send heartbeats.
    is_new: bool = False
    joining: asyncio.Future[Joined] | None = None
    syncing: asyncio.Future[Synced] | None = None
    session: Timer | None = None

    @property
    def names(self) -> list[str]:
        """The protocols it speaks."""
        return [name for name, _ in self.protocols]

    @property
    def waits(self) -> bool:
        """Whether a request of it waits, so that it cannot send heartbeats."""
        return self.joining is not None or self.syncing is not None

    def metadata(self, protocol: str | None) -> bytes:
        """What it says of itself to those who speak a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def update(self, wish: Join) -> None:
        """Take over what may change with every join."""
        self.protocols = wish.protocols
        self.rebalance_timeout = wish.rebalance_timeout
        self.session_timeout = wish.session_timeout

    def wait_to_join(self) -> asyncio.Future[Joined]:
        """An answer to come; a join that waits already is sent back to try again."""
        self.answer_join(errors.RebalanceInProgress("the member has joined again"))
        self.joining = asyncio.get_running_loop().create_future()
        return self.joining

    def wait_to_sync(self) -> asyncio.Future[Synced]:
        """An answer to come; a sync that waits already is sent back to try again."""
        self.answer_sync(errors.RebalanceInProgress("the member has asked again"))
        self.syncing = asyncio.get_running_loop().create_future()
        return self.syncing

    def answer_join(self, outcome: Joined | errors.BrokerError) -> bool:
        """Answer a join, if one waits."""
        waiting, self.joining = self.joining, None
        return _answer(waiting, outcome)

    def answer_sync(self, outcome: Synced | errors.BrokerError) -> bool:
        """Answer a sync, if one waits."""
        waiting, self.syncing = self.syncing, None
        return _answer(waiting, outcome)

    def end_session(self) -> None:
        """Expect no more heartbeats."""
        if self.session is not None:
            self.session.cancel()
            self.session = None

    def row(self) -> dict[str, Any]:
        """What outlives the broker."""
        return {
            "id": self.id,
            "instance_id": self.instance_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "session_timeout": self.session_timeout,
            "rebalance_timeout": self.rebalance_timeout,
            "protocols": [[name, _text(data)] for name, data in self.protocols],
            "assignment": _text(self.assignment),
        }

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Member:
        """A member of an earlier run."""
        protocols = tuple((name, base64.b64decode(data)) for name, data in row["protocols"])
        assignment = base64.b64decode(row["assignment"])
        return cls(**{**row, "protocols": protocols, "assignment": assignment})


def _answer(waiting: asyncio.Future[T] | None, outcome: T | errors.BrokerError) -> bool:
    """Whoever asked may be gone with its connection; then there is nobody to tell."""
    if waiting is None:
        return False
    if not waiting.done():
        if isinstance(outcome, errors.BrokerError):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)
    return True


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
