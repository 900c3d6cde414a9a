"""All groups of the cluster: found, made, changed from one protocol to the other, deleted.

Rules:
- A group is made by the first member, or by the first offset that is stored without being one.
- A group without members changes its protocol with the first member of the other one; its offsets
  stay. One with members does not.
- Offsets grow old when the group has been empty, or the topic unwanted, for the retention; when the
  last one of an empty group is gone, so is the group.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from karrow import errors
from karrow.broker.groups.assignors import ASSIGNORS
from karrow.broker.groups.classic import ClassicGroup
from karrow.broker.groups.consumer import LEAVE, LEAVE_FOR_A_WHILE, Beat, Beaten, ConsumerGroup
from karrow.broker.groups.offsets import Commit, Offsets, Place

if TYPE_CHECKING:
    from karrow.broker.clock import Timer
    from karrow.broker.cluster import Cluster
    from karrow.broker.groups.members import Join, Joined, Sync, Synced

Group = ClassicGroup | ConsumerGroup

GROUPS = "groups"
SHORTEST_SESSION, LONGEST_SESSION = 6.0, 1800.0
RETENTION_MS = 7 * 86_400_000
RETENTION_CHECK = 600.0


class Groups:
    """The group coordinator; one object for all nodes, each of which answers for its groups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups: dict[str, Group] = {}
        self.offsets = Offsets(cluster.store)
        self._sweeper: Timer | None = None

    def recover(self) -> None:
        """Bring back the groups of an earlier run."""
        for group_id, row in self._cluster.store.load(GROUPS).items():
            is_classic = row["kind"] == ClassicGroup.kind
            group = self._new_classic(group_id) if is_classic else self._new_consumer(group_id)
            group.restore(row)
        for group_id in self.offsets.recover():
            self._find_or_make(group_id)

    def close(self) -> None:
        """Cancel every timer."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for group in self._groups.values():
            group.close()

    # Groups, as administrators see them.

    def find(self, group_id: str) -> Group:
        """A group by its id."""
        if group_id not in self._groups:
            raise errors.GroupIdNotFound(f"Group {group_id} not found.")
        return self._groups[group_id]

    def classic(self, group_id: str) -> ClassicGroup:
        """A group of the classic protocol."""
        group = self.find(group_id)
        if not isinstance(group, ClassicGroup):
            raise errors.GroupIdNotFound(f"Group {group_id} is not a classic group.")
        return group

    def consumer(self, group_id: str) -> ConsumerGroup:
        """A group of the consumer protocol."""
        group = self.find(group_id)
        if not isinstance(group, ConsumerGroup):
            raise errors.GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group

    def of_node(self, node_id: int) -> list[Group]:
        """The groups that a node coordinates."""
        return [
            group
            for group in self._groups.values()
            if self._cluster.coordinator_of(group.id).node_id == node_id
        ]

    def delete(self, group_id: str) -> None:
        """Delete a group that has no members, with its offsets."""
        self.find(group_id).check_delete()
        self._forget(group_id)

    def expire(self, group_id: str, member_id: str | None = None) -> int:
        """End one member's session or all, as if they had been silent for too long; how many."""
        group = self.find(group_id)
        expired = [id_ for id_ in group.members if member_id in (None, id_)]
        for id_ in expired:
            group.expire_session(id_)
        return len(expired)

    # Members of the classic protocol.

    def join(self, group_id: str, wish: Join) -> asyncio.Future[Joined]:
        """Join a group, or make it."""
        check_id(group_id)
        if not SHORTEST_SESSION <= wish.session_timeout <= LONGEST_SESSION:
            raise errors.InvalidSessionTimeout("the session must last 6 seconds to 30 minutes")
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                raise errors.InconsistentGroupProtocol("the group's members use another protocol")
            group = None
        if group is None:
            if wish.member_id:
                raise errors.UnknownMemberId(f"Group {group_id} not found.")
            group = self._new_classic(group_id)
        return group.join(wish)

    def sync(self, group_id: str, wish: Sync) -> asyncio.Future[Synced]:
        """Send the assignment, or get one's part of it."""
        return self._joined(group_id).sync(wish)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Stay a member."""
        self._joined(group_id).heartbeat(member_id, instance_id, generation)

    def leave(
        self, group_id: str, leaving: list[tuple[str, str | None]]
    ) -> list[tuple[str, str | None, errors.BrokerError | None]]:
        """Be a member no more; an administrator removes members of either protocol so."""
        check_id(group_id)
        if group_id not in self._groups:
            gone = errors.UnknownMemberId(f"Group {group_id} not found.")
            return [(member_id, instance_id, gone) for member_id, instance_id in leaving]
        return self._groups[group_id].leave(leaving)

    def _joined(self, group_id: str) -> ClassicGroup:
        """A classic group that somebody claims to be a member of."""
        check_id(group_id)
        try:
            return self.classic(group_id)
        except errors.GroupIdNotFound as error:
            raise errors.UnknownMemberId(error.message) from None

    # Members of the consumer protocol (KIP-848).

    def consumer_heartbeat(self, group_id: str, beat: Beat) -> Beaten:
        """Join, stay or leave."""
        check_beat(beat)
        if beat.epoch in (LEAVE, LEAVE_FOR_A_WHILE):
            return self.consumer(group_id).depart(beat.member_id, beat.instance_id, beat.epoch)
        group = self._groups.get(group_id)
        if group is None and beat.epoch != 0:
            raise errors.GroupIdNotFound(f"Consumer group {group_id} not found.")
        may_replace = beat.epoch == 0 and isinstance(group, ClassicGroup) and group.is_empty
        if group is None or may_replace:
            return self._new_consumer(group_id).heartbeat(beat)
        return self.consumer(group_id).heartbeat(beat)

    # Offsets.

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        places: Iterable[Place],
        knows_epochs: bool,
    ) -> None:
        """Refuse offsets from those who may not store them; ``knows_epochs`` from version 9 on."""
        if group_id not in self._groups and generation >= 0:
            if knows_epochs:
                raise errors.GroupIdNotFound(f"Group {group_id} not found.")
            raise errors.IllegalGeneration("there is no such group")
        group = self._find_or_make(group_id)
        if isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation, transactional=False)
            group.note_commit(member_id)
        else:
            group.check_commit(member_id, generation, places, knows_epochs=knows_epochs)

    def commit(self, group_id: str, offsets: Mapping[Place, Commit]) -> None:
        """Store offsets."""
        for place, commit in offsets.items():
            self.offsets.put(group_id, place, commit)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Refuse to tell offsets to a member that is not up to date."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.check_fetch(member_id, epoch)

    def delete_offset(self, group_id: str, place: Place) -> None:
        """Forget an offset, unless somebody wants the topic."""
        if self.find(group_id).subscribes(place[0]):
            raise errors.GroupSubscribedToTopic("a member of the group wants this topic")
        self.offsets.remove(group_id, place)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: so are the offsets that were stored for it."""
        self.offsets.remove_topic(topic)

    # Transactions.

    def check_transactional_commit(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None
    ) -> None:
        """Refuse a transaction's offsets from those who may not store them (KIP-447)."""
        check_id(group_id)
        if group_id not in self._groups and generation >= 0:
            raise errors.IllegalGeneration("there is no such group")
        group = self._find_or_make(group_id)
        if isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation, transactional=True)
            return
        try:
            group.check_commit(member_id, generation)
        except errors.StaleMemberEpoch as error:
            raise errors.IllegalGeneration(error.message) from None

    def add_pending_offsets(
        self, group_id: str, producer_id: int, offsets: Mapping[Place, Commit]
    ) -> None:
        """Keep a transaction's offsets until it ends."""
        self._find_or_make(group_id)
        self.offsets.add_pending(producer_id, group_id, offsets)

    def complete_transaction(self, producer_id: int, commit: bool) -> None:
        """Store a transaction's offsets, or drop them."""
        self.offsets.complete(producer_id, commit=commit)

    # Retention.

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._cluster.clock.time_ms()
        for group in tuple(self._groups.values()):
            for place, commit in tuple(self.offsets.of(group.id).items()):
                if self._is_old(group, place, commit, now):
                    self.offsets.remove(group.id, place)
            is_used = self.offsets.of(group.id) or self.offsets.is_open(group.id)
            if group.is_empty and not is_used:
                self._forget(group.id)
        self._watch_age()

    def _is_old(self, group: Group, place: Place, commit: Commit, now: int) -> bool:
        start = group.retention_start(commit.timestamp_ms)
        is_held = group.subscribes(place[0]) or self.offsets.is_pending(group.id, place)
        if start is None or is_held:
            return False
        if commit.expires_ms is not None:
            return now >= commit.expires_ms
        return now - start >= RETENTION_MS

    def _watch_age(self) -> None:
        if self._sweeper is None and self._groups:
            self._sweeper = self._cluster.clock.call_later(RETENTION_CHECK, self._sweep)

    # Groups that come and go.

    def _find_or_make(self, group_id: str) -> Group:
        """A group that stores offsets need not have members; then it is a classic one."""
        found = self._groups.get(group_id)
        return self._new_classic(group_id) if found is None else found

    def _new_classic(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(
            group_id,
            clock=self._cluster.clock,
            new_uuid=self._cluster.new_uuid,
            keep=self._keep,
        )
        self._insert(group)
        return group

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        group = ConsumerGroup(group_id, cluster=self._cluster, keep=self._keep)
        self._insert(group)
        return group

    def _insert(self, group: Group) -> None:
        old = self._groups.pop(group.id, None)
        if old is not None:
            old.close()
        self._groups[group.id] = group
        self._watch_age()

    def _keep(self, group: Group) -> None:
        row: dict[str, Any] = group.row()
        self._cluster.store.put(GROUPS, group.id, row)

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id).close()
        self._cluster.store.put(GROUPS, group_id, None)
        self.offsets.remove_group(group_id)


def check_id(group_id: str) -> None:
    """Refuse a group without a name; only offsets may be stored under it."""
    if not group_id:
        raise errors.InvalidGroupId("a group's id must not be empty")


def check_beat(beat: Beat) -> None:
    """Refuse a heartbeat that contradicts itself."""
    problem = _problem(beat)
    if problem:
        raise errors.InvalidRequest(problem)
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        raise errors.UnsupportedAssignor(
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: "
            f"{', '.join(ASSIGNORS)}."
        )
    try:
        re.compile(beat.regex or "")
    except re.error as error:
        raise errors.InvalidRegularExpression(
            f"SubscribedTopicRegex `{beat.regex}` is not a valid regular expression: {error}."
        ) from None


def _problem(beat: Beat) -> str | None:
    if beat.instance_id == "":
        return "InstanceId can't be empty."
    if beat.rack_id == "":
        return "RackId can't be empty."
    if beat.epoch < LEAVE_FOR_A_WHILE:
        return "MemberEpoch is invalid."
    if not beat.member_id:
        return "MemberId can't be empty."
    if beat.epoch == LEAVE_FOR_A_WHILE and beat.instance_id is None:
        return "InstanceId can't be null."
    return _joining_problem(beat) if beat.epoch == 0 else None


def _joining_problem(beat: Beat) -> str | None:
    if beat.rebalance_timeout is None:
        return "RebalanceTimeoutMs must be provided in first request."
    if beat.owned is None or beat.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if beat.topics is None and beat.regex is None:
        return (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )
    return None
