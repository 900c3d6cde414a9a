"""A transaction of a blocking producer as a block of code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from karrow.aio.producing.transaction import AsyncTransaction
from karrow.sync.loop import run

if TYPE_CHECKING:
    from types import TracebackType

    from karrow.aio.producing.transaction import Consuming, Offsets
    from karrow.sync.producer import Producer
    from karrow.types import GroupMetadata


class Transaction:
    """One transaction of a Producer; commits at the end of its block, aborts if that raises."""

    __module__ = "karrow"

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._twin = AsyncTransaction(producer.twin)

    def __enter__(self) -> Self:
        run(self._twin.__aenter__(), "AsyncProducer")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            run(self._twin.__aexit__(kind, error, trace), "AsyncProducer")
        finally:
            self._producer.poll()

    def send_offsets(
        self, source: Consuming | GroupMetadata | str, offsets: Offsets | None = None
    ) -> None:
        """Store a group's offsets if and when the transaction commits (KIP-447).

        ``source`` is a consumer, whose position is stored, or a GroupMetadata or a group's name
        with ``offsets``: by (topic, partition) the offset after the last record that was handled.
        """
        run(self._twin.send_offsets(source, offsets), "AsyncProducer")

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncTransaction", "Transaction", 1)
