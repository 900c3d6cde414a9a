"""Takes batches out of the accumulator, to the brokers, and back to their outcome.

Rules:
- ``pump`` looks at every partition that has something and sends what is ready. It runs when a
  record wakes it, when an answer came, when a connection or a leader was found, and when a timer
  says so; it never waits.
- A batch is ready when it is full, has lingered, or somebody waits for it or for room; and when its
  partition is not resting after a failure, has a leader with a connection that is not full, and may
  be sent to (sequences.py; transactions.py).
- Without idempotence one batch of a partition is under way at a time, so that the order is kept all
  the same. What becomes of a batch that met trouble stands in settlement.py.
- Anything unforeseen in here ends the producer with that error: nothing stops in silence.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from karrow import events
from karrow.aio._delivery import wait_for
from karrow.aio.calls.base import Calls, Reply, Request
from karrow.aio.producing.answers import outcomes
from karrow.aio.producing.lane import Flight, Lane
from karrow.aio.producing.leaders import Leaders
from karrow.aio.producing.packing import Packer
from karrow.aio.producing.requests import Requests
from karrow.aio.producing.sequences import Progress, Sequences
from karrow.aio.producing.settlement import Settlement
from karrow.aio.producing.stats import Statistics
from karrow.errors import (
    BrokerNotAvailable,
    KarrowError,
    StateError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for,
)
from karrow.net.sharing import cancelled
from karrow.types import Node, TopicPartition

if TYPE_CHECKING:
    from karrow.aio._accumulator import Accumulator, Partition
    from karrow.aio._batch import Batch
    from karrow.aio.producing.settlement import Participation
    from karrow.config import ProducerConfig
    from karrow.net.cluster import Cluster
    from karrow.types import TopicMetadata

NEVER = float("inf")
SOON = 0.0001
# How often batches are looked through for those whose time is up, at least.
EXPIRY_SECONDS = 1.0


class Sender(Calls):
    """Sends the batches of one producer."""

    _config: ProducerConfig

    def __init__(self, config: ProducerConfig, cluster: Cluster, accumulator: Accumulator) -> None:
        super().__init__(config, cluster)
        self.accumulator = accumulator
        self.sequences = Sequences(transactional=config.transactional_id is not None)
        self.settlement = Settlement(config, cluster, accumulator, self.sequences, self.die)
        self.lanes: dict[tuple[int, int], Lane] = {}
        self.leaders = Leaders(
            config,
            cluster,
            accumulator,
            on_change=self.pump,
            on_lost=self._lost,
            on_recreated=self._recreated,
        )
        self.statistics = Statistics(self)
        accumulator.on_settled = self.statistics.settled
        self._requests = Requests(config, cluster)
        self._packer = Packer(config.compression, config.compression_level, self._packed)
        self._identifying: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._expire_at = 0.0
        self._expiry_seconds = min(EXPIRY_SECONDS, config.delivery_timeout / 4)
        self._turn = 0
        self._is_pumping = False
        self._closed = False
        self.fatal: KarrowError | None = None

    # ---- life

    @property
    def transactions(self) -> Participation | None:
        """The transactions of a producer that has them."""
        return self.settlement.transactions

    @transactions.setter
    def transactions(self, transactions: Participation) -> None:
        self.settlement.transactions = transactions

    def start(self) -> None:
        """Belong to the running loop; before that nothing may be appended."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self.accumulator.loop_thread = threading.get_ident()
            self.accumulator.waker = self._wake

    def _wake(self) -> None:
        if self._loop is None:
            return
        if self._loop.is_closed():
            hint = "make a producer inside each loop"
            self.die(StateError("the producer's event loop has ended", hint=hint))
        elif self.accumulator.is_loop_here():
            self._loop.call_soon(self.pump)
        else:
            self._loop.call_soon_threadsafe(self.pump)

    def die(self, error: BaseException) -> None:
        """End the producer: nothing more is taken, and what is under way fails."""
        if isinstance(error, KarrowError):
            self.fatal = error
        else:
            self.fatal = StateError(f"the producer broke: {type(error).__name__}: {error}")
            self.fatal.__cause__ = error
        self.refuse(self.fatal)
        for batch in self.accumulator.incomplete:
            # It may be the one whose answer was just being read.
            batch.is_doubtful = batch.is_doubtful or batch.attempts > 0
        self.settlement.give_up_all(self.fatal)

    async def close(self) -> None:
        """Stop; what is not settled fails."""
        self._closed = True
        self.accumulator.refusal = StateError("the producer is closed")
        if self._timer is not None:
            self._timer.cancel()
        await cancelled(self._identifying)
        await self.leaders.close()
        self.settlement.give_up_all(
            StateError("the producer was closed before the record was written")
        )
        for lane in self.lanes.values():
            await lane.close()
        await self._cluster.close_lanes(id(self))
        self._packer.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def is_over(self) -> bool:
        """Whether nothing will be sent any more."""
        return self._closed or self.fatal is not None

    async def look_up(self, topic: str) -> TopicMetadata:
        """What the cluster says of a topic; it may come into being by that."""

        async def attempt() -> TopicMetadata:
            create = self._config.allow_auto_topic_creation
            return await self._cluster.topic(topic, create=create)

        return await self._attempts(attempt)

    def purge(self, error: KarrowError, *, queued: bool, in_flight: bool) -> int:
        """Fail batches that wait, or are under way; how many records."""
        count = 0
        for batch in list(self.accumulator.incomplete):
            if in_flight if batch.is_under_way else queued:
                count += batch.count
                self.settlement.give_up(batch, error)
        return count

    # ---- what transactions need

    async def drained(self) -> None:
        """Send everything that is there, and wait until it has its outcome."""
        for batch in list(self.accumulator.incomplete):
            await settled(batch)

    def discard(self, error: KarrowError) -> None:
        """Fail what was not sent yet."""
        for batch in list(self.accumulator.incomplete):
            if not batch.attempts:
                self.settlement.take_out(batch)
                batch.fail(error)

    def wake(self) -> None:
        """Look again."""
        self.accumulator.nudge()

    def take_identity(self, producer_id: int, epoch: int) -> None:
        """Be this producer from now on; every partition counts from 0."""
        self.sequences.restart_all(producer_id, epoch)

    def refuse(self, error: KarrowError | None) -> None:
        """Raise this from ``send``; None takes records again."""
        if not self._closed:
            self.accumulator.refusal = self.fatal or error
            if error is not None:
                self.accumulator.release_waiters()

    # ---- the pump

    def pump(self) -> None:
        """Send what is ready."""
        if self._is_pumping:
            self.accumulator.note_change()  # without acks a request is over while it is being sent
            return
        self._is_pumping = True
        try:
            if not self._closed and self.fatal is None:
                self._pump()
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self.die(error)
        finally:
            self._is_pumping = False

    def _pump(self) -> None:
        now = time.monotonic()
        if now >= self._expire_at:
            self._expire_at = now + self._expiry_seconds
            self.settlement.expire(now)
        self.sequences.raise_epoch()
        waiting = NEVER
        ready: dict[Lane, list[Batch]] = {}
        for partition in self._in_turn(self.accumulator.look()):
            waiting = min(waiting, self._visit(partition, now, ready))
        is_more = False
        for lane, batches in ready.items():
            is_more |= self._send_batches(lane, batches)
        has_rest = self.accumulator.rest(waiting <= self._config.linger) and not is_more
        self._set_timer(waiting if has_rest else 0.0)

    def _in_turn(self, partitions: list[Partition]) -> list[Partition]:
        """Begin with another partition each time, so that all of them get into full requests."""
        if len(partitions) < 2:
            return partitions
        self._turn = (self._turn + 1) % len(partitions)
        return partitions[self._turn :] + partitions[: self._turn]

    def _set_timer(self, waiting: float) -> None:
        """Look again after that time; a timer that fires earlier is left as it is."""
        if self._loop is None:
            return
        if waiting <= 0:
            self._loop.call_soon(self.pump)
            return
        if self.accumulator.incomplete:
            waiting = min(waiting, self._expiry_seconds)
        due = time.monotonic() + waiting
        if due >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(waiting, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self.pump()

    def _visit(self, partition: Partition, now: float, ready: dict[Lane, list[Batch]]) -> float:
        """Look at a partition: its next batch is ready, or how long until that may be."""
        progress = self.sequences.progress(partition)
        batch = partition.queue[0] if partition.queue else partition.open_batch
        if batch is None:
            self.accumulator.unlist(partition)
            return NEVER
        if (pause := self._pause_before(partition, progress, batch, now)) > 0:
            return pause
        lane = self._lane(partition, progress)
        if lane is None or not self._may_send(partition, progress, batch):
            return NEVER
        if not partition.queue:
            self.accumulator.close_batch(partition)
        if self._packer.is_ready(batch):
            ready.setdefault(lane, []).append(batch)
        return NEVER

    def _pause_before(
        self, partition: Partition, progress: Progress, batch: Batch, now: float
    ) -> float:
        """How long a partition's next batch has to wait, by the clock."""
        if progress.unresolved is not None and not self._resolve(partition):
            return NEVER
        if progress.retry_at > now:
            return progress.retry_at - now
        if partition.queue:
            return 0.0
        # Without a record another thread is about to put the first one in.
        return self._linger_left(batch, now) if batch.count else SOON

    def _linger_left(self, batch: Batch, now: float) -> float:
        if batch.is_urgent or self.accumulator.is_blocked:
            return 0.0
        return batch.born + self._config.linger - now

    def _lane(self, partition: Partition, progress: Progress) -> Lane | None:
        """The way to a partition's leader, None while there is none or it is full."""
        leader = self.leaders.of(partition)
        if leader is None:
            return None
        place = (leader, progress.number % self._config.connections_per_broker)
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = Lane(*place, id(self), self._cluster, self._lane_changed)
        is_full = lane.in_flight >= self._config.max_in_flight
        return None if is_full or lane.connection is None else lane

    def _may_send(self, partition: Partition, progress: Progress, batch: Batch) -> bool:
        if self.transactions is not None:
            if not self.transactions.may_send(partition.topic.name, partition.number):
                return False
        elif not self._config.idempotent:
            return self._config.acks == 0 or not progress.sent
        if not self.sequences.is_identified:
            self._identify()
            return False
        return self.sequences.may_send(progress, batch)

    # ---- out

    def _send_batches(self, lane: Lane, batches: list[Batch]) -> bool:
        """Send a request with these batches; whether more could follow at once."""
        connection = lane.connection
        if connection is None:
            return False
        chosen = self._fitting(batches)
        try:
            limit = None if self.transactions is None else self.transactions.newest_produce
            version = self._requests.version(connection, chosen, limit)
            names = self._requests.names(version, chosen)
            body = self._requests.body(version, chosen, names)
        except KarrowError as error:
            # One batch may be to blame for all: a batch alone shows which.
            if len(chosen) == 1:
                self.settlement.give_up(chosen[0], error)
            else:
                for one in chosen:
                    self._send_batches(lane, [one])
            return True
        for batch in chosen:
            self._prepare(batch)
        lane.bytes_sent += sum(batch.size for batch in chosen)
        Flight(lane, chosen, version, names, self._answered).leave(connection, body)
        has_room = lane.in_flight < self._config.max_in_flight
        return has_room and (len(chosen) < len(batches) or any(b.partition.queue for b in chosen))

    def _fitting(self, batches: list[Batch]) -> list[Batch]:
        total = 0
        for place, batch in enumerate(batches):
            total += batch.size
            if total > self._config.max_request_bytes and place:
                return batches[:place]
        return batches

    def _prepare(self, batch: Batch) -> None:
        partition = batch.partition
        partition.queue.popleft()
        self.accumulator.unlist(partition)
        progress = self.sequences.progress(partition)
        if self._config.idempotent:
            self.sequences.number(progress, batch)
        progress.sent += 1
        batch.attempts += 1
        batch.is_under_way = True
        if batch.span is None and events.is_heard("produce"):
            batch.span = self._span(batch)
        batch.stamp(self._config.transactional_id is not None)

    def _span(self, batch: Batch) -> events.Span:
        partition = batch.partition
        return events.span(
            "produce",
            client_id=self._config.client_id,
            topic=partition.topic.name,
            partition=partition.number,
            record_count=batch.count,
        ).start()

    # ---- in

    def _answered(self, flight: Flight) -> None:
        """The connection calls this the moment the outcome is there."""
        broker = flight.lane.broker_id
        try:
            for batch in flight.batches:
                batch.is_under_way = False
                self.sequences.progress(batch.partition).sent -= 1
            if flight.error is not None:
                for batch in reversed(flight.batches):
                    self.settlement.trouble(batch, flight.error, None, broker)
                self.accumulator.nudge()  # not now: the connection is about to tell others as well
            else:
                self._read(flight)
                if self.accumulator.listed:
                    self.pump()
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self.die(error)

    def _read(self, flight: Flight) -> None:
        for batch, error, answer in outcomes(flight):
            if error is None:
                self.settlement.written(batch, answer)
                continue
            if answer is not None:
                where = TopicPartition(batch.partition.topic.name, batch.partition.number)
                self._follow(where, answer, flight.answer.node_endpoints)
            self.settlement.trouble(batch, error, answer, flight.lane.broker_id)

    def _resolve(self, partition: Partition) -> bool:
        if self.sequences.resolve(partition):
            self.sequences.raise_epoch()
            return True
        progress = self.sequences.progress(partition)
        if self.transactions is not None and not progress.unacked and not progress.sent:
            self.transactions.unresolved()
        return False

    # ---- news

    def _lane_changed(self, lane: Lane, error: KarrowError | None) -> None:
        """A connection was made, or could not be."""
        if error is not None:
            for partition in list(self.accumulator.listed):
                if self.leaders.of(partition) == lane.broker_id:
                    self._unreachable(partition, lane, error)
        self.pump()

    def _unreachable(self, partition: Partition, lane: Lane, error: KarrowError) -> None:
        where = Node.leader(partition.topic.name, partition.number)
        self._cluster.learn(error, where, lane.broker_id)
        # A leader that the cluster does not list yet, or any more, is as good as none.
        is_passing = error.retriable or isinstance(error, BrokerNotAvailable)
        for batch in [*partition.queue, *filter(None, [partition.open_batch])]:
            batch.last_error = error
            if not is_passing:
                self.settlement.give_up(batch, error)
        if isinstance(error, BrokerNotAvailable):
            self._cluster.cache.forget(partition.topic.name)
            progress = self.sequences.progress(partition)
            progress.retry_at = time.monotonic() + self._config.retry_backoff

    def _lost(self, topic: str, error: KarrowError) -> None:
        """A topic is gone, or not for us."""
        for batch in list(self.accumulator.incomplete):
            if batch.partition.topic.name == topic and not batch.is_under_way:
                self.settlement.give_up(batch, error)

    def _packed(self, batch: Batch, error: BaseException | None) -> None:
        """A thread has compressed a batch, or could not."""
        if error is not None and not batch.is_done:
            failure = KarrowError(f"the batch could not be compressed: {error}")
            failure.__cause__ = error
            self.settlement.give_up(batch, failure)
        self.pump()

    def _recreated(self, topic: str, partitions: int) -> None:
        """Another topic has taken the name: the broker knows nothing of us there."""
        gone = self.accumulator.shrink_topic(topic, partitions)
        for batch in list(self.accumulator.incomplete):
            if batch.partition in gone and not batch.is_under_way:
                text = f"the topic was created anew, with {partitions} partitions"
                where = batch.partition.number
                lost = UnknownTopicOrPartition(text, topic=topic, partition=where)
                self.settlement.give_up(batch, lost)
        if self.transactions is not None:
            self.transactions.recreated(topic)
            return
        found = self.accumulator.topic(topic)
        if found is not None and self._config.idempotent:
            for partition in found.partitions:
                if self.sequences.progress(partition).next_sequence:
                    self.sequences.forgotten(partition)

    # ---- the producer id of an idempotent producer

    def _identify(self) -> None:
        if self._identifying is None and self.transactions is None:
            self._identifying = asyncio.create_task(self._ask_identity(), name="karrow producer id")

    async def _ask_identity(self) -> None:
        body = {"transactional_id": None, "transaction_timeout_ms": 2**31 - 1}
        request = Request("InitProducerId", Node.any(), lambda _version, _way: body)
        try:
            while True:
                try:
                    self.sequences.take_identity(*await self._call(request, _read_identity))
                    break
                except KarrowError as error:
                    if not error.retriable:
                        raise
        except UnsupportedVersion as error:
            error.hint = "brokers before 0.11 know no idempotence; give idempotent=False"
            self.die(error)
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            self.die(error)
        finally:
            self._identifying = None
        self.pump()


def _read_identity(reply: Reply) -> tuple[int, int]:
    error = error_for(reply.message.error_code, **reply.context("InitProducerId"))
    if error is not None:
        raise error
    return reply.message.producer_id, reply.message.producer_epoch


async def settled(batch: Batch) -> None:
    """Wait until a batch, or what it was divided into, has its outcome."""
    if not batch.is_done:
        await wait_for(batch)
    for part in batch.parts or ():
        await settled(part)
