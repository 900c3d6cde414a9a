"""A group of the consumer protocol (KIP-848): the broker assigns, members follow at their pace.

States of a group:

    Empty         no members
    Assigning     something has changed, and the next heartbeat makes a new target
    Reconciling   there is a target, and some member has not reached it
    Stable        every member owns what it should

Rules:
- The group's epoch grows with every change: a member comes, goes or wants other topics; a wanted
  topic appears, disappears or grows. A group begins in epoch 1, with a target of nothing.
- The first heartbeat after a change computes the target of the new epoch. Members learn of it with
  their own heartbeats, see reconciliation.py.
- A member that names an epoch which is not its own is fenced, and starts again with epoch 0. The
  epoch before is accepted from one that owns no more than it should: the last answer was lost.
- A static member that leaves for a while (epoch -2) keeps its partitions until its session ends;
  who comes with the same instance gets them. While it is there, nobody else can have its instance.
- A member that is silent for the session, or does not give up partitions within its rebalance
  time-out, is removed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from karrow import errors
from karrow.broker.groups.assignors import ASSIGNORS, Partition, Subscriber
from karrow.broker.groups.reconciliation import (
    NOTHING,
    ConsumerMember,
    MemberState,
    from_row,
    to_row,
)

if TYPE_CHECKING:
    from karrow.broker.cluster import Cluster
    from karrow.broker.groups.offsets import Place

SESSION_TIMEOUT = 45.0
HEARTBEAT_INTERVAL = 5.0
FIRST_EPOCH = 1
LEAVE, LEAVE_FOR_A_WHILE = -1, -2
DEFAULT_ASSIGNOR = next(iter(ASSIGNORS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat; None means unchanged."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: float | None = None
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[Partition] | None = None

    @property
    def is_full(self) -> bool:
        """Whether it says everything, so that it wants to hear everything too."""
        subscribes = self.topics is not None or self.regex is not None
        told = self.rebalance_timeout is not None and subscribes and self.owned is not None
        return self.epoch == 0 or told


class Beaten(NamedTuple):
    """The answer to a heartbeat; the assignment is None if the member knows it."""

    member_id: str
    epoch: int
    assignment: frozenset[Partition] | None = None


class ConsumerGroup:
    """One group and its members."""

    kind = "consumer"
    protocol_type = "consumer"

    def __init__(
        self, group_id: str, *, cluster: Cluster, keep: Callable[[ConsumerGroup], None]
    ) -> None:
        self.id = group_id
        self.epoch = FIRST_EPOCH
        self.target_epoch = FIRST_EPOCH
        self.target: dict[str, frozenset[Partition]] = {}
        self.members: dict[str, ConsumerMember] = {}
        # The wanted topics that exist: their ids and sizes when the last target was made.
        self._known: dict[str, tuple[UUID, int]] = {}
        self._cluster = cluster
        self._keep = keep

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def state_name(self) -> str:
        """Its state, as others are told."""
        if self.is_empty:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        settled = all(member.is_at(self.target_epoch) for member in self.members.values())
        return "Stable" if settled else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor that most members name, or the default."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR

    # What members ask.

    def heartbeat(self, beat: Beat) -> Beaten:
        """Take a member in, or a step further."""
        member = self._find(beat)
        is_new = member.id not in self.members
        before = member.assigned
        changed = self._update(member, beat)
        self.members[member.id] = member
        stepped = self._refresh(changed=changed)
        stepped |= self._reconcile(member, beat.owned)
        self._extend(member)
        if is_new or changed or stepped:
            self._keep(self)
        is_told = beat.is_full or member.assigned != before
        return Beaten(member.id, member.epoch, member.assigned if is_told else None)

    def depart(self, member_id: str, instance_id: str | None, epoch: int) -> Beaten:
        """Remove a member, or let a static one go for a while."""
        member = self._known_member(member_id, instance_id)
        if epoch == LEAVE_FOR_A_WHILE:
            member.epoch, member.revoking = LEAVE_FOR_A_WHILE, NOTHING
            self._keep(self)
        else:
            self._remove([member])
        return Beaten(member_id, epoch)

    def leave(
        self, leaving: list[tuple[str, str | None]]
    ) -> list[tuple[str, str | None, errors.BrokerError | None]]:
        """Remove members by id, or static ones by their instance; each by itself."""
        outcomes: list[tuple[str, str | None, errors.BrokerError | None]] = []
        found = []
        for member_id, instance_id in leaving:
            try:
                static = None if member_id else self._by_instance(instance_id)
                found.append(static or self._known_member(member_id, instance_id))
                outcomes.append((member_id, instance_id, None))
            except errors.BrokerError as error:
                outcomes.append((member_id, instance_id, error))
        self._remove(found)
        return outcomes

    # What commits and administrators ask.

    def check_commit(
        self, member_id: str, epoch: int, places: Iterable[Place] = (), *, knows_epochs: bool = True
    ) -> None:
        """Refuse offsets from those who may not store them."""
        if epoch < 0 and self.is_empty:
            return
        member = self._member(member_id)
        if not knows_epochs:
            raise errors.UnsupportedVersion("members of this protocol need OffsetCommit version 9")
        topics = self._cluster.topics
        partitions = frozenset((topics[name].id, index) for name, index in places)
        if not (member.may_store(epoch, partitions) if partitions else epoch == member.epoch):
            raise errors.StaleMemberEpoch(f"the member's epoch is {member.epoch}")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuse to tell offsets to a member that is not up to date."""
        if member_id is None and epoch < 0:
            return
        member = self._member(member_id or "")
        if epoch != member.epoch:
            raise errors.StaleMemberEpoch(f"the member's epoch is {member.epoch}")

    def check_offset_delete(self) -> None:
        """It is always allowed, topic by topic."""

    def check_delete(self) -> None:
        """Refuse to delete a group in use."""
        if not self.is_empty:
            raise errors.NonEmptyGroup("The group is not empty.")

    def subscribes(self, topic: str) -> bool:
        """Whether members want a topic."""
        return any(topic in member.subscribed for member in self.members.values())

    def retention_start(self, committed_ms: int) -> int | None:
        """From when on an offset of a topic that nobody wants grows old."""
        return committed_ms

    def expire_session(self, member_id: str) -> None:
        """End a member's session now."""
        if member_id in self.members:
            self._remove([self.members[member_id]])

    def close(self) -> None:
        """Cancel every timer."""
        for member in self.members.values():
            member.stop_timers()

    # Who asks.

    def _find(self, beat: Beat) -> ConsumerMember:
        if beat.epoch == 0:
            return self._joining(beat)
        member = self._known_member(beat.member_id, beat.instance_id)
        self._check_epoch(member, beat)
        return member

    def _known_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            return self._member(member_id)
        return self._static(member_id, instance_id)

    def _joining(self, beat: Beat) -> ConsumerMember:
        old = self._by_instance(beat.instance_id)
        if old is None:
            return self.members.get(beat.member_id) or ConsumerMember(beat.member_id)
        if old.epoch != LEAVE_FOR_A_WHILE:
            raise errors.UnreleasedInstanceId(
                f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join "
                f"the group because the instance id is owned by {old.id} member."
            )
        old.stop_timers()
        del self.members[old.id]
        self.target[beat.member_id] = self.target.pop(old.id, NOTHING)
        old.id, old.epoch, old.previous_epoch = beat.member_id, 0, 0
        self.members[old.id] = old
        return old

    def _member(self, member_id: str) -> ConsumerMember:
        if member_id not in self.members:
            raise errors.UnknownMemberId(f"Member {member_id} is not a member of group {self.id}.")
        return self.members[member_id]

    def _static(self, member_id: str, instance_id: str) -> ConsumerMember:
        member = self._by_instance(instance_id)
        if member is None:
            raise errors.UnknownMemberId(f"Instance id {instance_id} is unknown.")
        if member.id != member_id:
            raise errors.FencedInstanceId(
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.id}."
            )
        return member

    def _by_instance(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def _check_epoch(self, member: ConsumerMember, beat: Beat) -> None:
        if beat.epoch == member.epoch:
            return
        is_repeated = beat.epoch == member.previous_epoch and beat.owned is not None
        if beat.epoch < member.epoch and is_repeated and (beat.owned or NOTHING) <= member.assigned:
            return
        size = "greater" if beat.epoch > member.epoch else "smaller"
        raise errors.FencedMemberEpoch(
            f"The consumer group member has a {size} member epoch ({beat.epoch}) than the one "
            f"known by the group coordinator ({member.epoch}). The member must abandon all its "
            "partitions and rejoin."
        )

    # What changes.

    def _update(self, member: ConsumerMember, beat: Beat) -> bool:
        """Take over what the heartbeat says; whether the member wants other topics now."""
        wanted = member.subscribed
        for name in ("instance_id", "rack_id", "rebalance_timeout", "topics", "regex", "assignor"):
            said = getattr(beat, name)
            if said is not None:
                setattr(member, name, said)
        member.client_id, member.client_host = beat.client_id, beat.client_host
        member.matched = self._matches(member.regex)
        return member.subscribed != wanted

    def _refresh(self, *, changed: bool) -> bool:
        """Begin an epoch if topics have changed; make a target if there is none for the epoch."""
        for member in self.members.values():
            matched = self._matches(member.regex)
            changed |= matched != member.matched
            member.matched = matched
        known = self._wanted()
        if changed or known != self._known:
            self.epoch += 1
            self._known = known
        if self.epoch == self.target_epoch:
            return False
        subscribers = {member.id: self._subscriber(member) for member in self.members.values()}
        self.target = ASSIGNORS[self.assignor](subscribers, dict(known.values()))
        self.target_epoch = self.epoch
        return True

    def _subscriber(self, member: ConsumerMember) -> Subscriber:
        topics = (self._known[name][0] for name in member.subscribed if name in self._known)
        order = (member.instance_id is None, member.instance_id or member.id)
        owned = self.target.get(member.id, NOTHING)
        return Subscriber(order, frozenset(topics), owned)

    def _wanted(self) -> dict[str, tuple[UUID, int]]:
        names = {name for member in self.members.values() for name in member.subscribed}
        topics = [self._cluster.topics[name] for name in names if name in self._cluster.topics]
        return {topic.name: (topic.id, len(topic.partitions)) for topic in topics}

    def _matches(self, regex: str) -> frozenset[str]:
        if not regex:
            return frozenset()
        pattern = re.compile(regex)
        return frozenset(name for name in self._cluster.topics if pattern.fullmatch(name))

    def _reconcile(self, member: ConsumerMember, owned: frozenset[Partition] | None) -> bool:
        others = (other for other in self.members.values() if other is not member)
        taken = NOTHING.union(*(other.assigned | other.revoking for other in others))
        target = self.target.get(member.id, NOTHING)
        if not member.reconcile(self.target_epoch, target, owned, taken):
            return False
        if member.revocation is not None:
            member.revocation.cancel()
            member.revocation = None
        if member.state is MemberState.UNREVOKED:
            self._limit_revocation(member)
        return True

    def _limit_revocation(self, member: ConsumerMember) -> None:
        epoch = member.epoch

        def expire() -> None:
            if self.members.get(member.id) is member and member.epoch == epoch:
                self._remove([member])

        member.revocation = self._cluster.clock.call_later(member.rebalance_timeout, expire)

    def _extend(self, member: ConsumerMember) -> None:
        if member.session is not None:
            member.session.cancel()

        def expire() -> None:
            if self.members.get(member.id) is member:
                self._remove([member])

        member.session = self._cluster.clock.call_later(SESSION_TIMEOUT, expire)

    def _remove(self, members: list[ConsumerMember]) -> None:
        for member in members:
            member.stop_timers()
            self.members.pop(member.id, None)
            self.target.pop(member.id, None)
        if members:
            self.epoch += 1
            self._known = self._wanted()
            self._keep(self)

    # What outlives the broker.

    def row(self) -> dict[str, Any]:
        """The group as it is written down."""
        return {
            "kind": self.kind,
            "epoch": self.epoch,
            "target_epoch": self.target_epoch,
            "target": {id_: to_row(partitions) for id_, partitions in self.target.items()},
            "known": {name: [str(id_), size] for name, (id_, size) in self._known.items()},
            "members": [member.row() for member in self.members.values()],
        }

    def restore(self, row: dict[str, Any]) -> None:
        """Become the group of an earlier run; its members have a whole session to show up."""
        self.epoch, self.target_epoch = row["epoch"], row["target_epoch"]
        self.target = {id_: from_row(partitions) for id_, partitions in row["target"].items()}
        self._known = {name: (UUID(id_), size) for name, (id_, size) in row["known"].items()}
        for member_row in row["members"]:
            member = ConsumerMember.from_row(member_row)
            self.members[member.id] = member
            self._extend(member)
            if member.state is MemberState.UNREVOKED:
                self._limit_revocation(member)
