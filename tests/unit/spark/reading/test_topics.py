"""Topics that may not be read: those that Kafka keeps for itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from karrow.errors import ConfigError
from karrow.spark.reading.topics import Topics


class Cluster:
    """A client that knows a topic of its own and an internal one."""

    async def metadata(self, names: Any) -> Any:
        every = {
            name: SimpleNamespace(
                error=None, internal=name.startswith("__"), topic_id=None, partitions={0: None}
            )
            for name in ("orders", "__consumer_offsets")
        }
        return SimpleNamespace(topics={name: every[name] for name in names or every})


def found(**options: str) -> set[str]:
    client: Any = Cluster()
    return set(asyncio.run(Topics.parse(options).find(client)).topics)


@pytest.mark.parametrize(
    ("option", "text"),
    [("subscribe", "orders,__consumer_offsets"), ("assign", '{"__consumer_offsets": [0]}')],
)
def test_internal_topics_that_are_named_are_refused(option: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{option} names __consumer_offsets, .* no internal"):
        found(**{option: text})


def test_internal_topics_are_left_out_of_patterns() -> None:
    assert found(subscribePattern=".*") == {"orders"}
