"""The rows of one process in a transaction that the driver owns, without await.

Rules:
- A part is made for one attempt at a batch and closed with it: its identity is good for no other.
- What it reports is what the broker has acknowledged, each partition from sequence 0 on without a
  gap. A batch that the broker knew already, and could not say where, is a failure: another writer
  may have been there. So is one in front of those before it: the topic is not what it was.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from karrow.aio.producing.part import AsyncPartProducer
from karrow.errors import StateError
from karrow.sync.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from karrow.aio.client import AsyncClient
    from karrow.aio.producer import AsyncProducer
    from karrow.aio.producing.bulk import BulkDelivery
    from karrow.aio.producing.coordinator_calls import Identity
    from karrow.config import Servers
    from karrow.config.producer import ProducerConfig
    from karrow.sync.client import Client


class Written(NamedTuple):
    """What a part has written to a partition."""

    topic: str
    partition: int
    rows: int
    first_offset: int
    last_sequence: int


class PartProducer(Producer):
    """A producer whose records are part of a transaction that it does not own.

    Example::

        with PartProducer(config=config, who=transaction.who, version=transaction.version) as part:
            written = part.write("orders", batches)
    """

    def __init__(
        self,
        bootstrap: Servers | Client | None = None,
        *,
        who: Identity,
        version: int,
        config: ProducerConfig | None = None,
        **options: Any,
    ) -> None:
        self._who, self._version = who, version
        self._written: dict[tuple[str, int], tuple[int, int]] = {}
        super().__init__(bootstrap, config=config, **options)

    def _new_twin(
        self, servers: Servers | AsyncClient | None, config: Any, options: dict[str, Any]
    ) -> AsyncProducer:
        self._part = AsyncPartProducer(
            servers, who=self._who, version=self._version, config=config, **options
        )
        return self._part

    def write(self, topic: str | None, batches: Iterable[pa.RecordBatch]) -> list[Written]:
        """Write all rows, and wait until the brokers have them; what the part has written so far.

        Raises the first thing that went wrong; the transaction has to be aborted then.
        """
        under_way: deque[BulkDelivery] = deque()
        for batch in batches:
            under_way.append(self.send_arrow(topic, batch))
            while under_way and under_way[0].done():
                self._note(under_way.popleft())
        for delivery in under_way:
            self._note(delivery)
        return self.written()

    def written(self) -> list[Written]:
        """What was written so far, by topic and partition."""
        return [
            Written(topic, partition, rows, offset, self._part.last_sequence(topic, partition))
            for (topic, partition), (rows, offset) in sorted(self._written.items())
        ]

    def _note(self, delivery: BulkDelivery) -> None:
        for (topic, partition), (rows, offset) in delivery.result().partitions.items():
            if offset is None:
                raise StateError(
                    "the broker had rows already that nobody else may have written",
                    hint="one transactional id is for one sink",
                    topic=topic,
                    partition=partition,
                )
            before, first = self._written.get((topic, partition), (0, offset))
            if offset < first + before:
                raise StateError(
                    f"rows were written at offset {offset}, in front of others of this batch",
                    hint="was the topic made anew meanwhile?",
                    topic=topic,
                    partition=partition,
                )
            self._written[topic, partition] = (before + rows, first)
