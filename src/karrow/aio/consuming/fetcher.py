"""Keeps data coming: one fetch after the other from every broker that leads an assigned partition.

Rules:
- Each broker has a worker with a connection of its own, since a broker holds fetches back. A fetch
  names every partition of its broker that wants data and has room; the next one leaves as soon as
  the answer's batch headers were walked, before anything is decoded.
- A partition is in one fetch at a time, also while its leader moves. After a seek it is another
  one, which need not wait for the first. A worker that has nothing else to ask for is told when
  that fetch is back, whoever has asked.
- What is wanted while a fetch waits at its broker for data (after a seek, or when there is room
  again) is asked for on a second connection, for a short time each, until that fetch is back.
- Nothing is asked for while the buffer is full, nor for a partition that has enough waiting. What
  the application has decompressed counts. Whoever makes room tells, if somebody waits for it. Data
  of paused partitions does not stand in the way of others: it is dropped, to be fetched again.
- While nothing but data comes, fetches follow each other without the worker (flight.py).
- An answer without news that came at once is not asked for again at once.
- A topic with another id than that of what was fetched was made again, and begins afresh. A place
  that was chosen before anything was fetched counts, whatever id was known then.
- A fetch session that its broker does not know any more is begun anew, without a pause.
- A replica that is nearer (KIP-392) is asked while it is known and answers; then the leader.
- Brokers older than 0.10.1 cut off what is larger than the size that they are asked for, also the
  first message: then more is asked for. Whatever else does not reach beyond the offset that was
  asked for is damaged; it is raised where it is read, and not asked for again.
- What a broker says of a partition changes its cursor (positions.py) or, if only the application
  can decide, reaches it through the inbox. Passing trouble is waited for: the leader is asked for
  again (leaders.py), the partition rests (KIP-580), and nothing is raised.
- A login that is refused ends the consumer: nothing is asked for any more, as the next one would be
  refused as well, and an account may be locked.
- Every task here is owned: one that breaks ends the consumer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from karrow import events
from karrow.aio._fetch import Fetched, FetchedPartition
from karrow.aio.calls.base import Calls
from karrow.aio.calls.offsets import isolation_level
from karrow.aio.consuming.chunk import Chunk
from karrow.aio.consuming.flight import Flight, Ground
from karrow.aio.consuming.leaders import Leaders
from karrow.aio.consuming.positions import Fetch, Positions, State, Watermarks
from karrow.aio.consuming.requests import FIRST_WITH_TOPIC_IDS, FetchRequests, Session
from karrow.aio.consuming.session import FetchSession
from karrow.aio.consuming.watch import is_refusal
from karrow.errors import (
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KarrowError,
    OffsetOutOfRange,
    StaleMetadata,
    UnknownLeaderEpoch,
    UnknownServerError,
    error_for,
)
from karrow.net.sharing import cancelled, duty
from karrow.types import Node, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from karrow.aio.consuming.inbox import Inbox
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection
    from karrow.wire import Prepared

NO_EPOCH = -1
# How many times its own limit a partition may have waiting.
AHEAD = 2
# The connections to a broker: where fetches may wait for data, and the one for others meanwhile.
MAIN, ASIDE = 0, 1
# A fetch that has been away for this long waits at its broker; others must not.
PATIENCE = 0.02
LOST_SESSION = (FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch)


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
        lock: threading.RLock,
        on_out_of_range: Callable[[Fetch], object],
        on_recreated: Callable[[str], object],
        on_full: Callable[[], object],
        on_doubt: Callable[[], object],
        on_missing: Callable[[TopicPartition, KarrowError], object],
        on_refused: Callable[[KarrowError], object],
        on_broken: Callable[[str, Exception], object],
    ) -> None:
        super().__init__(config, cluster)
        self.positions = positions
        self.expanded_bytes: Callable[[], int] = _none
        self._inbox = inbox
        self._lock = lock
        self._on_out_of_range = on_out_of_range
        self._on_recreated = on_recreated
        self._on_full = on_full
        self._on_doubt = on_doubt
        self._on_refused = on_refused
        self.is_refused = False
        self._on_broken = on_broken
        self._requests = FetchRequests(config, cluster)
        self._level = isolation_level(config.isolation)
        self._short_wait = min(config.max_wait, PATIENCE)
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._signals: dict[int, asyncio.Event] = {}
        self._asides: dict[int, asyncio.Task[None]] = {}
        self._busy_asides: set[int] = set()
        # Since when the worker of a broker has had a fetch under way.
        self._away: dict[int, float] = {}
        self._asked: dict[TopicPartition, int] = {}
        # Of the topics that something was fetched of since they were assigned; None without ids.
        self.topic_ids: dict[str, UUID | None] = {}
        # What keeps partitions from being fetched, while it is tried again.
        self.troubles: dict[TopicPartition, KarrowError] = {}
        self._resting: dict[TopicPartition, tuple[float, int]] = {}
        self._is_closed = False
        # Whether a partition may have to be asked for by another worker than before.
        self._is_other = False
        self.waits_for_room = False
        self._leaders = Leaders(
            config,
            cluster,
            positions,
            self.troubles,
            on_change=self.changed,
            on_error=inbox.fail,
            on_missing=on_missing,
            on_refused=self._refuse,
            on_broken=on_broken,
        )

    # ---- who is asked

    def changed(self) -> None:
        """Positions, room or leaders are other than before: look again."""
        if self._is_closed:
            return
        self._is_other = False
        self._forget_removed()
        for broker_id in {self._broker_of(fetch) for fetch in self._fetchable()}:
            if broker_id is not None and broker_id not in self._workers:
                self._signals[broker_id] = asyncio.Event()
                self._workers[broker_id] = duty(
                    self._serve(broker_id), f"karrow fetch {broker_id}", self._cancelled
                )
        self.made_room()

    def _forget_removed(self) -> None:
        """Keep nothing of what is assigned no more: when it comes back, it begins afresh."""
        assigned = self.positions.assignment
        for topic in self.topic_ids.keys() - {topic for topic, _ in assigned}:
            del self.topic_ids[topic]
        for partition in (self.troubles.keys() | self._resting.keys()).difference(assigned):
            self.troubles.pop(partition, None)
            self._resting.pop(partition, None)

    def made_room(self) -> None:
        """The application has taken data: have every worker look again what it may ask for."""
        self.waits_for_room = False
        for broker_id in self._away.keys() - self._asides.keys():
            self._asides[broker_id] = duty(
                self._serve_aside(broker_id), f"karrow fetch {broker_id} aside", self._cancelled
            )
        for signal in self._signals.values():
            signal.set()

    def _fetchable(self) -> list[Fetch]:
        """What there is room for, and may be asked for by whoever."""
        now = time.monotonic()
        limit = AHEAD * self._config.partition_max_bytes
        with self._lock:
            fetches = [] if self.is_refused else self.positions.to_fetch(now)
            if fetches and self._is_full():
                self._on_full()
            found = [
                fetch
                for fetch in fetches
                if self.positions[fetch.partition].buffered_bytes < limit and not self._is_full()
            ]
            self.waits_for_room |= len(found) < len(fetches) or self.positions.has_held
        return found

    def _is_full(self) -> bool:
        held = self.positions.buffered_bytes + self.expanded_bytes()
        return held >= self._config.buffer_bytes

    def _is_wanted(self, fetch: Fetch, broker_id: int, now: float) -> bool:
        """Whether this is to be asked of a broker now."""
        until, _ = self._resting.get(fetch.partition, (0.0, 0))
        return (
            self._asked.get(fetch.partition) != fetch.epoch
            and until <= now
            and self._broker_of(fetch) == broker_id
        )

    def _is_under_way(self, broker_id: int) -> bool:
        """Whether another fetch has asked for what this broker leads: its worker waits for that."""
        return any(
            self._asked.get(fetch.partition) == fetch.epoch and self._broker_of(fetch) == broker_id
            for fetch in self._fetchable()
        )

    def _broker_of(self, fetch: Fetch) -> int | None:
        """Whom to ask; None while the leader has to be found out."""
        topic, number = fetch.partition
        cache = self._cluster.cache
        known = cache.partition(topic, number)
        age = cache.age_of(topic, asyncio.get_running_loop().time())
        if age > self._config.metadata_max_age or known is None or known.leader is None:
            self._leaders.look_for(topic)
        # Of a topic that is doubted because of one leader, the others are still to be asked.
        is_doubted = age == float("inf") and fetch.partition in self.troubles
        if known is None or known.leader is None or is_doubted:
            return None
        self.positions.leader_is(fetch.partition, known.leader_epoch)
        if self.positions[fetch.partition].state is not State.FETCHING:
            self._on_doubt()
            return None
        if fetch.replica is None:
            return known.leader
        if fetch.replica in cache.snapshot.brokers:
            return fetch.replica
        self.positions.ask_leader(fetch.partition)
        return known.leader

    def _refuse(self, error: KarrowError) -> None:
        self.is_refused = True
        self.positions.changes += 1
        self._leaders.give_up()
        self._on_refused(error)

    def _cancelled(self, error: KarrowError) -> None:
        self._on_broken("fetching", error)

    # ---- a broker's worker

    async def _serve(self, broker_id: int) -> None:
        session: Session = FetchSession(enabled=self._config.fetch_sessions)
        signal = self._signals[broker_id]
        try:
            while True:
                signal.clear()
                # One look at the clock: who rests now must not have rested a moment later.
                now = time.monotonic()
                changes = self.positions.changes, self._cluster.cache.changes
                wanted = self._wanted(broker_id, now)
                if not wanted:
                    self._is_other |= self._is_under_way(broker_id)
                    await self._wait(signal, self._rest(now))
                    continue
                ground = Ground(*changes, self._holds_until(broker_id, wanted, now))
                self._away[broker_id] = now
                try:
                    is_news = await self._fetch(broker_id, MAIN, session, wanted, ground)
                finally:
                    began = self._away.pop(broker_id)
                if self._is_other:
                    self.changed()
                if broker_id in self._busy_asides:
                    await asyncio.wait([self._asides[broker_id]], timeout=2 * PATIENCE)
                if not is_news and time.monotonic() - began < PATIENCE:
                    await self._wait(signal, PATIENCE)
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self._on_broken("fetching", error)
        finally:
            self._workers.pop(broker_id, None)
            self._signals.pop(broker_id, None)

    async def _serve_aside(self, broker_id: int) -> None:
        """Ask for what the fetch that is away does not ask for, until there is no such thing."""
        try:
            # Another one may have left by then, without what was wanted in the meantime.
            while (began := self._away.get(broker_id)) is not None:
                await asyncio.sleep(max(began + PATIENCE - time.monotonic(), 0.0))
                self._busy_asides.add(broker_id)
                while self._away.get(broker_id) == began:
                    wanted = self._wanted(broker_id, time.monotonic())
                    if not wanted:
                        return
                    await self._fetch(broker_id, ASIDE, FetchSession(enabled=False), wanted)
                self._busy_asides.discard(broker_id)
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self._on_broken("fetching", error)
        finally:
            self._busy_asides.discard(broker_id)
            del self._asides[broker_id]
            if self._is_other:
                self.changed()

    def _rest(self, now: float) -> float | None:
        """How long until the next partition has rested."""
        return min(
            (until - now for until, _ in self._resting.values() if until > now), default=None
        )

    async def _wait(self, signal: asyncio.Event, limit: float | None) -> None:
        """Until something changes, or the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await signal.wait()

    def _wanted(self, broker_id: int, now: float) -> dict[TopicPartition, Fetch]:
        wanted = {
            fetch.partition: fetch
            for fetch in self._fetchable()
            if self._is_wanted(fetch, broker_id, now)
        }
        return self._without_recreated(wanted)

    def _without_recreated(
        self, wanted: dict[TopicPartition, Fetch]
    ) -> dict[TopicPartition, Fetch]:
        """Leave out topics that are others than before (KIP-516): nothing known of them holds."""
        cache = self._cluster.cache
        anew: set[str] = set()
        for topic in {topic for topic, _ in wanted}:
            before, now = self.topic_ids.get(topic), cache.topic_id(topic)
            if topic in self.topic_ids and now is not None:
                self.topic_ids[topic] = now
                if before is not None and before != now:
                    anew.add(topic)
        for topic in anew:
            self._on_recreated(topic)
        if not anew:
            return wanted
        return {one: fetch for one, fetch in wanted.items() if one.topic not in anew}

    def _holds_until(
        self, broker_id: int, wanted: Mapping[TopicPartition, Fetch], now: float
    ) -> float:
        """Until when a broker is asked for the same partitions, if nothing but data comes."""
        cache = self._cluster.cache
        for partition in self._asked:
            known = cache.partition(*partition)
            if known is not None and known.leader == broker_id:
                return now  # whoever has asked for it gives it back without a word
        loop_now = asyncio.get_running_loop().time()
        oldest = max(cache.age_of(topic, loop_now) for topic in {topic for topic, _ in wanted})
        ends = [now + self._config.metadata_max_age - oldest]
        ends += [
            self.positions[partition].preferred_until
            for partition, fetch in wanted.items()
            if fetch.replica is not None
        ]
        return min(*ends, now + (self._rest(now) or inf))

    async def _fetch(
        self,
        broker_id: int,
        lane: int,
        session: Session,
        wanted: dict[TopicPartition, Fetch],
        ground: Ground | None = None,
    ) -> bool:
        """Ask until something else is to be looked at; False if there was nothing new."""
        for partition, fetch in wanted.items():
            self._asked[partition] = fetch.epoch
        flight: Flight | None = None
        try:
            connection = await self._cluster.lane(broker_id, id(self), lane)
            flight = Flight(
                connection, broker_id, session, wanted, ground=ground, on_answer=self._answered
            )
            self._begin(flight, self._config.max_wait if lane == MAIN else self._short_wait)
            return await flight.outcome
        except KarrowError as error:
            if flight is not None and flight.span is not None:
                flight.span.fail(error)
            was_new = session.is_new
            session.end()
            if was_new or not isinstance(error, LOST_SESSION):
                asked = wanted if flight is None else flight.wanted
                self._failed(asked.values(), error, broker_id)
            return True
        finally:
            for partition, fetch in wanted.items():
                if self._asked.get(partition) == fetch.epoch:
                    del self._asked[partition]

    def _begin(self, flight: Flight, wait: float) -> None:
        """Send the first fetch of a flight."""
        told = {partition: _told(fetch) for partition, fetch in flight.wanted.items()}
        flight.version = self._requests.version(flight.connection, flight.session, flight.wanted)
        flight.limit = self._config.request_timeout + wait
        flight.codec = self._requests.codec(flight.version, wait)
        plan = flight.session.plan(told)
        if flight.codec is None:
            self._leave(flight, self._requests.old_body(flight.version, wait, plan))
        else:
            self._leave(flight, self._requests.prepared(flight.codec, plan))

    def _leave(self, flight: Flight, body: Prepared | dict[str, Any]) -> None:
        if events.is_heard("fetch"):
            flight.span = events.span(
                "fetch",
                client_id=self._config.client_id,
                broker_id=flight.broker_id,
                partition_count=len(flight.wanted),
            ).start()
        flight.connection.send_into(flight, "Fetch", flight.version, body, limit=flight.limit)

    # ---- what comes back

    def _answered(self, flight: Flight, answer: Any) -> bool | None:
        """Keep what came: whether there was news; None if the next fetch is under way already."""
        moved: list[Fetch] = []
        if isinstance(answer, Fetched):
            flight.session.answered(answer.session_id)
            with self._lock:
                is_news, size = self._read(flight, answer, moved)
        else:
            _check(answer.error_code, flight.connection)
            flight.session.answered(answer.session_id)
            with self._lock:
                is_news, size = self._read_unusual(flight, answer)
        if flight.span is not None:
            flight.span.stop(bytes=size)
            flight.span = None
        has_left = bool(moved) and self._may_follow(flight) and self._follow_on(flight, moved)
        if size:
            # Last: whoever waits cannot go on before this thread is through with its turn.
            self._inbox.nudge()
        return None if has_left else is_news

    def _may_follow(self, flight: Flight) -> bool:
        """Whether all that has changed since it was found out what to ask for is data."""
        ground = flight.ground
        return (
            ground is not None
            and ground.positions == self.positions.changes
            and ground.metadata == self._cluster.cache.changes
            and not (self._is_other or self._is_closed)
            and flight.broker_id not in self._asides
            and not self._signals[flight.broker_id].is_set()
            and not flight.outcome.done()
            and not flight.connection.is_closed
            and time.monotonic() < ground.until
            and not self._is_full()
        )

    def _follow_on(self, flight: Flight, moved: list[Fetch]) -> bool:
        """Ask for what comes after data that came; False if there is no room for it."""
        limit = AHEAD * self._config.partition_max_bytes
        told: dict[TopicPartition, tuple[int, int]] = {}
        for one in moved:
            if self.positions[one.partition].buffered_bytes >= limit:
                return False
            told[one.partition] = _told(one)
        plan = flight.session.plan_moved(told)
        if plan is None or flight.codec is None:
            return False
        for one in moved:
            flight.wanted[one.partition] = one
        self._away[flight.broker_id] = time.monotonic()
        self._leave(flight, self._requests.prepared(flight.codec, plan))
        return True

    def _read(self, flight: Flight, answer: Fetched, moved: list[Fetch]) -> tuple[bool, int]:
        """Take over an answer: whether it has news, and its bytes of records."""
        is_news, size = False, 0
        for topic, parts in answer.topics:
            if not self._is_same_topic(flight, topic):
                continue
            for part in parts:
                asked = flight.wanted.get(TopicPartition(topic, part.partition_index))
                if asked is None:
                    continue
                is_news |= part.size > 0 or part.preferred_read_replica >= 0
                size += part.size
                after = self._keep(asked, part)
                if after is not None:
                    partition, epoch, _, leader_epoch, log_start, replica = asked
                    moved.append(Fetch(partition, epoch, after, leader_epoch, log_start, replica))
        return is_news, size

    def _is_same_topic(self, flight: Flight, topic: str) -> bool:
        """Whether an id means the topic that it meant when it was asked for (KIP-516)."""
        cache = self._cluster.cache
        ground = flight.ground
        if flight.version < FIRST_WITH_TOPIC_IDS or flight.codec is None:
            return True
        if ground is not None and ground.metadata == cache.changes:
            return True
        topic_id = cache.topic_id(topic)
        return topic_id is not None and topic_id.bytes == flight.codec.names[topic]

    def _read_unusual(self, flight: Flight, answer: Any) -> tuple[bool, int]:
        """As ``_read``, for an answer of the generic codec."""
        is_news, size = False, 0
        for entry in answer.responses:
            topic = self._topic_name(entry, flight.version, FIRST_WITH_TOPIC_IDS, "topic")
            for item in entry.partitions:
                asked = None
                if topic is not None:
                    asked = flight.wanted.get(TopicPartition(topic, item.partition_index))
                if asked is not None:
                    size += len(item.records or b"")
                    if self._requests.grow(flight.version, asked.partition, item.records):
                        is_news = True
                        continue
                    is_news |= bool(
                        item.records or item.error_code or item.preferred_read_replica >= 0
                    )
                    self._read_partition(asked, item, answer.node_endpoints, flight.broker_id)
        return is_news, size

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
        part = FetchedPartition(
            number,
            item.records,
            high_watermark=item.high_watermark,
            last_stable_offset=item.last_stable_offset,
            log_start_offset=item.log_start_offset,
            preferred_read_replica=item.preferred_read_replica,
            aborted_transactions=[
                (one.producer_id, one.first_offset) for one in item.aborted_transactions or ()
            ],
        )
        self._keep(asked, part)

    def _keep(self, asked: Fetch, part: FetchedPartition) -> int | None:
        """Have what came of a partition wait for the application; what to ask for after it."""
        if self.troubles or self._resting:
            self._resting.pop(asked.partition, None)
            self.troubles.pop(asked.partition, None)
        if part.preferred_read_replica >= 0:
            until = time.monotonic() + self._config.metadata_max_age
            self.positions.prefer(asked, part.preferred_read_replica, until)
            self._is_other = True
        after, size = part.next_offset, part.size
        next_offset = asked.offset if after is None or after < asked.offset else after
        marks = Watermarks(part.high_watermark, part.last_stable, part.log_start)
        if not self.positions.fetched(asked, next_offset, marks, part.leader_epoch, size):
            return None
        topic = asked.partition[0]
        if topic not in self.topic_ids:
            self.topic_ids[topic] = self._cluster.cache.topic_id(topic)
        # Also what does not reach beyond this offset: whoever reads it finds out what is wrong.
        if size:
            aborted = (part.aborted_transactions or []) if self._level else None
            self._inbox.put(Chunk(asked, part, next_offset, aborted, self._config))
        return next_offset if next_offset > asked.offset else None

    def _refused(self, asked: Fetch, error: KarrowError, broker_id: int) -> None:
        if isinstance(error, OffsetOutOfRange):
            self._is_other |= asked.replica is not None
            if self.positions.out_of_range(asked):
                self._on_out_of_range(asked)
            return
        if _is_passing(error):
            self._failed([asked], error, broker_id)
        elif self.positions.stop(asked.partition, asked.epoch):
            self._inbox.fail(error)

    def _failed(self, asked: Iterable[Fetch], error: KarrowError, broker_id: int) -> None:
        """A fetch came to nothing: what it asked for rests, and its leaders are doubted."""
        now = time.monotonic()
        asked = list(asked)
        self._is_other = True
        known = {type(self.troubles.get(one.partition)) for one in asked}
        if is_refusal(error):
            self._refuse(error)
        elif not _is_passing(error) and type(error) not in known:
            self._inbox.fail(error)
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

    async def close(self) -> None:
        """Stop fetching."""
        self._is_closed = True
        await cancelled(*self._workers.values(), *self._asides.values())
        await self._leaders.close()
        await self._cluster.close_lanes(id(self))


def _is_passing(error: KarrowError) -> bool:
    """Whether to ask again; a broker that does not say what is wrong may do better later."""
    return error.retriable or isinstance(error, (StaleMetadata, UnknownServerError))


def _check(error_code: int, connection: Connection) -> None:
    error = error_for(error_code, api="Fetch", broker=connection.peer)
    if error is not None:
        raise error


def _told(fetch: Fetch) -> tuple[int, int]:
    """What a session tells of a partition."""
    return fetch.offset, NO_EPOCH if fetch.leader_epoch is None else fetch.leader_epoch


def _none() -> int:
    return 0
