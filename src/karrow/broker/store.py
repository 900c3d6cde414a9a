"""What the broker knows beside record data: topics, offsets, users, transactions.

It is a set of tables, each from a key to a value that JSON can hold. A change is written before
what asked for it is answered.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

from karrow.broker.log import MemoryShelf, Shelf


class Store(Protocol):
    """Keeps tables and the partitions' segments."""

    def load(self, table: str) -> dict[str, Any]:
        """What a table held when the broker started."""

    def put(self, table: str, key: str, value: Any) -> None:
        """Set a row; None deletes it."""

    def clear(self, keep: Collection[str]) -> None:
        """Empty all tables but some."""

    def shelf(self, topic_id: str, partition: int) -> Shelf:
        """Where a partition's segments are."""

    def close(self) -> None:
        """Let go of files."""


class MemoryStore:
    """Keeps nothing beyond the process: what is in memory is all there is."""

    def load(self, table: str) -> dict[str, Any]:  # noqa: ARG002 - there are no tables
        return {}

    def put(self, table: str, key: str, value: Any) -> None:
        """Nothing to keep."""

    def clear(self, keep: Collection[str]) -> None:
        """Nothing is kept."""

    def shelf(self, topic_id: str, partition: int) -> Shelf:  # noqa: ARG002 - all are alike
        return MemoryShelf()

    def close(self) -> None:
        """Nothing is open."""
