"""A group of workers, for programs with a loop of their own.

States and what moves a group between them:

    NEW       nothing was started
    RUNNING   workers are fed
    ENDING    workers finish, what is done is committed, the consumer leaves
    ENDED     ``ending`` says why

    NEW -> RUNNING            ``start``
    NEW -> ENDED              ``stop``
    RUNNING -> ENDING         ``stop``, a Stop, too many crashes, or an error that will not pass
    ENDING -> ENDED           always, in bounded time
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack

from karrow import events
from karrow.aio.client import AsyncClient
from karrow.aio.consumer import AsyncConsumer
from karrow.aio.consuming.health import INTERVAL
from karrow.config import ClientConfig, ConsumerConfig, WorkerConfig
from karrow.errors import ConfigError, RequestTimeout, StateError
from karrow.net.sharing import cancelled, duty
from karrow.types import Health, HealthState, TopicPartition
from karrow.workers.crew import Crew
from karrow.workers.ending import Ending, EndReason, ending_for
from karrow.workers.handler import Handler, missing, reads_batches
from karrow.workers.mailbox import Message

if TYPE_CHECKING:
    from karrow.aio.consuming.subscription import Topic
    from karrow.config import Servers
    from karrow.config.options import WorkerOptions
    from karrow.types import OffsetLike
    from karrow.workers.actor import Actor, WorkerState

_log = logging.getLogger("karrow.workers")

# How long the end may take of a group that was cut off.
HANGING_UP = 1.0
# What the group does itself when partitions come and go; handlers have setup and teardown.
LISTENERS = ("on_assigned", "on_revoked", "on_lost")


class GroupState(StrEnum):
    """Where a group of workers is."""

    NEW = "new"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


GroupState.__module__ = "karrow"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker, as it was when it was asked for.

    ``callback`` is the one that runs, ``busy_for`` since how many seconds; ``records`` were handled
    by this worker and those in its place before it crashed.
    """

    __module__ = "karrow"

    partition: TopicPartition
    state: WorkerState
    callback: str | None
    busy_for: float
    records: int
    restarts: int


# A worker is named by itself or by its partition.
Target: TypeAlias = Worker | tuple[str, int]


class AsyncWorkerGroup:
    """Handlers for the partitions of topics, one for each, as a member of a group.

    ``handler`` is a subclass of Handler, ``arguments`` are given to its ``setup``. With
    ``partitions`` these are read and no others; a group then only stores their offsets. Without a
    group all partitions are read, and nothing is stored. Making one opens no connection.

    Example::

        async with AsyncWorkerGroup(Billing, "localhost:9092", group="g", topics=["t"]) as group:
            await group.wait()
    """

    __module__ = "karrow"

    def __init__(
        self,
        handler: type[Handler],
        bootstrap: Servers | AsyncClient | None = None,
        *,
        topics: Iterable[Topic] = (),
        partitions: Iterable[tuple[str, int]] | Mapping[tuple[str, int], OffsetLike] = (),
        arguments: Mapping[str, Any] | None = None,
        config: WorkerConfig | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        reads_batches(handler)
        self._client = bootstrap if isinstance(bootstrap, AsyncClient) else None
        self.config = _config(bootstrap, config, options)
        self._handler = handler
        self._arguments = {} if arguments is None else dict(arguments)
        self._topics = _names(topics)
        self._partitions = partitions if isinstance(partitions, Mapping) else tuple(partitions)
        if bool(self._topics) == bool(self._partitions):
            raise ConfigError("a group of workers needs either topics or partitions")
        self._consumer = self._make_consumer()
        self._crew = Crew(handler, self._arguments, self.config, self._consumer, self._end)
        self._task: asyncio.Task[None] | None = None
        self._is_asked = asyncio.Event()
        self._reason: Ending | None = None
        self._shutdown = self.config.shutdown
        self._health = Health.from_now_on(HealthState.WAITING, "the workers were not started")
        self.ending: Ending | None = None
        self.state = GroupState.NEW

    def _make_consumer(self) -> AsyncConsumer:
        config = self.config.replace(
            auto_commit=False,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
        )
        if self._client is None:
            return AsyncConsumer(None, *self._topics, config=config)
        own = ConsumerConfig.describe().keys() - ClientConfig.describe().keys()
        options: dict[str, Any] = {name: getattr(config, name) for name in own}
        return AsyncConsumer(self._client, *self._topics, **options)

    # ---- its life

    async def start(self) -> None:
        """Begin in the background; joining the group takes its time."""
        if self.state is not GroupState.NEW:
            raise StateError("a group of workers starts once", hint="make another one")
        self.state = GroupState.RUNNING
        self._task = duty(self._main(), f"karrow workers of {self.group_name}", self._cut_off)

    async def stop(self, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - public name
        """End: callbacks may finish, for ``timeout`` seconds or ``shutdown``; commit, and leave.

        More than once does no harm. How it has ended is returned, and never raised.
        """
        if timeout is not None:
            self._shutdown = timeout
        self.ask_to_stop()
        if self._task is None and self.ending is None:
            await self._consumer.close()
            self._finish()
        return await self._ended()

    def ask_to_stop(self) -> None:
        """Begin to stop, without waiting for it."""
        self._end(Ending(EndReason.STOPPED))

    async def wait(self, timeout: float | None = None) -> Ending | None:  # noqa: ASYNC109
        """Wait for the end, None when the time passes; GroupEnded if nobody wanted it."""
        if self._task is None and self.ending is None:
            raise StateError("the group of workers was not started")
        try:
            async with asyncio.timeout(timeout):
                ending = await self._ended()
        except TimeoutError:
            return None
        ending.check()
        return ending

    async def _ended(self) -> Ending:
        if self._task is not None:
            await asyncio.wait([self._task])
        if self.ending is None:
            raise StateError("the group of workers was cut off")
        return self.ending

    def _end(self, ending: Ending) -> None:
        """End for a reason; the first one counts."""
        if self._reason is None:
            self._reason = ending
            self._is_asked.set()

    async def _main(self) -> None:
        try:
            await self._work()
            self.state = GroupState.ENDING
            await self._quietly(self._crew.close(self._shutdown))
            await self._quietly(self._consumer.close())
        except asyncio.CancelledError:
            self._end(Ending(EndReason.ERROR, "cancelled"))
            self._crew.drop()
            await self._quietly(self._hang_up())
            raise
        finally:
            self._finish()

    def _cut_off(self, error: StateError) -> None:
        """Somebody has cancelled the task; if that was before it began, nothing has ended it."""
        if self.ending is None:
            self._crew.failed(error)
            self._finish()

    async def _hang_up(self) -> None:
        """Close connections when there is no time for anything else."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANGING_UP):
                await self._consumer.end(is_done=False)

    async def _work(self) -> None:
        """Feed workers and store what they have done, until there is a reason to end."""
        failed = self._crew.failed
        duties = [
            duty(self._read(), "karrow feed", failed),
            duty(self._crew.storing.repeat(), "karrow commits of workers", failed),
            duty(self._watch(), "karrow watchdog of workers", failed),
            duty(self._until_asked(), "karrow end of workers", failed),
        ]
        try:
            done, _ = await asyncio.wait(duties, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled() and isinstance(error := task.exception(), Exception):
                    failed(error)
        finally:
            await cancelled(*duties)

    async def _until_asked(self) -> None:
        await self._is_asked.wait()

    async def _read(self) -> None:
        await self._begin()
        await self._crew.feed.repeat()

    async def _watch(self) -> None:
        """Look every second: ``since`` is when something began, not when somebody asked."""
        while True:
            self.health()
            await asyncio.sleep(INTERVAL)

    async def _begin(self) -> None:
        if self._partitions:
            await self._consumer.assign(self._partitions)
        else:
            self._consumer.begin()
        if self._consumer.membership is not None:
            self._consumer.membership.join_attempts = self.config.join_attempts

    async def _quietly(self, step: Coroutine[Any, Any, None]) -> None:
        """A step towards the end; the next one is taken in any case."""
        try:
            await step
        except Exception as error:  # noqa: BLE001 - it must not keep the group from its end
            _log.exception("%s: the end was not orderly", self.group_name)
            self._end(ending_for(error))

    def _finish(self) -> None:
        self.state = GroupState.ENDED
        ending = self.ending = self._reason or Ending(EndReason.STOPPED)
        if not ending.is_orderly:
            _log.error("%s: the workers have ended: %s", self.group_name, ending)
        self.health()
        events.emit(
            "worker.end",
            {"count": 1},
            **self._crew.about(),
            reason=str(ending.reason),
            detail=ending.detail,
            error=ending.error,
        )

    # ---- partitions come and go

    async def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._crew.hire(partitions)

    async def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        # Half of the time that the group gives, since a commit and the teardown come after it.
        seconds = min(self._shutdown, self.config.rebalance_time / 2)
        await self._crew.let_go(partitions, seconds)

    async def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        await self._crew.let_go(partitions, 0, is_lost=True)

    # ---- messages to workers

    async def call(self, target: Target, message: object, timeout: float = 5.0) -> Any:  # noqa: ASYNC109
        """What ``handle_call`` of a worker answers or raises; RequestTimeout after that time."""
        self._require("handle_call")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        actor = self._actor(target)
        actor.mailbox.post(Message("call", message, answer))
        await asyncio.wait([answer], timeout=timeout)
        if not answer.done():
            answer.cancel()
            raise RequestTimeout(f"the worker of {actor.partition} did not answer in {timeout} s")
        return answer.result()

    async def cast(self, target: Target, message: object) -> None:
        """Give a message to ``handle_cast`` of a worker, without waiting for it."""
        self._require("handle_cast")
        self._actor(target).mailbox.post(Message("cast", message))

    async def info(self, target: Target, message: object) -> None:
        """Give a message to ``handle_info`` of a worker; one without it logs the message."""
        self._actor(target).mailbox.post(Message("info", message))

    def _require(self, callback: str) -> None:
        if not self._handler.has(callback):
            raise missing(self._handler, callback)

    def _actor(self, target: Target) -> Actor:
        partition = target.partition if isinstance(target, Worker) else TopicPartition(*target)
        found = self._crew.actors.get(partition)
        if found is None:
            here = ", ".join(map(str, sorted(self._crew.actors))) or "none"
            raise StateError(f"there is no worker of {partition} here", hint=f"there are: {here}")
        return found

    # ---- introspection

    @property
    def group_name(self) -> str | None:
        """The name of the group."""
        return self.config.group

    @property
    def active(self) -> bool:
        """Whether at least one worker is at work."""
        return any(not actor.is_ending for actor in self._crew.actors.values())

    @property
    def assignments(self) -> tuple[TopicPartition, ...]:
        """The partitions that have a worker here."""
        return tuple(sorted(self._crew.actors))

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers, in the order of their partitions."""
        return tuple(_seen(actor) for _, actor in sorted(self._crew.actors.items()))

    def worker(self, partition: tuple[str, int]) -> Worker | None:
        """The worker of a partition; None if it is not here."""
        actor = self._crew.actors.get(TopicPartition(*partition))
        return None if actor is None else _seen(actor)

    @property
    def generation(self) -> int | None:
        """The group's generation, or the member's epoch; None while there is none."""
        membership = self._consumer.membership
        return None if membership is None or membership.generation < 0 else membership.generation

    @property
    def member_id(self) -> str | None:
        """The member's id in the group; None while there is none."""
        membership = self._consumer.membership
        return None if membership is None else membership.member_id or None

    @property
    def leader(self) -> str | None:
        """The id of the member that divides the partitions; None while there is none."""
        membership = self._consumer.membership
        return None if membership is None else membership.leader_id or None

    @property
    def is_leader(self) -> bool:
        """Whether that is this one."""
        membership = self._consumer.membership
        return membership is not None and membership.is_leader

    def health(self) -> Health:
        """How it is doing: ok, waiting, degraded or dead, why, and since when."""
        state, reason = next(self._conditions())
        if state is self._health.state:
            self._health = Health(state, reason, self._health.since)
        else:
            self._health = Health.from_now_on(state, reason)
        return self._health

    def _conditions(self) -> Iterator[tuple[HealthState, str]]:
        """What is to be said of the group, the worst first."""
        if self.ending is not None:
            yield HealthState.DEAD, f"the workers have ended: {self.ending.reason}"
        if self._task is None:
            yield HealthState.WAITING, "the workers were not started"
        for actor in self._crew.feed.stuck:
            seconds = actor.busy_for(time.monotonic())
            text = f"{actor.callback} of {actor.partition} takes {seconds:.0f} s by now"
            yield HealthState.DEGRADED, text
        for text in self._crew.crashes.values():
            yield HealthState.DEGRADED, text
        if self._crew.storing.trouble is not None:
            yield HealthState.DEGRADED, str(self._crew.storing.trouble)
        found = self._consumer.health()
        if found.state is HealthState.WAITING and self._has_enough():
            yield HealthState.OK, ""
        yield found.state, found.reason

    def _has_enough(self) -> bool:
        """Whether every worker has records to work on, so that none are fetched."""
        partitions = self._consumer.assignment
        return bool(partitions) and set(self._consumer.paused) >= set(partitions)

    # ---- as a block of code

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        ending = await self.stop()
        if kind is None:
            ending.check()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.group_name!r} of {self._handler.__name__}: {self.state}>"
        )


def _config(
    bootstrap: Servers | AsyncClient | None,
    config: WorkerConfig | None,
    options: Mapping[str, Any],
) -> WorkerConfig:
    if isinstance(bootstrap, AsyncClient):
        made = WorkerConfig.for_open_client(bootstrap.config, config, options)
    else:
        made = WorkerConfig.for_servers(bootstrap, config, options)
    for name in LISTENERS:
        if getattr(made, name) is not None:
            raise ConfigError(f"{name}: workers listen themselves", hint="have setup and teardown")
    return made


def _names(topics: Iterable[Topic]) -> tuple[Topic, ...]:
    if isinstance(topics, str):
        raise ConfigError(f"topics={topics!r} is one name", hint="give a list of names")
    return tuple(topics)


def _seen(actor: Actor) -> Worker:
    return Worker(
        actor.partition,
        actor.state,
        actor.callback,
        actor.busy_for(time.monotonic()),
        actor.records,
        actor.restarts,
    )
