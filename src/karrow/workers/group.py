"""A group of workers without await, and the call that is a whole program.

The AsyncWorkerGroup behind it works on karrow's own loop; handlers without async run in threads.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from karrow.errors import StateError
from karrow.sync.client import Client
from karrow.sync.loop import at_exit, background, run
from karrow.workers.aio import AsyncWorkerGroup, GroupState

if TYPE_CHECKING:
    from karrow.aio.consuming.subscription import Topic
    from karrow.config import Servers, WorkerConfig
    from karrow.config.options import WorkerOptions
    from karrow.types import Health, OffsetLike, TopicPartition
    from karrow.workers.aio import Target, Worker
    from karrow.workers.ending import Ending
    from karrow.workers.handler import Handler

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class WorkerGroup:
    """Handlers for the partitions of topics, one for each, as a member of a group.

    ``handler`` is a subclass of Handler, ``arguments`` are given to its ``setup``. With
    ``partitions`` these are read and no others; a group then only stores their offsets. Without a
    group all partitions are read, and nothing is stored. Making one opens no connection.

    Example::

        with WorkerGroup(Billing, "localhost:9092", group="billing", topics=["orders"]) as group:
            group.wait()
    """

    __module__ = "karrow"
    _twin_kind = AsyncWorkerGroup

    def __init__(
        self,
        handler: type[Handler],
        bootstrap: Servers | Client | None = None,
        *,
        topics: Iterable[Topic] = (),
        partitions: Iterable[tuple[str, int]] | Mapping[tuple[str, int], OffsetLike] = (),
        arguments: Mapping[str, Any] | None = None,
        config: WorkerConfig | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        self._twin = self._twin_kind(
            handler,
            bootstrap.twin if isinstance(bootstrap, Client) else bootstrap,
            topics=topics,
            partitions=partitions,
            arguments=arguments,
            config=config,
            **options,
        )
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether it was made in this process, and not before a fork."""
        return self._pid == os.getpid()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if not self.is_here:
            coroutine.close()
            raise StateError("the workers belong to another process", hint="make a group here")
        return run(coroutine, "AsyncWorkerGroup")

    @property
    def config(self) -> WorkerConfig:
        """The options in use."""
        return self._twin.config

    # ---- its life

    def start(self) -> None:
        """Begin in the background; joining the group takes its time."""
        self._run(self._twin.start())
        _keep(self)

    def stop(self, timeout: float | None = None) -> Ending:
        """End: callbacks may finish, for ``timeout`` seconds or ``shutdown``; commit, and leave.

        More than once does no harm. How it has ended is returned, and never raised.
        """
        ending = self._run(self._twin.stop(timeout))
        _open_groups.discard(self)
        return ending

    def wait(self, timeout: float | None = None) -> Ending | None:
        """Wait for the end, None when the time passes; GroupEnded if nobody wanted it."""
        return self._run(self._twin.wait(timeout))

    def ask_to_stop(self) -> None:
        """Begin to stop, without waiting for it."""
        background().loop.call_soon_threadsafe(self._twin.ask_to_stop)

    def abandon(self) -> None:
        """Let the process end without waiting for the workers."""
        _open_groups.discard(self)

    @property
    def state(self) -> GroupState:
        """Where it is: new, running, ending, ended."""
        return self._twin.state

    @property
    def ending(self) -> Ending | None:
        """How it has ended; None while it has not."""
        return self._twin.ending

    # ---- messages to workers

    def call(self, target: Target, message: object, timeout: float = 5.0) -> Any:
        """What ``handle_call`` of a worker answers or raises; RequestTimeout after that time."""
        return self._run(self._twin.call(target, message, timeout))

    def cast(self, target: Target, message: object) -> None:
        """Give a message to ``handle_cast`` of a worker, without waiting for it."""
        self._run(self._twin.cast(target, message))

    def info(self, target: Target, message: object) -> None:
        """Give a message to ``handle_info`` of a worker; one without it logs the message."""
        self._run(self._twin.info(target, message))

    # ---- introspection

    def _look(self, look: Callable[[], T]) -> T:
        """Look at what the loop changes, on the loop."""

        async def there() -> T:
            return look()

        return self._run(there())

    @property
    def group_name(self) -> str | None:
        """The name of the group."""
        return self._twin.group_name

    @property
    def active(self) -> bool:
        """Whether at least one worker is at work."""
        return self._look(lambda: self._twin.active)

    @property
    def assignments(self) -> tuple[TopicPartition, ...]:
        """The partitions that have a worker here."""
        return self._look(lambda: self._twin.assignments)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers, in the order of their partitions."""
        return self._look(lambda: self._twin.workers)

    def worker(self, partition: tuple[str, int]) -> Worker | None:
        """The worker of a partition; None if it is not here."""
        return self._look(lambda: self._twin.worker(partition))

    @property
    def generation(self) -> int | None:
        """The group's generation, or the member's epoch; None while there is none."""
        return self._look(lambda: self._twin.generation)

    @property
    def member_id(self) -> str | None:
        """The member's id in the group; None while there is none."""
        return self._look(lambda: self._twin.member_id)

    @property
    def leader(self) -> str | None:
        """The id of the member that divides the partitions; None while there is none."""
        return self._look(lambda: self._twin.leader)

    @property
    def is_leader(self) -> bool:
        """Whether that is this one."""
        return self._look(lambda: self._twin.is_leader)

    def health(self) -> Health:
        """How it is doing: ok, waiting, degraded or dead, why, and since when."""
        return self._look(self._twin.health)

    # ---- as a block of code

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        ending = self.stop()
        if kind is None:
            ending.check()

    def __repr__(self) -> str:
        return repr(self._twin).replace("Async", "", 1)


def run_group(
    handler: type[Handler],
    bootstrap: Servers | Client | None = None,
    *,
    topics: Iterable[Topic] = (),
    partitions: Iterable[tuple[str, int]] | Mapping[tuple[str, int], OffsetLike] = (),
    arguments: Mapping[str, Any] | None = None,
    config: WorkerConfig | None = None,
    **options: Unpack[WorkerOptions],
) -> Ending:
    """Run a group of workers until it ends; GroupEnded if nobody wanted that.

    SIGINT and SIGTERM stop it: callbacks may finish, what is done is committed, the group is left.
    A second signal does what it would have done without this. Outside of the main thread there are
    no signals to hear, and nothing is changed about them.

    Example::

        run_group(Billing, "localhost:9092", group="billing", topics=["orders"])
    """
    group = WorkerGroup(
        handler,
        bootstrap,
        topics=topics,
        partitions=partitions,
        arguments=arguments,
        config=config,
        **options,
    )
    try:
        with _stopping_on_signals(group):
            group.start()
            ending = group.wait()
    except BaseException:
        group.abandon()
        raise
    if ending is None:
        raise StateError("a wait without a limit has ended early")
    return ending


@contextmanager
def _stopping_on_signals(group: WorkerGroup) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    background()  # a handler that needs it while this thread starts it would wait for itself
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(_number: int, _frame: FrameType | None) -> None:
        restore()
        group.ask_to_stop()

    for number in SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


# Those that run in this process, for the end of the interpreter; they run on when whoever started
# them has let go of them.
_open_groups: set[WorkerGroup] = set()


def _keep(group: WorkerGroup) -> None:
    for one in list(_open_groups):
        if one.state is GroupState.ENDED:
            _open_groups.discard(one)
    _open_groups.add(group)
    at_exit(_stop_all)


def _stop_all() -> None:
    """The interpreter ends: what is done is committed, and the groups are left."""
    for group in list(_open_groups):
        if group.is_here and group.state is not GroupState.ENDED:
            group.stop()
