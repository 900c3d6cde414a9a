"""The broker inside a running loop: its nodes, their common state, and what tests do to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from karrow.broker import handlers as _handlers  # noqa: F401 - registers every handler
from karrow.broker.call import HANDLERS
from karrow.broker.clock import Clock, SystemClock
from karrow.broker.cluster import Cluster
from karrow.broker.dispatch import Dispatcher
from karrow.broker.node import Node
from karrow.broker.releases import release
from karrow.broker.session import Session
from karrow.broker.store import open_store
from karrow.errors import ConfigError, StateError


class AsyncBroker:
    """A Kafka cluster in this process, for an asyncio program. ``Broker`` is its sync twin."""

    __module__ = "karrow"

    def __init__(
        self,
        brokers: int = 1,
        *,
        data_dir: str | Path | None = None,
        port: int = 0,
        version: str | None = None,
        auto_create_topics: bool = True,
        default_partitions: int = 1,
        clock: Clock | None = None,
        seed: int = 0,
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"brokers={brokers}: there must be at least one")
        if default_partitions < 1:
            raise ConfigError(f"default_partitions={default_partitions}: at least one is needed")
        self._count = brokers
        self._port = port
        self._clock = clock or SystemClock()
        self._cluster = Cluster(
            clock=self._clock,
            store=open_store(data_dir),
            seed=seed,
            release=release(version, HANDLERS),
            default_partitions=default_partitions,
            auto_create_topics=auto_create_topics,
        )
        self._nodes: dict[int, Node] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def bootstrap(self) -> str:
        """What clients are given: "127.0.0.1:PORT", one for each node."""
        if not self._nodes:
            raise StateError("the broker has not been started", hint="use it in a with statement")
        return ",".join(f"{node.endpoint.host}:{node.port}" for node in self._nodes.values())

    async def start(self) -> None:
        """Listen."""
        self._clock.bind(asyncio.get_running_loop())
        for index in range(self._count):
            node = self._new_node(index + 1, self._port + index if self._port else 0)
            await node.start()
            self._nodes[node.node_id] = node
            self._cluster.nodes[node.node_id] = node.endpoint
        self._cluster.recover_topics()

    async def close(self) -> None:
        """End every connection and let go of ports and files."""
        for node in self._nodes.values():
            await node.stop()
        self._nodes.clear()
        self._cluster.close()

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic without a client."""
        self._cluster.create_topic(name, partitions, replication_factor, config=config)

    def _new_node(self, node_id: int, port: int) -> Node:
        return Node(
            self._cluster,
            node_id,
            port,
            supported=self._cluster.release.supported,
            dispatch=Dispatcher(),
            new_session=Session,
        )
