"""Everything behind a consumer but its group: positions, fetches, and data for the application.

Rules:
- One lock guards the positions and the inbox: the loop holds it while an answer is read, the
  application while it takes data. So no data of a partition comes out that was taken away before.
- A partition without an offset gets one: what its group has committed (the group's part), else
  ``start``. A place that only a broker can tell is asked for, again and again while that fails for a
  moment.
- What only the application can decide is raised where it asks for data: an offset out of range
  without a policy, a truncated log, a damaged batch, a refusal.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from karrow.aio._reading import Attention
from karrow.aio.calls.offsets import OffsetCalls
from karrow.aio.consuming.fetcher import Fetcher
from karrow.aio.consuming.inbox import Inbox
from karrow.aio.consuming.positions import Fetch, LookUp, Positions, Reset
from karrow.errors import KarrowError, OffsetOutOfRange, StateError
from karrow.types import OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from karrow.aio.consuming.chunk import Chunk
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster


class Engine(OffsetCalls):
    """The data of one consumer."""

    _config: ConsumerConfig

    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        super().__init__(config, cluster)
        self.lock = threading.RLock()
        self.positions = Positions(committed_only=config.isolation == "read_committed")
        self.inbox = Inbox()
        self.attention = Attention()
        self.fetcher = Fetcher(
            config, cluster, self.positions, self.inbox, on_out_of_range=self._out_of_range
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._finding: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Belong to the running loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()

    # ---- the assignment

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these and no others."""
        with self.lock:
            self.positions.assign(partitions)
        self.changed()

    def seek(self, partition: TopicPartition, place: OffsetSpec) -> None:
        """Go on somewhere else."""
        with self.lock:
            self.positions.reset_to(partition, place)
        self.changed()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these."""
        with self.lock:
            self.positions.pause(partitions)
            self.attention.wanted = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        with self.lock:
            self.positions.resume(partitions)
        self.changed()

    def changed(self) -> None:
        """Something is other than before: find offsets, fetch, wake whoever waits."""
        with self.lock:
            self.attention.wanted = True
            self._begin_at_start(self.positions.to_look_up())
            if self.positions.to_reset() and self._finding is None:
                self._finding = asyncio.create_task(self._find(), name="karrow offsets")
            self.fetcher.changed()
            self.inbox.nudge()

    def _begin_at_start(self, waiting: list[LookUp]) -> None:
        spec = self._config.start_spec
        for asked in waiting:
            if spec is None:
                text = "there is no committed offset, and start is 'none'"
                self.positions.stop(asked.partition, asked.epoch)
                self.inbox.fail(StateError(text, topic=asked.partition.topic))
            else:
                self.positions.reset_to(asked.partition, spec)

    async def _find(self) -> None:
        """Ask where places are, until all are known."""
        try:
            while asked := self.positions.to_reset():
                await self._find_once(asked)
        except Exception as error:  # noqa: BLE001 - it must not stop in silence
            known = error if isinstance(error, KarrowError) else StateError(str(error))
            self.inbox.fail(known)
        finally:
            self._finding = None
        self.changed()

    async def _find_once(self, asked: list[Reset]) -> None:
        places = {one.partition: one.spec for one in asked}
        try:
            found = await self.list_offsets(places, isolation=self._config.isolation)
            unknown = {one: "latest" for one in places if found[one].offset is None}
            ends = await self.list_offsets(unknown) if unknown else {}
        except KarrowError as error:
            if not error.retriable:
                raise
            return
        with self.lock:
            for one in asked:
                offset = found[one.partition].offset
                if offset is None:  # nothing is that new: wait for what comes
                    offset = ends[one.partition].offset
                self.positions.found(one, offset or 0)

    def _out_of_range(self, asked: Fetch) -> None:
        spec = self._config.out_of_range_spec(asked.partition, asked.offset)
        if spec is None:
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
            self.positions.reset_to(asked.partition, spec)
            self.changed()

    # ---- data

    def take(self, *, raises: bool = True) -> Chunk | None:
        """The next data that may be handed out; raises what the application has to hear."""
        with self.lock:
            return self.inbox.take(self._may_have, raises=raises)

    def _may_have(self, chunk: Chunk) -> bool | None:
        if not self.positions.is_current(chunk.partition, chunk.epoch):
            return None
        return self.positions.may_hand_out(chunk.partition, chunk.epoch)

    def hand_out(self, chunk: Chunk, next_offset: int, *, is_through: bool) -> bool:
        """Data of a chunk up to an offset is given to the application; False if it must not be."""
        with self.lock:
            is_current = self.positions.handed_out(
                chunk.partition,
                chunk.epoch,
                next_offset,
                chunk.leader_epoch,
                released=chunk.size if is_through else 0,
            )
        if is_through and self.fetcher.waits_for_room and self._loop is not None:
            self._loop.call_soon_threadsafe(self.fetcher.changed)
        return is_current

    def asked_for_more(self) -> None:
        """The application is done with what it was handed."""
        with self.lock:
            self.positions.asked_for_more()

    def may_go_on(self, chunk: Chunk) -> bool:
        """Whether more of a chunk that was taken may be handed out."""
        with self.lock:
            return self.positions.may_hand_out(chunk.partition, chunk.epoch)

    def lay_back(self, chunk: Chunk) -> None:
        """Keep the rest of a chunk for later, if it is worth anything."""
        with self.lock:
            if self.positions.is_current(chunk.partition, chunk.epoch):
                self.inbox.put_back(chunk)

    def stop(self, chunk: Chunk) -> bool:
        """A chunk cannot be read on; False if nobody wants it any more."""
        with self.lock:
            return self.positions.stop(chunk.partition, chunk.epoch)

    async def close(self) -> None:
        """Stop."""
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)
        await self.fetcher.close()
