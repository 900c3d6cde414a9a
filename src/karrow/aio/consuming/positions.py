"""Where a consumer stands in each of its partitions. No I/O, and no clock but what it is told.

Rules:
- Of every partition three offsets are kept, consumed <= position <= fetch_position: what the
  application is done with, what it is handed next, what is asked for next. ``commit`` stores the
  position; commits in the background store what is consumed, which is what was handed out before
  the application last asked for more, or has committed itself. So none of them runs ahead of what
  it has received.
- Only handing out moves the position forward, and only over data that was fetched. Data that nobody
  sees (control records, aborted ones, gaps) is handed out as nothing.
- A place that was chosen, by a seek or a reset, counts as consumed: a group that begins at the end
  and commits goes on there after a restart, though nothing was read.
- Everything that makes fetched data worthless (a revocation, a seek, a reset, a truncation) gives
  the partition a new epoch, a number that no partition had before. Requests and data carry the
  epoch they were made in and count only in that one. So a seek wins over fetches that are under
  way, and a revoked partition yields nothing, even if it comes back.
- The answer to a fetch counts once: while its partition is FETCHING, for the offset that is still
  the next to ask for.
- Leader epochs never go back, except where the topic is another one of the same name. A newer one
  than that of the data read so far leads to VALIDATING (KIP-320): nothing is fetched before the new
  leader has said where the old epoch ends. A leader that cannot tell has not truncated. Data that
  waits is still handed out, since it was committed when it was read. An end in front of what was
  asked for drops what waits; an end in front of the position is a truncation, which is reported.
- An offset is out of range only if the leader says so, of the offset that is asked for now, when
  all that was fetched before has been handed out. Until then the partition is held.
- Data that does not reach beyond the offset that was asked for holds the partition as well, since
  asking again would bring the same, until it is read: then it is damaged.
- What is out of range, truncated or damaged makes the partition STOPPED. It goes on with a seek or
  a reset, never by itself, so that nothing is skipped in silence and no error repeats itself.
- A paused partition is neither fetched nor handed out, and keeps what it has and where it is.
- A partition that is LEAVING is neither, but can still be committed; then it is removed. One that
  is lost is removed at once. The answer to a commit counts for the assignment it was made in.
- There is no lock here: who calls from two threads holds one, from the question whether data is
  current until it is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from karrow.errors import StateError
from karrow.types import OffsetSpec, TopicPartition

__all__ = [
    "Commit",
    "Cursor",
    "Fetch",
    "LookUp",
    "Positions",
    "Reset",
    "State",
    "Truncation",
    "Validation",
    "Watermarks",
]


class State(StrEnum):
    """What a partition is waiting for."""

    NEEDS_OFFSET = "needs_offset"
    RESETTING = "resetting"
    VALIDATING = "validating"
    FETCHING = "fetching"
    STOPPED = "stopped"
    LEAVING = "leaving"


class LookUp(NamedTuple):
    """To be asked: where the group has committed."""

    partition: TopicPartition
    epoch: int


class Reset(NamedTuple):
    """To be asked: the offset of a place."""

    partition: TopicPartition
    epoch: int
    spec: OffsetSpec


class Validation(NamedTuple):
    """To be asked: where the epoch of the data read so far ends in the leader's log."""

    partition: TopicPartition
    epoch: int
    offset: int
    offset_epoch: int
    leader_epoch: int


class Fetch(NamedTuple):
    """To be asked: what follows an offset; ``replica`` is who to ask instead of the leader."""

    partition: TopicPartition
    epoch: int
    offset: int
    leader_epoch: int | None
    log_start: int | None
    replica: int | None


class Watermarks(NamedTuple):
    """The ends of a partition as a fetch told them; None where its version does not."""

    high: int
    last_stable: int | None = None
    log_start: int | None = None


class Truncation(NamedTuple):
    """What the application has read from ``end_offset`` on does not exist any more."""

    partition: TopicPartition
    position: int
    position_epoch: int | None
    end_offset: int
    end_epoch: int | None


class Commit(NamedTuple):
    """An offset to be stored; ``assignment`` says in which assignment it was reached."""

    offset: int
    leader_epoch: int | None
    assignment: int


@dataclass(slots=True, eq=False)
class Cursor:
    """The notes on one partition; ``Positions`` alone changes them.

    The epochs beside offsets are the leader's when the record in front of the offset was written,
    where that is known; ``leader_epoch`` is that of the leader now. ``assignment`` is the epoch in
    which the partition was assigned.
    """

    partition: TopicPartition
    epoch: int
    assignment: int
    state: State = State.NEEDS_OFFSET
    is_paused: bool = False
    is_held: bool = False
    spec: OffsetSpec | None = None
    position: int | None = None
    position_epoch: int | None = None
    fetch_position: int | None = None
    fetch_epoch: int | None = None
    consumed: int | None = None
    consumed_epoch: int | None = None
    committed: int | None = None
    leader_epoch: int | None = None
    watermarks: Watermarks | None = None
    preferred_replica: int | None = None
    preferred_until: float = 0.0
    buffered_bytes: int = 0
    times_missing: int = 0

    def lag(self, *, committed_only: bool) -> int | None:
        """How much is in front of the position; None while that is not known."""
        if self.position is None or self.watermarks is None:
            return None
        end = self.watermarks.high
        if committed_only and self.watermarks.last_stable is not None:
            end = self.watermarks.last_stable
        return max(end - self.position, 0)

    @property
    def waits_for_transactions(self) -> bool:
        """Whether there is more, but of a transaction that nobody has ended."""
        marks = self.watermarks
        if marks is None or marks.last_stable is None:
            return False
        return self.position == marks.last_stable < marks.high


class Positions:
    """All partitions of a consumer.

    ``epoch`` is the newest of the partitions' epochs: while it stands still, all data that was
    current is. ``changes`` counts what makes other fetches necessary than data that came does.
    ``buffered_bytes`` is the size of what was fetched and not yet handed out.
    """

    def __init__(self, *, committed_only: bool = False) -> None:
        self.epoch = 0
        self.changes = 0
        self.buffered_bytes = 0
        # Brings positions up to where iteration is, before they count or data is dropped.
        self.settle: Callable[[], object] = _nothing
        self._committed_only = committed_only
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._unconsumed: set[Cursor] = set()

    # ---- the assignment

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._cursors

    def __getitem__(self, partition: TopicPartition) -> Cursor:
        cursor = self._cursors.get(partition)
        if cursor is None:
            raise StateError(
                f"{TopicPartition(*partition)} is not assigned to this consumer",
                hint="subscribed partitions come while it is polled; assign() gives them at once",
            )
        return cursor

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions, in the order in which they came."""
        return tuple(self._cursors)

    def cursors(self) -> list[Cursor]:
        """The notes on all of them, to look at."""
        return list(self._cursors.values())

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """Those of them that are paused."""
        return tuple(cursor.partition for cursor in self._cursors.values() if cursor.is_paused)

    def assignments(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The epochs in which partitions were assigned, of those that still are."""
        wanted = [self._cursors.get(partition) for partition in partitions]
        return {one.partition: one.assignment for one in wanted if one is not None}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Have these and no others; those that stay are not disturbed."""
        wanted = list(partitions)
        self.remove(self._cursors.keys() - set(wanted))
        self.add(wanted)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Have these as well, from an offset that is yet to be found; also one that was leaving."""
        for partition in partitions:
            cursor = self._cursors.get(partition)
            if cursor is not None and cursor.state is State.LEAVING:
                self.remove([partition])
            if partition not in self._cursors:
                epoch = self._next_epoch()
                self._cursors[partition] = Cursor(TopicPartition(*partition), epoch, epoch)

    def leave(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these, which are to be removed after their last commit."""
        for partition in partitions:
            if partition in self._cursors:
                cursor = self._cursors[partition]
                self._drop_data(cursor)
                cursor.state = State.LEAVING

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Have these no more: they were given back, or are lost."""
        for partition in list(partitions):
            if partition in self._cursors:
                cursor = self._cursors[partition]
                self._drop_data(cursor)
                self._unconsumed.discard(cursor)
                del self._cursors[partition]

    def recreated(self, partition: TopicPartition) -> None:
        """A partition is another one of the same name: nothing that was known of it holds."""
        old = self[partition]
        self.remove([partition])
        self.add([partition])
        self._cursors[partition].is_paused = old.is_paused
        if old.state is State.LEAVING:
            self._cursors[partition].state = State.LEAVING

    # ---- what the application wants

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Go on at an offset."""
        self._set(self[partition], OffsetSpec.at(offset).value, leader_epoch)

    def reset_to(self, partition: TopicPartition, spec: OffsetSpec) -> None:
        """Go on at a place whose offset is to be asked for, unless it is one."""
        cursor = self[partition]
        if not spec.needs_broker:
            self._set(cursor, spec.value, None)
            return
        self._forget_place(cursor)
        cursor.spec = spec
        self._enter(cursor, State.RESETTING)

    def look_up_again(self, partition: TopicPartition) -> None:
        """Go on at what is committed, which is to be asked for."""
        cursor = self[partition]
        self._forget_place(cursor)
        self._enter(cursor, State.NEEDS_OFFSET)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Neither fetch these nor hand them out."""
        for cursor in [self[partition] for partition in partitions]:
            cursor.is_paused = True
        self.changes += 1

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these where they were."""
        for cursor in [self[partition] for partition in partitions]:
            cursor.is_paused = False
        self.changes += 1

    def drop_paused(self) -> None:
        """Have nothing waiting of those that are paused; it is fetched again when they go on."""
        for cursor in self._cursors.values():
            if cursor.is_paused and cursor.buffered_bytes:
                self._drop_data(cursor)

    # ---- what is to be asked

    def to_look_up(self) -> list[LookUp]:
        """The partitions that wait for an offset, be it committed or by ``reset_to``."""
        return [LookUp(one.partition, one.epoch) for one in self._in(State.NEEDS_OFFSET)]

    def to_reset(self) -> list[Reset]:
        """The places whose offsets are to be asked for."""
        return [
            Reset(one.partition, one.epoch, one.spec)
            for one in self._in(State.RESETTING)
            if one.spec is not None
        ]

    def to_validate(self) -> list[Validation]:
        """The partitions whose new leader has to say whether it has what was read."""
        return [
            Validation(
                one.partition, one.epoch, one.fetch_position, one.fetch_epoch, one.leader_epoch
            )
            for one in self._in(State.VALIDATING)
            if one.fetch_position is not None
            and one.fetch_epoch is not None
            and one.leader_epoch is not None
        ]

    def to_fetch(self, now: float) -> list[Fetch]:
        """Where there may be more; whether there is room for it is not looked at."""
        return [
            Fetch(
                one.partition,
                one.epoch,
                one.fetch_position,
                one.leader_epoch,
                None if one.watermarks is None else one.watermarks.log_start,
                one.preferred_replica if now < one.preferred_until else None,
            )
            for one in self._in(State.FETCHING)
            if one.fetch_position is not None and not one.is_paused and not one.is_held
        ]

    @property
    def has_held(self) -> bool:
        """Whether a partition waits until the application has been handed what was fetched."""
        return any(one.is_held for one in self._in(State.FETCHING))

    # ---- what brokers say

    def found_committed(self, asked: LookUp, offset: int, leader_epoch: int | None = None) -> None:
        """The group has committed this offset."""
        cursor = self._current(asked.partition, asked.epoch)
        if cursor is not None and cursor.state is State.NEEDS_OFFSET:
            self._set(cursor, offset, leader_epoch)
            cursor.committed = offset

    def found(self, asked: Reset, offset: int) -> None:
        """The place is at this offset; the leader itself has said so, so that it needs no proof."""
        cursor = self._current(asked.partition, asked.epoch)
        if cursor is not None and cursor.state is State.RESETTING:
            self._set(cursor, offset, None)

    def leader_is(self, partition: TopicPartition, leader_epoch: int | None) -> None:
        """The partition has a leader of this epoch; None from brokers that have none."""
        cursor = self._cursors.get(partition)
        if cursor is None:
            return
        cursor.times_missing = 0
        if leader_epoch is None:
            return
        if cursor.leader_epoch is not None and leader_epoch <= cursor.leader_epoch:
            return
        cursor.leader_epoch = leader_epoch
        cursor.preferred_replica = None
        self.changes += 1
        if cursor.state is State.FETCHING and self._is_doubtful(cursor):
            self._enter(cursor, State.VALIDATING)

    def missed(self, partition: TopicPartition) -> int:
        """The cluster does not have the partition: how many times in a row by now."""
        cursor = self[partition]
        cursor.times_missing += 1
        return cursor.times_missing

    def validated(
        self, asked: Validation, end_offset: int | None, end_epoch: int | None = None
    ) -> Truncation | None:
        """The epoch of the data ends there, None if the leader cannot tell.

        A truncation of what the application has read stops the partition.
        """
        self.settle()
        cursor = self._current(asked.partition, asked.epoch)
        if (
            cursor is None
            or cursor.state is not State.VALIDATING
            or cursor.leader_epoch != asked.leader_epoch
            or cursor.position is None
        ):
            return None
        if end_offset is None or end_offset >= asked.offset:
            self._enter(cursor, State.FETCHING)
            return None
        self._drop_data(cursor)
        if end_offset >= cursor.position:
            self._enter(cursor, State.FETCHING)
            return None
        self._enter(cursor, State.STOPPED)
        return Truncation(
            cursor.partition, cursor.position, cursor.position_epoch, end_offset, end_epoch
        )

    def prefer(self, asked: Fetch, replica: int, until: float) -> None:
        """The leader names a replica that is nearer, to be asked for some time (KIP-392)."""
        cursor = self._current(asked.partition, asked.epoch)
        if cursor is not None and cursor.leader_epoch == asked.leader_epoch:
            cursor.preferred_replica, cursor.preferred_until = replica, until
            self.changes += 1

    def ask_leader(self, partition: TopicPartition) -> None:
        """The replica that was preferred is of no use."""
        cursor = self._cursors.get(partition)
        if cursor is not None:
            cursor.preferred_replica = None
            self.changes += 1

    def fetched(
        self,
        asked: Fetch,
        next_offset: int,
        watermarks: Watermarks,
        leader_epoch: int | None = None,
        size: int = 0,
    ) -> bool:
        """A fetch was answered with data up to ``next_offset``; False if it comes too late.

        The data is to be kept if this is True, together with the epoch of the fetch.
        ``leader_epoch`` is that of its last batch.
        """
        cursor = self._awaiting(asked)
        if cursor is None:
            return False
        cursor.watermarks = watermarks
        if next_offset > asked.offset:
            cursor.fetch_position = next_offset
            if leader_epoch is not None:
                cursor.fetch_epoch = leader_epoch
        elif size:
            cursor.is_held = True
            self.changes += 1
        cursor.buffered_bytes += size
        self.buffered_bytes += size
        return True

    def out_of_range(self, asked: Fetch) -> bool:
        """A broker does not have the offset of a fetch: True if that stops the partition.

        It does not when the answer is late, when a follower gave it, or when the application has
        yet to be handed what was fetched before: the leader is asked once more after that.
        """
        cursor = self._awaiting(asked)
        if cursor is None:
            return False
        self.changes += 1
        if asked.replica is not None:
            cursor.preferred_replica = None
            return False
        if cursor.position != cursor.fetch_position:
            cursor.is_held = True
            return False
        self._drop_data(cursor)
        self._enter(cursor, State.STOPPED)
        return True

    # ---- data on its way to the application

    def is_current(self, partition: TopicPartition, epoch: int) -> bool:
        """Whether data of this epoch is worth keeping."""
        return self._current(partition, epoch) is not None

    def may_hand_out(self, partition: TopicPartition, epoch: int) -> bool | None:
        """Whether data of this epoch may be handed out now; None if it is not worth keeping."""
        cursor = self._current(partition, epoch)
        return None if cursor is None else not cursor.is_paused

    def handed_out(
        self,
        partition: TopicPartition,
        epoch: int,
        next_offset: int,
        leader_epoch: int | None = None,
        *,
        released: int = 0,
    ) -> bool:
        """The application gets data up to ``next_offset``; if this is False it must not.

        ``leader_epoch`` is that of the last record, ``released`` the bytes that wait no more.
        """
        cursor = self._current(partition, epoch)
        if cursor is None or cursor.position is None or cursor.fetch_position is None:
            return False
        if not cursor.position <= next_offset <= cursor.fetch_position:
            raise StateError(
                f"{cursor.partition} cannot go from offset {cursor.position} to {next_offset}: "
                f"it was fetched up to {cursor.fetch_position}"
            )
        cursor.position = next_offset
        if leader_epoch is not None:
            cursor.position_epoch = leader_epoch
        released = min(released, cursor.buffered_bytes)
        cursor.buffered_bytes -= released
        self.buffered_bytes -= released
        is_through = cursor.position == cursor.fetch_position and not cursor.buffered_bytes
        if cursor.is_held and is_through:
            cursor.is_held = False
            self.changes += 1
        self._unconsumed.add(cursor)
        return True

    def asked_for_more(self) -> None:
        """The application is done with everything that it was handed."""
        for cursor in self._unconsumed:
            cursor.consumed, cursor.consumed_epoch = cursor.position, cursor.position_epoch
        self._unconsumed.clear()

    def is_drained(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the application is done with all that it was handed of these."""
        wanted = set(partitions)
        return not any(cursor.partition in wanted for cursor in list(self._unconsumed))

    def stop(self, partition: TopicPartition, epoch: int) -> bool:
        """The next data cannot be read: hand out nothing before a seek; False if it is too late."""
        self.settle()
        cursor = self._current(partition, epoch)
        if cursor is None:
            return False
        self._drop_data(cursor)
        self._enter(cursor, State.STOPPED)
        return True

    # ---- commits

    def to_commit(self) -> dict[TopicPartition, Commit]:
        """Everything that was handed out and is not committed."""
        return {
            one.partition: Commit(one.position, one.position_epoch, one.assignment)
            for one in self._cursors.values()
            if one.position is not None and one.position != one.committed
        }

    def to_auto_commit(self) -> dict[TopicPartition, Commit]:
        """Everything that the application is done with and that is not committed."""
        return {
            one.partition: Commit(one.consumed, one.consumed_epoch, one.assignment)
            for one in self._cursors.values()
            if one.consumed is not None and one.consumed != one.committed
        }

    def committed(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """The broker has stored these; what is behind them is done with."""
        for partition, commit in commits.items():
            cursor = self._cursors.get(partition)
            if cursor is None or cursor.assignment != commit.assignment:
                continue
            cursor.committed = commit.offset
            if cursor.position is not None and commit.offset >= cursor.position:
                cursor.consumed, cursor.consumed_epoch = cursor.position, cursor.position_epoch
                self._unconsumed.discard(cursor)

    def lag(self) -> dict[TopicPartition, int | None]:
        """How much is in front of every position, as far as the isolation lets read."""
        return {
            one.partition: one.lag(committed_only=self._committed_only)
            for one in self._cursors.values()
        }

    # ---- inside

    def _next_epoch(self) -> int:
        self.epoch += 1
        self.changes += 1
        return self.epoch

    def _in(self, state: State) -> list[Cursor]:
        return [cursor for cursor in self._cursors.values() if cursor.state is state]

    def _current(self, partition: TopicPartition, epoch: int) -> Cursor | None:
        cursor = self._cursors.get(partition)
        return cursor if cursor is not None and cursor.epoch == epoch else None

    def _awaiting(self, asked: Fetch) -> Cursor | None:
        """The notes on a partition, if the answer to this fetch still counts."""
        cursor = self._cursors.get(asked.partition)
        if cursor is None or cursor.epoch != asked.epoch or cursor.state is not State.FETCHING:
            return None
        return cursor if cursor.fetch_position == asked.offset else None

    def _drop_data(self, cursor: Cursor) -> None:
        """Make everything worthless that was fetched and not handed out."""
        cursor.epoch = self._next_epoch()
        self.buffered_bytes -= cursor.buffered_bytes
        cursor.buffered_bytes = 0
        cursor.is_held = False
        cursor.fetch_position, cursor.fetch_epoch = cursor.position, cursor.position_epoch

    def _forget_place(self, cursor: Cursor) -> None:
        self._drop_data(cursor)
        self._unconsumed.discard(cursor)
        cursor.position = cursor.fetch_position = cursor.consumed = None
        cursor.position_epoch = cursor.fetch_epoch = cursor.consumed_epoch = None
        cursor.spec = None

    def _set(self, cursor: Cursor, offset: int, leader_epoch: int | None) -> None:
        """Go on at an offset that was chosen."""
        cursor.position, cursor.position_epoch = offset, leader_epoch
        cursor.consumed, cursor.consumed_epoch = offset, leader_epoch
        cursor.spec = None
        self._unconsumed.discard(cursor)
        self._drop_data(cursor)
        self._enter(cursor, State.VALIDATING if self._is_doubtful(cursor) else State.FETCHING)

    def _enter(self, cursor: Cursor, state: State) -> None:
        if cursor.state is not State.LEAVING:
            cursor.state = state
            self.changes += 1

    @staticmethod
    def _is_doubtful(cursor: Cursor) -> bool:
        """Whether the leader is newer than the data in front of the next fetch."""
        return (
            cursor.fetch_epoch is not None
            and cursor.leader_epoch is not None
            and cursor.fetch_epoch < cursor.leader_epoch
        )


def _nothing() -> None:
    """Positions without anybody who iterates."""
