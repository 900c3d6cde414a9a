"""The broker's answers, by API. Importing this registers every handler."""

from __future__ import annotations

from karrow.broker.handlers import (
    coordinators,
    fetch,
    metadata,
    offsets,
    produce,
    topics,
    versions,
)

__all__ = [
    "coordinators",
    "fetch",
    "metadata",
    "offsets",
    "produce",
    "topics",
    "versions",
]
