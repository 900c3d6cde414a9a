"""A transaction as a block of code, and where the offsets in it come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from karrow.aio.producing.transactions import State
from karrow.errors import ConfigError
from karrow.types import GroupMetadata

if TYPE_CHECKING:
    from types import TracebackType

    from karrow.aio.calls.commits import Committable
    from karrow.aio.producer import AsyncProducer

    Offsets = Mapping[tuple[str, int], Committable]


# The states that a block which raised must not leave behind.
OPEN = (State.IN_TRANSACTION, State.ABORTABLE_ERROR)


class Consuming(Protocol):
    """A consumer, as a transaction sees it."""

    def group_metadata(self) -> GroupMetadata:
        """Its group, and who it is there."""

    def consumed(self) -> Offsets:
        """What it would commit now: for each partition the offset after the last record."""


def offsets_of(
    source: Consuming | GroupMetadata | str, offsets: Offsets | None
) -> tuple[Offsets, GroupMetadata]:
    """A group and its offsets, from a consumer or as they are given."""
    if isinstance(source, str):
        source = GroupMetadata(source)
    if isinstance(source, GroupMetadata):
        if offsets is None:
            raise ConfigError("a group alone has no offsets", hint="give them, or a consumer")
        return offsets, source
    return source.consumed() if offsets is None else offsets, source.group_metadata()


class AsyncTransaction:
    """One transaction: commits at the end of its block, aborts if that raises."""

    __module__ = "karrow"

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            await self._commit()
        elif self._producer.transactions.state in OPEN:
            await self._producer.abort_transaction()

    async def _commit(self) -> None:
        """Commit; where that cannot be, leave no transaction open behind the error."""
        try:
            await self._producer.commit_transaction()
        except Exception:
            if self._producer.transactions.state is State.ABORTABLE_ERROR:
                await self._producer.abort_transaction()
            raise

    async def send_offsets(
        self, source: Consuming | GroupMetadata | str, offsets: Offsets | None = None
    ) -> None:
        """Store a group's offsets if and when the transaction commits (KIP-447).

        ``source`` is a consumer, whose position is stored, or a GroupMetadata or a group's name
        with ``offsets``: by (topic, partition) the offset after the last record that was handled.
        """
        wanted, group = offsets_of(source, offsets)
        await self._producer.transactions.send_offsets(wanted, group)

    def __repr__(self) -> str:
        state: Any = self._producer.transactions.state
        return f"<{type(self).__name__} of {self._producer!r}, {state}>"
