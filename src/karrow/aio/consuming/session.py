"""Fetch sessions: the broker remembers what is fetched, and is told only what changed (KIP-227).

Rules:
- A session begins with a full fetch (id 0, epoch 0), which names every partition. The answer has
  its id, or 0 where the broker keeps none; then every fetch is a full one.
- After that a fetch names the partitions that are new or asked for differently, and those to
  forget.
- Whatever goes wrong with a fetch ends the session: the next one is full.
- A partition whose answer had data or an error comes first next time, as the broker keeps it in its
  own list, so that none starves.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NO_SESSION = 0
FINAL_EPOCH = -1
MAX_EPOCH = 2**31 - 1


class Plan(NamedTuple, Generic[K, V]):
    """What a fetch says: its session, the partitions it names, and those to be forgotten."""

    session_id: int
    epoch: int
    asked: dict[K, V]
    forgotten: tuple[K, ...]
    is_full: bool


class FetchSession(Generic[K, V]):
    """One broker's session, as the client keeps it.

    ``told`` is what the broker remembers, and ``names_by_id`` how it was told: a session that
    begins with names of topics must go on with names, and with ids if it began with those.
    ``topic_ids`` are the ones that it began with.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self.told: dict[K, V] = {}
        self.names_by_id = False
        self.topic_ids: dict[str, UUID | None] = {}
        self._enabled = enabled
        self._id = NO_SESSION
        self._epoch = 0

    @property
    def is_new(self) -> bool:
        """Whether the broker has yet to answer a fetch of this session."""
        return self._id == NO_SESSION

    def plan(self, wanted: Mapping[K, V]) -> Plan[K, V]:
        """How to ask for these partitions and no others."""
        if not self._enabled:
            return Plan(NO_SESSION, FINAL_EPOCH, dict(wanted), (), is_full=True)
        if self._id == NO_SESSION:
            self.told = dict(wanted)
            return Plan(NO_SESSION, 0, dict(wanted), (), is_full=True)
        changed = {key: value for key, value in wanted.items() if self.told.get(key) != value}
        gone = tuple(key for key in self.told if key not in wanted)
        self.told = dict(wanted)
        return Plan(self._id, self._epoch, changed, gone, is_full=False)

    def plan_moved(self, moved: dict[K, V]) -> Plan[K, V] | None:
        """How to go on asking for the same partitions, of which these are asked for differently.

        None where every fetch is a full one.
        """
        if self._id == NO_SESSION:
            return None
        self.told.update(moved)
        return Plan(self._id, self._epoch, moved, (), is_full=False)

    def answered(self, session_id: int) -> None:
        """A fetch was answered without an error at its top."""
        if not self._enabled:
            return
        if session_id == NO_SESSION:
            self.end()
        elif session_id != self._id:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1

    def end(self) -> None:
        """Begin again with a full fetch."""
        self._id, self._epoch = NO_SESSION, 0
        self.told = {}
