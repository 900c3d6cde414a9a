"""The broker's answers, by API. Importing this registers every handler."""

from __future__ import annotations

from karrow.broker.handlers import (
    authentication,
    coordinators,
    fetch,
    markers,
    metadata,
    offsets,
    produce,
    topics,
    transactions,
    users,
    versions,
)

__all__ = [
    "authentication",
    "coordinators",
    "fetch",
    "markers",
    "metadata",
    "offsets",
    "produce",
    "topics",
    "transactions",
    "users",
    "versions",
]
