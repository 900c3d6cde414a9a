"""Records out of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from karrow.aio.calls.base import Reply, Request
from karrow.aio.calls.offsets import OffsetCalls, isolation_level
from karrow.errors import CorruptRecordError, RemoteProtocolError, error_for
from karrow.records import Record, RecordReader
from karrow.records._header import run_of
from karrow.types import (
    AbortedTransaction,
    FetchResult,
    Node,
    OffsetLike,
    OffsetSpec,
    TopicPartition,
)
from karrow.types.numbers import number_or_none

if TYPE_CHECKING:
    from karrow.config.fetch import Isolation
    from karrow.net.connection import Connection

# The Fetch versions that brought isolation, racks, and topic ids.
FIRST_WITH_ISOLATION = 4
FIRST_WITH_RACK = 11
FIRST_WITH_TOPIC_IDS = 13
MEBIBYTE = 1 << 20


class FetchCalls(OffsetCalls):
    """Calls that read records."""

    async def fetch(
        self,
        topic: str,
        partition: int | None = None,
        offset: OffsetLike | None = None,
        *,
        max_bytes: int = MEBIBYTE,
        min_bytes: int = 1,
        max_wait: float = 0.5,
        isolation: Isolation = "read_uncommitted",
        broker: int | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> FetchResult[Record]:
        """Records from an offset on, as many as fit into ``max_bytes``, but at least one batch.

        Without ``partition`` it is the one with the highest offset, without ``offset`` the last
        record's. The broker answers when it has ``min_bytes`` or after ``max_wait`` seconds.
        ``broker`` reads from a replica, which ``preferred_read_replica`` may have named.
        """
        level = isolation_level(isolation)
        if partition is None:
            partition = await self._fullest(topic, retries)
        start = await self._start(topic, partition, offset, isolation, retries)
        where = TopicPartition(topic, partition)

        def body(version: int, connection: Connection) -> dict[str, Any]:
            if level:
                connection.versions.require("Fetch", version, isolation, FIRST_WITH_ISOLATION)
            part = {"partition": partition, "fetch_offset": start, "partition_max_bytes": max_bytes}
            entry = self._topic(topic, version, FIRST_WITH_TOPIC_IDS, "topic")
            return {
                "max_wait_ms": round(max_wait * 1000),
                "min_bytes": min_bytes,
                "max_bytes": max_bytes,
                "isolation_level": level,
                "topics": [{**entry, "partitions": [part]}],
                "rack_id": self._config.rack or "",
            }

        request = Request(
            "Fetch",
            Node.leader(topic, partition) if broker is None else Node.id(broker),
            body,
            api_version,
            self._config.request_timeout + max_wait,
            topics=(topic,),
            ids_since=FIRST_WITH_TOPIC_IDS,
        )
        return await self._call(
            request,
            lambda reply: self._read_fetched(reply, where, start, committed=bool(level)),
            retries=retries,
        )

    async def fetch_all(
        self,
        topic: str,
        partition: int = 0,
        *,
        max_bytes: int = MEBIBYTE,
        isolation: Isolation = "read_uncommitted",
        api_version: int | None = None,
        retries: int | None = None,
    ) -> FetchResult[Record]:
        """Every record from the earliest to the high watermark of the moment of the call.

        Each request asks for ``max_bytes``; all records are held in memory.
        """
        options: dict[str, Any] = {
            "max_bytes": max_bytes,
            "max_wait": 0.0,
            "isolation": isolation,
            "api_version": api_version,
            "retries": retries,
        }
        first = await self.fetch(topic, partition, "earliest", **options)
        end = _end(first, isolation)
        records = list(first.records)
        last = first
        while last.next_offset < end:
            before = last.next_offset
            last = await self.fetch(topic, partition, before, **options)
            records += (record for record in last.records if record.offset < end)
            if last.next_offset <= before:
                break
        return FetchResult(
            topic=topic,
            partition=partition,
            records=records,
            high_watermark=first.high_watermark,
            next_offset=min(last.next_offset, max(end, first.next_offset)),
            last_stable_offset=first.last_stable_offset,
            log_start_offset=first.log_start_offset,
            preferred_read_replica=first.preferred_read_replica,
            aborted_transactions=first.aborted_transactions,
            throttle_time=last.throttle_time,
        )

    async def _fullest(self, topic: str, retries: int | None) -> int:
        """The partition with the highest offset; the first of several."""

        async def numbers() -> list[int]:
            return sorted((await self._cluster.topic(topic)).partitions)

        found = await self._attempts(numbers, retries=retries)
        ends = await self.list_offsets(
            {TopicPartition(topic, number): "latest" for number in found}, retries=retries
        )
        fullest = max(ends, key=lambda key: (ends[key].offset or 0, -key.partition))
        return fullest.partition

    async def _start(
        self,
        topic: str,
        partition: int,
        offset: OffsetLike | None,
        isolation: Isolation,
        retries: int | None,
    ) -> int:
        """The offset to begin at."""
        if offset is None:
            first = await self.earliest_offset(topic, partition, retries=retries)
            end = await self.latest_offset(topic, partition, isolation=isolation, retries=retries)
            return max(first, end - 1)
        spec = OffsetSpec.parse(offset)
        if not spec.needs_broker:
            return spec.value
        where = TopicPartition(topic, partition)
        found = await self.list_offsets({where: spec}, isolation=isolation, retries=retries)
        place = found[where].offset
        if place is None:  # nothing is that new: wait for what comes
            return await self.latest_offset(topic, partition, retries=retries)
        return place

    def _read_fetched(
        self, reply: Reply, where: TopicPartition, start: int, *, committed: bool
    ) -> FetchResult[Record]:
        context = reply.context("Fetch", topic=where.topic, partition=where.partition)
        error = error_for(reply.message.error_code, **context)
        if error is not None:
            raise error
        found = [
            item
            for topic in reply.message.responses
            for item in topic.partitions
            if item.partition_index == where.partition
        ]
        if len(found) != 1:
            raise RemoteProtocolError("the answer does not speak of the partition", **context)
        answer = found[0]
        error = error_for(answer.error_code, offset=start, **context)
        if error is not None:
            self._follow(where, answer, reply.message.node_endpoints)
            raise error
        aborted = tuple(
            AbortedTransaction(one.producer_id, one.first_offset)
            for one in answer.aborted_transactions or ()
        )
        records, next_offset = _records(
            answer.records, where, start, aborted if committed else None
        )
        return FetchResult(
            topic=where.topic,
            partition=where.partition,
            records=records,
            high_watermark=answer.high_watermark,
            next_offset=next_offset,
            last_stable_offset=number_or_none(answer.last_stable_offset),
            log_start_offset=number_or_none(answer.log_start_offset),
            preferred_read_replica=number_or_none(answer.preferred_read_replica),
            aborted_transactions=aborted,
            throttle_time=reply.message.throttle_time_ms / 1000,
        )


def _records(
    data: Any, where: TopicPartition, start: int, aborted: tuple[AbortedTransaction, ...] | None
) -> tuple[list[Record], int]:
    """The records of an answer and the offset after them.

    What stands before a damaged batch is good; the damage is raised when it comes first.
    """
    if not data:
        return [], start
    reader = RecordReader(
        data, topic=where.topic, partition=where.partition, from_offset=start, aborted=aborted
    )
    records: list[Record] = []
    try:
        records.extend(reader)
    except CorruptRecordError:
        if not records:
            raise
    if not (records or run_of(data)[1]):
        raise CorruptRecordError(
            f"{len(data)} bytes came without a whole batch",
            hint="they are damaged, or cut off: brokers before 0.10.1 give no more than max_bytes",
            topic=where.topic,
            partition=where.partition,
            offset=start,
        )
    return records, max(start, reader.next_offset)


def _end(result: FetchResult[Record], isolation: Isolation) -> int:
    """Where reading everything ends."""
    stable = result.last_stable_offset
    if isolation == "read_committed" and stable is not None:
        return min(result.high_watermark, stable)
    return result.high_watermark
