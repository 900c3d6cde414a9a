"""The state of a transactional producer, and what moves it.

Rules:
- One call at a time: init, begin, commit, abort and send_offsets refuse to run beside each other.
- A transaction ends only when no batch is under way. Where nothing was added, nothing is asked.
- A broker's refusal is abortable (this transaction is lost, abort and go on) or fatal (another
  producer has taken over, or nobody knows what is true any more: make a new producer). The first
  error stays; a fatal one replaces an abortable one.
- Whatever was asked and not answered may still happen. The end of a transaction is repeated, with
  the same identity and in the same direction, until the call's time is up. A commit that was given
  up, or cancelled, leaves the state COMMITTING: commit asks again, abort and begin start over.
- A batch or request that may arrive after its transaction must not find the next one open. In
  version 2 (KIP-890) every end begins a new epoch, which keeps it out. In version 1 an abort after
  any failure gets a new epoch from InitProducerId (KIP-360); where a batch is in doubt the abort
  itself is left to InitProducerId, which writes its markers with the epoch of the fence
  (KAFKA-14053). A commit gets a new epoch too when any request was repeated because no answer came
  (KAFKA-17754).
- InitProducerId aborts whatever is open, also of a producer that has replaced this one: brokers
  look at the epoch only when nothing is. So a request that does check it goes first.
- The producer id may change with every answer that names one: it does when epochs have run out.
- Which version a transaction has is decided when it begins, by the coordinator's feature.
- A transaction that the broker has timed out looks like one of a producer that was replaced. In
  version 2 the abort tells them apart, so it is abortable; in version 1 it is fatal (KIP-588).
- A cancelled call leaves a state from which begin or abort goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Iterator, Mapping
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Protocol

from karrow.aio.calls.commits import committable
from karrow.aio.producing.coordinator_calls import (
    IMPLICIT,
    NOBODY,
    CoordinatorCalls,
    Identity,
)
from karrow.aio.producing.participants import Participants
from karrow.errors import (
    AuthenticationError,
    ClusterAuthorizationFailed,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KarrowError,
    ProducerFenced,
    ProtocolError,
    RequestTimeout,
    StateError,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
)
from karrow.net.retry import is_commit_retriable
from karrow.types import TopicPartition

if TYPE_CHECKING:
    from karrow.aio.calls.commits import Committable
    from karrow.config.producer import ProducerConfig
    from karrow.net.cluster import Cluster
    from karrow.types import GroupMetadata

# The newest Produce that does not add partitions to transactions by itself.
NEWEST_PRODUCE_OF_1 = 11
ABORT = "abort the transaction"
REPLACE = "make a new producer"
BEGIN = "begin a transaction first"

# What no abort can mend, whoever says so; and what a coordinator may say besides.
FATAL = (
    ClusterAuthorizationFailed,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
FATAL_FROM_COORDINATOR = (
    *FATAL,
    AuthenticationError,
    ProtocolError,
    StateError,
    UnsupportedForMessageFormat,
)
# The coordinator has forgotten the producer: there is nothing left that could be ended.
FORGOTTEN = (InvalidProducerIdMapping, UnknownProducerId)
# Somebody else has ended the transaction.
OVERTAKEN = (InvalidProducerEpoch, InvalidTxnState, ProducerFenced)


class State(StrEnum):
    """Where the producer stands."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "abortable error"
    FATAL_ERROR = "fatal error"


S = State
# From where each state can be reached; ABORTABLE_ERROR from OPEN ones, FATAL_ERROR from all.
SOURCES = {
    S.INITIALIZING: {S.UNINITIALIZED, S.INITIALIZING, S.READY},
    S.UNINITIALIZED: {S.INITIALIZING},
    S.READY: {S.INITIALIZING, S.COMMITTING, S.ABORTING},
    S.IN_TRANSACTION: {S.READY, S.COMMITTING},
    S.COMMITTING: {S.IN_TRANSACTION},
    S.ABORTING: {S.IN_TRANSACTION, S.COMMITTING, S.ABORTING, S.ABORTABLE_ERROR},
}
OPEN = (S.IN_TRANSACTION, S.COMMITTING)
ENDING = (S.COMMITTING, S.ABORTING)
FAILED = (S.ABORTABLE_ERROR, S.FATAL_ERROR)


class Remedy(IntEnum):
    """What an abort takes; the strongest that was asked for counts."""

    END = 0  # EndTxn
    RENEW = 1  # and after it a new epoch, which in version 2 comes by itself
    TRY = 2  # the same, but it may have ended already
    FENCE = 3  # InitProducerId, which aborts and fences, instead of EndTxn
    FENCING = 4  # the same, which was begun: its own fence may stand in the way
    RESTART = 5  # InitProducerId for a producer that the coordinator does not know any more


class Pipeline(Protocol):
    """The producer's sender, as transactions see it."""

    async def drained(self) -> None:
        """Wait until all that was accepted is answered or has failed; raises for neither."""

    def discard(self, error: KarrowError) -> None:
        """Fail every batch that was not sent yet."""

    def wake(self) -> None:
        """Look again at partitions that had to wait."""

    def take_identity(self, producer_id: int, epoch: int) -> None:
        """Write batches as this producer, every partition's sequence from 0 on."""

    def refuse(self, error: KarrowError | None) -> None:
        """Answer sends with an error; None takes records."""


class Transactions(CoordinatorCalls):
    """One producer's transactions, one after the other."""

    def __init__(self, config: ProducerConfig, cluster: Cluster, pipeline: Pipeline) -> None:
        super().__init__(config, cluster)
        self.state = State.UNINITIALIZED
        self.error: KarrowError | None = None
        self._pipeline = pipeline
        self._identity = NOBODY
        self._version: int | None = None
        self._running: str | None = None
        self._remedy = Remedy.END
        self._participants = Participants(
            lambda noted: self._add_partitions(self._identity, noted), self._joined, self._refused
        )
        # Since when the coordinator may know of the transaction.
        self._begun_at: float | None = None
        pipeline.refuse(self._refusal())

    # ---- calls

    async def init(self) -> None:
        """Get a producer id and fence whoever had the transactional id; once is enough."""
        with self._alone("init"):
            self._check("init")
            if self.state in ENDING:
                await self._start_over()
            elif self.state is State.IN_TRANSACTION:
                raise StateError("a transaction is open", hint="commit or abort it first")
            elif self.state is not State.READY:
                await self._initialize()

    async def begin(self) -> None:
        """Open a transaction; the first one initializes the producer."""
        with self._alone("begin"):
            self._check("begin a transaction")
            if self.state is State.IN_TRANSACTION:
                raise StateError("a transaction is open already", hint="commit or abort it first")
            if self.state in ENDING:
                await self._start_over()
            if self.state is not State.READY:
                await self._initialize()
            version = await self._transaction_version()
            if version >= IMPLICIT and self._version == 1:
                # The cluster was upgraded: no request of version 1 may meet what comes.
                await self._initialize()
            self._version = IMPLICIT if version >= IMPLICIT else 1
            self._move(State.IN_TRANSACTION)

    async def commit(self) -> None:
        """Make everything of the transaction visible, once every batch is written."""
        with self._alone("commit"):
            self._check("commit")
            self._check_open(State.COMMITTING)
            if self.state is State.IN_TRANSACTION:
                self._move(State.COMMITTING)
                await self._drain_to_commit()
                self._check("commit")
            await self._end(commit=True)
            await self._conclude()

    async def abort(self) -> None:
        """Give up everything of the transaction; batches that were not sent yet fail."""
        with self._alone("abort"):
            if self.state is State.FATAL_ERROR:
                self._check("abort")
            if self.state is State.ABORTABLE_ERROR:
                await self._abort()
                return
            self._check_open(*ENDING)
            await (self._start_over() if self.state is State.COMMITTING else self._abort())

    async def send_offsets(
        self, offsets: Mapping[tuple[str, int], Committable], group: GroupMetadata
    ) -> None:
        """Store a group's offsets if and when the transaction commits.

        An offset is a number, (number, metadata) or a CommittedOffset.
        """
        wanted = {TopicPartition(*key): committable(value) for key, value in offsets.items()}
        with self._alone("send_offsets"):
            self._check("send offsets")
            self._check_open()
            if not wanted:
                return
            try:
                if not self._is_implicit:
                    await self._add_group(self._identity, group.group)
                self._note_begun()
                await self._commit_offsets(
                    self._identity, wanted, group, implicit=self._is_implicit
                )
            except asyncio.CancelledError:
                # It may be stored with this transaction, or come after it.
                text = "whether offsets are part of the transaction is unknown"
                self._fail(StateError(text), Remedy.TRY)
                raise
            except KarrowError as error:
                failure = self._refused(error)
                raise failure from failure.__cause__

    async def close(self) -> None:
        """End what runs in the background; an open transaction is left to its time-out."""
        await self._participants.close()

    # ---- what the sender asks and tells

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether a partition takes part; if not, it will soon, and the sender is woken then."""
        key = TopicPartition(topic, partition)
        if self.state is State.FATAL_ERROR:
            return False
        if key in self._participants.added:
            return True  # after a failure too: what was sent once has to be resolved
        if self.state not in OPEN:
            return False
        if self._is_implicit:
            self._participants.added.add(key)
            self._note_begun()
            return True
        self._participants.note(key)
        return False

    @property
    def newest_produce(self) -> int | None:
        """The newest Produce version for batches of this transaction."""
        return None if self._is_implicit else NEWEST_PRODUCE_OF_1

    def batch_failed(self, error: KarrowError) -> None:
        """Take note that a batch failed for good; ``indefinite`` errors may have written it."""
        if isinstance(error, FATAL):
            self._fail_for_good(error)
        elif error.indefinite:
            self.unresolved(error)
        else:
            is_over = self._is_implicit and isinstance(error, OVERTAKEN)
            self._fail(self._explained(error), Remedy.TRY if is_over else Remedy.RENEW)

    def unresolved(self, error: KarrowError | None = None) -> None:
        """Take note that a partition may get a batch that nobody waits for any more."""
        cause = error or StateError("some batches were sent and never answered")
        self._fail(cause, Remedy.RENEW if self._is_implicit else Remedy.FENCE)

    def recreated(self, topic: str) -> None:
        """Take note that another topic has the name now, and nothing of what was written."""
        lost = self._participants.lost(topic)
        if lost is not None and self.state is State.IN_TRANSACTION:  # later it is under way
            self._fail(lost)

    # ---- the beginning

    async def _initialize(self) -> None:
        """Get an identity: the first, or with what was had before, the next."""
        self._move(State.INITIALIZING)
        try:
            self._take(await self._init_producer_id(self._identity))
        except KarrowError as error:
            failure = self._not_initialized(error)
            raise failure from failure.__cause__
        self._move(State.READY)

    def _not_initialized(self, error: KarrowError) -> KarrowError:
        if is_commit_retriable(error):
            self._move(State.UNINITIALIZED)
            return error
        if isinstance(error, InvalidTransactionTimeout):
            error.hint = "transaction_timeout exceeds the broker's transaction.max.timeout.ms"
        return self._fail_for_good(self._fenced(error))

    def _take(self, identity: Identity) -> None:
        self._identity = identity
        self._unanswered.clear()
        self._pipeline.take_identity(*identity)

    def _joined(self) -> None:
        """The coordinator knows of more partitions."""
        self._note_begun()
        self._pipeline.wake()

    def _note_begun(self) -> None:
        if self._begun_at is None:
            self._begun_at = asyncio.get_running_loop().time()

    # ---- the end

    async def _drain_to_commit(self) -> None:
        try:
            await self._settle()
        except asyncio.CancelledError:
            if self.state is State.COMMITTING:
                self._move(State.IN_TRANSACTION)  # nothing was asked: it can still go on
            raise

    async def _settle(self) -> None:
        """Wait for everything that is under way."""
        await self._pipeline.drained()
        await self._participants.wait()

    async def _end(self, *, commit: bool) -> None:
        """Ask for the end, where there may be something to end."""
        if self._begun_at is None and self._remedy is not Remedy.TRY:
            return
        try:
            after = await self._end_transaction(
                self._identity, commit=commit, implicit=self._is_implicit
            )
        except KarrowError as error:
            has_ended = self._remedy is Remedy.TRY and isinstance(error, InvalidTxnState)
            if has_ended and not commit:
                return  # what may have been open is not
            failure = self._not_ended(error, commit=commit)
            raise failure from (error if failure is not error else error.__cause__)
        if after is not None:
            self._take(after)
            self._remedy = Remedy.END

    def _not_ended(self, error: KarrowError, *, commit: bool) -> KarrowError:
        """Draw the conclusions from a failed EndTxn; gives what to raise."""
        is_given_up = is_commit_retriable(error)
        if not is_given_up:
            failure = self._refused(error)
        elif commit:
            failure = RequestTimeout(
                "no answer to the commit: whether the transaction is committed is unknown",
                hint="commit again to find out, or abort or begin to go on without knowing",
            )
        else:
            failure = copy.copy(error)
            failure.hint = "abort again, or begin the next transaction, which aborts as well"
        if commit and (is_given_up or "EndTxn" in self._unanswered):
            failure.indefinite = True
        return failure

    async def _abort(self) -> None:
        """Let go of what was not sent, wait for what was, and then end it by the remedy."""
        self._move(State.ABORTING)
        self._participants.forget_noted()
        self._pipeline.discard(self.error or StateError("the transaction was aborted"))
        await self._settle()
        self._check("abort")
        if self._remedy >= Remedy.FENCE:
            await self._fence()
        else:
            await self._end(commit=False)
        await self._conclude()

    async def _start_over(self) -> None:
        """Abort what a commit or an abort left when it was given up or cancelled."""
        if self.state is State.COMMITTING:
            self._remedy = Remedy.TRY  # the commit may have come to pass
        await self._abort()

    async def _fence(self) -> None:
        try:
            if self._remedy is Remedy.FENCE:
                # Refused if the producer was replaced; else this leaves the transaction open.
                await self._add_partitions(self._identity, self._participants.added)
                self._remedy = Remedy.FENCING
            is_open = self._remedy is Remedy.FENCING
            found = await self._fence_producer(self._identity, is_open=is_open)
        except KarrowError as error:
            if is_commit_retriable(error):
                raise
            failure = self._fail_for_good(self._fenced(error))
            raise failure from failure.__cause__
        self._take(found)
        self._remedy = Remedy.END

    async def _conclude(self) -> None:
        """Forget the transaction; get a new epoch if anything of the old one could come late."""
        is_doubtful = self._remedy > Remedy.END or bool(self._unanswered)
        renews = is_doubtful and self._can_renew
        self._participants.clear()
        self._begun_at = None
        self._remedy = Remedy.END
        self._unanswered.clear()
        self._move(State.READY)
        if renews:
            # It has ended whatever happens here; the next begin tries again or says why.
            with contextlib.suppress(KarrowError):
                await self._initialize()

    # ---- states and errors

    @property
    def _is_implicit(self) -> bool:
        """Whether partitions and groups take part by being written to (KIP-890)."""
        return self._version == IMPLICIT

    @property
    def _is_overdue(self) -> bool:
        """Whether the broker may have aborted the transaction for taking too long."""
        if self._begun_at is None:
            return False
        return asyncio.get_running_loop().time() - self._begun_at >= self._timeout

    @contextlib.contextmanager
    def _alone(self, call: str) -> Iterator[None]:
        if self._running is not None:
            raise StateError(
                f"{call} while {self._running} is under way", hint="await one call, then the next"
            )
        self._running = call
        try:
            yield
        finally:
            self._running = None

    def _check(self, what: str) -> None:
        """Refuse to go on after an error, with the error as the cause."""
        if self.state not in FAILED:
            return
        if self.state is State.FATAL_ERROR and isinstance(self.error, ProducerFenced):
            raise copy.copy(self.error) from self.error
        hint = ABORT if self.state is State.ABORTABLE_ERROR else REPLACE
        raise StateError(f"cannot {what} after an error: {self.error}", hint=hint) from self.error

    def _check_open(self, *more: State) -> None:
        if self.state not in (State.IN_TRANSACTION, *more):
            raise self._refusal()

    def _refusal(self) -> StateError:
        if self.state in ENDING:
            return StateError(f"the transaction is {self.state}", hint=BEGIN)
        return StateError("no transaction is open", hint=BEGIN)

    def _move(self, target: State) -> None:
        """Change the state; what cannot follow says that something went wrong before."""
        if self.state not in SOURCES[target]:
            raise self._fail_for_good(_unexpected(self.state, target))
        self.state = target
        if target is not State.ABORTING:
            self.error = None
        self._pipeline.refuse(None if target is State.IN_TRANSACTION else self._refusal())

    def _refused(self, error: KarrowError) -> KarrowError:
        """Draw the conclusions from a coordinator's error; gives what to raise."""
        if is_commit_retriable(error):
            return self._fail(error, Remedy.TRY)  # it may still be acted on
        if isinstance(error, OVERTAKEN):
            if self._is_implicit and self._is_overdue and self.state is not State.ABORTING:
                return self._fail(self._explained(error), Remedy.TRY)
            return self._fail_for_good(self._fenced(error))
        if isinstance(error, FORGOTTEN):
            return self._fail(error, Remedy.RESTART)
        if isinstance(error, FATAL_FROM_COORDINATOR):
            return self._fail_for_good(error)
        return self._fail(error)

    def _explained(self, error: KarrowError) -> KarrowError:
        """The same, with what a transaction that took too long has to do with it."""
        if isinstance(error, OVERTAKEN) and self._is_overdue:
            limit = f"transaction_timeout={self._timeout:g} s"
            error.message += f": the transaction was open for longer than {limit}"
        return error

    def _fenced(self, error: KarrowError) -> KarrowError:
        """A coordinator's word that the producer was replaced, under its newer name (KIP-588)."""
        if not isinstance(error, (InvalidProducerEpoch, ProducerFenced)):
            return self._explained(error)
        text = f"another producer has the transactional id {self.transactional_id!r} now"
        if self._is_overdue:
            text = "the broker has aborted the transaction"
        found = self._explained(ProducerFenced(text, **error.context))
        found.__cause__ = error
        return found

    def _fail(self, error: KarrowError, remedy: Remedy = Remedy.RENEW) -> KarrowError:
        """The transaction is lost; gives the error, with advice."""
        if self.state is State.FATAL_ERROR:
            return error
        if remedy >= Remedy.FENCE and not self._can_renew:
            return self._fail_for_good(error)
        self._remedy = max(self._remedy, remedy)
        error.hint = error.hint or ABORT
        if self.state in OPEN:
            self.state = State.ABORTABLE_ERROR
            self._stop(error)
        elif self.state not in (State.ABORTABLE_ERROR, State.ABORTING):
            return self._fail_for_good(_unexpected(self.state, error))
        return error

    def _fail_for_good(self, error: KarrowError) -> KarrowError:
        """The producer is lost; gives the error, with advice."""
        error.hint = error.hint or REPLACE
        if self.state is not State.FATAL_ERROR:
            self.state = State.FATAL_ERROR
            self._stop(error)
        return error

    def _stop(self, error: KarrowError) -> None:
        """Take no more records, and fail those that wait; the sender may tell of them."""
        self.error = error
        self._participants.forget_noted()
        self._pipeline.refuse(error)
        self._pipeline.discard(error)


def _unexpected(state: State, what: object) -> StateError:
    return StateError(f"an answer came that nobody expected while {state}: {what}", hint=REPLACE)
