"""A task: one range of one partition, as Arrow batches, in the thread that Spark gives it.

The loop runs only while the task waits for data; while Spark takes a batch, the answer to the next
fetch gathers in the socket. A task that is closed or interrupted takes its fetch back.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from karrow.errors import (
    LogTruncated,
    NetworkError,
    OffsetOutOfRange,
    RemoteProtocolError,
    RequestTimeout,
    UnknownTopicOrPartition,
)
from karrow.spark import pool
from karrow.spark.reading import places
from karrow.spark.reading.fetching import Answer, Fetching, RecreatedTopic, ShortLog
from karrow.spark.reading.loss import Verdict, report
from karrow.spark.reading.schema import Columns
from karrow.types import OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from karrow.spark.reading.loss import Cause
    from karrow.spark.reading.ranges import Range
    from karrow.spark.reading.settings import Settings

__all__ = ["read_range"]

# How large an Arrow batch gets: large enough to cost Spark little, small enough for its buffers.
ROWS = 64 * 1024
BYTES = 8 << 20


def read_range(settings: Settings, wanted: Range) -> Iterator[pa.RecordBatch]:
    """The rows of a range."""
    client = pool.inline(settings.config)
    reading = _Reading(settings, client, wanted)
    try:
        yield from reading.batches()
    finally:
        reading.close()


class _Reading:
    def __init__(self, settings: Settings, client: pool.Inline, wanted: Range) -> None:
        self._settings = settings
        self._client = client
        self._where = wanted.where
        self._start, end = client.run(self._resolved(wanted))
        self._position = self._start
        self._fetching = Fetching(
            settings.config, client.cluster, wanted.where, end, wanted.topic_id, epoch=wanted.epoch
        )
        self._columns = Columns(with_headers=settings.with_headers)
        self._ahead: asyncio.Task[Answer] | None = None
        self._doubted = -1

    async def _resolved(self, wanted: Range) -> tuple[int, int]:
        """Where it begins and ends, if that was left open until now."""
        config, client = self._settings.config, self._client.client
        start = await places.resolved(client, config, {self._where: wanted.start})
        end = await places.resolved(client, config, {self._where: wanted.end})
        return start[self._where].offset, end[self._where].offset

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self._position < self._fetching.end:
            answer = self._next()
            if answer is None:
                continue
            self._position = answer.next_offset
            if answer.next_offset < self._fetching.end:
                self._ahead = self._sent(answer.next_offset)
            for batch in self._decoded(answer):
                yield batch
                self._client.look()

    def _sent(self, offset: int) -> asyncio.Task[Answer]:
        fetch = self._client.start(self._fetching.fetch(offset))
        self._client.look()
        return fetch

    def _next(self) -> Answer | None:
        """The answer that was asked for; None where its offset is gone and another one asked."""
        try:
            return self._answer()
        except OffsetOutOfRange:
            self._position = self._client.run(self._after_loss())
        except LogTruncated as error:
            self._lose_from(error.offset)
        except ShortLog as error:
            self._lose_rest("beyond", str(error))
        except RecreatedTopic as error:
            self._lose_rest("recreated", str(error))
        except UnknownTopicOrPartition as error:
            self._lose_rest("deleted", str(error))
        return None

    def _answer(self) -> Answer:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            # Its time has run while Spark was busy with the rows before, and nobody looked.
            with contextlib.suppress(RequestTimeout, NetworkError):
                return self._client.wait(ahead)
        return self._client.wait(self._sent(self._position))

    def _lose_rest(self, cause: Cause, detail: str) -> None:
        start, end = self._position, self._fetching.end
        verdict = Verdict(self._where, start, end, cause, detail)
        report(verdict, fails=self._settings.fails_on_loss)
        self._position = end

    def _lose_from(self, offset: int) -> None:
        """Leave out what a new leader has other records for; the stream comes back to those."""
        start, end = max(offset, self._start), self._fetching.end
        verdict = Verdict(self._where, start, end, "cut", f"its log goes on at {offset}")
        report(verdict, fails=self._settings.fails_on_loss)
        self._fetching.end = max(offset, self._position)

    async def _after_loss(self) -> int:
        """Where to go on behind a gap that retention has made, or that never was."""
        client, where = self._client.client, self._where
        earliest = (await client.list_offsets({where: OffsetSpec.earliest()}))[where].offset or 0
        latest = (await client.list_offsets({where: OffsetSpec.latest()}))[where].offset or 0
        start, end = self._position, self._fetching.end
        fails = self._settings.fails_on_loss
        if earliest <= start <= latest and self._doubted != start:
            self._doubted = start  # a leader that has just been elected may not know yet
            await asyncio.sleep(self._settings.config.retry_backoff)
            return start
        if start < earliest:
            lost = Verdict(where, start, min(earliest, end), "removed", f"it begins at {earliest}")
            report(lost, fails=fails)
            return min(earliest, end)
        report(Verdict(where, start, end, "beyond", f"it ends at {latest}"), fails=fails)
        return end

    def _decoded(self, answer: Answer) -> Iterator[pa.RecordBatch]:
        if answer.data is None:
            return
        reader = self._fetching.reader(answer)
        while True:
            decoded = reader.read_arrow(
                columns=self._columns.names, max_records=ROWS, max_bytes=BYTES, timestamp_unit="us"
            )
            if not decoded.num_rows:
                break
            batch = self._columns.batch(decoded, self._fetching.end)
            if not batch.num_rows:
                break
            yield batch
        if answer.next_offset == answer.offset:
            raise RemoteProtocolError(
                "the answer has no whole batch",
                topic=self._where.topic,
                partition=self._where.partition,
                offset=answer.offset,
            )

    def close(self) -> None:
        self._client.end(self._ahead)
