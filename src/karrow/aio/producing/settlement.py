"""What becomes of batches: written, sent again, divided, or given up.

Rules:
- What fails for a moment goes back to its place in line and is sent again until its delivery time
  is up. Without idempotence only what surely was not written is, unless duplicates are allowed.
- A batch that was sent and not answered is in doubt, and so is the error of one that is given up:
  ``indefinite``. An answer may end the doubt, or raise it (see ``is_doubt``).
- A batch that is too large for the broker is divided; a single record that is too large fails.
- A batch has one outcome; what comes later is not told to anybody.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from karrow.aio.producing.answers import errors_of_records
from karrow.errors import (
    ConnectError,
    KafkaStorageError,
    KarrowError,
    MessageTooLarge,
    NetworkException,
    NotEnoughReplicasAfterAppend,
    RemoteProtocolError,
    RequestTimedOut,
    RequestTimeout,
    UnknownServerError,
)
from karrow.net.retry import is_leadership, is_produce_safe, is_transient, retry_pause
from karrow.types import Node
from karrow.types.numbers import number_or_none

if TYPE_CHECKING:
    from karrow.aio._accumulator import Accumulator
    from karrow.aio._batch import Batch
    from karrow.aio.producing.sequences import Sequences
    from karrow.config import ProducerConfig
    from karrow.net.cluster import Cluster

# What a broker says when it does not know itself what it has done.
BY_BROKER = (
    KafkaStorageError,
    NetworkException,
    NotEnoughReplicasAfterAppend,
    RequestTimedOut,
    UnknownServerError,
)


class Participation(Protocol):
    """The transaction that batches belong to, as those see it who send and settle them."""

    @property
    def newest_produce(self) -> int | None:
        """The newest Produce version for batches of this transaction."""

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether a partition takes part; if not, it will soon, and the sender is woken then."""

    def batch_failed(self, error: KarrowError) -> None:
        """Take note that a batch failed for good; ``indefinite`` errors may have written it."""

    def unresolved(self, error: KarrowError | None = None) -> None:
        """Take note that a partition may get a batch that nobody waits for any more."""

    def recreated(self, topic: str) -> None:
        """Take note that another topic has the name now, and nothing of what was written."""


class Settlement:
    """Draws the conclusions from the answers to a producer's batches."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        sequences: Sequences,
        on_gap: Callable[[KarrowError], object],
    ) -> None:
        self.transactions: Participation | None = None
        self.retries = 0
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._sequences = sequences
        self._on_gap = on_gap

    def written(self, batch: Batch, answer: Any) -> None:
        """The broker has a batch, and has said where, as far as it knows."""
        offset = number_or_none(answer.base_offset)
        if self._config.idempotent:
            last = None if offset is None else offset + batch.count - 1
            self._sequences.acked(self._sequences.progress(batch.partition), batch, last)
        batch.succeed(
            offset,
            number_or_none(answer.log_append_time_ms),
            number_or_none(answer.log_start_offset),
        )

    def trouble(self, batch: Batch, error: KarrowError, answer: Any, broker_id: int) -> None:
        """A batch was not written, or nobody knows: again, in pieces, or never."""
        partition = batch.partition
        where = Node.leader(partition.topic.name, partition.number)
        self._cluster.learn(error, where, broker_id)
        batch.last_error = error
        batch.is_doubtful = batch.is_doubtful or is_doubt(error, answer)
        if batch.is_done:
            return  # its time was up before
        is_sure = not batch.is_doubtful or self._config.allow_duplicates
        if isinstance(error, MessageTooLarge) and batch.count > 1 and is_sure:
            self._divide(batch)
        elif self._is_again(batch, error, answer):
            self._put_back(batch, broker_id)
        else:
            self.fail(batch, error, answer)

    def _is_again(self, batch: Batch, error: KarrowError, answer: Any) -> bool:
        if time.monotonic() >= batch.born + self._config.delivery_timeout:
            return False
        if self._config.idempotent:
            start = -1 if answer is None else answer.log_start_offset
            verdict = self._sequences.judge(batch.partition, batch, error, start)
            return verdict == "again" or isinstance(error, RemoteProtocolError)
        if self._config.allow_duplicates:
            return is_transient(error)
        return is_produce_safe(error) and not batch.is_doubtful

    def _put_back(self, batch: Batch, broker_id: int) -> None:
        partition = batch.partition
        progress = self._sequences.progress(partition)
        self._accumulator.put_back(partition, batch, self._place(batch))
        self.retries += 1
        if not self._has_moved(batch, broker_id):
            pause = retry_pause(self._config, batch.attempts - 1)
            progress.retry_at = max(progress.retry_at, time.monotonic() + pause)

    def _place(self, batch: Batch) -> int:
        """Where a batch that was sent belongs in its line: behind those that were sent before."""
        unacked = self._sequences.progress(batch.partition).unacked
        if batch not in unacked:
            return 0
        earlier = unacked[: unacked.index(batch)]
        return sum(other in earlier for other in batch.partition.queue)

    def _has_moved(self, batch: Batch, broker_id: int) -> bool:
        """Whether the answer has told the new leader, so that there is nothing to wait for."""
        if batch.last_error is None or not is_leadership(batch.last_error):
            return False
        partition = batch.partition
        known = self._cluster.cache.partition(partition.topic.name, partition.number)
        return known is not None and known.leader not in (None, broker_id)

    def _divide(self, batch: Batch) -> None:
        partition = batch.partition
        place = self._place(batch)
        parts = batch.divide()
        for part in parts:
            self._accumulator.adopt(part)
        if self._config.idempotent:
            self._sequences.divide(self._sequences.progress(partition), batch, parts)
        for part in reversed(parts):
            self._accumulator.put_back(partition, part, place)

    # ---- the end of a batch

    def fail(self, batch: Batch, error: KarrowError, answer: Any = None) -> None:
        """Give a batch up."""
        if batch.is_done:
            return  # the failure of another one has ended the transaction, and this batch with it
        rest, refused = errors_of_records(batch, answer)
        known = marked(rest or error, batch)
        if self._config.idempotent and batch.sequence >= 0:
            progress = self._sequences.progress(batch.partition)
            if batch.is_doubtful:
                self._sequences.given_up(progress, batch)
            else:
                self._sequences.failed(batch.partition, batch, error)
        if self.transactions is not None:
            self.transactions.batch_failed(known)
        batch.fail(known, refused)
        if self._config.gapless:
            self._on_gap(known)

    def take_out(self, batch: Batch) -> None:
        """Take a batch out of its line, wherever it is."""
        partition = batch.partition
        if partition.open_batch is batch:
            self._accumulator.close_batch(partition)
        with contextlib.suppress(ValueError):
            partition.queue.remove(batch)

    def expire(self, now: float) -> None:
        """Give up the batches whose time is up."""
        limit = self._config.delivery_timeout
        for batch in list(self._accumulator.incomplete):
            if now >= batch.born + limit:
                self.give_up(batch, self._too_late(batch))

    def give_up(self, batch: Batch, error: KarrowError) -> None:
        """Fail a batch wherever it is: in its line, or under way."""
        self.take_out(batch)
        batch.is_doubtful = batch.is_doubtful or batch.is_under_way
        self.fail(batch, error)

    def give_up_all(self, error: KarrowError) -> None:
        """Fail everything; the producer ends."""
        for batch in list(self._accumulator.incomplete):
            self.take_out(batch)
            batch.fail(marked(error, batch))
        self._accumulator.release_waiters()

    def _too_late(self, batch: Batch) -> RequestTimeout:
        last = batch.last_error
        error = RequestTimeout(
            f"not delivered within {self._config.delivery_timeout:g} s"
            + (f"; the last failure: {last}" if last is not None else ""),
            topic=batch.partition.topic.name,
            partition=batch.partition.number,
        )
        error.__cause__ = last
        return error


def is_doubt(error: KarrowError, answer: Any) -> bool:
    """Whether a batch may have been written although it met this.

    A broker that has appended a batch and could not wait for its replicas says where: an error with
    an offset. One without is about a batch that was not appended.
    """
    if isinstance(error, ConnectError):
        return False
    return answer is None or answer.base_offset >= 0 or isinstance(error, BY_BROKER)


def marked(error: KarrowError, batch: Batch) -> KarrowError:
    """The error, with the doubt whether the batch was written all the same."""
    if not batch.is_doubtful and not batch.is_under_way:
        return error
    found = copy.copy(error)
    found.indefinite = True
    return found
