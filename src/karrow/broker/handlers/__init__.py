"""The broker's answers, by API. Importing this registers every handler."""

from __future__ import annotations

from karrow.broker.handlers import (
    authentication,
    commits,
    configs,
    consumer_groups,
    coordinators,
    describe,
    fetch,
    groups,
    markers,
    metadata,
    offsets,
    produce,
    topics,
    transactional_commits,
    transactions,
    users,
    versions,
)

__all__ = [
    "authentication",
    "commits",
    "configs",
    "consumer_groups",
    "coordinators",
    "describe",
    "fetch",
    "groups",
    "markers",
    "metadata",
    "offsets",
    "produce",
    "topics",
    "transactional_commits",
    "transactions",
    "users",
    "versions",
]
