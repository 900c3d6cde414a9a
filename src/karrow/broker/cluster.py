"""The state that all nodes share: topics, leaders, ids. There is no replication to get wrong."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from karrow import errors
from karrow.broker.defaults import Defaults
from karrow.broker.faults import Faults
from karrow.broker.fetching import FetchSessions
from karrow.broker.groups import Groups
from karrow.broker.groups.consumer import HEARTBEAT_INTERVAL
from karrow.broker.log import Log, MemoryShelf
from karrow.broker.topic import NO_LEADER, Partition, Topic
from karrow.broker.transactions.coordinator import Transactions
from karrow.broker.users import Users

if TYPE_CHECKING:
    from karrow.broker.clock import Clock
    from karrow.broker.releases import Release
    from karrow.broker.store import Store

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
MAX_NAME = 249
# As many as the internal topics of a real cluster have partitions.
COORDINATED = 50
# What one request may ask for, as in brokers with a quorum.
MOST_PARTITIONS = 10_000
# Tables that a reset leaves alone.
LASTING = frozenset({"cluster", "counters", "users"})


class Endpoint(NamedTuple):
    """Where a node listens."""

    node_id: int
    host: str
    port: int


class Cluster:
    """Topics, nodes and ids."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: Store,
        seed: int | None,
        release: Release,
        default_partitions: int = 1,
        auto_create_topics: bool = True,
        heartbeat_interval: float = HEARTBEAT_INTERVAL,
    ) -> None:
        self.clock = clock
        self.store = store
        self.random = self._random(seed)
        self.release = release
        self.default_partitions = default_partitions
        self.auto_create_topics = auto_create_topics
        self.heartbeat_interval = heartbeat_interval
        self.id = self._recover_id()
        self.nodes: dict[int, Endpoint] = {}
        self.down: set[int] = set()
        self.hidden: set[int] = set()
        self.pinned: dict[tuple[int, str], int] = {}
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self.users = Users(store)
        self.fetch_sessions = FetchSessions(self.random)
        self.faults = Faults()
        self._next_producer_id = int(store.load("counters").get("producer_id", 0))
        self.settings = Defaults(self)
        self.groups = Groups(self)
        self.transactions = Transactions(self)

    # Nodes.

    @property
    def alive(self) -> list[Endpoint]:
        """The nodes that answer."""
        return [node for id_, node in sorted(self.nodes.items()) if id_ not in self.down]

    @property
    def visible(self) -> list[Endpoint]:
        """The nodes that metadata shows."""
        return [node for node in self.alive if node.node_id not in self.hidden]

    @property
    def controller_id(self) -> int:
        """The node that changes topics: the first one that answers."""
        return min((node.node_id for node in self.alive), default=-1)

    def coordinator_of(self, key: str, kind: int = 0) -> Endpoint:
        """The node that coordinates a group (kind 0) or a transaction (kind 1)."""
        alive = self.alive
        if not alive:
            raise errors.CoordinatorNotAvailable("no node is up")
        pinned = self.pinned.get((kind, key))
        if pinned is not None and pinned not in self.down:
            return self.nodes[pinned]
        return alive[self.slot_of(key) % len(alive)]

    def slot_of(self, key: str) -> int:
        """The partition that would hold the key in a real cluster's internal topics."""
        return java_hash(key) % COORDINATED

    def check_coordinator(self, node_id: int, key: str, kind: int = 0) -> None:
        """Refuse a request that belongs to another node."""
        if self.coordinator_of(key, kind).node_id != node_id:
            raise errors.NotCoordinator("This is not the correct coordinator.")

    def take_down(self, node_id: int) -> None:
        """Let others lead what the node led."""
        self.down.add(node_id)
        for partition in self.partitions():
            partition.isr = [id_ for id_ in partition.isr if id_ != node_id] or [node_id]
            if partition.leader == node_id:
                self.move_leader(partition, self._next_leader(partition))

    def bring_up(self, node_id: int) -> None:
        """The node is back: it follows, and leads where nobody does."""
        self.down.discard(node_id)
        for partition in self.partitions():
            if node_id not in partition.replicas:
                continue
            if node_id not in partition.isr:
                partition.isr.append(node_id)
            if partition.leader == NO_LEADER:
                self.move_leader(partition, node_id)

    def move_leader(self, partition: Partition, node_id: int) -> None:
        """Begin a leader epoch; none is used twice, also not after a restart."""
        partition.lead(node_id)
        self.keep_topic(partition.topic)

    def _next_leader(self, partition: Partition) -> int:
        candidates = (id_ for id_ in partition.isr if id_ not in self.down)
        return next(candidates, NO_LEADER)

    # Topics.

    def partitions(self) -> list[Partition]:
        """All partitions of all topics."""
        return [partition for topic in self.topics.values() for partition in topic.partitions]

    def topic(self, name: str) -> Topic:
        """A topic by name."""
        found = self.topics.get(name)
        if found is None:
            raise errors.UnknownTopicOrPartition("This server does not host this topic-partition.")
        return found

    def find_by_id(self, topic_id: UUID) -> Topic | None:
        """A topic by id, if there is one."""
        return self._by_id.get(topic_id)

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """A topic by id."""
        found = self.find_by_id(topic_id)
        if found is None:
            raise errors.UnknownTopicId("This server does not host this topic ID.")
        return found

    def partition(self, name: str, index: int) -> Partition:
        """A partition, whoever leads it."""
        topic = self.topic(name)
        if not 0 <= index < len(topic.partitions):
            raise errors.UnknownTopicOrPartition("This server does not host this topic-partition.")
        return topic.partitions[index]

    def led_by(self, node_id: int, name: str, index: int, epoch: int = -1) -> Partition:
        """A partition that the node leads; ``epoch`` is what the caller believes (KIP-320)."""
        partition = self.partition(name, index)
        if node_id not in partition.replicas:
            raise errors.NotLeaderOrFollower("this node has no replica of the partition")
        if 0 <= epoch < partition.leader_epoch:
            raise errors.FencedLeaderEpoch("the partition has a newer leader epoch")
        if epoch > partition.leader_epoch:
            raise errors.UnknownLeaderEpoch("the partition has not reached this leader epoch")
        if partition.leader != node_id:
            raise errors.NotLeaderOrFollower("this node does not lead the partition")
        return partition

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Make a topic; raises what CreateTopics answers."""
        check_name(name)
        self._check_free(name)
        settings = self.settings.for_topic(self.settings.for_topic().changed(config or {}))
        if assignments is None:
            partitions = self.default_partitions if partitions == -1 else partitions
            replication_factor = 1 if replication_factor == -1 else replication_factor
            assignments = self._assign(partitions, replication_factor)
        else:
            self._check_assignments(assignments)
        topic = Topic(name, self.new_uuid(), settings)
        if validate_only:
            topic.partitions = [
                _placeholder(topic, index, replicas) for index, replicas in enumerate(assignments)
            ]
            return topic
        self._add_partitions(topic, assignments)
        self.topics[name] = topic
        self._by_id[topic.id] = topic
        self.keep_topic(topic)
        return topic

    def grow_topic(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Add partitions until there are ``count``."""
        more = count - len(topic.partitions)
        if more <= 0:
            raise errors.InvalidPartitions(
                f"Topic currently has {len(topic.partitions)} partitions, which is "
                + ("higher than" if more < 0 else "already the requested number of")
                + f" {count}."
            )
        if assignments is None:
            assignments = self._assign(more, topic.replication_factor, len(topic.partitions))
        elif len(assignments) != more:
            raise errors.InvalidReplicaAssignment(
                f"{more} partitions are to be added, but {len(assignments)} were assigned"
            )
        else:
            self._check_assignments(assignments)
        if not validate_only:
            self._add_partitions(topic, assignments)
            self.keep_topic(topic)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records."""
        topic = self.topic(name)
        del self.topics[name]
        del self._by_id[topic.id]
        self.store.put("topics", str(topic.id), None)
        self.groups.forget_topic(name)
        for partition in topic.partitions:
            partition.log.remove()
            partition.wake()

    def keep_topic(self, topic: Topic) -> None:
        """Write down what a topic is, after a change."""
        row = {
            "name": topic.name,
            "config": topic.settings.given,
            "replicas": [partition.replicas for partition in topic.partitions],
            "epochs": [partition.leader_epoch for partition in topic.partitions],
        }
        self.store.put("topics", str(topic.id), row)

    def recover_topics(self) -> None:
        """Bring back the topics of an earlier run, with a new leader epoch each."""
        for key, row in self.store.load("topics").items():
            topic = Topic(row["name"], UUID(key), self.settings.for_topic(row["config"]))
            self._add_partitions(topic, [self._known(replicas) for replicas in row["replicas"]])
            for partition, epoch in zip(topic.partitions, row["epochs"], strict=True):
                partition.leader_epoch = epoch + 1
            self.topics[topic.name] = topic
            self._by_id[topic.id] = topic
            self.keep_topic(topic)

    def _known(self, replicas: list[int]) -> list[int]:
        """Replicas on nodes that this run has."""
        return [id_ for id_ in replicas if id_ in self.nodes] or [min(self.nodes)]

    def _add_partitions(self, topic: Topic, assignments: Sequence[Sequence[int]]) -> None:
        for replicas in assignments:
            index = len(topic.partitions)
            log = Log(self.store.shelf(str(topic.id), index))
            partition = Partition(topic, index, list(replicas), log)
            partition.isr = [id_ for id_ in replicas if id_ not in self.down] or list(replicas)
            if partition.leader in self.down:
                partition.leader = self._next_leader(partition)
            topic.partitions.append(partition)

    def _check_free(self, name: str) -> None:
        if name in self.topics:
            raise errors.TopicAlreadyExists(f"Topic '{name}' already exists.")
        alike = name.replace(".", "_")
        for other in self.topics:
            if other.replace(".", "_") == alike:
                raise errors.InvalidTopicException(
                    f"Topic '{name}' collides with existing topic: {other}"
                )

    def _assign(self, partitions: int, factor: int, first: int = 0) -> list[list[int]]:
        if partitions <= 0:
            raise errors.InvalidPartitions("Number of partitions must be larger than 0.")
        if partitions > MOST_PARTITIONS:
            raise errors.PolicyViolation("Excessively large number of partitions per request.")
        if factor <= 0:
            raise errors.InvalidReplicationFactor("Replication factor must be larger than 0.")
        ids = sorted(self.nodes)
        if factor > len(ids):
            raise errors.InvalidReplicationFactor(
                f"Unable to replicate the partition {factor} time(s): The target replication "
                f"factor of {factor} cannot be reached because only {len(ids)} broker(s) are "
                "registered."
            )
        return [
            [ids[(first + index + turn) % len(ids)] for turn in range(factor)]
            for index in range(partitions)
        ]

    def _check_assignments(self, assignments: Sequence[Sequence[int]]) -> None:
        sizes = {len(replicas) for replicas in assignments}
        if len(sizes) != 1 or 0 in sizes:
            raise errors.InvalidReplicaAssignment(
                "partitions must have the same number of replicas"
            )
        for replicas in assignments:
            if len(set(replicas)) != len(replicas):
                raise errors.InvalidReplicaAssignment("a broker is listed twice for a partition")
            unknown = [id_ for id_ in replicas if id_ not in self.nodes]
            if unknown:
                raise errors.InvalidReplicaAssignment(f"no broker has the id {unknown[0]}")

    def recover(self) -> None:
        """Take up what an earlier run has left, once the nodes are known."""
        self.recover_topics()
        self.groups.recover()
        self.transactions.start()

    def reset(self) -> None:
        """Forget topics, groups and transactions; nodes, users and ids stay."""
        for name in tuple(self.topics):
            self.delete_topic(name)
        self.transactions.close()
        self.groups.close()
        self.store.clear(keep=LASTING)
        self.pinned.clear()
        self.hidden.clear()
        self.fetch_sessions.expire()
        self.settings = Defaults(self)
        self.groups = Groups(self)
        self.transactions = Transactions(self)
        self.transactions.start()

    def apply_retention(self) -> None:
        """Drop what is too old or too much."""
        now = self.clock.time_ms()
        for partition in self.partitions():
            partition.retain(now)

    def close(self) -> None:
        """Let go of timers and files."""
        self.transactions.close()
        self.groups.close()
        for partition in self.partitions():
            partition.log.close()
        self.store.close()

    # Ids.

    def _random(self, seed: int | None) -> random.Random:
        """The same seed gives the same ids, but never those of an earlier run on the same data."""
        run = int(self.store.load("counters").get("run", 0))
        self.store.put("counters", "run", run + 1)
        return random.Random(None if seed is None else f"{seed}/{run}")  # noqa: S311

    def new_uuid(self) -> UUID:
        """An id that the seed decides."""
        return UUID(int=self.random.getrandbits(128), version=4)

    def next_producer_id(self) -> int:
        """A producer id that was never given before, in this run or an earlier one."""
        given = self._next_producer_id
        self._next_producer_id += 1
        self.store.put("counters", "producer_id", self._next_producer_id)
        return given

    def _recover_id(self) -> str:
        known = self.store.load("cluster").get("id")
        if known is None:
            raw = self.random.getrandbits(128).to_bytes(16, "big")
            known = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
            self.store.put("cluster", "id", known)
        return str(known)


def check_name(name: str) -> None:
    """Refuse a topic name that Kafka refuses."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = "'.' or '..' is not allowed"
    elif len(name) > MAX_NAME:
        problem = f"the length of '{name}' is longer than the max allowed length {MAX_NAME}"
    elif not LEGAL_NAME.fullmatch(name):
        problem = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
            "and '-'"
        )
    if problem:
        raise errors.InvalidTopicException(f"Topic name is invalid: {problem}")


def java_hash(text: str) -> int:
    """Java's hash of a string, as Kafka finds a group's partition: never negative."""
    raw = text.encode("utf-16-be")
    value = 0
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def _placeholder(topic: Topic, index: int, replicas: Sequence[int]) -> Partition:
    return Partition(topic, index, list(replicas), Log(MemoryShelf()))
