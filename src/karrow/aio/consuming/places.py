"""Finds the offsets that partitions wait for: committed ones, places, and ends of epochs.

Rules:
- A partition without an offset gets what its group has committed, else ``start``. A place that only
  a broker can tell is asked for; so is whether a new leader has what was read (KIP-320).
- Every broker is asked on its own, so that one that does not answer holds up nobody else. A
  partition that has its answer goes on, whatever becomes of the others that were asked for with it.
- Passing trouble is met with pauses, for as long as the answer is wanted. What will not pass stops
  the partition and is told to the application.
- A question counts in the epoch in which it was asked (positions.py), so that a seek overrides it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.aio.calls.commits import CommitCalls
from karrow.aio.calls.epochs import EpochCalls, EpochEnd, EpochQuestion
from karrow.aio.consuming.positions import LookUp, Reset, Validation
from karrow.aio.consuming.watch import is_refusal
from karrow.errors import (
    CallbackError,
    KarrowError,
    LogTruncated,
    NoOffset,
    PartialError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from karrow.net.retry import is_consumer_group_retriable
from karrow.net.sharing import cancelled, duty
from karrow.types import CommittedOffset, OffsetResult, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from karrow.aio.consuming.engine import Engine
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster

Q = TypeVar("Q", LookUp, Reset, Validation)


class Places(CommitCalls, EpochCalls):
    """Looks for offsets on behalf of one consumer.

    ``troubles`` are the errors that hold up partitions now.
    """

    _config: ConsumerConfig

    def __init__(self, config: ConsumerConfig, cluster: Cluster, engine: Engine) -> None:
        super().__init__(config, cluster)
        self.default_group = config.group
        self.troubles: dict[TopicPartition, KarrowError] = {}
        # Partitions that are not looked up yet, since a listener may still say where they begin.
        self.withheld: set[TopicPartition] = set()
        self._engine = engine
        self._positions = engine.positions
        self._asked: set[LookUp | Reset | Validation] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- what is asked

    def look(self) -> None:
        """Ask for everything that is not known and not being asked for."""
        for wanted in self._positions.to_look_up():
            if self._config.group is None and wanted.partition not in self.withheld:
                self._begin(wanted)
        self._pursue(self._to_look_up, self._look_up, by_leader=False)
        self._pursue(self._positions.to_reset, self._reset)
        self._pursue(self._positions.to_validate, self._validate)

    def _to_look_up(self) -> list[LookUp]:
        return [one for one in self._positions.to_look_up() if one.partition not in self.withheld]

    def _pursue(
        self,
        open_questions: Callable[[], list[Q]],
        ask: Callable[[list[Q]], Coroutine[Any, Any, None]],
        *,
        by_leader: bool = True,
    ) -> None:
        new = [question for question in open_questions() if question not in self._asked]
        if not new:
            return
        self._asked.update(new)
        pursue = self._each_leader if by_leader else self._until_answered
        work = pursue(new, open_questions, ask)
        task = duty(work, "karrow offsets", partial(self._engine.broke, "looking for offsets"))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _each_leader(
        self,
        asked: list[Q],
        open_questions: Callable[[], list[Q]],
        ask: Callable[[list[Q]], Coroutine[Any, Any, None]],
    ) -> None:
        unknown = {one.partition.topic for one in asked if self._leader_of(one) is None}
        if unknown:
            with contextlib.suppress(KarrowError):  # whoever asks the leaders hears of it, too
                await self._cluster.refresh(unknown)
        groups: dict[int | None, list[Q]] = {}
        for one in asked:
            groups.setdefault(self._leader_of(one), []).append(one)
        each = (self._until_answered(group, open_questions, ask) for group in groups.values())
        await asyncio.gather(*each)

    def _leader_of(self, question: Q) -> int | None:
        known = self._cluster.cache.partition(*question.partition)
        return None if known is None else known.leader

    async def _until_answered(
        self,
        asked: list[Q],
        open_questions: Callable[[], list[Q]],
        ask: Callable[[list[Q]], Coroutine[Any, Any, None]],
    ) -> None:
        made = 0
        left = asked
        try:
            while left:
                try:
                    await ask(left)
                except KarrowError as error:
                    self._failed(left, error)
                still_open = set(open_questions())
                self._answered([one for one in left if one not in still_open])
                left = [one for one in left if one in still_open]
                if left:
                    await asyncio.sleep(self._pause(made))
                    made += 1
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self._engine.broke("looking for offsets", error)
        finally:
            self._close(left)

    def _answered(self, questions: list[Q]) -> None:
        """Go on with those that have an answer, also while others of the same broker have none."""
        if questions:
            self._close(questions)
            self._engine.changed()

    def _close(self, questions: list[Q]) -> None:
        self._asked.difference_update(questions)
        for one in questions:
            self.troubles.pop(one.partition, None)

    def _failed(self, asked: Iterable[Q], error: KarrowError) -> None:
        """Some or all could not be told: those that never will be are stopped."""
        told: set[int] = set()
        for one in asked:
            why = error.errors.get(one.partition) if isinstance(error, PartialError) else error
            if not isinstance(why, KarrowError):
                continue
            self.troubles[one.partition] = why
            if isinstance(why, UnknownTopicOrPartition) and self._is_open(one):
                self._engine.lacks(one.partition, why)
            if not is_consumer_group_retriable(why) and self._stop(one) and id(why) not in told:
                told.add(id(why))
                tell = self._engine.fail if is_refusal(why) else self._engine.inbox.fail
                tell(why)

    def _is_open(self, question: Q) -> bool:
        return self._positions.is_current(question.partition, question.epoch)

    def _stop(self, question: Q) -> bool:
        with self._engine.lock:
            return self._positions.stop(question.partition, question.epoch)

    # ---- committed offsets

    async def _look_up(self, asked: list[LookUp]) -> None:
        found = await self.stored([one.partition for one in asked])
        with self._engine.lock:
            for one in asked:
                stored = found.get(one.partition)
                if stored is None or stored.offset is None:
                    self._begin(one)
                else:
                    self._positions.found_committed(one, stored.offset, stored.leader_epoch)

    async def stored(
        self, partitions: Iterable[TopicPartition], *, retries: int | None = 0
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, after transactions that are about to (KIP-447)."""
        stable = self._config.isolation == "read_committed"
        try:
            return await self.committed_offsets(None, partitions, stable=stable, retries=retries)
        except UnsupportedVersion:
            if not stable:
                raise
            return await self.committed_offsets(None, partitions, retries=retries)

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return len(await self._numbers(topic, None))

    def _begin(self, asked: LookUp) -> None:
        """There is no committed offset."""
        spec = self._config.start_spec
        topic, number = asked.partition
        if spec is not None:
            if self._positions.is_current(asked.partition, asked.epoch):
                self._positions.reset_to(asked.partition, spec)
        elif self._stop(asked):
            self._engine.inbox.fail(
                NoOffset(
                    "there is no committed offset to begin at",
                    hint="seek, or set start= to something else than 'none'",
                    topic=topic,
                    partition=number,
                )
            )

    # ---- places

    async def _reset(self, asked: list[Reset]) -> None:
        found, errors = await self._listed({one.partition: one.spec for one in asked})
        # Nothing is that new: what comes is the place.
        unknown = [one for one, answer in found.items() if answer.offset is None]
        ends, others = await self._listed(dict.fromkeys(unknown, OffsetSpec.parse("latest")))
        answers = {**found, **dict.fromkeys(unknown, None), **ends}
        with self._engine.lock:
            for one in asked:
                answer = answers.get(one.partition)
                if answer is not None:
                    self._positions.found(one, answer.offset or 0)
        if errors or others:
            raise PartialError("some places are not known", {}, {**errors, **others})

    async def _listed(
        self, places: Mapping[TopicPartition, OffsetSpec]
    ) -> tuple[Mapping[TopicPartition, OffsetResult], Mapping[TopicPartition, Exception]]:
        """What brokers say of places, and which they do not tell, once."""
        if not places:
            return {}, {}
        try:
            isolation = self._config.isolation
            return await self.list_offsets(places, isolation=isolation, retries=0), {}
        except PartialError as error:
            return error.results, error.errors
        except KarrowError as error:
            return {}, dict.fromkeys(places, error)

    # ---- truncated logs

    async def _validate(self, asked: list[Validation]) -> None:
        by_partition = {one.partition: one for one in await self._still_of(asked)}
        questions = {
            where: EpochQuestion(one.offset_epoch, one.leader_epoch)
            for where, one in by_partition.items()
        }

        async def one_leader(
            broker_id: int, group: list[TopicPartition]
        ) -> Mapping[TopicPartition, EpochEnd | KarrowError]:
            return await self._ends_of_epochs(broker_id, {one: questions[one] for one in group})

        outcomes = await self._by_leader(list(by_partition), one_leader)
        errors = {one: said for one, said in outcomes.items() if isinstance(said, KarrowError)}
        with self._engine.lock:
            for partition, question in by_partition.items():
                if partition not in errors:
                    self._settle(question, outcomes[partition])
        if errors:
            raise PartialError("some ends of epochs are not known", {}, errors)

    async def _still_of(self, asked: list[Validation]) -> list[Validation]:
        """Those whose leader is still the one that is to be asked; it may have moved on since."""
        await self._cluster.look_up({one.partition.topic for one in asked})
        with self._engine.lock:
            for one in asked:
                known = self._cluster.cache.partition(*one.partition)
                if known is not None:
                    self._positions.leader_is(one.partition, known.leader_epoch)
            still_open = set(self._positions.to_validate())
        return [one for one in asked if one in still_open]

    def _settle(self, asked: Validation, end: EpochEnd) -> None:
        gone = self._positions.validated(asked, end.offset, end.epoch)
        if gone is None:
            return
        policy = self._config.out_of_range
        try:
            spec = self._engine.place_beyond(gone.partition, gone.position)
        except CallbackError as error:
            self._engine.inbox.fail(error)
            return
        if spec is not None:
            # The ends of a log are places for who has none; here is a better one, as in Java.
            place = spec if callable(policy) else OffsetSpec.at(gone.end_offset)
            self._engine.go_on(gone.partition, place, gone.position, "truncated")
            return
        topic, number = gone.partition
        self._engine.inbox.fail(
            LogTruncated(
                f"records up to offset {gone.position} were read, and those from "
                f"{gone.end_offset} on do not exist any more",
                hint="seek to go on, or say how with out_of_range=",
                offset=gone.end_offset,
                position=gone.position,
                topic=topic,
                partition=number,
            )
        )

    async def close(self) -> None:
        """Ask no more."""
        await cancelled(*self._tasks)
