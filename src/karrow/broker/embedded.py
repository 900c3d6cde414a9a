"""The broker inside a running loop: its nodes and their common state."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, overload

from karrow.broker import handlers as _handlers  # noqa: F401 - registers every handler
from karrow.broker.call import HANDLERS
from karrow.broker.clock import Clock, SystemClock
from karrow.broker.cluster import Cluster
from karrow.broker.controls import Controls, Scope
from karrow.broker.disk import DiskStore
from karrow.broker.dispatch import Dispatcher
from karrow.broker.groups.consumer import HEARTBEAT_INTERVAL
from karrow.broker.node import Node
from karrow.broker.releases import release
from karrow.broker.session import Session
from karrow.broker.store import MemoryStore
from karrow.broker.users import check_logins
from karrow.config import TLS
from karrow.errors import ConfigError, StateError

if TYPE_CHECKING:
    from types import TracebackType

    from karrow.broker.faults import Fault, Moment
    from karrow.broker.users import Logins

RETENTION_CHECK = 300.0


class BrokerOptions(TypedDict, total=False):
    """The options of both brokers, beside how many nodes there are."""

    data_dir: str | Path | None
    port: int
    sasl: Logins | None
    tls: TLS | ssl.SSLContext | None
    version: str | None
    auto_create_topics: bool
    default_partitions: int
    session_lifetime: float | None
    heartbeat_interval: float
    clock: Clock | None
    seed: int | None


class AsyncBroker(Controls):
    """A Kafka cluster in this process, for an asyncio program; see ``Broker`` for the options.

    Example::

        async with karrow.AsyncBroker() as broker, karrow.AsyncClient(broker.bootstrap) as client:
            await client.produce("orders", [b"1"], partition=0)
    """

    __module__ = "karrow"

    def __init__(
        self,
        brokers: int = 1,
        *,
        data_dir: str | Path | None = None,
        port: int = 0,
        sasl: Logins | None = None,
        tls: TLS | ssl.SSLContext | None = None,
        version: str | None = None,
        auto_create_topics: bool = True,
        default_partitions: int = 1,
        session_lifetime: float | None = None,
        heartbeat_interval: float = HEARTBEAT_INTERVAL,
        clock: Clock | None = None,
        seed: int | None = None,
    ) -> None:
        if brokers < 1:
            raise ConfigError(f"brokers={brokers}: there must be at least one")
        if sasl is not None:
            check_logins(sasl)
        if default_partitions < 1:
            raise ConfigError(f"default_partitions={default_partitions}: at least one is needed")
        if heartbeat_interval <= 0:
            raise ConfigError(f"heartbeat_interval={heartbeat_interval}: it must be above 0")
        self._count = brokers
        self._port = port
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._sasl = sasl
        self._tls = tls.server_context() if isinstance(tls, TLS) else tls
        self._release = release(version, HANDLERS)
        self._auto_create_topics = auto_create_topics
        self._default_partitions = default_partitions
        self._session_lifetime = session_lifetime
        self._heartbeat_interval = heartbeat_interval
        self._clock = clock or SystemClock()
        self._seed = seed
        self._nodes: dict[int, Node] = {}
        self._state: tuple[Cluster, Dispatcher] | None = None

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
        nodes = self._cluster.nodes.values()
        return ",".join(f"{node.host}:{node.port}" for node in nodes)

    @property
    def cluster_id(self) -> str:
        """What metadata calls the cluster."""
        return self._cluster.id

    async def start(self) -> None:
        """Listen, with everything that the data directory has."""
        if self._state is not None:
            raise StateError("the broker is running already")
        self._clock.bind(asyncio.get_running_loop())
        cluster = self._new_cluster()
        self._state = cluster, Dispatcher(cluster)
        try:
            for index in range(self._count):
                node = self._new_node(index + 1, self._port + index if self._port else 0)
                self._nodes[node.node_id] = node
                await node.start()
                self._cluster.nodes[node.node_id] = node.endpoint
            self._cluster.recover()
        except BaseException:
            await self.close()
            raise
        self._retain()

    @overload
    def close(self) -> Coroutine[Any, Any, None]: ...
    @overload
    def close(self, api: str, *, when: Moment = "before", **scope: Unpack[Scope]) -> Fault: ...
    def close(
        self, api: str | None = None, *, when: Moment = "before", **scope: Unpack[Scope]
    ) -> Coroutine[Any, Any, None] | Fault:
        """End every connection and let go of ports and files.

        With an API's name it is a fault instead: the next such request ends its connection, before
        it is acted on or after.
        """
        return self._close() if api is None else self._hang_up(api, when, scope)

    async def _close(self) -> None:
        for node in self._nodes.values():
            await node.stop()
        self._nodes.clear()
        if self._state is not None:
            self._cluster.close()
            self._state = None

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic without a client."""
        self._cluster.create_topic(name, partitions, replication_factor, config=config)

    async def kill_node(self, broker: int) -> None:
        """End a broker at once; others lead what it led, where there are any."""
        await self._node(broker).stop()
        self._cluster.take_down(broker)

    async def start_node(self, broker: int) -> None:
        """Bring a killed broker back, on the port it had."""
        await self._node(broker).start()
        self._cluster.bring_up(broker)

    def close_connections(self, broker: int | None = None) -> None:
        """End all connections of a broker, or of all; they may connect again at once."""
        for node in self._nodes.values() if broker is None else [self._node(broker)]:
            node.hang_up()

    def _node(self, broker: int) -> Node:
        found = self._nodes.get(broker)
        if found is None:
            known = ", ".join(map(str, self._nodes)) or "none: it is not running"
            raise ConfigError(f"broker={broker}: the ids are {known}")
        return found

    @property
    def _cluster(self) -> Cluster:
        return self._running()[0]

    @property
    def _dispatcher(self) -> Dispatcher:
        return self._running()[1]

    def _running(self) -> tuple[Cluster, Dispatcher]:
        if self._state is None:
            raise StateError("the broker is not running", hint="start() it, or use it by `with`")
        return self._state

    def _retain(self) -> None:
        """Drop what is too old, every few minutes."""
        if self._state is not None:
            self._cluster.apply_retention()
            self._clock.call_later(RETENTION_CHECK, self._retain)

    def _new_cluster(self) -> Cluster:
        cluster = Cluster(
            clock=self._clock,
            store=MemoryStore() if self._data_dir is None else DiskStore(self._data_dir),
            seed=self._seed,
            release=self._release,
            default_partitions=self._default_partitions,
            auto_create_topics=self._auto_create_topics,
            heartbeat_interval=self._heartbeat_interval,
        )
        if self._sasl is not None:
            cluster.users.allow(self._sasl)
        return cluster

    def _new_session(self) -> Session:
        return Session(self._cluster.users, self._clock, self._session_lifetime)

    def _new_node(self, node_id: int, port: int) -> Node:
        return Node(
            self._cluster,
            node_id,
            port,
            supported=self._cluster.release.supported,
            dispatch=self._dispatcher,
            new_session=self._new_session,
            tls=self._tls,
        )
