"""A part of a transaction that somebody else, mostly another process, has opened and will end.

Rules:
- A part is told who it is and which kind of transaction it belongs to. It asks for no identity of
  its own, and it neither begins nor ends anything.
- Its identity is fresh: every partition counts from sequence 0. Nobody else may write to one of its
  partitions under that identity, or the broker takes one's records for repetitions of the other's.
- In transactions of version 1 a partition is added before its first batch; in those of version 2
  (KIP-890) it takes part by being written to.
- The first failure ends the part: it takes nothing more, and sends nothing that it has not sent
  before. What it has written is for the transaction's owner to abort.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from karrow.aio.producer import AsyncProducer
from karrow.aio.producing.coordinator_calls import IMPLICIT, CoordinatorCalls, Identity
from karrow.aio.producing.participants import Participants
from karrow.aio.producing.transactions import NEWEST_PRODUCE_OF_1
from karrow.errors import KarrowError, StateError
from karrow.types import TopicPartition

if TYPE_CHECKING:
    from karrow.aio.client import AsyncClient
    from karrow.config import Servers
    from karrow.config.producer import ProducerConfig
    from karrow.net.cluster import Cluster


class Pipeline(Protocol):
    """The producer's sender, as a part sees it."""

    def discard(self, error: KarrowError) -> None:
        """Fail every batch that was not sent yet."""

    def wake(self) -> None:
        """Look again at partitions that had to wait."""

    def take_identity(self, producer_id: int, epoch: int) -> None:
        """Write batches as this producer, every partition's sequence from 0 on."""

    def refuse(self, error: KarrowError | None) -> None:
        """Answer sends with an error; None takes records."""


class TransactionPart(CoordinatorCalls):
    """What a sender asks about the transaction that its batches belong to."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        pipeline: Pipeline,
        who: Identity,
        version: int,
    ) -> None:
        super().__init__(config, cluster)
        self.error: KarrowError | None = None
        self._pipeline = pipeline
        self._is_implicit = version >= IMPLICIT
        self._participants = Participants(
            lambda noted: self._add_partitions(who, noted), pipeline.wake, self._fail
        )
        pipeline.take_identity(*who)
        pipeline.refuse(None)

    def may_send(self, topic: str, partition: int) -> bool:
        """Whether a partition takes part; if not, it will soon, and the sender is woken then."""
        key = TopicPartition(topic, partition)
        if key in self._participants.added:
            return True  # after a failure too: what was sent once has to be resolved
        if self.error is not None:
            return False
        if self._is_implicit:
            self._participants.added.add(key)
            return True
        self._participants.note(key)
        return False

    @property
    def newest_produce(self) -> int | None:
        """The newest Produce version for batches of this transaction."""
        return None if self._is_implicit else NEWEST_PRODUCE_OF_1

    def batch_failed(self, error: KarrowError) -> None:
        """A batch failed for good, and the part with it."""
        self._fail(error)

    def unresolved(self, error: KarrowError | None = None) -> None:
        """A partition may get a batch that nobody waits for any more."""
        self._fail(error or StateError("some batches were sent and never answered"))

    def recreated(self, topic: str) -> None:
        """Another topic has the name now: without what was written, the part is of no use."""
        if lost := self._participants.lost(topic):
            self._fail(lost)

    async def close(self) -> None:
        """End what runs in the background."""
        await self._participants.close()

    def _fail(self, error: KarrowError) -> None:
        if self.error is not None:
            return
        self.error = error
        self._participants.forget_noted()
        self._pipeline.refuse(error)
        self._pipeline.discard(error)


class AsyncPartProducer(AsyncProducer):
    """A producer whose records are part of a transaction that it does not own.

    Its ``transactional_id`` is the transaction's. ``init_transactions`` and all that follows it are
    for the owner.
    """

    def __init__(
        self,
        bootstrap: Servers | AsyncClient | None = None,
        *,
        who: Identity,
        version: int,
        config: ProducerConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(bootstrap, config=config, **options)
        self._part = TransactionPart(self.config, self._cluster, self.sender, who, version)
        self.sender.transactions = self._part
        self._transactions = None

    def last_sequence(self, topic: str, partition: int) -> int:
        """The sequence of the last record that a partition has acknowledged; -1 for none."""
        found = self.accumulator.topic(topic)
        if found is None or partition >= len(found.partitions):
            return -1
        return self.sender.sequences.progress(found.partitions[partition]).acked_sequence

    async def _close(self, timeout: float | None) -> None:  # noqa: ASYNC109 - as its base
        await self._part.close()
        await super()._close(timeout)
