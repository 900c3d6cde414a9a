"""Keeps data coming: one fetch after the other from every broker that leads an assigned partition.

Rules:
- Each broker has a worker with a connection of its own, since a broker holds fetches back. A fetch
  names every partition of its broker that wants data and has room; the next one leaves as soon as
  the answer's batch headers were walked, before anything is decoded.
- A partition is in one fetch at a time, also while its leader moves.
- Nothing is asked for while the buffer is full, nor for a partition that has enough waiting.
- What a broker says of a partition changes its cursor (positions.py) or, if only the application
  can decide, reaches it through the inbox. Passing trouble is waited for: the leader is asked for
  again, the partition rests (KIP-580), and nothing is raised.
- Every task here is owned: one that breaks puts its error into the inbox.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from karrow.aio.calls.base import Calls
from karrow.aio.calls.offsets import isolation_level
from karrow.aio.consuming.chunk import Chunk
from karrow.aio.consuming.positions import Cursor, Fetch, Positions, Watermarks
from karrow.aio.consuming.session import FetchSession, Plan
from karrow.errors import (
    FencedLeaderEpoch,
    KarrowError,
    OffsetOutOfRange,
    StaleMetadata,
    StateError,
    UnknownLeaderEpoch,
    error_for,
)
from karrow.net.retry import JITTER, backoff_delay
from karrow.records._header import run_of
from karrow.types import Node, TopicPartition

if TYPE_CHECKING:
    from karrow.aio.consuming.inbox import Inbox
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection

# The Fetch versions that brought a limit for all, sessions, leader epochs, racks, and topic ids.
FIRST_WITH_LIMIT = 3
FIRST_WITH_SESSIONS = 7
FIRST_WITH_TOPIC_IDS = 13
NO_EPOCH = -1
# How many times its own limit a partition may have waiting.
AHEAD = 2


class Fetcher(Calls):
    """Fetches for one consumer."""

    _config: ConsumerConfig

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        positions: Positions,
        inbox: Inbox,
        *,
        on_out_of_range: Callable[[Fetch], object],
    ) -> None:
        super().__init__(config, cluster)
        self.positions = positions
        self._inbox = inbox
        self._on_out_of_range = on_out_of_range
        self._level = isolation_level(config.isolation)
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._signals: dict[int, asyncio.Event] = {}
        self._asked: dict[TopicPartition, int] = {}
        # What keeps partitions from being fetched, while it is tried again.
        self.troubles: dict[TopicPartition, KarrowError] = {}
        self._resting: dict[TopicPartition, tuple[float, int]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._stale: set[str] = set()
        self._is_closed = False
        self.waits_for_room = False

    # ---- who is asked

    def changed(self) -> None:
        """Positions, room or leaders are other than before: look again."""
        if self._is_closed:
            return
        self.waits_for_room = False
        for broker_id in {self._broker_of(fetch) for fetch in self._fetchable()} - {None}:
            if broker_id is not None and broker_id not in self._workers:
                self._signals[broker_id] = asyncio.Event()
                worker = asyncio.create_task(
                    self._serve(broker_id), name=f"karrow fetch {broker_id}"
                )
                self._workers[broker_id] = worker
        for signal in self._signals.values():
            signal.set()

    def _fetchable(self) -> list[Fetch]:
        """What could be asked for now, by whoever."""
        now = time.monotonic()
        return [fetch for fetch in self.positions.to_fetch(now) if self._has_room(fetch.partition)]

    def _has_room(self, partition: TopicPartition) -> bool:
        limit = AHEAD * self._config.partition_max_bytes
        return self._is_below(limit, self.positions[partition])

    def _is_below(self, limit: int, buffer: Positions | Cursor) -> bool:
        """Whether there is room; if not, whoever makes some calls ``changed``."""
        if buffer.buffered_bytes < limit:
            return True
        self.waits_for_room = True
        return buffer.buffered_bytes < limit  # it may have been made meanwhile

    def _broker_of(self, fetch: Fetch) -> int | None:
        """Whom to ask; None while the leader has to be found out."""
        topic, number = fetch.partition
        cache = self._cluster.cache
        known = cache.partition(topic, number)
        age = cache.age_of(topic, asyncio.get_running_loop().time())
        if age > self._config.metadata_max_age or known is None or known.leader is None:
            self._refresh(topic)
        if known is None or known.leader is None or age == float("inf"):
            return None
        self.positions.leader_is(fetch.partition, known.leader_epoch)
        return known.leader if fetch.replica is None else fetch.replica

    def _refresh(self, topic: str) -> None:
        self._stale.add(topic)
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(
                self._refresh_stale(), name="karrow fetch metadata"
            )

    async def _refresh_stale(self) -> None:
        failures = 0
        try:
            while self._stale:
                asked, self._stale = self._stale, set()
                try:
                    said = await self._cluster.refresh(asked)
                except KarrowError as error:
                    if not error.retriable:
                        self._inbox.fail(error)
                        return
                    self._stale |= asked
                else:
                    known = said.topics
                    self._stale |= {one for one in asked if not _has_leaders(known.get(one))}
                self.changed()
                if self._stale:
                    await asyncio.sleep(self._pause(failures))
                    failures += 1
        finally:
            self._refreshing = None

    # ---- a broker's worker

    async def _serve(self, broker_id: int) -> None:
        session: FetchSession[TopicPartition, tuple[int, int]] = FetchSession(
            enabled=self._config.fetch_sessions
        )
        signal = self._signals[broker_id]
        try:
            while True:
                signal.clear()
                wanted = self._wanted(broker_id)
                if wanted:
                    await self._fetch(broker_id, session, wanted)
                else:
                    await self._wait(signal)
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            broken = StateError(f"fetching broke: {type(error).__name__}: {error}")
            broken.__cause__ = error
            self._inbox.fail(broken)
        finally:
            self._workers.pop(broker_id, None)
            self._signals.pop(broker_id, None)

    async def _wait(self, signal: asyncio.Event) -> None:
        """Until something changes, or a partition has rested."""
        now = time.monotonic()
        rests = [until - now for until, _ in self._resting.values() if until > now]
        try:
            async with asyncio.timeout(min(rests, default=None)):
                await signal.wait()
        except TimeoutError:
            pass

    def _wanted(self, broker_id: int) -> dict[TopicPartition, Fetch]:
        if not self._is_below(self._config.buffer_bytes, self.positions):
            return {}
        now = time.monotonic()
        return {
            fetch.partition: fetch
            for fetch in self._fetchable()
            if fetch.partition not in self._asked
            and self._resting.get(fetch.partition, (0.0, 0))[0] <= now
            and self._broker_of(fetch) == broker_id
        }

    async def _fetch(
        self,
        broker_id: int,
        session: FetchSession[TopicPartition, tuple[int, int]],
        wanted: Mapping[TopicPartition, Fetch],
    ) -> None:
        self._asked.update(dict.fromkeys(wanted, broker_id))
        try:
            connection = await self._cluster.lane(broker_id, id(self), 0)
            version = self._version(connection, wanted)
            body = self._body(version, session, wanted)
            limit = self._config.request_timeout + self._config.max_wait
            answer = await connection.request("Fetch", version, body, limit=limit)
            error = error_for(answer.error_code, api="Fetch", broker=connection.peer)
            if error is not None:
                raise error
        except KarrowError as error:
            session.end()
            self._failed(wanted.values(), error, broker_id)
            return
        finally:
            for partition in wanted:
                self._asked.pop(partition, None)
        session.answered(answer.session_id)
        self._read(answer, version, wanted, broker_id)

    def _version(self, connection: Connection, wanted: Iterable[TopicPartition]) -> int:
        has_ids = all(self._cluster.cache.topic_id(topic) for topic, _ in wanted)
        most = None if has_ids else FIRST_WITH_TOPIC_IDS - 1
        return connection.versions.choose("Fetch", most=most)

    def _body(
        self,
        version: int,
        session: FetchSession[TopicPartition, tuple[int, int]],
        wanted: Mapping[TopicPartition, Fetch],
    ) -> dict[str, Any]:
        told = {
            partition: (
                fetch.offset,
                NO_EPOCH if fetch.leader_epoch is None else fetch.leader_epoch,
            )
            for partition, fetch in wanted.items()
        }
        plan: Plan[TopicPartition, tuple[int, int]] = session.plan(told)
        body: dict[str, Any] = {
            "max_wait_ms": round(self._config.max_wait * 1000),
            "min_bytes": self._config.min_bytes,
            "isolation_level": self._level,
            "topics": self._topics(version, plan.asked),
            "rack_id": self._config.rack or "",
        }
        if version >= FIRST_WITH_LIMIT:
            body["max_bytes"] = self._config.max_bytes
        if version >= FIRST_WITH_SESSIONS:
            body |= {
                "session_id": plan.session_id,
                "session_epoch": plan.epoch,
                "forgotten_topics_data": self._forgotten(version, plan.forgotten),
            }
        return body

    def _topics(
        self, version: int, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> list[dict[str, Any]]:
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, number), (offset, epoch) in asked.items():
            entry = {
                "partition": number,
                "fetch_offset": offset,
                "current_leader_epoch": epoch,
                "partition_max_bytes": self._config.partition_max_bytes,
            }
            topics.setdefault(topic, []).append(entry)
        return [
            {**self._topic(topic, version, FIRST_WITH_TOPIC_IDS, "topic"), "partitions": entries}
            for topic, entries in topics.items()
        ]

    def _forgotten(
        self, version: int, partitions: Iterable[TopicPartition]
    ) -> list[dict[str, Any]]:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        return [
            {**self._topic(topic, version, FIRST_WITH_TOPIC_IDS, "topic"), "partitions": numbers}
            for topic, numbers in topics.items()
        ]

    # ---- what comes back

    def _read(
        self, answer: Any, version: int, wanted: Mapping[TopicPartition, Fetch], broker_id: int
    ) -> None:
        for entry in answer.responses:
            topic = self._topic_name(entry, version, FIRST_WITH_TOPIC_IDS, "topic")
            for item in entry.partitions:
                asked = None
                if topic is not None:
                    asked = wanted.get(TopicPartition(topic, item.partition_index))
                if asked is not None:
                    self._read_partition(asked, item, answer.node_endpoints, broker_id)

    def _read_partition(
        self, asked: Fetch, item: Any, endpoints: Iterable[Any], broker_id: int
    ) -> None:
        topic, number = asked.partition
        error = error_for(
            item.error_code, api="Fetch", topic=topic, partition=number, offset=asked.offset
        )
        if error is not None:
            self._follow(asked.partition, item, endpoints)
            self._refused(asked, error, broker_id)
            return
        self._resting.pop(asked.partition, None)
        self.troubles.pop(asked.partition, None)
        if item.preferred_read_replica >= 0:
            until = time.monotonic() + self._config.metadata_max_age
            self.positions.prefer(asked, item.preferred_read_replica, until)
        self._keep(asked, item)

    def _keep(self, asked: Fetch, item: Any) -> None:
        data = item.records
        after, size, epoch = run_of(data) if data else (None, 0, NO_EPOCH)
        next_offset = asked.offset if after is None else max(after, asked.offset)
        marks = Watermarks(
            item.high_watermark, _known(item.last_stable_offset), _known(item.log_start_offset)
        )
        leader_epoch = None if epoch == NO_EPOCH else epoch
        is_news = self.positions.fetched(
            asked, next_offset, marks, leader_epoch=leader_epoch, size=len(data or b"")
        )
        # Bytes without a whole batch are damaged, or cut off; whoever reads them finds out.
        if is_news and data and (size or len(data)):
            aborted = [
                (one.producer_id, one.first_offset) for one in item.aborted_transactions or ()
            ]
            chunk = Chunk(
                asked.partition,
                asked.epoch,
                memoryview(data)[: size or len(data)],
                from_offset=asked.offset,
                next_offset=next_offset,
                leader_epoch=leader_epoch,
                aborted=aborted if self._level else None,
                size=len(data),
                config=self._config,
            )
            self._inbox.put(chunk)

    def _refused(self, asked: Fetch, error: KarrowError, broker_id: int) -> None:
        if isinstance(error, OffsetOutOfRange):
            if self.positions.out_of_range(asked):
                self._on_out_of_range(asked)
            return
        if error.retriable or isinstance(error, StaleMetadata):
            self._failed([asked], error, broker_id)
        elif self.positions.stop(asked.partition, asked.epoch):
            self._inbox.fail(error)

    def _failed(self, asked: Iterable[Fetch], error: KarrowError, broker_id: int) -> None:
        """A fetch came to nothing: what it asked for rests, and its leaders are doubted."""
        if not error.retriable and not isinstance(error, StaleMetadata):
            self._inbox.fail(error)
        now = time.monotonic()
        for fetch in asked:
            partition = fetch.partition
            if partition in self.positions:
                self.troubles[partition] = error
            _, failures = self._resting.get(partition, (0.0, 0))
            self._resting[partition] = (now + self._pause(failures), failures + 1)
            self._cluster.learn(error, Node.leader(*partition), broker_id)
            if fetch.replica is not None:
                self.positions.ask_leader(partition)
            if isinstance(error, (FencedLeaderEpoch, UnknownLeaderEpoch)):
                self._cluster.cache.forget(partition.topic)

    def _pause(self, failures: int) -> float:
        first, most = self._config.retry_backoff, self._config.retry_backoff_max
        return backoff_delay(failures, first, most, jitter=JITTER)

    async def close(self) -> None:
        """Stop fetching."""
        self._is_closed = True
        tasks = [*self._workers.values(), *filter(None, [self._refreshing])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cluster.close_lanes(id(self))


def _has_leaders(topic: Any) -> bool:
    return topic is not None and all(
        partition.leader is not None for partition in topic.partitions.values()
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None
