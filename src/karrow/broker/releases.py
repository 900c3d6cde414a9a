"""The releases of Kafka that the broker can pass for: which APIs, in which versions.

releases.json has what real brokers said (tools/ask_releases.py asks them); of that the embedded
broker speaks what it has a handler for.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from typing import Any

from karrow.errors import ConfigError
from karrow.wire.table import api

NEWEST = "4.3"


@dataclass(frozen=True, slots=True)
class Release:
    """One release, as far as the embedded broker is it."""

    name: str
    supported: dict[str, tuple[int, int]]
    features: dict[str, tuple[int, int]]
    finalized: dict[str, int]

    @property
    def forwards(self) -> bool:
        """Whether any node takes requests for the controller, as those with a quorum do."""
        return "metadata.version" in self.features

    @property
    def transaction_version(self) -> int:
        """2 where producers get a new epoch with every transaction (KIP-890)."""
        return self.finalized.get("transaction.version", 0)

    @property
    def verifies(self) -> bool:
        """Whether partitions ask if a batch belongs to a transaction (KIP-890, its first part)."""
        return self.supported.get("AddPartitionsToTxn", (0, 0))[1] >= 4

    @property
    def converts(self) -> bool:
        """Whether record data of the old formats is taken and given, as until 4.0 (KIP-724)."""
        return self.supported["Fetch"][0] < 4


def release(name: str | None, handled: Iterable[str]) -> Release:
    """A release by its name, "4.3" if there is none."""
    table = _table()
    facts = table.get(name or NEWEST)
    if facts is None:
        known = ", ".join(table)
        raise ConfigError(f"version={name!r} is not a release the broker knows: {known}")
    handled = set(handled)
    supported = {}
    for known_api, (low, high) in facts["apis"].items():
        if known_api in handled:
            versions = api(known_api).versions
            supported[known_api] = (max(low, versions[0]), min(high, versions[-1]))
    features = {feature: (low, high) for feature, (low, high) in facts["features"].items()}
    return Release(name or NEWEST, supported, features, facts["finalized"])


@functools.cache
def _table() -> dict[str, Any]:
    text = resources.files("karrow.broker").joinpath("releases.json").read_text()
    table: dict[str, Any] = json.loads(text)
    return table
