"""What producers did, as they saw it: every record sent, and what became of it.

A record is *ok* with a place, *failed* when it surely was not written, or *indefinite* when nobody
knows; the last is neither of the other two.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

Kind = Literal["ok", "failed", "indefinite"]


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


class Payload(NamedTuple):
    """Who sent a record, and as which of its records; no two are equal."""

    writer: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.writer}/{self.sequence}"

    def __bytes__(self) -> bytes:
        return str(self).encode()

    @classmethod
    def parse(cls, value: bytes) -> Self | None:
        """The payload that a record's value is, None for any other value; padding is ignored."""
        writer, slash, number = value.partition(b" ")[0].decode("utf-8", "replace").rpartition("/")
        if not slash or not number.isdecimal():
            return None
        return cls(writer, int(number))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How sending a record ended; an ok one may lack its offset."""

    kind: Kind
    partition: int | None = None
    offset: int | None = None
    error: str = ""


class EventLog:
    """Every record sent, in the order of each writer, and its outcome."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[Payload, Outcome | None] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def __iter__(self) -> Iterator[tuple[Payload, Outcome | None]]:
        return iter(list(self._sent.items()))

    def send(self, payload: Payload) -> None:
        """A record is about to be sent."""
        with self._lock:
            if payload in self._sent:
                raise ValueError(f"{payload} was sent before")
            self._sent[payload] = None

    def settle(self, payload: Payload, outcome: Outcome) -> None:
        """It has its outcome."""
        with self._lock:
            if self._sent[payload] is not None:
                raise ValueError(f"{payload} has two outcomes")
            self._sent[payload] = outcome

    def counts(self) -> dict[str, int]:
        """How many records ended how."""
        found: dict[str, int] = {}
        for _, outcome in self:
            kind = "unsettled" if outcome is None else outcome.kind
            found[kind] = found.get(kind, 0) + 1
        return found
