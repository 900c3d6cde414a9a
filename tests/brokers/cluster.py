"""A cluster of real brokers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tests.brokers.artifacts import JVM, NEWEST, RELEASES, bootstrap_checkpoint
from tests.brokers.certificates import Certificates, make_certificates
from tests.brokers.connection import RawConnection
from tests.brokers.folders import new_folder, remove_folder
from tests.brokers.node import POLL, KafkaNode, new_id, serves
from tests.brokers.ports import PortReservation
from tests.brokers.properties import CONTROLLER, HOST, Place, broker_properties, listeners
from tests.brokers.zookeeper import ZooKeeper

SETTLE_TIMEOUT = 60.0


class KafkaCluster:
    """Brokers 1 to ``nodes`` of one release.

    ``properties`` override ours, ``features`` a KRaft cluster's feature levels (1 for
    "transaction.version" is the first transaction protocol), ``jvm`` the options that favour a
    quick start.
    """

    tls: Certificates

    def __init__(
        self,
        version: str = NEWEST,
        nodes: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        jvm: Sequence[str] = JVM,
        zookeeper: ZooKeeper | None = None,
    ) -> None:
        self.release = RELEASES[version]
        self.version = version
        self.listeners = tuple(listeners(self.release))
        self.cluster_id = new_id()
        self._count = nodes
        self._properties = dict(properties or {})
        self._features = dict(features or {})
        self._jvm = jvm
        self._zookeeper = zookeeper
        self._own_zookeeper = ZooKeeper() if zookeeper is None else None
        self._reserved = PortReservation()
        self._nodes: dict[int, KafkaNode] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def nodes(self) -> list[KafkaNode]:
        """All of them, by their ids."""
        return list(self._nodes.values())

    def node(self, node_id: int) -> KafkaNode:
        """The broker with that id; the first has 1."""
        return self._nodes[node_id]

    @property
    def ports(self) -> dict[str, list[int]]:
        """By listener, each node's port."""
        return {name: [node.ports[name] for node in self.nodes] for name in self.listeners}

    def bootstrap(self, listener: str = "PLAINTEXT") -> str:
        """What a client is given: "host:port,host:port"."""
        return ",".join(f"{HOST}:{port}" for port in self.ports[listener])

    def start(self) -> None:
        """Start what does not run, and wait until the brokers know each other."""
        if not self._nodes:
            self._prepare()
        try:
            idle = [node for node in self.nodes if not node.running]
            for node in idle:
                node.start(wait=False)
            for node in idle:
                node.wait_ready()
            self._until(self._is_complete, "the brokers did not find each other")
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """An orderly shutdown of all brokers; ``start`` brings them back with their data."""
        for node in self.nodes:
            node.stop()

    def close(self) -> None:
        """End everything at once and forget it."""
        for node in self.nodes:
            node.kill()
        if self._own_zookeeper is not None:
            self._own_zookeeper.stop()
        if self._nodes:
            remove_folder(self._folder)
        self._nodes.clear()
        self._reserved.release()

    def heal(self) -> None:
        """Undo what tests did to the brokers: all run, are in sync, and lead what they should."""
        for node in self.nodes:
            node.raise_if_crashed()
        if not all(node.running and not node.paused for node in self.nodes):
            for node in self.nodes:
                node.resume()
            self.start()
            self._until(self._is_in_sync, "replicas did not catch up")
        if len(self.nodes) > 1:
            self._until(self._is_balanced, "leaders did not go back to where they belong")

    def logs(self) -> str:
        """What all brokers have written."""
        return "\n".join(f"== node {node.id}\n{node.logs()}" for node in self.nodes)

    def connect(self, listener: str = "PLAINTEXT") -> RawConnection:
        """A connection to the first broker that runs, without TLS or login."""
        usable = [node for node in self.nodes if node.running and not node.paused]
        return usable[0].connect(listener)

    def metadata(self, topics: Sequence[str] | None = None) -> Any:
        """Metadata of some topics or all, as a broker tells it; creates none."""
        with self.connect() as connection:
            version = min(connection.newest("Metadata"), 9)
            names = None if topics is None else [{"name": name} for name in topics]
            body: dict[str, Any] = {"topics": names}
            if version >= 4:
                body["allow_auto_topic_creation"] = False
            return connection.request("Metadata", body, version)

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """A topic that is ready for use on every broker; its name is new unless given."""
        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas or self._count,
            "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
        }
        with self.connect() as connection:
            body = {"topics": [topic], "timeout_ms": 30_000}
            answer = connection.request("CreateTopics", body).topics[0]
        if answer.error_code:
            raise RuntimeError(f"{name} was not created: error {answer.error_code}")
        self._until(lambda: self._is_led(name, partitions), f"{name} got no leaders")
        return name

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of a partition's leader, -1 if it has none."""
        found = self.metadata([topic]).topics[0].partitions
        return next((int(p.leader_id) for p in found if p.partition_index == partition), -1)

    def _prepare(self) -> None:
        checkpoint = path = None
        if self.release.zookeeper:
            zookeeper = self._zookeeper or self._own_zookeeper
            assert zookeeper is not None
            zookeeper.start()
            path = zookeeper.path()
        else:
            checkpoint = bootstrap_checkpoint(self.release, self._features)
        self._folder = new_folder()
        self.tls = make_certificates(self._folder / "tls")
        names = (*self.listeners, CONTROLLER)
        ids = range(1, self._count + 1)
        ports = {node: {name: self._reserved.take() for name in names} for node in ids}
        peers = {node: ports[node][CONTROLLER] for node in ids}
        for node_id in ids:
            folder = self._folder / f"node-{node_id}"
            place = Place(node_id, ports[node_id], folder, peers, path)
            node = KafkaNode(self.release, place, self._jvm)
            own = {key: text.format(node=node_id) for key, text in self._properties.items()}
            properties = broker_properties(self.release, place, self.tls, own)
            node.prepare(properties, self.cluster_id, checkpoint)
            self._nodes[node_id] = node

    def _until(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + SETTLE_TIMEOUT
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Kafka {self.version}: {complaint} in {SETTLE_TIMEOUT:g} s")
            time.sleep(POLL)

    def _is_complete(self) -> bool:
        return all(
            {broker.node_id for broker in metadata.brokers} == set(self._nodes)
            for metadata in self._each_metadata([])
        )

    def _is_in_sync(self) -> bool:
        return all(
            set(partition.isr_nodes) == set(partition.replica_nodes)
            for topic in self.metadata().topics
            for partition in topic.partitions
        )

    def _is_balanced(self) -> bool:
        """Whether every partition is led by its first replica; if not, an election is held."""
        is_balanced = all(
            partition.leader_id == partition.replica_nodes[0]
            for topic in self.metadata().topics
            for partition in topic.partitions
        )
        if not is_balanced:
            with self.connect() as connection:
                body = {"election_type": 0, "topic_partitions": None, "timeout_ms": 10_000}
                connection.request("ElectLeaders", body)
        return is_balanced

    def _is_led(self, name: str, partitions: int) -> bool:
        leaders: dict[int, int] = {}
        for metadata in self._each_metadata([name]):
            found = [part for topic in metadata.topics for part in topic.partitions]
            leaders = {part.partition_index: part.leader_id for part in found}
            if len(leaders) != partitions or min(leaders.values()) < 0:
                return False
        for node_id in set(leaders.values()):
            led = [index for index, leader in leaders.items() if leader == node_id]
            with self.node(node_id).connect() as connection:
                if not serves(connection, name, led):
                    return False
        return True

    def _each_metadata(self, topics: Sequence[str]) -> list[Any]:
        """How each running broker sees the cluster; version 4 would not be in all of them."""
        body = {"topics": [{"name": name} for name in topics]}
        found = []
        for node in self.nodes:
            if node.running and not node.paused:
                with node.connect() as connection:
                    found.append(connection.request("Metadata", body, 1))
        return found
