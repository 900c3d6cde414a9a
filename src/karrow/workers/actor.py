"""A worker: the handler of one partition, and the task that calls it.

States and what moves a worker between them:

    STARTING   a new handler is set up
    WAITING    nothing to do
    BUSY       in a callback, or storing what it was asked to store at once
    RESTARTING a callback raised; the handler is torn down, and the partition goes back
    ENDING     finishes its callback, and is torn down
    ENDED      nothing is called any more

    STARTING -> WAITING <-> BUSY          setup is through; something comes, something is done
    STARTING, BUSY -> RESTARTING          a callback raised
    RESTARTING -> STARTING                the supervisor allows it
    any -> ENDING -> ENDED                ``finish``, a Stop, or the supervisor does not allow it

Rules:
- One task calls, so no two callbacks overlap. The task outlives the worker's partition if a
  callback does: a thread cannot be interrupted. What such a callback returns counts for nothing.
- A callback that waits for a thread when its worker is to end is dropped: nobody may call it once
  the partition is another's. It counts as running, and its time, when a thread has taken it up.
- To end, first ``finish`` until the callback is through, or its time is; then whoever ends it may
  commit; then ``release``, which tears it down.
- What raises in ``handle_call`` is raised at its caller, and the worker goes on.
- Only what was set up is torn down. What raises there is logged.
- Its task is for us to end. Cancelled by somebody else it ends the group: nobody would handle what
  comes for the partition.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from karrow import events
from karrow.errors import StateError
from karrow.net.sharing import duty
from karrow.workers.handler import Commit, Handler, Stop, reads_batches
from karrow.workers.mailbox import Batch, Damage, Mailbox, Message
from karrow.workers.manual import CallbackHandler
from karrow.workers.threads import Dropped

if TYPE_CHECKING:
    from karrow.types import TopicPartition
    from karrow.workers.manual import Pending
    from karrow.workers.threads import Job, Threads

_log = logging.getLogger("karrow.workers")


class WorkerState(StrEnum):
    """What a worker is doing."""

    STARTING = "starting"
    WAITING = "waiting"
    BUSY = "busy"
    RESTARTING = "restarting"
    ENDING = "ending"
    ENDED = "ended"


WorkerState.__module__ = "karrow"


class Supervisor(Protocol):
    """The group of workers, as one of them sees it."""

    threads: Threads

    def about(self) -> dict[str, Any]:
        """What events say of the group."""

    def taken(self, actor: Actor) -> None:
        """A worker has begun with records that waited."""

    def handled(self, actor: Actor) -> None:
        """A worker is through with records."""

    def done(self, partition: TopicPartition, offset: int, count: int) -> None:
        """Everything before an offset is handled."""

    async def store(self, actor: Actor, offset: int) -> None:
        """Commit an offset now; returns when that is done, or the worker is ending."""

    def skip_to(self, partition: TopicPartition, offset: int) -> None:
        """Go on behind what cannot be read."""

    def stopped(self, stop: Stop, *, is_refusal: bool) -> None:
        """A callback wants the group to end."""

    def failed(self, error: Exception) -> None:
        """Something of our own raised."""

    async def crashed(self, actor: Actor, callback: str, error: Exception) -> bool:
        """A callback raised: whether to go on with a new handler, for which all is prepared."""


class _CallbackRaised(Exception):
    def __init__(self, callback: str, error: Exception) -> None:
        super().__init__(callback)
        self.callback = callback
        self.error = error


class _CallbackCancelled(Exception):
    """It took too long, and the worker is ending."""


class Actor:
    """One worker."""

    def __init__(
        self,
        partition: TopicPartition,
        *,
        kind: type[Handler],
        arguments: Mapping[str, Any],
        group: str | None,
        supervisor: Supervisor,
        room: int,
    ) -> None:
        self.partition = partition
        self.state = WorkerState.STARTING
        self.restarts = 0
        self.records = 0
        self.handler: Handler | None = None
        self.mailbox = Mailbox(room)
        # The callback that runs or waits for a thread.
        self.callback: str | None = None
        self._kind = kind
        self._callback_for_data = "handle_batch" if reads_batches(kind) else "handle_records"
        self._arguments = arguments
        self._group = group
        self._supervisor = supervisor
        self._is_set_up = False
        # What it was given last, until that is handled and acknowledged.
        self._batch: Batch | None = None
        self._is_gone = False
        self._began = 0.0
        self._job: Job | None = None
        self._running: asyncio.Future[Any] | None = None
        self._through = asyncio.Event()
        self._released = asyncio.Event()
        self._task = duty(self._main(), f"karrow worker of {partition}", self._cut_off)
        self._task.add_done_callback(self._over)

    # ---- what others ask and tell

    @property
    def is_clear(self) -> bool:
        """Whether everything it was given is handled and acknowledged."""
        if self.is_ending or self._batch is not None or self.mailbox.has_data:
            return False
        return self.pending is None or self.pending.is_empty

    @property
    def offsets(self) -> tuple[int, int] | None:
        """The first and the last offset of what its callback has; None if that is no records."""
        if self._batch is None:
            return None
        at = self.handler.offset if isinstance(self.handler, CallbackHandler) else None
        return self._batch.offsets if at is None else (at, at)

    @property
    def place(self) -> str:
        """Where its callback is."""
        if self.offsets is None:
            return str(self.partition)
        first, last = self.offsets
        offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
        return f"{self.partition} at {offsets}"

    @property
    def pending(self) -> Pending | None:
        """What is to be committed by its id; None where returning is enough."""
        return self.handler.pending if isinstance(self.handler, CallbackHandler) else None

    @property
    def is_ending(self) -> bool:
        """Whether it takes up nothing new."""
        return self.mailbox.is_shut

    @property
    def is_gone(self) -> bool:
        """Whether nothing that it does counts any more."""
        return self._is_gone

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self._task.done()

    @property
    def since(self) -> float | None:
        """Since when a callback runs; None when none does, or it waits for a thread."""
        if self.callback is None:
            return None
        return self._began if self._job is None else self._job.since

    def busy_for(self, now: float) -> float:
        """How long the callback that runs has been running; 0 when none does."""
        since = self.since
        return 0.0 if since is None else now - since

    async def finish(self, seconds: float) -> bool:
        """Take up nothing new, and wait until the callback is through; False if it is not."""
        self._shut()
        if await _in_time(self._through.wait(), seconds):
            return True
        self._give_up()
        return False

    def _shut(self) -> None:
        self.mailbox.shut()
        if self._job is not None and self.callback != "teardown":
            self._job.drop()
        if self.state is not WorkerState.ENDED:
            self.state = WorkerState.ENDING

    def _give_up(self) -> None:
        """Let nothing count any more that the callback does."""
        self._is_gone = True
        if self._running is not None:  # async; a thread cannot be stopped
            self._running.cancel()

    async def release(self, seconds: float) -> bool:
        """Be torn down; False if that, or the callback before it, takes longer."""
        self._is_gone = True
        self._released.set()
        return await _in_time(asyncio.wait([self._task]), seconds)

    def let_be(self) -> None:
        """End now; be torn down when the callback is through, which nobody waits for."""
        self._shut()
        self._give_up()
        self._released.set()

    def cancel(self) -> None:
        """End without anything."""
        self._is_gone = True
        self._task.cancel()

    # ---- its life

    async def _main(self) -> None:
        try:
            while await self._live():
                self.restarts += 1
        except Exception as error:  # noqa: BLE001 - a fault of ours must not be silent
            self._supervisor.failed(error)

    def _cut_off(self, error: StateError) -> None:
        """The task was cancelled."""
        if not self._is_gone:
            self._supervisor.failed(error)

    def _over(self, _task: asyncio.Task[None]) -> None:
        """The task has ended, perhaps before it began."""
        self.mailbox.shut()
        self.mailbox.refuse(StateError(f"the worker of {self.partition} has ended"))
        self._through.set()
        self.state = WorkerState.ENDED

    async def _live(self) -> bool:
        """The life of one handler; whether there is another."""
        raised: _CallbackRaised | None = None
        try:
            if await self._begin():
                while (item := await self.mailbox.take()) is not None:
                    await self._serve(item)
        except _CallbackRaised as error:
            raised = error
        except _CallbackCancelled:
            pass
        if raised is not None and not self.is_ending:
            self.state = WorkerState.RESTARTING
            await self._tear_down()
            if await self._supervisor.crashed(self, raised.callback, raised.error):
                self._batch = None
                return True
            self.mailbox.shut()
            return False
        if raised is not None:
            _log.error(
                "%s: %s raised while the worker ends",
                self.place,
                raised.callback,
                exc_info=raised.error,
            )
        self.mailbox.shut()
        self.state = WorkerState.ENDING
        self._through.set()
        await self._released.wait()
        await self._tear_down()
        return False

    async def _begin(self) -> bool:
        """Set up a new handler; False if it refuses."""
        self.state = WorkerState.STARTING
        self._is_set_up = False
        try:
            handler = self._kind()
        except Exception as error:
            raise _CallbackRaised("__init__", error) from error
        handler.topic, handler.partition = self.partition
        handler.group = self._group
        self.handler = handler
        answer = await self._call("setup", *self.partition, **self._arguments)
        if isinstance(answer, Stop):
            self._supervisor.stopped(answer, is_refusal=True)
            return False
        self._is_set_up = True
        self.state = WorkerState.WAITING
        return True

    async def _tear_down(self) -> None:
        if not self._is_set_up:
            return
        self._is_set_up = False
        try:
            answer = await self._call("teardown")
        except _CallbackRaised as raised:
            _log.error("%s: teardown raised", self.partition, exc_info=raised.error)
        except _CallbackCancelled:
            _log.error("%s: teardown took too long", self.partition)
        else:
            if isinstance(answer, Stop):  # the partition goes on elsewhere, the others here do not
                self._supervisor.stopped(answer, is_refusal=False)

    # ---- callbacks

    async def _serve(self, item: Message | Batch | Damage) -> None:
        self.state = WorkerState.BUSY
        match item:
            case Batch():
                await self._handle(item)
            case Damage():
                await self._handle_damage(item)
            case Message(kind="call"):
                await self._answer(item)
            case Message():
                self._heed(await self._call(f"handle_{item.kind}", item.body))
        if not self.is_ending:
            self.state = WorkerState.WAITING

    async def _handle(self, batch: Batch) -> None:
        self._batch = batch
        self._supervisor.taken(self)
        handler = self._handler
        handler.done_until = None
        try:
            outcome = await self._process(batch)
        except _CallbackRaised:
            self._acknowledge_part(handler, batch)
            raise
        self.records += batch.count
        commit = outcome.commit if isinstance(outcome, Stop) else outcome
        if commit is None:
            self._acknowledge_part(handler, batch)
        elif self.pending is None and not self._is_gone:
            self._supervisor.done(self.partition, batch.next_offset, batch.count)
            if commit is Commit.SYNC:
                await self._supervisor.store(self, batch.next_offset)
        self._batch = None
        self._heed(outcome)
        if not self._is_gone:
            self._supervisor.handled(self)

    async def _process(self, batch: Batch) -> Commit | Stop:
        """Have a batch handled."""
        first, last = batch.offsets
        span = events.span(
            "process",
            **self._supervisor.about(),
            topic=self.partition.topic,
            partition=self.partition.partition,
            first_offset=first,
            last_offset=last,
            record_count=batch.count,
            handler=self._kind.__name__,
        ).start()
        try:
            outcome = _checked(
                self._callback_for_data, await self._call(self._callback_for_data, batch.data)
            )
        except _CallbackRaised as raised:
            first, last = self.offsets or batch.offsets
            span.fail(raised.error, first_offset=first, last_offset=last)
            raise
        except BaseException as error:
            span.fail(error)
            raise
        span.stop(commit=outcome.commit if isinstance(outcome, Stop) else outcome)
        return outcome

    def _acknowledge_part(self, handler: Handler, batch: Batch) -> None:
        """What the handler has said it was done with, of records that are not handled."""
        until = handler.done_until
        if until is not None and self.pending is None and not self._is_gone:
            self._supervisor.done(self.partition, min(until, batch.next_offset), 1)

    async def _handle_damage(self, damage: Damage) -> None:
        error = damage.error
        answer = await self._call("handle_damage", error)
        self._heed(answer)
        if isinstance(answer, Stop) or self._is_gone:
            return
        if error.next_offset is None:  # nobody knows where it ends
            raise _CallbackRaised("handle_damage", error)
        self._supervisor.skip_to(self.partition, error.next_offset)

    async def _answer(self, message: Message) -> None:
        try:
            answer = await self._call("handle_call", message.body)
        except _CallbackRaised as raised:
            message.fail(raised.error)
        except (_CallbackCancelled, asyncio.CancelledError):
            message.fail(StateError(f"the worker of {self.partition} has ended"))
            raise
        else:
            message.reply(answer.reply if isinstance(answer, Stop) else answer)
            self._heed(answer)

    def _heed(self, answer: object) -> None:
        if isinstance(answer, Stop) and not self._is_gone:
            self.mailbox.shut()
            self._supervisor.stopped(answer, is_refusal=False)

    @property
    def _handler(self) -> Handler:
        if self.handler is None:
            raise StateError(f"the worker of {self.partition} has no handler")
        return self.handler

    async def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        function = getattr(self._handler, name)
        self.callback, self._began = name, time.monotonic()
        try:
            if not self._kind.has(name):
                return function(*arguments, **named)  # our own, which is quick
            if inspect.iscoroutinefunction(function):
                return await self._awaited(function(*arguments, **named))
            answer = await self._in_thread(partial(function, *arguments, **named))
            return await self._awaited(answer) if inspect.isawaitable(answer) else answer
        except Exception as error:
            if isinstance(error, _CallbackCancelled):
                raise
            raise _CallbackRaised(name, error) from error
        finally:
            self.callback = None

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        """What a plain function returns."""
        self._job = job = self._supervisor.threads.begin(function)
        try:
            return await job.result()
        except Dropped:
            raise _CallbackCancelled from None
        finally:
            self._job = None
            self._began = job.since or self._began

    async def _awaited(self, awaitable: Awaitable[Any]) -> Any:
        """What a coroutine returns; it runs in a task of its own, so that it can be cancelled."""
        self._running = task = asyncio.ensure_future(_tamed(awaitable))
        if inspect.iscoroutine(awaitable):  # the task may be cancelled before it began
            close = awaitable.close
            task.add_done_callback(lambda _: close())
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._running = None
        if not task.cancelled():
            return task.result()
        if self._is_gone:
            raise _CallbackCancelled
        raise RuntimeError("the callback was cancelled")


async def _tamed(awaitable: Awaitable[Any]) -> Any:
    """Awaits something; what ends loops, or is no Exception, is an error like others."""
    try:
        return await awaitable
    except (Exception, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise RuntimeError(f"a callback raised {error!r}") from error


async def _in_time(awaitable: Awaitable[Any], seconds: float) -> bool:
    # Before Python 3.12 wait_for may swallow that somebody cancels it.
    try:
        async with asyncio.timeout(seconds):
            await awaitable
    except TimeoutError:
        return False
    return True


def _checked(callback: str, answer: object) -> Commit | Stop:
    if answer is None:
        return Commit.ASYNC
    if isinstance(answer, Commit | Stop):
        return answer
    error = TypeError(f"{callback} returned {answer!r}, which is no Commit, Stop or None")
    raise _CallbackRaised(callback, error)
