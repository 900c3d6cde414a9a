"""A range of offsets out of one partition, fetch by fetch.

Rules:
- The range is exact: it begins at its first offset and ends in front of its last, however batches
  lie; what was read beyond that is cut off.
- The next fetch leaves as soon as the headers of an answer were walked, before anything is decoded,
  and no further one until that is used up.
- Offsets without records (markers of transactions, records of aborted ones, what compaction has
  removed) are passed over. A range may end with such: an answer without data from a leader that has
  offsets beyond the range ends it, if asking again brings the same. A throttled broker's empty
  answer says nothing, and neither does one about an offset in remote storage.
- A leader whose offsets end in front of the range's end may have been elected just now, or wait for
  an open transaction. If it stays at that for a while, it is asked where the log itself ends: a log
  that has nothing more is too short for the range, which is a loss.
- Retriable errors, leaders that move among them, are retried as in every call. Without any progress
  for the time of a call, the range fails.
- A replica that is nearer (KIP-392) is asked while it answers with data; whatever else it says, the
  leader is asked, without a rack: else it would only name the replica again.
- A leader that is newer than the one which had the range when it was planned may have cut it off:
  it has to tell how much of the range its log has (epochs.py) before anything is fetched from it.
  Fetches name the leader that they are meant for, so that no other answers.
- An offset that is gone is the caller's to decide: see loss.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.aio.calls.fetch import FIRST_WITH_TOPIC_IDS
from karrow.aio.calls.offsets import OffsetCalls, isolation_level
from karrow.errors import (
    KarrowError,
    LogTruncated,
    OffsetOutOfRange,
    RequestTimeout,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for,
)
from karrow.records import RecordReader
from karrow.records._header import run_of
from karrow.spark.reading.epochs import NO_EPOCH, Epochs
from karrow.types import Node, TopicPartition
from karrow.types.numbers import number_or_none

if TYPE_CHECKING:
    from karrow.config import FetchConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection

__all__ = ["Answer", "Fetching", "RecreatedTopic", "ShortLog"]

# What an offset is expected to take before anything is known of it, and how much more than expected
# is asked for, so that the last fetch of a range suffices.
BYTES_PER_OFFSET = 1024.0
MARGIN = 1.1
SMALLEST = 64 << 10
SAMPLE_BYTES = 32 << 10
# Seconds for which a sample is asked for that brings nothing.
SAMPLE_FOR = 2.0
# Seconds after which a log that ends too early is believed; at most half of a call's time.
SHORT_FOR = 5.0


class RecreatedTopic(KarrowError):
    """The topic is not the one that the range was found in."""


class NewLeader(KarrowError):
    """The leader is not the one that was known to have the range."""


class ShortLog(KarrowError):
    """The log ends in front of the range's end."""


class Answer(NamedTuple):
    """Data up to ``next_offset``, or none; ``bound`` is where what may be read ends."""

    offset: int
    data: memoryview | None
    next_offset: int
    bound: int
    aborted: list[tuple[int, int]] | None
    is_throttled: bool
    # Only what the leader of a partition says of its end is to be believed.
    is_from_leader: bool

    @property
    def is_telling(self) -> bool:
        """Whether it says something by having no data."""
        return self.data is None and self.is_from_leader and not self.is_throttled


class Fetching(Calls):
    """Fetches of one partition."""

    _config: FetchConfig

    def __init__(
        self,
        config: FetchConfig,
        cluster: Cluster,
        partition: TopicPartition,
        end: int,
        topic_id: str | None = None,
        *,
        epoch: int | None = None,
    ) -> None:
        super().__init__(config, cluster)
        self.partition = partition
        self.end = end
        self._topic_id_then = topic_id
        self._epoch = epoch
        self._epochs = Epochs(config, cluster)
        self._rack = config.rack or ""
        self._replica: int | None = None
        self._level = isolation_level(config.isolation)
        self._bytes_per_offset: float | None = None

    async def fetch(self, offset: int) -> Answer:
        """Data from an offset on; without any, the range has none left up to its end."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._config.call_timeout
        patience = min(SHORT_FOR, self._config.call_timeout / 2)
        silent, short_since = 0, None
        if self._is_other_topic() or self._is_behind():  # or was, when this process last looked
            await self._cluster.refresh([self.partition.topic])
        while True:
            try:
                answer = await self._fetched(offset, self._size(offset))
            except NewLeader:
                await self._check_log()
                continue
            if answer.data is not None:
                self._measure(answer)
                return answer
            silent = silent + 1 if self._is_done(answer) else 0
            if silent > 1 and not await self._is_tiered(offset):
                return answer._replace(next_offset=self.end)
            is_short = answer.is_telling and answer.bound < self.end
            short_since = (short_since or clock()) if is_short else None
            if short_since is not None and clock() > short_since + patience:
                await self._check_end(answer)
                short_since = None
            if clock() > deadline:
                raise self._out_of_patience(answer)

    async def _check_log(self) -> None:
        """Raise if the log of a new leader is not the one that the range was found in."""
        known = self._epochs.known(self.partition)
        found = await self._epochs.ends({self.partition: self._epoch or 0})
        self._epoch = known
        end = found.get(self.partition, self.end)
        if end < self.end:
            raise LogTruncated(offset=end, position=self.end)

    def _is_done(self, answer: Answer) -> bool:
        """Whether nothing seems to be left of the range, by an answer without data."""
        return answer.is_telling and answer.bound >= self.end

    def _out_of_patience(self, answer: Answer) -> RequestTimeout:
        return RequestTimeout(
            f"no data came for {self._config.call_timeout:.1f} s: the leader has offsets "
            f"up to {answer.bound}, and {self.end} was asked for",
            topic=self.partition.topic,
            partition=self.partition.partition,
            offset=answer.offset,
        )

    async def _check_end(self, answer: Answer) -> None:
        """Raise if the log has nothing more than what an answer without data has told."""
        end = await self._log_end()
        if end is None or end > max(answer.offset, answer.bound):
            return
        if end <= answer.offset or not await self._is_tiered(answer.offset):
            raise ShortLog(f"it ends at {end}")

    async def _log_end(self) -> int | None:
        """Where the log ends, open transactions included; None while nobody can say."""
        calls = OffsetCalls(self._config, self._cluster)
        with contextlib.suppress(KarrowError):
            # Who was the leader and has not heard that it is none any more would answer, too.
            await self._cluster.refresh([self.partition.topic])
            found = await calls.list_offsets({self.partition: "latest"}, retries=0)
            return found[self.partition].offset
        return None

    async def _is_tiered(self, offset: int) -> bool:
        """Whether an offset is in remote storage (KIP-405), which is silent while it is slow."""
        calls = OffsetCalls(self._config, self._cluster)
        try:
            found = await calls.list_offsets({self.partition: "earliest_local"})
        except UnsupportedVersion:  # older than remote storage
            return False
        local = found[self.partition].offset
        return local is not None and offset < local

    async def sample(self, offset: int) -> float | None:
        """About how many bytes an offset takes, by the first batches behind one.

        0 where the range has no records left; None if nothing came for a while, as from a throttled
        broker, or the offset is gone: whoever plans the range says what is lost.
        """
        try:
            async with asyncio.timeout(SAMPLE_FOR):
                return await self._sampled(offset)
        except (TimeoutError, OffsetOutOfRange, UnknownTopicOrPartition):
            return None

    async def _sampled(self, offset: int) -> float:
        leader = Node.leader(*self.partition)
        silent = 0
        for made in itertools.count():
            answer = await self._call_fetch(offset, SAMPLE_BYTES, leader, rack="")
            self._measure(answer)
            if self._bytes_per_offset is not None:
                break
            silent = silent + 1 if self._is_done(answer) else 0
            if silent > 1 and not await self._is_tiered(offset):
                return 0.0
            await asyncio.sleep(self._pause(made))
        return self._bytes_per_offset or 0.0

    async def _fetched(self, offset: int, size: int) -> Answer:
        leader = Node.leader(*self.partition)
        if self._replica is None:
            answer = await self._call_fetch(offset, size, leader, self._rack)
            if answer.is_from_leader or answer.data is not None:
                return answer
        nearer = await self._from_replica(offset, size)
        return nearer or await self._call_fetch(offset, size, leader, rack="")

    async def _from_replica(self, offset: int, size: int) -> Answer | None:
        """What the replica has that the leader has named; None where that is nothing."""
        replica, self._replica = self._replica, None
        if replica is not None:
            with contextlib.suppress(KarrowError):
                to = Node.id(replica)
                answer = await self._call_fetch(offset, size, to, self._rack, retries=0)
                if answer.data is not None:
                    self._replica = replica
                    return answer._replace(is_from_leader=False)
        return None

    async def _call_fetch(
        self, offset: int, size: int, to: Node, rack: str, *, retries: int | None = None
    ) -> Answer:
        topic, partition = self.partition

        def body(version: int, _connection: Connection) -> dict[str, Any]:
            if self._is_other_topic():
                raise RecreatedTopic("the topic has another id now", topic=topic)
            epoch = self._meant_leader()
            entry = self._topic(topic, version, FIRST_WITH_TOPIC_IDS, "topic")
            part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size}
            part["current_leader_epoch"] = epoch
            return {
                "max_wait_ms": round(self._config.max_wait * 1000),
                "min_bytes": 1,
                "max_bytes": size,
                "isolation_level": self._level,
                "topics": [{**entry, "partitions": [part]}],
                "rack_id": rack,
            }

        request = Request(
            "Fetch",
            to,
            body,
            limit=self._config.request_timeout + self._config.max_wait,
            topics=(topic,),
            ids_since=FIRST_WITH_TOPIC_IDS,
        )
        return await self._call(request, lambda reply: self._answer(reply, offset), retries=retries)

    def _meant_leader(self) -> int:
        """The epoch of the leader that a fetch is meant for; -1 where it does not matter."""
        if self._epoch is None:
            return NO_EPOCH
        known = self._epochs.known(self.partition)
        if known > self._epoch:
            raise NewLeader(f"its epoch is {known}, and {self._epoch} had the range")
        return known

    def _is_behind(self) -> bool:
        """Whether this process knows an older leader than whoever has planned the range."""
        return 0 <= self._epochs.known(self.partition) < (self._epoch or 0)

    def _is_other_topic(self) -> bool:
        then, now = self._topic_id_then, self._cluster.cache.topic_id(self.partition.topic)
        return then is not None and now is not None and then != str(now)

    def _answer(self, reply: Reply, offset: int) -> Answer:
        topic, partition = self.partition
        context = reply.context("Fetch", topic=topic, partition=partition)
        message = reply.message
        if error := error_for(message.error_code, **context):
            raise error
        throttled = message.throttle_time_ms > 0
        item = next((item for one in message.responses for item in one.partitions), None)
        if item is None:
            return Answer(offset, None, offset, -1, None, is_throttled=True, is_from_leader=True)
        if error := error_for(item.error_code, offset=offset, **context):
            self._follow(self.partition, item, message.node_endpoints)
            raise error
        self._replica = number_or_none(item.preferred_read_replica)
        bound = item.last_stable_offset if self._level else item.high_watermark
        data = memoryview(item.records) if item.records else None
        after, size, _ = run_of(data) if data is not None else (None, 0, 0)
        if data is not None and after is not None:
            data = data[:size]
        aborted = [(one.producer_id, one.first_offset) for one in item.aborted_transactions or ()]
        return Answer(
            offset,
            data,
            offset if after is None else max(after, offset),
            bound,
            aborted if self._level else None,
            is_throttled=throttled,
            is_from_leader=self._replica is None,
        )

    def reader(self, answer: Answer) -> RecordReader:
        """Decodes an answer's data."""
        return RecordReader(
            answer.data or b"",
            topic=self.partition.topic,
            partition=self.partition.partition,
            from_offset=answer.offset,
            aborted=answer.aborted,
            check_crc=self._config.check_crcs,
            max_decompressed_bytes=self._config.max_decompressed_bytes,
        )

    def _measure(self, answer: Answer) -> None:
        if answer.data is not None and answer.next_offset > answer.offset:
            self._bytes_per_offset = len(answer.data) / (answer.next_offset - answer.offset)

    def _size(self, offset: int) -> int:
        """How many bytes to ask for: what is left of the range, if that is less than a fetch."""
        left = (self.end - offset) * (self._bytes_per_offset or BYTES_PER_OFFSET) * MARGIN
        return min(self._config.partition_max_bytes, max(round(left), SMALLEST))
