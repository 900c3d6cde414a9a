"""Positions of a consumer against a model: answers in any order, late, or twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from karrow.aio.consuming.positions import Fetch, Positions, State, Validation, Watermarks
from karrow.types import Offset, TopicPartition

A, B = (TopicPartition("orders", number) for number in range(2))
WATERMARKS = Watermarks(1000, 900, 0)


@dataclass
class Reader:
    """What a model knows of one assignment of a partition, since its place was chosen.

    ``begin`` is that place, ``end`` follows what was handed out and ``fetched`` what was fetched;
    ``done`` follows what the application is done with. ``is_held`` is that an offset out of range
    was told too early.
    """

    begin: int
    end: int
    fetched: int
    done: int
    handed: list[int] = field(default_factory=list)
    is_held: bool = False

    @classmethod
    def at(cls, offset: int) -> Reader:
        return cls(offset, offset, offset, offset)


@dataclass
class Chunk:
    """Data that waits, of the reader that it was fetched for."""

    reader: Reader
    partition: TopicPartition
    epoch: int
    offset: int
    count: int
    leader_epoch: int


class Machine(RuleBasedStateMachine):
    """A consumer with requests under way whose answers come in any order, late, or twice.

    Whatever makes fetched data worthless gives a partition another reader, so that what belongs to
    a reader of before is known to be stale without asking what is being tested.
    """

    PARTITIONS = (A, B)

    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions()
        self.readers: dict[TopicPartition, Reader] = {}
        self.fetches: list[tuple[Reader, Fetch]] = []
        self.chunks: list[Chunk] = []
        self.validations: list[tuple[Reader, Validation]] = []
        self.leader_epoch = 0
        self.asked_before: tuple[int, list[Fetch]] = (-1, [])

    partitions = st.sampled_from(PARTITIONS)
    # From the end of a list, where that is which is not stale.
    picks = st.integers(0, 3)

    def is_of_now(self, reader: Reader, partition: TopicPartition) -> bool:
        return self.readers.get(partition) is reader

    def drop_data(self, partition: TopicPartition) -> None:
        """Go on with another reader, which has received the same."""
        old = self.readers[partition]
        self.readers[partition] = Reader(old.begin, old.end, old.end, old.done, old.handed)

    def is_answerable(self, reader: Reader, asked: Fetch) -> bool:
        partition = asked.partition
        return (
            self.is_of_now(reader, partition)
            and self.positions[partition].state is State.FETCHING
            and reader.fetched == asked.offset
        )

    @initialize()
    def begin(self) -> None:
        for partition in self.PARTITIONS:
            self.add(partition)

    @rule(partition=partitions)
    def add(self, partition: TopicPartition) -> None:
        self.positions.add([partition])
        for look_up in self.positions.to_look_up():
            self.positions.found_committed(look_up, 5, self.leader_epoch)
            self.readers[look_up.partition] = Reader.at(5)

    @rule(partition=partitions)
    def revoke(self, partition: TopicPartition) -> None:
        self.positions.leave([partition])
        self.positions.remove([partition])
        self.readers.pop(partition, None)

    @rule(partition=partitions, offset=st.integers(0, 30), lazily=st.booleans())
    def move(self, partition: TopicPartition, offset: int, lazily: bool) -> None:
        if partition not in self.readers:
            return
        if lazily:
            self.positions.reset_to(partition, Offset.latest())
            assert partition not in self.positions.to_commit()
            (asked,) = self.positions.to_reset()
            self.positions.found(asked, offset)
        else:
            self.positions.seek(partition, offset)
        self.readers[partition] = Reader.at(offset)

    @rule(partition=partitions, paused=st.sampled_from([False, False, True]))
    def pause(self, partition: TopicPartition, paused: bool) -> None:
        if partition in self.readers:
            act = self.positions.pause if paused else self.positions.resume
            act([partition])

    @rule()
    def send_fetches(self) -> None:
        asked = self.positions.to_fetch(0.0)
        self.fetches += [(self.readers[one.partition], one) for one in asked]
        for one in asked:
            assert one.offset == self.readers[one.partition].fetched
            assert not self.readers[one.partition].is_held

    @rule(pick=picks, count=st.integers(0, 9), twice=st.booleans())
    def answer_fetch(self, pick: int, count: int, twice: bool) -> None:
        if not self.fetches:
            self.send_fetches()
        if not self.fetches:
            return
        index = -1 - pick % len(self.fetches)
        reader, asked = self.fetches[index] if twice else self.fetches.pop(index)
        expected = self.is_answerable(reader, asked)
        after = asked.offset + count
        epoch = self.leader_epoch
        kept = self.positions.fetched(asked, after, WATERMARKS, leader_epoch=epoch, size=count)
        assert kept == expected
        if kept and count:
            reader.fetched = after
            chunk = Chunk(reader, asked.partition, asked.epoch, asked.offset, count, epoch)
            self.chunks.append(chunk)

    @precondition(lambda self: self.fetches)
    @rule(pick=picks)
    def answer_out_of_range(self, pick: int) -> None:
        reader, asked = self.fetches.pop(-1 - pick % len(self.fetches))
        is_answerable = self.is_answerable(reader, asked)
        is_all_handed_out = reader.end == reader.fetched
        assert self.positions.out_of_range(asked) == (is_answerable and is_all_handed_out)
        if is_answerable and is_all_handed_out:
            assert self.positions[asked.partition].state is State.STOPPED
            self.drop_data(asked.partition)
        elif is_answerable:
            reader.is_held = True

    @precondition(lambda self: self.chunks)
    @rule(pick=picks, limit=st.integers(1, 9))
    def hand_out(self, pick: int, limit: int) -> None:
        partition = self.chunks[-1 - pick % len(self.chunks)].partition
        chunk = next(one for one in self.chunks if one.partition == partition)
        taken = min(limit, chunk.count)
        after = chunk.offset + taken
        is_of_now = self.is_of_now(chunk.reader, partition)
        assert self.positions.is_current(partition, chunk.epoch) == is_of_now
        if not is_of_now:
            assert not self.positions.handed_out(partition, chunk.epoch, after, released=taken)
            self.chunks.remove(chunk)
            return
        if not self.positions.may_hand_out(partition, chunk.epoch):
            assert partition in self.positions.paused
            return
        assert self.positions.handed_out(
            partition, chunk.epoch, after, chunk.leader_epoch, released=taken
        )
        chunk.reader.handed += range(chunk.offset, after)
        chunk.reader.end = chunk.offset = after
        chunk.reader.is_held &= after < chunk.reader.fetched
        chunk.count -= taken
        if not chunk.count:
            self.chunks.remove(chunk)

    @rule()
    def ask_for_more(self) -> None:
        self.positions.asked_for_more()
        for reader in self.readers.values():
            reader.done = reader.end

    @precondition(lambda self: self.chunks)
    @rule(pick=picks)
    def find_damage(self, pick: int) -> None:
        chunk = self.chunks[-1 - pick % len(self.chunks)]
        is_of_now = self.is_of_now(chunk.reader, chunk.partition)
        assert self.positions.stop(chunk.partition, chunk.epoch) == is_of_now
        if is_of_now:
            self.drop_data(chunk.partition)

    @rule()
    def new_leader(self) -> None:
        self.leader_epoch += 1
        for partition in self.PARTITIONS:
            self.positions.leader_is(partition, self.leader_epoch)
        asked = self.positions.to_validate()
        self.validations += [(self.readers[one.partition], one) for one in asked]

    @precondition(lambda self: self.validations)
    @rule(pick=picks, end=st.none() | st.integers(0, 40))
    def answer_validation(self, pick: int, end: int | None) -> None:
        reader, asked = self.validations.pop(-1 - pick % len(self.validations))
        partition = asked.partition
        counts = (
            self.is_of_now(reader, partition)
            and self.positions[partition].state is State.VALIDATING
            and asked.leader_epoch == self.leader_epoch
        )
        truncation = self.positions.validated(asked, end)
        is_cut = counts and end is not None and end < reader.fetched
        is_lost = is_cut and end is not None and end < reader.end
        assert (truncation is not None) == is_lost
        if truncation is not None:
            assert truncation.position == reader.end
        if counts:
            expected = State.STOPPED if is_lost else State.FETCHING
            assert self.positions[partition].state is expected
        if is_cut:
            self.drop_data(partition)

    @rule()
    def commit(self) -> None:
        self.positions.committed(self.positions.to_auto_commit())
        assert self.positions.to_auto_commit() == {}

    @invariant()
    def what_was_handed_out_has_no_gap_and_nothing_twice(self) -> None:
        assert set(self.positions.assignment) == set(self.readers)
        for partition, reader in self.readers.items():
            assert reader.handed == list(range(reader.begin, reader.end))
            assert self.positions[partition].position == reader.end
            assert self.positions[partition].fetch_position == reader.fetched
            assert self.positions[partition].consumed == reader.done

    @invariant()
    def commits_are_what_was_received_and_never_more(self) -> None:
        for partition, commit in self.positions.to_commit().items():
            assert commit.offset == self.readers[partition].end
        for partition, commit in self.positions.to_auto_commit().items():
            assert commit.offset == self.readers[partition].done

    @invariant()
    def what_waits_is_counted(self) -> None:
        waiting = dict.fromkeys(self.PARTITIONS, 0)
        for chunk in self.chunks:
            if self.is_of_now(chunk.reader, chunk.partition):
                waiting[chunk.partition] += chunk.count
        for partition in self.positions.assignment:
            assert self.positions[partition].buffered_bytes == waiting[partition]
        assert self.positions.buffered_bytes == sum(waiting.values())

    @invariant()
    def what_is_to_be_fetched_changes_with_a_number(self) -> None:
        """All but offsets: that data has come is known to who has asked."""
        asked = [one._replace(offset=0, log_start=None) for one in self.positions.to_fetch(0.0)]
        changes, before = self.asked_before
        assert changes != self.positions.changes or before == asked
        self.asked_before = self.positions.changes, asked


TestModel = Machine.TestCase
TestModel.settings = settings(stateful_step_count=150)
