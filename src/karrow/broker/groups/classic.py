"""A group of the classic protocol: its members agree through it, and their leader assigns.

States and what moves a group between them:

    Empty                 no members; offsets may be stored from outside
    PreparingRebalance    members are to join: heartbeats tell them so
    CompletingRebalance   all have joined, one is the leader; its assignment is awaited
    Stable                everyone has its assignment, or gets it when it asks

    Empty -> PreparingRebalance                 a member joins
    PreparingRebalance -> CompletingRebalance   every member has joined, or the time is up
    PreparingRebalance -> Empty                 the last member is gone
    CompletingRebalance -> Stable               the leader has sent the assignment
    CompletingRebalance, Stable -> PreparingRebalance
                                                a member joins, leaves, is silent for too long, or
                                                asks for other protocols

Rules:
- A generation begins when all have joined. Members that did not join in the longest rebalance
  time-out of all are removed, except static ones: those stay until their session ends. If nobody at
  all has joined, the wait begins anew.
- A member that waits for an answer cannot send heartbeats, so its session does not end, unless it
  is new: then it is given five minutes.
- An id that was given to a new member (KIP-394) counts as a member that is yet to join, for as long
  as its session would last.
- A member that joined but does not ask for its assignment within the rebalance time-out is removed.
- A static member (KIP-345) that joins without its id takes the place, the assignment and, if it
  was, the leadership of the one before, which is fenced. A stable group need not rebalance for
  that, as long as the members' votes stay the same.
- The first rebalance of a group waits for nobody: there is no initial delay.
- What is stable is written down, so that members go on after a restart of the broker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from karrow import errors
from karrow.broker.groups.members import Join, Joined, Member, Sync, Synced
from karrow.wire import decode_subscription

if TYPE_CHECKING:
    from karrow.broker.clock import Clock, Timer

CONSUMER = "consumer"
NEW_MEMBER_TIMEOUT = 300.0


class State(Enum):
    """What a group is doing, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """One group and its members."""

    kind = "classic"

    def __init__(
        self,
        group_id: str,
        *,
        clock: Clock,
        new_uuid: Callable[[], UUID],
        keep: Callable[[ClassicGroup], None],
    ) -> None:
        self.id = group_id
        self.state = State.EMPTY
        self.state_since_ms: int | None = None
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        # Ids of members by their instance.
        self._static: dict[str | None, str] = {}
        self._pending: dict[str, Timer] = {}
        self._unsynced: set[str] = set()
        self._join_timer: Timer | None = None
        self._sync_timer: Timer | None = None
        # Topics that members want; None if that is not known.
        self._topics: frozenset[str] | None = None
        self._clock = clock
        self._new_uuid = new_uuid
        self._keep = keep

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is State.EMPTY

    @property
    def state_name(self) -> str:
        """Its state, as others are told."""
        return self.state.value

    # What members ask.

    def join(self, wish: Join) -> asyncio.Future[Joined]:
        """Take a member in; the answer comes when all others have joined too."""
        self._check_protocols(wish)
        if wish.member_id:
            return self._join_known(wish)
        owner = wish.client_id if wish.instance_id is None else wish.instance_id
        member_id = f"{owner}-{self._new_uuid()}"
        if wish.instance_id in self._static:
            return self._replace(wish, member_id)
        if wish.instance_id is None and wish.takes_id_first:
            self._expect(member_id, wish.session_timeout)
            raise errors.MemberIdRequired("join again with this id", member_id=member_id)
        return self._add(wish, member_id)

    def sync(self, wish: Sync) -> asyncio.Future[Synced]:
        """Give a member its assignment, when the leader has sent it."""
        if self.is_empty:
            raise errors.UnknownMemberId("the group has no members")
        member = self._checked(wish.member_id, wish.instance_id, wish.generation)
        for asked, agreed in (
            (wish.protocol_type, self.protocol_type),
            (wish.protocol_name, self.protocol_name),
        ):
            if asked is not None and agreed is not None and asked != agreed:
                raise errors.InconsistentGroupProtocol(f"the group has agreed on {agreed}")
        if self.state is State.PREPARING:
            raise errors.RebalanceInProgress("join first")
        future = member.wait_to_sync()
        self._mark_synced(member)
        if self.state is State.STABLE:
            member.answer_sync(self._synced(member))
        elif member.id == self.leader:
            self._assign(wish.assignments)
        return future

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Prolong a member's session."""
        member = self._checked(member_id, instance_id, generation)
        self._extend(member)
        if self.state is State.PREPARING:
            raise errors.RebalanceInProgress("join again")

    def leave(
        self, leaving: list[tuple[str, str | None]]
    ) -> list[tuple[str, str | None, errors.BrokerError | None]]:
        """Remove members by id, or static ones by their instance; each by itself."""
        outcomes: list[tuple[str, str | None, errors.BrokerError | None]] = []
        for member_id, instance_id in leaving:
            try:
                self._leave(member_id, instance_id)
                outcomes.append((member_id, instance_id, None))
            except errors.BrokerError as error:
                outcomes.append((member_id, instance_id, error))
        if any(error is None for _, _, error in outcomes):
            self._rebalance_or_go_on()
        return outcomes

    # What commits and administrators ask.

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
    ) -> None:
        """Refuse offsets from those who may not store them."""
        if generation < 0 and self.is_empty:
            return  # from outside, or from a consumer that uses groups for offsets only
        if generation >= 0 or member_id or instance_id is not None:
            self._checked(member_id, instance_id, generation)
        elif not transactional:
            # Old transactional commits do not say who they are from (before KIP-447).
            raise errors.UnknownMemberId("only members may store offsets now")
        if not transactional and self.state is State.COMPLETING:
            raise errors.RebalanceInProgress("the assignment is not known yet")

    def note_commit(self, member_id: str) -> None:
        """A commit prolongs a session as a heartbeat does."""
        if member_id in self.members and self.state in (State.STABLE, State.PREPARING):
            self._extend(self.members[member_id])

    def check_offset_delete(self) -> None:
        """Refuse it where the members' topics cannot be known."""
        if not self.is_empty and self.protocol_type != CONSUMER:
            raise errors.NonEmptyGroup("The group is not empty.")

    def check_delete(self) -> None:
        """Refuse to delete a group in use."""
        if not self.is_empty:
            raise errors.NonEmptyGroup("The group is not empty.")

    def subscribes(self, topic: str) -> bool:
        """Whether members want a topic; yes, if it cannot be known."""
        if self._topics is None:
            return self.protocol_type == CONSUMER
        return topic in self._topics

    def retention_start(self, committed_ms: int) -> int | None:
        """From when on an offset grows old; None while it does not."""
        if self.protocol_type is None:
            return committed_ms
        if self.is_empty:
            return committed_ms if self.state_since_ms is None else self.state_since_ms
        known = self.protocol_type == CONSUMER and self._topics is not None
        return committed_ms if known and self.state is State.STABLE else None

    def expire_session(self, member_id: str) -> None:
        """End a member's session now."""
        if member_id in self._pending:
            self._forget_pending(member_id)
            self._complete_if_all_joined()
        elif member_id in self.members:
            self._remove(self.members[member_id])
            self._rebalance_or_go_on()

    def close(self) -> None:
        """Cancel every timer, and let nobody wait."""
        for member_id in tuple(self._pending):
            self._forget_pending(member_id)
        for member in tuple(self.members.values()):
            self._remove(member)
        self._stop_timers()

    # Joining.

    def _check_protocols(self, wish: Join) -> None:
        names = {name for name, _ in wish.protocols}
        if self.is_empty:
            fits = bool(wish.protocol_type and names)
        else:
            # While a new member is awaited, there may be no others left to agree with.
            agrees = not self.members or bool(names & self._common())
            fits = wish.protocol_type == self.protocol_type and bool(names) and agrees
        if not fits:
            raise errors.InconsistentGroupProtocol("no protocol that every member speaks")

    def _join_known(self, wish: Join) -> asyncio.Future[Joined]:
        if wish.member_id in self._pending:
            return self._add(wish, wish.member_id)
        member = self._validated(wish.member_id, wish.instance_id)
        changed = member.protocols != wish.protocols
        # A leader joins again when something changed that the group does not see, such as topics.
        again = changed or (self.state is State.STABLE and member.id == self.leader)
        if self.state is State.PREPARING or again:
            member.update(wish)
            future = member.wait_to_join()
            self._rebalance_or_go_on()
            return future
        future = member.wait_to_join()
        is_told = self.state is State.COMPLETING and member.id == self.leader
        member.answer_join(self._joined(member, tell=is_told))
        return future

    def _add(self, wish: Join, member_id: str) -> asyncio.Future[Joined]:
        self._forget_pending(member_id)
        member = Member(
            member_id,
            wish.instance_id,
            wish.client_id,
            wish.client_host,
            wish.session_timeout,
            wish.rebalance_timeout,
            wish.protocols,
            is_new=True,
        )
        if not self.members:
            self.protocol_type = wish.protocol_type
        self._insert(member)
        future = member.wait_to_join()
        self._extend(member, NEW_MEMBER_TIMEOUT)
        self._rebalance_or_go_on()
        return future

    def _replace(self, wish: Join, member_id: str) -> asyncio.Future[Joined]:
        """Let a static member take the place of the one that had its instance before."""
        leader = self.leader
        old = self.members.pop(self._static[wish.instance_id])
        fenced = errors.FencedInstanceId("another member has this instance", member_id=old.id)
        old.answer_join(fenced)
        old.answer_sync(fenced)
        old.end_session()
        self._unsynced.discard(old.id)
        member = Member(
            member_id,
            wish.instance_id,
            old.client_id,
            old.client_host,
            wish.session_timeout,
            wish.rebalance_timeout,
            wish.protocols,
            old.assignment,
        )
        self._insert(member)
        if leader == old.id:
            self.leader = member.id
        self._extend(member)
        future = member.wait_to_join()
        if self.state is State.STABLE and self._select() == self.protocol_name:
            self._keep(self)
            member.answer_join(self._rejoined(member, wish, leader))
        else:
            self._rebalance_or_go_on()
        return future

    def _rejoined(self, member: Member, wish: Join, leader: str | None) -> Joined:
        """What a static member hears that came back to a stable group."""
        if wish.can_skip_assignment:
            is_leader = member.id == self.leader
            return self._joined(member, tell=is_leader)._replace(skip_assignment=is_leader)
        # Told that another one leads, it does not assign, and keeps what it had.
        return self._joined(member, tell=False)._replace(leader=leader or "")

    def _joined(self, member: Member, *, tell: bool) -> Joined:
        return Joined(
            self.generation,
            self.protocol_type or "",
            self.protocol_name or "",
            self.leader or "",
            member.id,
            tuple(self.members.values()) if tell else (),
        )

    def _insert(self, member: Member) -> None:
        self.members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id

    def _expect(self, member_id: str, session_timeout: float) -> None:
        expire = self._bound(self.expire_session, member_id)
        self._pending[member_id] = self._clock.call_later(session_timeout, expire)

    def _forget_pending(self, member_id: str) -> None:
        timer = self._pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    # Rebalancing.

    def _rebalance_or_go_on(self) -> None:
        if self.state is State.PREPARING:
            self._complete_if_all_joined()
        elif self.members or self.state is not State.EMPTY:
            self._prepare()

    def _prepare(self) -> None:
        if self.state is State.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                if member.answer_sync(errors.RebalanceInProgress("join again")):
                    self._extend(member)
        self._stop_timers()
        self._unsynced.clear()
        is_first = self.is_empty
        self._go(State.PREPARING)
        if is_first or self._all_joined():
            self._complete_join()
        else:
            self._join_timer = self._clock.call_later(self._timeout(), self._complete_join)

    def _complete_if_all_joined(self) -> None:
        if self.state is State.PREPARING and self._all_joined():
            self._complete_join()

    def _all_joined(self) -> bool:
        joined = all(member.joining is not None for member in self.members.values())
        return joined and not self._pending

    def _complete_join(self) -> None:
        """Everyone has joined, or the time is up: begin a generation."""
        self._stop_timers()
        for member in tuple(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._remove(member)
        if self.members and not self._elect():
            self._join_timer = self._clock.call_later(self._timeout(), self._complete_join)
            return
        self.generation += 1
        self._unsynced.clear()
        if self.members:
            self._begin_generation()
        else:
            self.protocol_name = None
            self._topics = self._known_topics()
            self._go(State.EMPTY)
            self._keep(self)

    def _begin_generation(self) -> None:
        self.protocol_name = self._select()
        self._topics = self._known_topics()
        self._go(State.COMPLETING)
        for member in self.members.values():
            member.answer_join(self._joined(member, tell=member.id == self.leader))
            member.is_new = False
            self._extend(member)
            self._unsynced.add(member.id)
        self._sync_timer = self._clock.call_later(self._timeout(), self._expire_unsynced)

    def _elect(self) -> bool:
        """See that the leader is one that has joined; False if nobody has."""
        joined = [member.id for member in self.members.values() if member.joining is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    def _assign(self, assignments: dict[str, bytes]) -> None:
        self._go(State.STABLE)
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
        self._keep(self)
        for member in self.members.values():
            if member.answer_sync(self._synced(member)):
                self._extend(member)

    def _synced(self, member: Member) -> Synced:
        return Synced(self.protocol_type or "", self.protocol_name or "", member.assignment)

    def _mark_synced(self, member: Member) -> None:
        self._unsynced.discard(member.id)
        if not self._unsynced and self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _expire_unsynced(self) -> None:
        self._sync_timer = None
        for member_id in tuple(self._unsynced):
            self._remove(self.members[member_id])
        self._prepare()

    def _select(self) -> str:
        """The protocol with most votes, each member voting for its first that all others speak."""
        common = self._common()
        votes = Counter(
            next(name for name in member.names if name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _common(self) -> set[str]:
        return set.intersection(*(set(member.names) for member in self.members.values()))

    def _known_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        try:
            subscriptions = [
                decode_subscription(member.metadata(self.protocol_name))
                for member in self.members.values()
            ]
        except errors.RemoteProtocolError:
            return None
        return frozenset(topic for wanted in subscriptions for topic in wanted.topics)

    def _timeout(self) -> float:
        return max((member.rebalance_timeout for member in self.members.values()), default=0.0)

    # Members that are there, and their sessions.

    def _validated(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            owner = self._static.get(instance_id)
            if owner is None:
                raise errors.UnknownMemberId(f"no member has the instance {instance_id}")
            if owner != member_id:
                raise errors.FencedInstanceId(f"instance {instance_id} has another member")
        if member_id not in self.members:
            raise errors.UnknownMemberId("not a member of the group")
        return self.members[member_id]

    def _checked(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        member = self._validated(member_id, instance_id)
        if generation != self.generation:
            raise errors.IllegalGeneration(f"the group's generation is {self.generation}")
        return member

    def _extend(self, member: Member, timeout: float | None = None) -> None:
        member.end_session()
        delay = member.session_timeout if timeout is None else timeout
        member.session = self._clock.call_later(delay, self._bound(self._expire, member))

    def _expire(self, member: Member) -> None:
        if self.members.get(member.id) is member and (member.is_new or not member.waits):
            self.expire_session(member.id)

    def _leave(self, member_id: str, instance_id: str | None) -> None:
        if member_id in self._pending:
            self._forget_pending(member_id)
            return
        if not member_id:
            # An administrator removes a static member without knowing its id.
            member_id = self._static.get(instance_id, "")
        self._remove(self._validated(member_id, instance_id))

    def _remove(self, member: Member) -> None:
        member.end_session()
        gone = errors.UnknownMemberId("the member was removed", member_id="")
        member.answer_join(gone)
        member.answer_sync(gone)
        del self.members[member.id]
        self._unsynced.discard(member.id)
        if member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), None)

    def _go(self, state: State) -> None:
        self.state = state
        self.state_since_ms = self._clock.time_ms()

    def _stop_timers(self) -> None:
        for timer in (self._join_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()
        self._join_timer = self._sync_timer = None

    @staticmethod
    def _bound(function: Callable[[Any], None], argument: Any) -> Callable[[], None]:
        return lambda: function(argument)

    # What outlives the broker.

    def row(self) -> dict[str, Any]:
        """The group as it is written down."""
        return {
            "kind": self.kind,
            "generation": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
            "leader": self.leader,
            "since": self.state_since_ms,
            "members": [member.row() for member in self.members.values()],
        }

    def restore(self, row: dict[str, Any]) -> None:
        """Become the group of an earlier run; its members have a whole session to show up."""
        self.generation = row["generation"]
        self.protocol_type = row["protocol_type"]
        self.protocol_name = row["protocol_name"]
        self.state_since_ms = row["since"]
        for member_row in row["members"]:
            member = Member.from_row(member_row)
            self._insert(member)
            self._extend(member)
        self.leader = row["leader"]
        self.state = State.STABLE if self.members else State.EMPTY
        self._topics = self._known_topics()
