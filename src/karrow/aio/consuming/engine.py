"""Everything behind a consumer but its group: positions, fetches, and data for the application.

Rules:
- One lock guards the positions and the inbox: the loop holds it while an answer is read, the
  application while it takes data. So no data of a partition comes out that was taken away before.
- What only the application can decide is raised where it asks for data: an offset out of range
  without a policy or with one that raises, a truncated log, a damaged batch, a refusal. Each of
  them once, but for what ends the consumer, which is raised every time. So is a partition that was
  assigned by hand and does not exist, when it has been missing for a moment: it is still looked
  for. In a subscription that is told of topics (watch.py).
- Who asks for more, or commits it, is done with what it was handed. A partition is drained when
  that is so of its data; before that nobody else may have it, unless the application takes too
  long.
- Whatever the application must not miss between two records raises ``attention``.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Literal

from karrow import events
from karrow.aio._reading import Attention
from karrow.aio.consuming.fetcher import Fetcher
from karrow.aio.consuming.inbox import Inbox
from karrow.aio.consuming.places import Places
from karrow.aio.consuming.positions import Fetch, Positions
from karrow.aio.consuming.watch import PATIENCE
from karrow.errors import CallbackError, KarrowError, OffsetOutOfRange, StateError
from karrow.types import OffsetSpec

if TYPE_CHECKING:
    from karrow.aio.consuming.chunk import Chunk
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster
    from karrow.types import TopicPartition

ResetReason = Literal["out_of_range", "truncated", "recreated"]


class Engine:
    """The data of one consumer.

    ``fatal`` is what has ended it. ``lease`` says until when data may go out, ``on_poll`` is called
    when the application asks for some; both from any thread.
    """

    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self._config = config
        self.lock = threading.RLock()
        self.attention = Attention()
        self.positions = Positions(committed_only=config.isolation == "read_committed")
        self.inbox = Inbox()
        self.places = Places(config, cluster, self)
        self.fetcher = Fetcher(
            config,
            cluster,
            self.positions,
            self.inbox,
            lock=self.lock,
            on_out_of_range=self._out_of_range,
            on_recreated=self._recreated,
            on_full=self._make_room,
            on_doubt=self._changed_soon,
            on_missing=self.lacks,
            on_refused=self.fail,
            on_broken=self.broke,
        )
        self.fatal: KarrowError | None = None
        # Whether the application has chosen the partitions itself.
        self.is_by_hand = True
        self.lease: Callable[[], float] = _forever
        self.on_poll: Callable[[], object] = _nothing
        self._loop: asyncio.AbstractEventLoop | None = None
        # The epoch when the application last asked, and whether a listener is being called.
        self.asked_epoch = 0
        self.is_listening = False
        self._drains: list[asyncio.Future[None]] = []

    def start(self) -> None:
        """Belong to the running loop."""
        self.require_loop()
        self.fetcher.is_refused = False
        self._loop = asyncio.get_running_loop()

    def require_loop(self) -> None:
        """Refuse another loop than the one that everything here runs on."""
        if self._loop not in (None, asyncio.get_running_loop()):
            raise StateError(
                "the consumer belongs to another event loop", hint="make one for each loop"
            )

    @property
    def is_orphaned(self) -> bool:
        """Whether the loop has ended that everything here runs on."""
        return self._loop is not None and self._loop.is_closed()

    # ---- the assignment

    def assign(
        self,
        partitions: Iterable[TopicPartition],
        places: Mapping[TopicPartition, OffsetSpec] | None = None,
        *,
        keep: bool = False,
    ) -> None:
        """Read these, from places if they are given; and no others, unless ``keep`` is set."""
        with self.lock:
            if keep:
                self.positions.add(partitions)
            else:
                self.positions.assign(partitions)
            for partition, place in (places or {}).items():
                self.positions.reset_to(partition, place)
        self.changed()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        with self.lock:
            self.positions.remove(partitions)
        self.changed()

    def seek(self, partition: TopicPartition, place: OffsetSpec) -> None:
        """Go on somewhere else."""
        with self.lock:
            self.positions.reset_to(partition, place)
        self.changed()

    def rewind(self, partition: TopicPartition) -> None:
        """Go on at what is committed."""
        with self.lock:
            self.positions.look_up_again(partition)
        self.changed()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these."""
        with self.lock:
            self.positions.pause(partitions)
        self.attention.wanted = True
        self.freed()  # what is paused makes way for others

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        with self.lock:
            self.positions.resume(partitions)
        self.changed()

    def changed(self) -> None:
        """Something is other than before: find offsets, fetch, wake whoever waits."""
        with self.lock:
            self.places.look()
            self.fetcher.changed()
        self.interrupt()

    def interrupt(self) -> None:
        """Have the application look up, whether it waits for data or goes through some."""
        self.attention.wanted = True
        self.inbox.nudge()

    def fail(self, error: KarrowError) -> None:
        """Nothing goes on: every request for data raises this from now on."""
        self.fatal = error
        self.interrupt()

    def broke(self, what: str, error: Exception) -> None:
        """A task of ours has ended by something that nobody has thought of."""
        broken = StateError(f"{what} broke: {type(error).__name__}: {error}")
        broken.__cause__ = error
        self.fail(broken)

    def lacks(self, partition: TopicPartition, error: KarrowError) -> None:
        """The cluster does not have a partition, once more."""
        if self.positions.missed(partition) == PATIENCE + 1 and self.is_by_hand:
            self.inbox.fail(error)

    def place_beyond(self, partition: TopicPartition, offset: int) -> OffsetSpec | None:
        """Where a partition goes on that has no such offset; None where that is an error."""
        try:
            return self._config.out_of_range_spec(partition, offset)
        except Exception as error:
            raise CallbackError(
                f"out_of_range raised {type(error).__name__}: {error}",
                hint="seek to go on",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
            ) from error

    def _out_of_range(self, asked: Fetch) -> None:
        try:
            spec = self.place_beyond(asked.partition, asked.offset)
        except CallbackError as error:
            self.inbox.fail(error)
            return
        # A function that gives the same offset again would be asked for ever.
        if spec is None or spec == OffsetSpec.at(asked.offset):
            topic, number = asked.partition
            self.inbox.fail(
                OffsetOutOfRange(
                    f"there is no offset {asked.offset} any more, or not yet",
                    hint="seek, or say where to go on with out_of_range=",
                    topic=topic,
                    partition=number,
                )
            )
        else:
            self.go_on(asked.partition, spec, asked.offset, "out_of_range")
            self.changed()

    def go_on(
        self, partition: TopicPartition, spec: OffsetSpec, offset: int, reason: ResetReason
    ) -> None:
        """Read on at another place than at an offset, as the policy says, and tell of it."""
        self.positions.reset_to(partition, spec)
        emit = partial(
            events.emit,
            "consumer.reset",
            {"count": 1},
            client_id=self._config.client_id,
            group=self._config.group,
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            place=str(spec),
            reason=reason,
        )
        # The lock is held, and a listener may have questions.
        asyncio.get_running_loop().call_soon(emit)

    def _recreated(self, topic: str) -> None:
        """A topic was deleted and made again: its offsets are others, and all of it is new."""
        with self.lock:
            for partition in self.positions.assignment:
                if partition.topic == topic:
                    self._begin_again(partition)
        self._changed_soon()

    def _changed_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.changed)

    def _begin_again(self, partition: TopicPartition) -> None:
        offset = self.positions[partition].position or 0
        self.positions.recreated(partition)
        spec: OffsetSpec | None = OffsetSpec.parse("earliest")
        error: KarrowError = OffsetOutOfRange(
            f"the topic was deleted and made again: offset {offset} is another one now",
            hint="seek, or say where to go on with out_of_range=",
            topic=partition.topic,
            partition=partition.partition,
        )
        if self._config.out_of_range is not None:
            try:
                spec = self.place_beyond(partition, offset)
            except CallbackError as raised:
                spec, error = None, raised
        if spec is not None:
            self.go_on(partition, spec, offset, "recreated")
        elif self.positions.stop(partition, self.positions[partition].epoch):
            self.inbox.fail(error)

    def end_lease(self) -> None:
        """Go by nobody's session any more: data may go out as long as it is assigned."""
        self.lease, self.on_poll = _forever, _nothing

    def settle(self) -> None:
        """Bring positions up to where iteration is; the lock is held."""
        self.positions.settle()

    def _make_room(self) -> None:
        """The buffer is full: what is paused can be fetched again."""
        self.settle()
        self.positions.drop_paused()

    # ---- data

    def take(self, *, raises: bool = True) -> Chunk | None:
        """The next data that may be handed out; raises what the application has to hear."""
        with self.lock:
            chunk = self.inbox.take(self._may_have, raises=raises)
            if chunk is None and raises and self.fatal is not None:
                raise copy.copy(self.fatal)
            return chunk

    def _may_have(self, chunk: Chunk) -> bool | None:
        may_have = self.positions.may_hand_out(chunk.partition, chunk.epoch)
        return may_have and self.may_hand_out()

    def is_asked_for(self, chunk: Chunk, *, is_first: bool) -> bool:
        """Whether the application has asked for data since a chunk's partition was assigned.

        What comes first of a call counts as asked for now: everything before it is done with.
        """
        assignment = self.positions[chunk.partition].assignment
        if is_first:
            self.asked_epoch = max(self.asked_epoch, assignment)
        return assignment <= self.asked_epoch

    def hand_out(self, chunk: Chunk, next_offset: int, *, is_through: bool) -> bool:
        """Data of a chunk up to an offset is given to the application; False if it must not be."""
        with self.lock:
            is_current = self.may_hand_out() and self.positions.handed_out(
                chunk.partition,
                chunk.epoch,
                next_offset,
                chunk.leader_epoch,
                released=chunk.size if is_through else 0,
            )
        if is_through:
            self.freed()
        return is_current

    def freed(self) -> None:
        """There may be room for more than before; called from any thread."""
        if self.fetcher.waits_for_room and self._loop is not None:
            self._loop.call_soon_threadsafe(self.fetcher.made_room)

    def asked_for_more(self) -> None:
        """The application is done with what it was handed."""
        self.on_poll()
        with self.lock:
            self.positions.asked_for_more()
            self.asked_epoch = self.positions.epoch
        if self._drains and self._loop is not None:
            self._loop.call_soon_threadsafe(self.hurry)

    def may_hand_out(self) -> bool:
        """Whether data may go out now; how long that holds is noted for who goes through it."""
        lease = self.lease()
        self.attention.until = lease
        return lease > time.monotonic()

    def may_go_on(self, chunk: Chunk) -> bool:
        """Whether more of a chunk that was taken may be handed out."""
        with self.lock:
            may_have = self.positions.may_hand_out(chunk.partition, chunk.epoch)
            return bool(may_have) and self.may_hand_out()

    def lay_back(self, chunk: Chunk) -> None:
        """Keep the rest of a chunk for later, if it is worth anything."""
        with self.lock:
            if self.positions.is_current(chunk.partition, chunk.epoch):
                self.inbox.put_back(chunk)

    def stop(self, chunk: Chunk) -> bool:
        """A chunk cannot be read on; False if nobody wants it any more."""
        with self.lock:
            is_wanted = self.positions.stop(chunk.partition, chunk.epoch)
        self.freed()
        return is_wanted

    # ---- draining

    async def drained(
        self, partitions: Iterable[TopicPartition], unless: Callable[[], bool]
    ) -> None:
        """Until the application is done with everything that it was handed of these."""
        wanted = frozenset(partitions)
        while not (self.positions.is_drained(wanted) or unless()):
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drains.append(waiting)
            self.interrupt()
            if self.positions.is_drained(wanted):  # by another thread, just now
                return
            await waiting

    def hurry(self) -> None:
        """Have those look again who wait for the application to be done."""
        waiting, self._drains = self._drains, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def close(self) -> None:
        """Stop."""
        await self.places.close()
        await self.fetcher.close()


def _forever() -> float:
    return inf


def _nothing() -> None:
    return None
