"""``spark.readStream``: where a stream is, how far its next batch goes, and what its tasks read.

Spark keeps one of these for as long as a query runs, in a process of its own, and asks for one
thing at a time: where to begin, how far to go, the ranges in between. Rules:
- The ranges of a batch follow from its two offsets alone (offsets.py), so that a batch that is
  repeated is the same.
- What is lost is said when a batch is planned, before any of it is read.
- Brokers learn of changes one after the other. What was known is missing only after a while, and a
  partition not even then while its topic is there: Kafka removes none, so whoever does not name it
  is behind. Without it in the offsets it would be lost for good, or be read again as a new one.
- An end in front of where the stream stands is not believed at once either: whoever was the leader
  and has not heard that it is none any more knows less, and so does one that was just elected.
- A leader that was elected since may have cut off what was read, and have written other records
  with the same offsets. The stream goes on where its log parts from the one that was read.
- With Trigger.AvailableNow the end is what was there when the query began.
- Spark writes down where a stream is with its first batch, not before. So one that begins where it
  could not begin again, at the end of a topic say, has a first batch even if that is empty: else
  what comes before a restart would be passed over.
- Spark asks where to begin also when it repeats a first batch, which has its own beginnings in the
  checkpoint. Options that have ceased to fit since (a partition was added, offsets are gone) must
  not keep it from that. So what is wrong with them is said with the first question for an end.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from karrow.errors import ConfigError
from karrow.spark import pool
from karrow.spark.arriving import arrive
from karrow.spark.reading.epochs import Epochs
from karrow.spark.reading.groups import GroupCommits
from karrow.spark.reading.limits import Delay, shared_bytes, shared_offsets
from karrow.spark.reading.loss import DataLoss, Verdict, report
from karrow.spark.reading.offsets import Offsets, plain
from karrow.spark.reading.planning import Planning, beginnings
from karrow.spark.reading.ranges import Range
from karrow.spark.reading.settings import Settings
from karrow.spark.reading.task import read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from karrow.aio.client import AsyncClient
    from karrow.spark.reading.topics import Found
    from karrow.types import TopicPartition

__all__ = ["StreamReader"]

_log = logging.getLogger(__name__)

# Seconds between looks for a topic or a partition that is missing all at once, and for an end that
# has moved back.
MISSING_PAUSES = (0.1, 0.2, 0.5, 1.0, 1.0)
SHORT_PAUSES = (0.1, 0.2, 0.5, 1.0, 1.0)
NOTHING = Offsets({})


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark asks about a stream, and sends to its tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._stream = _Stream(Settings.for_stream(self._options))

    # Texts alone go to the tasks: a configuration has secrets, which do not pickle.
    def __reduce__(self) -> tuple[Any, ...]:
        return arrive, (__name__, StreamReader.__name__, self._options)

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; without partitions where that cannot be said."""
        try:
            return self._stream.begin().to_json()
        except (ConfigError, DataLoss) as error:
            _log.info("a new query could not begin: %s", error)
            return Offsets({}, is_initial=True).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that the options set, as Spark calls it; all of them count."""
        limits = self._stream.settings.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember what is there now: the query ends with it."""
        self._stream.end_with_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes; ``start`` itself if there is nothing for one."""
        begun = Offsets.from_json(start)
        if not begun.is_initial:
            self._stream.commit(begun)
        elif not begun.offsets:
            begun = self._stream.begin()
            start = begun.to_json()
        end = self._stream.advance(begun, is_limited=not isinstance(limit, ReadAllAvailable))
        return start if end is None else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What was there when it was last looked at, for the query's progress."""
        return plain(self._stream.latest) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The ranges of a batch, each read by a task."""
        return list(self._stream.ranges(Offsets.from_json(start), Offsets.from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range; in the task."""
        if isinstance(partition, Range):
            yield from read_range(self._stream.settings, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with everything in front of ``end``."""
        self._stream.commit(Offsets.from_json(end))


class _Stream:
    """A stream between its batches."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.latest: Mapping[TopicPartition, int] = {}
        self._delay = Delay(settings.limits)
        self._commits = GroupCommits(settings.commit_group)
        self._target: Offsets | None = None
        # Partitions that were waited for in vain: once is enough.
        self._absent: frozenset[TopicPartition] = frozenset()

    def _client(self) -> pool.Inline:
        return pool.inline(self.settings.config)

    def begin(self) -> Offsets:
        client = self._client()
        return client.run(beginnings(self.settings, client.client))

    def end_with_what_is_there(self) -> None:
        client = self._client()
        self._target = client.run(self._available(client.client))

    async def _available(self, client: AsyncClient, begun: Offsets = NOTHING) -> Offsets:
        """What is there; what was known has to be missing for a while to be gone."""
        known = begun.offsets.keys() - self._absent
        found = await self.settings.topics.find(client, missing_ok=True)
        for pause in MISSING_PAUSES:
            if known.issubset(found.partitions):
                break
            await asyncio.sleep(pause)  # a broker that has just started may not know of it yet
            found = await self.settings.topics.find(client, missing_ok=True)
        ends = await Planning(self.settings, client).ends(found.partitions)
        there = Offsets(
            {one: end.offset for one, end in ends.items()},
            found.ids,
            epochs={one: end.epoch for one, end in ends.items() if end.epoch is not None},
        )
        return self._with_absent(there, begun, found)

    def _with_absent(self, there: Offsets, begun: Offsets, found: Found) -> Offsets:
        """With partitions that are not named although their topic is there, where they were."""
        absent = {
            one: offset
            for one, offset in begun.offsets.items()
            if one not in there.offsets
            and one.topic in found.topics
            and self.settings.topics.holds(one)
            and not begun.is_other_topic(one.topic, there)
        }
        for one in sorted(absent.keys() - self._absent):
            _log.warning("%s is not named by the broker, its topic is; it stays where it is", one)
        self._absent = frozenset(absent)
        return replace(there, offsets={**there.offsets, **absent})

    def advance(self, begun: Offsets, *, is_limited: bool) -> Offsets | None:
        """The end of the batch that begins there; None where there is nothing for one."""
        client = self._client()
        return client.run(self._advance(client.client, begun, is_limited=is_limited))

    async def _advance(
        self, client: AsyncClient, begun: Offsets, *, is_limited: bool
    ) -> Offsets | None:
        planning = Planning(self.settings, client)
        there, cut = await self._there(client, begun)
        self.latest = there.offsets
        added = await planning.earliest(
            one
            for one in there.offsets
            if one not in begun.offsets or begun.is_other_topic(one.topic, there)
        )
        moved = {**added, **cut}
        begins = {**begun.offsets, **moved}
        ends = there.offsets
        if is_limited:
            if self._target is None and self._delay.holds_back(begins, ends):
                return None
            ends = await self._limited(planning, begins, ends)
        is_written_down = not begun.is_initial or self.settings.start.is_lasting
        if is_written_down and not moved and ends == begun.offsets:
            return None
        return Offsets(
            ends,
            there.ids,
            begins if begun.is_initial else moved,
            epochs=begun.newest_epochs(there),
        )

    async def _there(
        self, client: AsyncClient, begun: Offsets
    ) -> tuple[Offsets, dict[TopicPartition, int]]:
        """How far the stream may go, and where it has to go back to: logs that were cut.

        An end that moves back for another reason has to do so for a while.
        """
        there, cut = await self._compared(client, begun, await self._goal(client, begun))
        for pause in SHORT_PAUSES:
            if begun.beyond(there) <= cut.keys():
                break
            await asyncio.sleep(pause)
            there = await self._available(client, begun)  # asks who leads, too
            if self._target is not None:
                self._target = there
            there, cut = await self._compared(client, begun, there)
        return there, cut

    async def _compared(
        self, client: AsyncClient, begun: Offsets, there: Offsets
    ) -> tuple[Offsets, dict[TopicPartition, int]]:
        """What is there, and where the logs of new leaders part from those that were read."""
        overruled = begun.overruled(there)
        if not overruled:
            return there, {}
        ends = await Epochs(self.settings.config, client.cluster).ends(overruled)
        same = {one: min(end, begun.offsets[one]) for one, end in ends.items()}
        # A leader that was just elected has more than it may give yet.
        reached = {one: max(end, there.offsets[one]) for one, end in same.items()}
        cut = {one: end for one, end in same.items() if end < begun.offsets[one]}
        return replace(there, offsets={**there.offsets, **reached}), cut

    async def _goal(self, client: AsyncClient, begun: Offsets) -> Offsets:
        if self._target is None:
            return await self._available(client, begun)
        if not begun.offsets.keys() <= self._target.offsets.keys():
            self._target = await self._available(client, begun)
        if begun.is_initial:  # Spark asks for the end of a query first, and records come meanwhile
            self._target = self._target.not_before(begun)
        return self._target

    async def _limited(
        self,
        planning: Planning,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> Mapping[TopicPartition, int]:
        limits = self.settings.limits
        if limits.max_offsets is not None:
            ends = shared_offsets(limits.max_offsets, begins, ends)
        if limits.max_bytes is not None:
            sizes = await planning.sizes(begins, ends)
            ends = shared_bytes(limits.max_bytes, begins, ends, sizes)
        return ends

    def ranges(self, begun: Offsets, ended: Offsets) -> list[Range]:
        settings = self.settings
        if begun.is_initial and not begun.offsets and ended.lacks_begins:
            begun = self.begin()
        begins = _begins(begun, ended, fails=settings.fails_on_loss)
        whole = [
            Range(*one, begins[one], offset, ended.ids.get(one.topic), ended.epochs.get(one))
            for one, offset in ended.offsets.items()
        ]
        sizes: dict[TopicPartition, float] = {}
        if settings.division.max_bytes is not None:
            client = self._client()
            planning = Planning(settings, client.client)
            sizes = client.run(planning.sizes(begins, ended.offsets))
        return settings.division.divided(whole, sizes)

    def commit(self, done: Offsets) -> None:
        self._commits.commit(self._client, done.offsets)


def _begins(begun: Offsets, ended: Offsets, *, fails: bool) -> dict[TopicPartition, int]:
    """Where each partition of a batch begins, and what is lost between the batch before and it."""
    for one, offset in begun.offsets.items():
        if one not in ended.offsets and not begun.is_initial:
            report(Verdict(one, offset, offset + 1, "deleted"), fails=fails)
    found: dict[TopicPartition, int] = {}
    for one, end in ended.offsets.items():
        known = begun.offsets.get(one)
        begin = ended.begins.get(one, end if known is None else known)
        if not begun.is_initial and one in ended.begins:
            _check_moved(begun, ended, one, fails=fails)
        if begin > end:
            report(Verdict(one, end, begin, "beyond", f"it ends at {end}"), fails=fails)
        found[one] = begin
    return found


def _check_moved(begun: Offsets, ended: Offsets, one: TopicPartition, *, fails: bool) -> None:
    """What is lost of a partition that begins elsewhere than where it stood."""
    known, begin = begun.offsets.get(one), ended.begins[one]
    if known is not None and begun.is_other_topic(one.topic, ended):
        report(Verdict(one, known, known + 1, "recreated"), fails=fails)
    elif known is not None:
        report(Verdict(one, begin, known, "cut", f"its log goes on at {begin}"), fails=fails)
    elif begin > 0:
        report(Verdict(one, 0, begin, "late"), fails=fails)
