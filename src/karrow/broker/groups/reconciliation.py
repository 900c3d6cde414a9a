"""A member's way from what it owns to what it should own (KIP-848).

States of a member:

    STABLE       it owns what the target of its epoch gives it
    UNREVOKED    it has been told to give up partitions, and has yet to say that it has
    UNRELEASED   it waits for partitions that others have yet to give up

Rules:
- A partition has one owner at a time: it is assigned only when nobody owns it, nor is giving it up.
- A member that has to give up partitions stays in its epoch until it says that it owns them no
  more; then it goes on to the target's epoch.
- Waiting for others does not hold a member back: it is in the target's epoch, and gets the rest as
  soon as that is free.
- Since when a member has a partition is remembered: it may store offsets of it with any epoch from
  then on (KIP-1251).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from karrow.broker.clock import Timer
    from karrow.broker.groups.assignors import Partition

NOTHING: frozenset[Partition] = frozenset()


class MemberState(Enum):
    """How far a member has come."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    UNRELEASED = "unreleased"


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member of a group of the consumer protocol."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: float = -1.0
    topics: frozenset[str] = frozenset()
    regex: str = ""
    # The topics that the regular expression stands for.
    matched: frozenset[str] = frozenset()
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: frozenset[Partition] = NOTHING
    revoking: frozenset[Partition] = NOTHING
    # The epoch in which it got each of its partitions.
    since: dict[Partition, int] = field(default_factory=dict)
    session: Timer | None = None
    revocation: Timer | None = None

    @property
    def subscribed(self) -> frozenset[str]:
        """All topics that it wants, by name and by regular expression."""
        return self.topics | self.matched

    def is_at(self, epoch: int) -> bool:
        """Whether it has all that the target of an epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def may_store(self, epoch: int, partitions: frozenset[Partition]) -> bool:
        """Whether it may store offsets, naming an epoch."""
        if epoch >= self.epoch:
            return epoch == self.epoch
        return all(self.since.get(partition, self.epoch) <= epoch for partition in partitions)

    def reconcile(
        self,
        epoch: int,
        target: frozenset[Partition],
        owned: frozenset[Partition] | None,
        taken: frozenset[Partition],
    ) -> bool:
        """Take a step towards a target; whether there was one to take.

        ``owned`` is what the member says it owns, None if it says nothing. ``taken`` is what other
        members own or are giving up.
        """
        if self.is_at(epoch):
            return False
        current = self.epoch
        if self.state is MemberState.UNREVOKED:
            if _holds(owned, self.revoking):
                return False
            current += 1
        before = (self.state, self.epoch, self.assigned, self.revoking)
        self._step(current, epoch, target, owned, taken | self.revoking)
        return before != (self.state, self.epoch, self.assigned, self.revoking)

    def _step(
        self,
        current: int,
        epoch: int,
        target: frozenset[Partition],
        owned: frozenset[Partition] | None,
        taken: frozenset[Partition],
    ) -> None:
        kept = self.assigned & target
        gained = target - kept - taken
        revoked = self.assigned - kept
        if revoked and _holds(owned, revoked):
            self.state, self.assigned, self.revoking = MemberState.UNREVOKED, kept, revoked
            self._enter(current)
            return
        complete = kept | gained == target
        self.state = MemberState.STABLE if complete else MemberState.UNRELEASED
        self.assigned, self.revoking = kept | gained, NOTHING
        self.since = {p: self.since.get(p, epoch) for p in kept} | dict.fromkeys(gained, epoch)
        self._enter(epoch)

    def _enter(self, epoch: int) -> None:
        self.epoch, self.previous_epoch = epoch, self.epoch

    def stop_timers(self) -> None:
        """Expect nothing of it any more."""
        for timer in (self.session, self.revocation):
            if timer is not None:
                timer.cancel()
        self.session = self.revocation = None

    def row(self) -> dict[str, Any]:
        """What outlives the broker."""
        return {
            "id": self.id,
            "instance_id": self.instance_id,
            "rack_id": self.rack_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "rebalance_timeout": self.rebalance_timeout,
            "topics": sorted(self.topics),
            "regex": self.regex,
            "matched": sorted(self.matched),
            "assignor": self.assignor,
            "epoch": self.epoch,
            "previous_epoch": self.previous_epoch,
            "state": self.state.value,
            "assigned": to_row(self.assigned),
            "revoking": to_row(self.revoking),
            "since": [[str(topic), index, e] for (topic, index), e in self.since.items()],
        }

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> ConsumerMember:
        """A member of an earlier run."""
        changed = {
            "topics": frozenset(row["topics"]),
            "matched": frozenset(row["matched"]),
            "state": MemberState(row["state"]),
            "assigned": from_row(row["assigned"]),
            "revoking": from_row(row["revoking"]),
            "since": {(UUID(topic), index): epoch for topic, index, epoch in row["since"]},
        }
        return cls(**{**row, **changed})


def to_row(partitions: frozenset[Partition]) -> list[list[Any]]:
    """Partitions as they are written down."""
    return [[str(topic), partition] for topic, partition in sorted(partitions)]


def from_row(row: list[list[Any]]) -> frozenset[Partition]:
    """Partitions that were written down."""
    return frozenset((UUID(topic), partition) for topic, partition in row)


def _holds(owned: frozenset[Partition] | None, revoked: frozenset[Partition]) -> bool:
    return owned is None or bool(owned & revoked)
