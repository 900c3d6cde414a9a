"""Where a group is, by what it has stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, cast

from karrow.aio.client import AsyncClient
from karrow.errors import UnsupportedVersion
from karrow.spark.reading.groups import stored_offsets
from karrow.types import CommittedOffset, TopicPartition

A = TopicPartition("orders", 0)


class Old:
    """A client of brokers before Kafka 2.5."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def committed_offsets(
        self, _group: str, topics: Mapping[str, Iterable[int]], *, stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        self.asked.append(stable)
        if stable:
            raise UnsupportedVersion("OffsetFetch v6 cannot ask for stable")
        return {
            TopicPartition(name, n): CommittedOffset(7) for name in topics for n in topics[name]
        }


def test_brokers_that_know_no_stable_offsets_are_asked_without() -> None:
    client: Any = Old()
    found = asyncio.run(stored_offsets(cast("AsyncClient", client), "billing", [A]))
    assert found == {A: 7}
    assert client.asked == [True, False]
