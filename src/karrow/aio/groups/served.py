"""A consumer's membership in a group whose partitions the broker divides (KIP-848).

The states and the rules of every member are in member.py; a member goes from JOINING to STABLE with
the answer to its first heartbeat. Its generation is the epoch that the broker counts for it.

Rules:
- Every heartbeat may bring another target: the partitions that the member is to own. It goes there
  at its own pace: first what the target lacks is ``revoking``, then what is new is ``assigned``.
  The broker gives away what it takes from a member when the member does not claim it any more, so
  the first heartbeat after a step is sent at once.
- A member claims what its owner owns, what the owner is being told about, and what the target gives
  it, so that nobody else gets a partition that it is just taking over.
- A target that comes while the owner takes its time is taken up when it is through. Nothing is
  taken over of a target that another one has replaced.
- Topics have ids here. Those whose names are not known are asked for; the others do not wait for
  them. A topic that was deleted and made again is another one under the same name.
- What is not subscribed to any more is given up at once; with a pattern the broker knows best.
- The epoch also grows when nothing changes for the member: ``assigned`` is not called for that, and
  commits go by ``metadata`` at the moment. A commit that was too early for an epoch
  (STALE_MEMBER_EPOCH) may be made again after the heartbeat that ``refused`` asks for.
- Who was dropped (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND) has lost everything
  and joins with epoch 0 and its old id.
- A static member leaves for a while (epoch -2): its place is kept for as long as its session, and
  until then only a member with its name can have it.
- How long a session is, only the broker knows; ``session_timeout`` is taken for it. A heartbeat is
  sent as often as the broker wants, and not less than three times in that session.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from karrow.aio.groups.heartbeats import (
    JOIN,
    LEAVE,
    LEAVE_FOR_A_WHILE,
    Beaten,
    HeartbeatCalls,
    Wishes,
)
from karrow.aio.groups.member import HEARTBEAT_SHARE, AnyMembership, MemberState
from karrow.errors import KarrowError, StaleMemberEpoch, UnknownTopicId
from karrow.net.retry import is_consumer_group_retriable
from karrow.types import GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from karrow.aio.groups.heartbeats import IdPartition
    from karrow.aio.groups.member import Owner
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster

NOTHING: frozenset[IdPartition] = frozenset()
BY_THE_BROKER = "the broker has divided the partitions anew"


class ServedMembership(AnyMembership, HeartbeatCalls):
    """One member of one group that the broker divides."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        owner: Owner,
        *,
        join_attempts: int | None = None,
    ) -> None:
        super().__init__(config, cluster, owner, join_attempts=join_attempts)
        self.protocol = config.remote_assignor
        # What the member is to own, and the topics' names as far as they are known.
        self._target = NOTHING
        self._names: dict[UUID, str] = {}
        # Under which ids the owner has its partitions.
        self._held: dict[TopicPartition, UUID] = {}
        # Why the partitions change, and whether the owner knows that the member is one.
        self._why = ""
        self._is_new = True

    # ---- what others tell

    def rejoin(self, reason: str) -> None:
        """Tell the group at once: the subscription has changed."""
        self._why = reason
        self._wake.set()
        self._hurry.set()

    def refused(self, error: KarrowError, asked_as: GroupMetadata) -> bool:
        """A commit was refused; one that named an old epoch may be made again in a moment."""
        if not isinstance(error, StaleMemberEpoch):
            return super().refused(error, asked_as)
        if asked_as == self.metadata():
            self._hurry.set()
        return self.generation >= 0 and asked_as.member_id == self.member_id

    # ---- the rounds

    async def _make_way(self) -> None:
        if self._is_idle:
            await self._go_away()
        await self._stop_beside()
        self._settle_refusal()

    async def _enter(self) -> None:
        self.state = MemberState.JOINING
        self._why = "a new member"
        self._target, self._held, self._is_new = NOTHING, {}, True
        self._hurry.clear()
        sent_at = self._now()
        limit = min(self._config.request_timeout, self._config.session_timeout)
        with self._span("join", reason=self._why) as span:
            try:
                found = await self._consumer_heartbeat(JOIN, self._wishes(), limit)
            except KarrowError as error:
                if not is_consumer_group_retriable(error):
                    self.member_id = ""  # so there is nobody to say goodbye
                raise
            span.set(member_id=found.member_id, generation=found.epoch)
        self._heard_at = sent_at
        self.state = MemberState.STABLE
        self.trouble = self._lack = None
        self._learn(found)
        self._run_beside("heartbeats", self._beat())

    async def _stay(self) -> None:
        failures = 0
        while not self._is_over():
            self._wake.clear()
            await self._know_names()
            if not self._is_over():
                await self._reconcile()
            if self._lack is None or self._wake.is_set():
                failures = 0
                await self._wake.wait()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause(failures)):
                        await self._wake.wait()
                failures += 1

    async def _know_names(self) -> None:
        """Find the names of the target's topics, as far as that is possible now."""
        wanted = {topic for topic, _ in self._target}
        for topic in wanted - self._names.keys():
            name = self._cluster.cache.topic_name(topic)
            if name is not None:
                self._names[topic] = name
        self._lack = None
        if not wanted - self._names.keys():
            return
        try:
            self._names |= await self._names_of(wanted - self._names.keys())
        except KarrowError as error:
            self._lack = error
        else:
            unknown = wanted - self._names.keys()
            if unknown:
                text = f"{len(unknown)} of the topics to read are unknown yet"
                self._lack = UnknownTopicId(text, group=self.group)
        self.trouble = self._lack

    async def _reconcile(self) -> None:
        """Let the owner have what the target gives it, and give up what it does not."""
        target = self._target
        given, owned = self._given(), self._owner.owned()
        gone = frozenset(one for one in owned if given.get(one) != self._held.get(one))
        if gone:
            await self._tell(self._owner.revoking(gone), gone)
            self._hurry.set()
            given = self._given()
        is_stale = self._is_over() or target != self._target
        added = frozenset() if is_stale else frozenset(given.keys() - self._owner.owned())
        if added or (self._is_new and not is_stale):
            self._is_new = False
            self._held |= {one: given[one] for one in added}
            await self._tell(self._owner.assigned(added, self.generation), added)
        elif not gone:
            return
        self._note(self._why, added=len(added), revoked=len(gone))
        self._why = BY_THE_BROKER

    def _given(self) -> dict[TopicPartition, UUID]:
        """What the target means to the owner: partitions, and the ids of their topics."""
        return {
            TopicPartition(self._names[topic], number): topic
            for topic, number in self._target
            if topic in self._names and self._wants(self._names[topic])
        }

    def _wants(self, topic: str) -> bool:
        return self._owner.pattern() is not None or topic in self._owner.subscription()

    # ---- beside the rounds

    async def _be_heard(self, limit: float) -> None:
        found = await self._consumer_heartbeat(self.generation, self._wishes(), limit)
        if self._refusal is None:
            self._learn(found)

    def _learn(self, found: Beaten) -> None:
        self.member_id = found.member_id or self.member_id
        self.generation = found.epoch
        most = self._config.session_timeout * HEARTBEAT_SHARE
        self._interval = min(found.interval, most) if found.interval > 0 else most
        if found.assignment is None or found.assignment == self._target:
            return
        before, self._target = self._target, found.assignment
        if before - self._wishes().claimed:
            self._hurry.set()  # what was never taken over is given up by saying so
        self._wake.set()

    def _wishes(self) -> Wishes:
        claimed = {
            (topic, number)
            for topic, number in self._target
            if topic not in self._names or self._wants(self._names[topic])
        }
        for one in self._owner.owned() | self._told:
            if one in self._held:
                claimed.add((self._held[one], one.partition))
        return Wishes(self._owner.subscription(), self._owner.pattern(), frozenset(claimed))

    # ---- the end

    async def _resign(self, reason: str, *, for_good: bool) -> None:  # noqa: ARG002 - of both kinds
        stays = self._config.instance_id is not None and not for_good
        await self._depart_for(LEAVE_FOR_A_WHILE if stays else LEAVE)
