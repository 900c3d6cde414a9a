"""Offsets that groups have stored, and those that open transactions may still store.

Rules:
- A transaction's offsets are pending until it ends. Then they count as stored at the time they were
  sent: an offset that was stored since then without a transaction stays.
- An offset that is deleted is gone from open transactions too.
- Everything is written down before it is answered, what is pending too: both outlive the broker.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from karrow.broker.store import Store

COMMITTED, PENDING = "offsets", "pending_offsets"

Place = tuple[str, int]
"""A topic's name and a partition."""


class Commit(NamedTuple):
    """What was stored for a partition; ``expires_ms`` only if the request named a retention."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    timestamp_ms: int = 0
    expires_ms: int | None = None
    # In which order offsets were sent, over all groups.
    serial: int = 0


class Offsets:
    """The offsets of all groups."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._committed: dict[str, dict[Place, Commit]] = {}
        # By producer and group.
        self._pending: dict[int, dict[str, dict[Place, Commit]]] = {}
        self._serial = itertools.count(1)

    def recover(self) -> set[str]:
        """Bring back the offsets of an earlier run; gives the groups that have some."""
        last = 0
        for key, row in self._store.load(COMMITTED).items():
            topic, partition, group = key.split("/", 2)
            self._committed.setdefault(group, {})[topic, int(partition)] = Commit(*row)
            last = max(last, Commit(*row).serial)
        for key, row in self._store.load(PENDING).items():
            producer, topic, partition, group = key.split("/", 3)
            groups = self._pending.setdefault(int(producer), {})
            groups.setdefault(group, {})[topic, int(partition)] = Commit(*row)
            last = max(last, Commit(*row).serial)
        self._serial = itertools.count(last + 1)
        return {*self._committed, *(group for groups in self._pending.values() for group in groups)}

    def of(self, group_id: str) -> Mapping[Place, Commit]:
        """Everything that a group has stored."""
        return self._committed.get(group_id, {})

    def put(self, group_id: str, place: Place, commit: Commit) -> None:
        """Store an offset."""
        self._put(group_id, place, commit._replace(serial=next(self._serial)))

    def remove(self, group_id: str, place: Place) -> None:
        """Forget an offset, also one that a transaction has yet to store."""
        offsets = self._committed.get(group_id, {})
        if offsets.pop(place, None) is not None:
            self._store.put(COMMITTED, _key(group_id, place), None)
        if not offsets:
            self._committed.pop(group_id, None)
        for producer_id, groups in self._pending.items():
            if groups.get(group_id, {}).pop(place, None) is not None:
                self._store.put(PENDING, f"{producer_id}/{_key(group_id, place)}", None)

    def remove_group(self, group_id: str) -> None:
        """Forget everything of a group."""
        for place in {*self.of(group_id), *self._pending_places(group_id)}:
            self.remove(group_id, place)

    def remove_topic(self, topic: str) -> None:
        """Forget what any group has stored for a topic that is gone."""
        groups = {*self._committed, *(group for by in self._pending.values() for group in by)}
        for group_id in groups:
            for place in {*self.of(group_id), *self._pending_places(group_id)}:
                if place[0] == topic:
                    self.remove(group_id, place)

    # Transactions.

    def add_pending(self, producer_id: int, group_id: str, offsets: Mapping[Place, Commit]) -> None:
        """Keep offsets until their transaction ends."""
        kept = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
        for place, commit in offsets.items():
            kept[place] = commit._replace(serial=next(self._serial))
            self._store.put(PENDING, f"{producer_id}/{_key(group_id, place)}", list(kept[place]))

    def complete(self, producer_id: int, *, commit: bool) -> None:
        """End a producer's transaction."""
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            for place, sent in offsets.items():
                stored = self.of(group_id).get(place)
                if commit and (stored is None or stored.serial < sent.serial):
                    self._put(group_id, place, sent)
                self._store.put(PENDING, f"{producer_id}/{_key(group_id, place)}", None)

    def is_pending(self, group_id: str, place: Place) -> bool:
        """Whether an open transaction may change an offset."""
        return place in self._pending_places(group_id)

    def is_open(self, group_id: str) -> bool:
        """Whether any open transaction has offsets of a group."""
        return any(group_id in groups for groups in self._pending.values())

    def _pending_places(self, group_id: str) -> Iterator[Place]:
        for groups in self._pending.values():
            yield from groups.get(group_id, ())

    def _put(self, group_id: str, place: Place, commit: Commit) -> None:
        self._committed.setdefault(group_id, {})[place] = commit
        self._store.put(COMMITTED, _key(group_id, place), list(commit))


def _key(group_id: str, place: Place) -> str:
    """Only the group's id may have a slash in it, so it comes last."""
    return f"{place[0]}/{place[1]}/{group_id}"
