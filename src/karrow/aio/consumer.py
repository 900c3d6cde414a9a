"""The consumer: records, lists of records, and Arrow batches out of topics."""

from __future__ import annotations

import asyncio
import operator
import os
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack

from karrow.aio._reading import AwaitedIteration
from karrow.aio.client import AsyncClient, config_and_cluster
from karrow.aio.consuming.commits import Commits
from karrow.aio.consuming.engine import Engine
from karrow.aio.consuming.health import Watchdog
from karrow.aio.consuming.listeners import Listeners
from karrow.aio.consuming.member import Member
from karrow.aio.consuming.offsets import Committed, as_offsets, as_partition
from karrow.aio.consuming.subscription import subscribed
from karrow.aio.consuming.taking import INLINE_BYTES, Taker
from karrow.aio.consuming.watch import Watch
from karrow.aio.waiting import deadline_after, seconds_left
from karrow.config import ConsumerConfig
from karrow.errors import ConfigError, StateError
from karrow.net.sharing import joined
from karrow.records import RecordReader
from karrow.types import CommittedOffset, GroupMetadata, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.aio.consuming.subscription import Subscription, Topic
    from karrow.aio.groups.member import AnyMembership
    from karrow.config import Servers
    from karrow.config.options import ConsumerOptions
    from karrow.records import Record
    from karrow.types import Health, OffsetLike, OffsetResult

Key = tuple[str, int]


class AsyncConsumer(AwaitedIteration):
    """Reads topics.

    Without a group it reads every partition of its topics, from ``start`` on, and commits nothing.
    With one it shares them with the other members, and goes on where the group has committed. Only
    one task at a time may ask it for data. Making one opens no connection.

    Example::

        async with AsyncConsumer("localhost:9092", "orders", group="billing") as consumer:
            async for record in consumer:
                print(record.offset, record.value)
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | AsyncClient | None = None,
        *topics: Topic | Iterable[Topic],
        config: ConsumerConfig | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._shares_cluster = isinstance(bootstrap, AsyncClient)
        self.config, self._cluster = config_and_cluster(ConsumerConfig, bootstrap, config, options)
        self._subscription = subscribed(self.config, topics)
        self.engine = Engine(self.config, self._cluster)
        self.taker = Taker(self.engine, inline_bytes=INLINE_BYTES)
        self.engine.positions.settle = self.taker.settle
        self._iterate_over(self.taker)
        self.commits = Commits(self.config, self._cluster, self.engine)
        self.listeners = Listeners(self.config, self.engine)
        self.watch = Watch(self.config, self._cluster, self.engine)
        self._watchdog = Watchdog(self)
        self._member: Member | None = None
        self._joining: asyncio.Task[None] | None = None
        self._has_begun = False
        self._is_busy = False
        self._is_closing = False
        self._ending: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._pid = os.getpid()
        self.is_closed = False

    # ---- what is read

    def begin(self) -> None:
        """See to it that what is wanted comes; done by whatever asks for data."""
        self._require_open()
        self.engine.require_loop()
        if self._has_begun:
            return
        if self._subscription.is_empty:
            raise StateError(
                "the consumer was told to read nothing", hint="name topics, subscribe, or assign"
            )
        self._start()
        self.engine.is_by_hand = False
        if self.config.group is None:
            self.watch.start(self._subscription, None)
        else:
            self._join()

    def _start(self) -> None:
        self._has_begun = True
        self.engine.fatal = None
        self.engine.start()
        self._watchdog.start()
        if self.config.group is not None:
            self.commits.start()

    def _join(self) -> None:
        member = self._member = Member(
            self.config,
            self._cluster,
            engine=self.engine,
            commits=self.commits,
            listeners=self.listeners,
            subscription=self._subscription,
        )
        self._joining = asyncio.create_task(member.join(), name="karrow join")
        if self._subscription.remote_pattern is None:
            self.watch.start(self._subscription, member.membership.rejoin)

    async def subscribe(self, *topics: Topic | Iterable[Topic]) -> None:
        """Read these topics, or those that a pattern matches, and no others.

        A pattern is a compiled regular expression, or begins with ``^``; it is matched against
        whole names.
        """
        self._require_open()
        wanted = subscribed(self.config, topics)
        if wanted.is_empty:
            raise ConfigError("subscribing to nothing", hint="name topics, or unsubscribe")
        self.listeners.refuse_here("subscribe")
        await self._as_a_whole(self._subscribe(wanted))

    async def _subscribe(self, wanted: Subscription) -> None:
        if self._member is not None and self.engine.fatal is None and not wanted.patterns:
            self._subscription = wanted
            self._member.subscribe(wanted)
            await self.watch.close()
            self.watch.start(wanted, self._member.membership.rejoin)
            return
        if self.config.group is None and self.watch.is_on and self.engine.fatal is None:
            await self.watch.close()
            self._subscription = wanted
            gone = [one for one in self.assignment if not wanted.wants(one.topic)]
            self.engine.remove(gone)
            self.watch.start(wanted, None)
            return
        await self._unsubscribe()
        self._subscription = wanted
        self.begin()

    async def unsubscribe(self) -> None:
        """Read nothing; leaves the group."""
        self._require_open()
        self.listeners.refuse_here("unsubscribe")
        await self._as_a_whole(self._unsubscribe())

    async def _unsubscribe(self) -> None:
        await self._stop(is_done=True)
        self._subscription = subscribed(self.config, ())
        self._has_begun = False

    async def _as_a_whole(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that must not be left half done, also if the caller is cancelled."""

        async def in_turn() -> None:
            async with self._turn:
                await work

        await joined(asyncio.create_task(in_turn(), name="karrow change"))

    async def assign(
        self, partitions: Iterable[Key] | Mapping[Key, OffsetLike], *, keep: bool = False
    ) -> None:
        """Read these partitions and no others; a mapping says where each begins.

        With ``keep`` they are read besides those that are read already. The group, if there is
        one, has no say in it, but stores the offsets.
        """
        wanted = [as_partition(one) for one in partitions]
        places = {}
        if isinstance(partitions, Mapping):
            places = {as_partition(one): _place(place) for one, place in partitions.items()}
        await self._by_hand()
        if not keep:
            await self.commits.store_of(set(self.assignment).difference(wanted))
        self.engine.assign(wanted, places, keep=keep)

    async def unassign(self, partitions: Iterable[Key] | None = None) -> None:
        """Read these partitions no more, or none at all."""
        await self._by_hand()
        gone = self.assignment if partitions is None else [as_partition(one) for one in partitions]
        await self.commits.store_of(gone)
        self.engine.remove(gone)

    async def _by_hand(self) -> None:
        """Have partitions that the application chooses itself."""
        self._require_open()
        if not self._subscription.is_empty:
            if self._has_begun:
                raise StateError(
                    "the consumer is subscribed to topics, which give it its partitions",
                    hint="unsubscribe before assigning",
                )
            self._subscription = subscribed(self.config, ())
        if not self._has_begun:
            self._start()
        self.engine.is_by_hand = True

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return tuple(sorted(self.engine.positions.assignment))

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics that are subscribed to, as far as they are known."""
        return tuple(sorted(self._subscription.topics))

    @property
    def membership(self) -> AnyMembership | None:
        """The consumer as a member of its group; None while it is none."""
        return None if self._member is None else self._member.membership

    def group_metadata(self) -> GroupMetadata:
        """Who this is in its group, for offsets in transactions."""
        if self.config.group is None:
            raise StateError("the consumer is in no group", hint="set group=")
        if self.membership is None:
            return GroupMetadata(self.config.group)
        return self.membership.metadata()

    def health(self) -> Health:
        """How it is doing: ok, waiting, degraded or dead, why, and since when."""
        return self._watchdog.look()

    # ---- places

    def seek(self, partition: Key, place: OffsetLike) -> None:
        """Go on at an offset, "earliest", "latest", a time, or an age such as "-1h"."""
        self._require_open()
        self.engine.seek(as_partition(partition), _place(place))

    def seek_all(self, place: OffsetLike, *partitions: Key) -> None:
        """Go on there in these partitions, or in all of them."""
        spec = _place(place)
        for partition in self._these(partitions):
            self.engine.seek(partition, spec)

    def seek_to_committed(self, *partitions: Key) -> None:
        """Go back to what the group has stored, in these partitions or in all of them.

        That is for work that came to nothing, such as a transaction that was aborted.
        """
        self.group_metadata()
        for partition in self._these(partitions):
            self.engine.rewind(partition)

    def _these(self, partitions: Iterable[Key]) -> list[TopicPartition]:
        """The partitions that are named, or all of them; there have to be some."""
        self._require_open()
        found = [as_partition(one) for one in partitions] or list(self.assignment)
        if not found:
            raise StateError(
                "no partition is assigned yet",
                hint="subscribed partitions come while it is polled; assign() gives them at once",
            )
        return found

    def skip_damaged(self) -> tuple[TopicPartition, ...]:
        """Go on behind damage that was raised; gives the partitions that had stopped at it."""
        self._require_open()
        found = self.taker.damaged()
        for partition, place in found.items():
            self.engine.seek(partition, place)
        return tuple(found)

    def pause(self, *partitions: Key) -> None:
        """Hand out nothing of these for now; nothing of what they have is lost."""
        self._require_open()
        self.engine.pause([as_partition(one) for one in partitions])

    def resume(self, *partitions: Key) -> None:
        """Go on with these where they were."""
        self._require_open()
        self.engine.resume([as_partition(one) for one in partitions])

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return self.engine.positions.paused

    def position(self, partition: Key) -> int | None:
        """The offset that comes next; None while it is not known."""
        self._require_committable()
        with self.engine.lock:
            self.engine.settle()
            return self.engine.positions[as_partition(partition)].position

    async def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        self._require_open()
        return await self.engine.places.partitions_for(topic)

    async def watermarks(self, *partitions: Key) -> dict[TopicPartition, tuple[int, int]]:
        """Where partitions begin and end now, as far as the isolation lets read; these, or all."""
        wanted = self._these(partitions)
        ask = self.engine.places.list_offsets
        first = await ask(dict.fromkeys(wanted, "earliest"))
        last = await ask(dict.fromkeys(wanted, "latest"), isolation=self.config.isolation)
        return {one: (first[one].offset or 0, last[one].offset or 0) for one in wanted}

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are in front of every position, in one call.

        A partition that has no position yet counts from its committed offset, or as a whole.
        """
        self._require_open()
        wanted = self.assignment
        if not wanted:
            return {}
        ends = await self.engine.places.list_offsets(
            dict.fromkeys(wanted, "latest"), isolation=self.config.isolation
        )
        begins = await self._positions_or_begins(wanted)
        return {one: max((ends[one].offset or 0) - begins[one], 0) for one in wanted}

    async def _positions_or_begins(
        self, wanted: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        with self.engine.lock:
            self.engine.settle()
            known = {
                one: cursor.position
                for one in wanted
                if one in self.engine.positions
                and (cursor := self.engine.positions[one]).position is not None
            }
        missing = [one for one in wanted if one not in known]
        if missing and self.config.group is not None:
            stored = await self.engine.places.stored(missing, retries=None)
            known |= {one: it.offset for one, it in stored.items() if it.offset is not None}
        missing = [one for one in missing if one not in known]
        if missing:
            first = await self.engine.places.list_offsets(dict.fromkeys(missing, "earliest"))
            known |= {one: first[one].offset or 0 for one in missing}
        return {one: offset or 0 for one, offset in known.items()}

    async def offsets_for_times(
        self, times: Mapping[Key, OffsetLike]
    ) -> dict[TopicPartition, OffsetResult]:
        """The first offset at or after a time; ``offset`` is None where nothing is that new."""
        self._require_open()
        places = {as_partition(one): _place(place) for one, place in times.items()}
        found = await self.engine.places.list_offsets(places, isolation=self.config.isolation)
        return {TopicPartition(*one): result for one, result in found.items()}

    # ---- commits

    async def commit(self, what: Committed = None) -> None:
        """Store offsets for the group, and wait until they are.

        ``what`` is a record, a list of them or an Arrow batch, which are done with, or offsets: a
        mapping of partitions to the offset that comes next, or to (offset, metadata). None is
        everything that was handed out. CommitFailed is raised where it could not be done, among
        others for what was handed out and is another member's now.

        Example::

            await consumer.commit(record)
            await consumer.commit({("orders", 0): 42})
        """
        self._require_committable()
        await self.commits.store(self._offsets(what))

    def commit_nowait(self, what: Committed = None) -> asyncio.Future[None]:
        """Store offsets in the background; the future says how that went."""
        self._require_committable()
        return self.commits.store_soon(self._offsets(what))

    def _offsets(self, what: Committed) -> Mapping[TopicPartition, CommittedOffset]:
        self.group_metadata()
        if what is None:
            return self.commits.handed_out()
        return as_offsets(what)

    def consumed(self) -> Mapping[Key, CommittedOffset]:
        """What ``commit()`` would store now."""
        self._require_committable()
        return dict(self.commits.handed_out().items())

    async def committed(
        self, partitions: Iterable[Key] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has stored; ``offset`` is None where that is nothing."""
        self._require_committable()
        self.group_metadata()
        wanted = (
            self.assignment if partitions is None else [as_partition(one) for one in partitions]
        )
        if not wanted:
            return {}
        return await self.engine.places.stored(wanted, retries=None)

    # ---- three ways to read

    async def poll(
        self,
        timeout: float | None = 1.0,  # noqa: ASYNC109 - public name
        max_records: int | None = None,
    ) -> list[Record]:
        """Up to ``max_records`` records, as soon as there are any; empty when the time passes.

        Passing trouble is not raised: events and ``health()`` tell of it.
        """
        self.begin()
        most = self.config.max_poll_records if max_records is None else counted(max_records)
        deadline = deadline_after(timeout)
        with self._alone():
            await self._give_way()
            while not (found := await self.taker.records_beside(most)):
                if not await self._wait(deadline):
                    break
        return found

    async def _more(self) -> None:
        """Have a record for iteration."""
        self.begin()
        with self._alone():
            while not await self.taker.refill_beside():
                await self._wait(None)

    def batches(
        self,
        max_records: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Arrow batches, each of one partition; ends when ``timeout`` passes without data.

        They are handed on as they come, never held back to be filled.
        """
        check_batches(columns, max_records, max_bytes)
        return self._batches(max_records, max_bytes, timeout, columns)

    async def _batches(
        self,
        max_records: int | None,
        max_bytes: int | None,
        timeout: float | None,  # noqa: ASYNC109 - public name
        columns: Sequence[str] | None,
    ) -> AsyncIterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - only this needs it

        self.begin()
        while True:
            deadline = deadline_after(timeout)
            with self._alone():
                await self._give_way()
                while (
                    rows := await self.taker.columns_beside(columns, max_records, max_bytes)
                ) is None:
                    if not await self._wait(deadline):
                        return
            yield pa.record_batch(rows)

    async def _give_way(self) -> None:
        """Let other tasks run, even if there always is data: heartbeats and commits are theirs."""
        await asyncio.sleep(0)
        self._require_open()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse two tasks at once: each would get a part of the records."""
        if self._is_busy:
            raise StateError("two tasks ask one consumer for data", hint="make one for each")
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    async def _wait(self, deadline: float | None) -> bool:
        """Until there may be more; False when the time is up."""
        left = seconds_left(deadline)
        if left == 0:
            return False
        await self.engine.inbox.wait_on_loop(left)
        self._require_open()
        return True

    # ---- the end

    @property
    def is_at_work(self) -> bool:
        """Whether there is something that only ``close`` ends."""
        return self._has_begun and not self.is_closed and not self.is_forked

    @property
    def is_cut_off(self) -> bool:
        """Whether the client was closed whose connections it shares."""
        return self._shares_cluster and self._cluster.is_closed

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that made the consumer."""
        return self._pid != os.getpid()

    def _require_open(self) -> None:
        if self.is_forked:
            raise StateError(
                "the consumer was made before a fork", hint="make one in the child process"
            )
        if self.is_closed:
            raise StateError("the consumer is closed")

    def _require_committable(self) -> None:
        """Offsets may be stored until the last listener was called."""
        if not self._is_closing:
            self._require_open()

    async def close(self) -> None:
        """Commit what was handed out, if the options say so, leave the group, and stop."""
        await self.end(is_done=True)

    async def end(self, *, is_done: bool) -> None:
        """Close; with ``is_done`` the application is through with what it has, else it failed."""
        if self.is_forked:
            return
        self.listeners.refuse_here("close")
        if self._ending is None:
            self.is_closed = self._is_closing = True
            self.listeners.closing()
            self._ending = asyncio.create_task(self._end(is_done=is_done), name="karrow close")
        await joined(self._ending)

    async def _end(self, *, is_done: bool) -> None:
        await self._turn.acquire()
        try:
            await self._stop(is_done=is_done)
        finally:
            self._is_closing = False
            await self._watchdog.close()
            await self.engine.close()
            self.taker.close()
            self.engine.interrupt()
            if not self._shares_cluster:
                await self._cluster.close()

    async def _stop(self, *, is_done: bool) -> None:
        """Give everything back."""
        await self.watch.close()
        await self.commits.close()
        if self._member is None:
            await self.commits.store_at_last(is_done=is_done)
        else:
            if self._joining is not None:
                await self._joining
            await self._member.leave(is_done=is_done)
            self._member = None
        self.engine.assign(())
        await self.listeners.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.end(is_done=kind is None)

    def __del__(self) -> None:
        if getattr(self, "_has_begun", False) and self.is_at_work:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, 2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {described(self.config)}>"


def described(config: ConsumerConfig) -> str:
    """Which consumer it is, for people."""
    group = "" if config.group is None else f" in {config.group!r}"
    return f"{config.client_id!r}{group}"


def _place(place: OffsetLike) -> OffsetSpec:
    return OffsetSpec.parse(place)


def counted(number: int) -> int:
    """A number of records to ask for, checked."""
    try:
        count = operator.index(number)
    except TypeError:
        raise ConfigError(f"max_records={number!r} is not an integer") from None
    if count < 1:
        raise ConfigError(f"max_records={count} is below 1")
    return count


def check_batches(
    columns: Sequence[str] | None, max_records: int | None, max_bytes: int | None
) -> None:
    """Refuse now what would be refused when there are records."""
    if max_records is not None:
        counted(max_records)
    RecordReader(b"", topic="", partition=0).read_arrow(columns=columns, max_bytes=max_bytes)
