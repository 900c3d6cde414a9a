"""The consumer without await.

The AsyncConsumer behind it fetches on karrow's own loop; what has come is taken and decoded in the
caller's thread, and so are the listeners called: while it polls, subscribes or closes.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from karrow.aio._reading import UNLIMITED, Iteration
from karrow.aio.consumer import AsyncConsumer, Key, check_batches, counted, described
from karrow.aio.waiting import deadline_after, seconds_left
from karrow.errors import StateError
from karrow.sync.client import Client
from karrow.sync.loop import at_exit, background, run

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.aio.consuming.offsets import Committed
    from karrow.aio.consuming.subscription import Topic
    from karrow.aio.groups.member import AnyMembership
    from karrow.config import ConsumerConfig, Servers
    from karrow.config.options import ConsumerOptions
    from karrow.records import Record
    from karrow.types import (
        CommittedOffset,
        GroupMetadata,
        Health,
        OffsetLike,
        OffsetResult,
        TopicPartition,
    )

T = TypeVar("T")

# How long the interpreter may take to leave the groups of consumers that nobody has closed.
EXIT_WAIT = 3.0
LOOK_AGAIN = 1.0


class Consumer(Iteration):
    """Reads topics.

    Without a group it reads every partition of its topics, from ``start`` on, and commits nothing.
    With one it shares them with the other members, and goes on where the group has committed. One
    thread at a time may use it; any thread may close it. Making one opens no connection.

    Example::

        with Consumer("localhost:9092", "orders", group="billing") as consumer:
            for record in consumer:
                print(record.offset, record.value)
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | Client | None = None,
        *topics: Topic | Iterable[Topic],
        config: ConsumerConfig | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        servers = bootstrap.twin if isinstance(bootstrap, Client) else bootstrap
        self._twin = AsyncConsumer(servers, *topics, config=config, **options)
        self._twin.listeners.in_thread = True
        self._engine = self._twin.engine
        self._taker = self._twin.taker
        self._taker.inline_bytes = UNLIMITED
        self._iterate_over(self._taker)
        self._user: int | None = None
        _open_consumers.add(self)
        at_exit(_leave_all)
        self._has_begun = False

    # ---- threads

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run(coroutine, "AsyncConsumer")

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def there() -> T:
            return call()

        return self._run(there())

    def _run_attending(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run what may have to call a listener, which happens in this thread meanwhile."""
        done = threading.Event()

        async def there() -> T:
            try:
                return await coroutine
            finally:
                done.set()
                self._engine.interrupt()

        if background().is_here:
            return self._run(coroutine)
        outcome: Future[T] = asyncio.run_coroutine_threadsafe(there(), background().loop)
        try:
            while True:
                self._engine.inbox.look()
                self._twin.listeners.run_errands()
                if done.is_set():
                    break
                # Another thread that asks for data may see the word that this one waits for.
                self._engine.inbox.wait(LOOK_AGAIN)
            return outcome.result()
        except (KeyboardInterrupt, SystemExit):
            outcome.cancel()
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse two threads at once: each would get a part of the records."""
        here = threading.get_ident()
        if self._user is not None:
            raise StateError(
                "a Consumer is asked for data by a listener of its own"
                if self._user == here
                else "a Consumer is used by two threads at once",
                hint="make one for each",
            )
        self._user = here
        try:
            yield
        finally:
            self._user = None

    @property
    def config(self) -> ConsumerConfig:
        """The options in use."""
        return self._twin.config

    @property
    def twin(self) -> AsyncConsumer:
        """The AsyncConsumer behind it; its coroutines belong to karrow's own loop."""
        return self._twin

    # ---- what is read

    def subscribe(self, *topics: Topic | Iterable[Topic]) -> None:
        """Read these topics, or those that a pattern matches, and no others.

        A pattern is a compiled regular expression, or begins with ``^``; it is matched against
        whole names.
        """
        self._twin.listeners.refuse_here("subscribe")
        self._run_attending(self._twin.subscribe(*topics))

    def unsubscribe(self) -> None:
        """Read nothing; leaves the group."""
        self._twin.listeners.refuse_here("unsubscribe")
        self._run_attending(self._twin.unsubscribe())
        self._has_begun = False

    def assign(
        self, partitions: Iterable[Key] | Mapping[Key, OffsetLike], *, keep: bool = False
    ) -> None:
        """Read these partitions and no others; a mapping says where each begins.

        With ``keep`` they are read besides those that are read already. The group, if there is
        one, has no say in it, but stores the offsets.
        """
        self._run(self._twin.assign(partitions, keep=keep))

    def unassign(self, partitions: Iterable[Key] | None = None) -> None:
        """Read these partitions no more, or none at all."""
        self._run(self._twin.unassign(partitions))

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return self._twin.assignment

    @property
    def subscription(self) -> tuple[str, ...]:
        """The topics that are subscribed to, as far as they are known."""
        return self._twin.subscription

    @property
    def membership(self) -> AnyMembership | None:
        """The consumer as a member of its group; None while it is none."""
        return self._twin.membership

    def group_metadata(self) -> GroupMetadata:
        """Who this is in its group, for offsets in transactions."""
        return self._twin.group_metadata()

    def health(self) -> Health:
        """How it is doing: ok, waiting, degraded or dead, why, and since when."""
        return self._twin.health()

    # ---- places

    def seek(self, partition: Key, place: OffsetLike) -> None:
        """Go on at an offset, "earliest", "latest", a time, or an age such as "-1h"."""
        self._on_loop(lambda: self._twin.seek(partition, place))

    def seek_all(self, place: OffsetLike, *partitions: Key) -> None:
        """Go on there in these partitions, or in all of them."""
        self._on_loop(lambda: self._twin.seek_all(place, *partitions))

    def seek_to_committed(self, *partitions: Key) -> None:
        """Go back to what the group has stored, in these partitions or in all of them.

        That is for work that came to nothing, such as a transaction that was aborted.
        """
        self._on_loop(lambda: self._twin.seek_to_committed(*partitions))

    def skip_damaged(self) -> tuple[TopicPartition, ...]:
        """Go on behind damage that was raised; gives the partitions that had stopped at it."""
        return self._on_loop(self._twin.skip_damaged)

    def pause(self, *partitions: Key) -> None:
        """Hand out nothing of these for now; nothing of what they have is lost."""
        self._on_loop(lambda: self._twin.pause(*partitions))

    def resume(self, *partitions: Key) -> None:
        """Go on with these where they were."""
        self._on_loop(lambda: self._twin.resume(*partitions))

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that are paused."""
        return self._twin.paused

    def position(self, partition: Key) -> int | None:
        """The offset that comes next; None while it is not known."""
        return self._twin.position(partition)

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        return self._run(self._twin.partitions_for(topic))

    def watermarks(self, *partitions: Key) -> dict[TopicPartition, tuple[int, int]]:
        """Where partitions begin and end now, as far as the isolation lets read; these, or all."""
        return self._run(self._twin.watermarks(*partitions))

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are in front of every position, in one call.

        A partition that has no position yet counts from its committed offset, or as a whole.
        """
        return self._run(self._twin.lag())

    def offsets_for_times(
        self, times: Mapping[Key, OffsetLike]
    ) -> dict[TopicPartition, OffsetResult]:
        """The first offset at or after a time; ``offset`` is None where nothing is that new."""
        return self._run(self._twin.offsets_for_times(times))

    # ---- commits

    def commit(self, what: Committed = None) -> None:
        """Store offsets for the group, and wait until they are.

        ``what`` is a record, a list of them or an Arrow batch, which are done with, or offsets: a
        mapping of partitions to the offset that comes next, or to (offset, metadata). None is
        everything that was handed out. CommitFailed is raised where it could not be done, among
        others for what was handed out and is another member's now.

        Example::

            consumer.commit(record)
            consumer.commit({("orders", 0): 42})
        """
        self._run(self._twin.commit(what))

    def commit_nowait(self, what: Committed = None) -> Future[None]:
        """Store offsets in the background; the future says how that went."""
        self._twin.group_metadata()
        # What was handed out is looked at here and now, not when the loop comes to it.
        offsets = self._twin.consumed() if what is None else what

        async def there() -> None:
            await self._twin.commit_nowait(offsets)  # which ``close`` waits for

        return asyncio.run_coroutine_threadsafe(there(), background().loop)

    def consumed(self) -> Mapping[Key, CommittedOffset]:
        """What ``commit()`` would store now."""
        return self._twin.consumed()

    def committed(
        self, partitions: Iterable[Key] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has stored; ``offset`` is None where that is nothing."""
        return self._run(self._twin.committed(partitions))

    # ---- three ways to read

    def poll(self, timeout: float | None = 1.0, max_records: int | None = None) -> list[Record]:
        """Up to ``max_records`` records, as soon as there are any; empty when the time passes.

        Passing trouble is not raised: events and ``health()`` tell of it.
        """
        most = self.config.max_poll_records if max_records is None else counted(max_records)
        deadline = deadline_after(timeout)
        with self._alone():
            self._begin()
            while not (found := self._taker.records(most)):
                if not self._wait(deadline):
                    break
        return found

    def _more(self) -> None:
        """Have a record for iteration."""
        with self._alone():
            self._begin()
            while not self._taker.refill():
                self._wait(None)

    def batches(
        self,
        max_records: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches, each of one partition; ends when ``timeout`` passes without data.

        They are handed on as they come, never held back to be filled.
        """
        check_batches(columns, max_records, max_bytes)
        return self._batches(max_records, max_bytes, timeout, columns)

    def _batches(
        self,
        max_records: int | None,
        max_bytes: int | None,
        timeout: float | None,
        columns: Sequence[str] | None,
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - only this needs it

        while True:
            deadline = deadline_after(timeout)
            with self._alone():
                self._begin()
                while (rows := self._taker.columns(columns, max_records, max_bytes)) is None:
                    if not self._wait(deadline):
                        return
            yield pa.record_batch(rows)

    def _begin(self) -> None:
        """Be reading, and do what waits for this thread, which is not the loop's own."""
        twin = self._twin
        if not self._has_begun or twin.is_closed or twin.is_forked or background().is_here:
            self._on_loop(twin.begin)
            self._has_begun = True
        self._twin.listeners.run_errands()

    def _wait(self, deadline: float | None) -> bool:
        """Until there may be more; False when the time is up."""
        left = seconds_left(deadline)
        if left == 0:
            return False
        self._engine.inbox.wait(left)
        self._begin()
        return True

    # ---- the end

    def close(self) -> None:
        """Commit what was handed out, if the options say so, leave the group, and stop."""
        self._close(is_done=True)

    def _close(self, *, is_done: bool) -> None:
        if not self._twin.is_forked:
            self._twin.listeners.refuse_here("close")
            self._run_attending(self._twin.end(is_done=is_done))

    def abandon(self) -> Future[None]:
        """Close it in the background, without a word to the application."""
        self._twin.listeners.silence()
        return asyncio.run_coroutine_threadsafe(self._twin.end(is_done=False), background().loop)

    def __del__(self) -> None:
        twin = getattr(self, "_twin", None)
        if twin is not None and twin.is_at_work:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, 2, source=self)
            self.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(is_done=kind is None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {described(self.config)}>"


# Those of this process, for the end of the interpreter.
_open_consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()


def _leave_all() -> None:
    """The interpreter ends: what is done with is committed, and groups need not wait."""
    wait([one.abandon() for one in list(_open_consumers) if one.twin.is_at_work], EXIT_WAIT)
