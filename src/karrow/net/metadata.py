"""What the client believes about the cluster, and how an answer changes that. No I/O, no clock.

Rules:
- A snapshot is immutable; every change makes a new one, so a reader never sees half of an answer.
- A partition's leader epoch never goes backwards within one topic id: an answer from a broker that
  lags behind does not undo what is known (KIP-320). A new topic id starts afresh. So that holds
  when a topic was unknown in between; where topics have no ids it may be another one then, and
  nothing of before counts.
- Addresses come from the peer. An impossible host, port or id is left out and reported; nothing
  ever connects there.
- The first cluster id is pinned. An answer with another one is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from karrow.config.bootstrap import is_address
from karrow.errors import InconsistentClusterId, error_for
from karrow.types import BrokerInfo, ClusterMetadata, PartitionMetadata, TopicMetadata
from karrow.types.topics import NO_TOPIC_ID

if TYPE_CHECKING:
    from karrow.wire.messages import MetadataResponse

# How many topics that are not known any more are remembered, for the case that they come back.
MOST_GONE = 1000


class MetadataCache:
    """The newest snapshot, merged from many answers; ``changes`` counts what was learnt."""

    def __init__(self) -> None:
        self.snapshot = ClusterMetadata()
        self.changes = 0
        self.updated_at: float | None = None
        self._names: dict[UUID, str] = {}
        self._gone: dict[UUID, TopicMetadata] = {}
        self._topic_times: dict[str, float] = {}

    # ---- questions

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic, None when it is not known."""
        found = self.snapshot.topics.get(topic)
        return None if found is None else found.topic_id

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic by its id."""
        return self._names.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """Where a partition lives, None when it is not known."""
        found = self.snapshot.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def age_of(self, topic: str, now: float) -> float:
        """Seconds since a topic was last described; infinite when it never was."""
        return now - self._topic_times.get(topic, float("-inf"))

    def is_doubted(self, topic: str) -> bool:
        """Whether a topic is known, and was forgotten for all that."""
        return topic in self.snapshot.topics and topic not in self._topic_times

    def age(self, now: float) -> float:
        """Seconds since any answer came; infinite before the first."""
        return now - (float("-inf") if self.updated_at is None else self.updated_at)

    # ---- changes

    def merge(
        self, answer: MetadataResponse, *, now: float, everything: bool
    ) -> tuple[ClusterMetadata, list[str]]:
        """Take over an answer: what it says by itself, and what in it was not to be believed.

        With ``everything`` the answer was about all topics, so those it lacks are gone.
        """
        self._require_same_cluster(answer.cluster_id)
        brokers, lies = _brokers(answer)
        topics: dict[str, TopicMetadata] = {}
        for entry in answer.topics:
            if entry.name is None:
                continue
            fresh, wrong = _topic(entry)
            lies += wrong
            topics[entry.name] = self._newer(fresh)
        said = ClusterMetadata(
            brokers=brokers,
            controller_id=answer.controller_id if answer.controller_id >= 0 else None,
            cluster_id=answer.cluster_id,
            topics=topics,
        )
        self._keep(said, everything=everything)
        self.changes += 1
        self.updated_at = now
        self._topic_times.update(dict.fromkeys(topics, now))
        return said, lies

    def add_broker(self, broker: BrokerInfo) -> bool:
        """Learn of a broker from an answer that is not metadata; False for a bad address."""
        if broker.id < 0 or not is_address(broker.host, broker.port):
            return False
        brokers = {**self.snapshot.brokers, broker.id: broker}
        self.snapshot = replace(self.snapshot, brokers=brokers)
        self.changes += 1
        return True

    def set_leader(
        self, topic: str, partition: int, leader: int, epoch: int, brokers: Iterable[BrokerInfo]
    ) -> bool:
        """Follow a hint about a new leader (KIP-951), unless it is older than what is known."""
        known = self.partition(topic, partition)
        if known is None or leader < 0 or epoch <= _epoch(known):
            return False
        for broker in brokers:
            self.add_broker(broker)
        if leader not in self.snapshot.brokers:
            return False
        self._put_partition(replace(known, leader=leader, leader_epoch=epoch, error=None))
        return True

    def forget(self, topic: str) -> None:
        """Treat a topic as unknown until the next answer about it."""
        self._topic_times.pop(topic, None)
        self.changes += 1

    def forget_brokers(self) -> None:
        """Forget every address and leader; which cluster this is stays."""
        self._remember(self.snapshot.topics.values())
        self.snapshot = ClusterMetadata(cluster_id=self.snapshot.cluster_id)
        self.updated_at = None
        self._topic_times.clear()
        self.changes += 1

    def _require_same_cluster(self, cluster_id: str | None) -> None:
        pinned = self.snapshot.cluster_id
        if pinned is not None and cluster_id is not None and cluster_id != pinned:
            raise InconsistentClusterId(
                f"this is cluster {cluster_id!r}, but the client belongs to {pinned!r}",
                hint="an address of the old cluster now leads to another one; make a new client",
            )

    def _newer(self, fresh: TopicMetadata) -> TopicMetadata:
        known = self.snapshot.topics.get(fresh.name)
        if known is None and fresh.topic_id:
            known = self._gone.get(fresh.topic_id)
        if known is None or (
            known.topic_id and fresh.topic_id and known.topic_id != fresh.topic_id
        ):
            return fresh
        partitions = {
            number: _later(known.partitions.get(number), partition)
            for number, partition in fresh.partitions.items()
        }
        return replace(fresh, partitions=partitions)

    def _keep(self, said: ClusterMetadata, *, everything: bool) -> None:
        topics = dict(said.topics) if everything else {**self.snapshot.topics, **said.topics}
        for name, topic in said.topics.items():
            if topic.error is not None and not topic.partitions:
                topics.pop(name, None)
                self._topic_times.pop(name, None)
        lacking = self.snapshot.topics.keys() - topics.keys()
        self._remember(self.snapshot.topics[name] for name in lacking)
        self.snapshot = ClusterMetadata(
            brokers=said.brokers or self.snapshot.brokers,
            controller_id=said.controller_id,
            cluster_id=said.cluster_id or self.snapshot.cluster_id,
            topics=topics,
        )
        self._names = {topic.topic_id: name for name, topic in topics.items() if topic.topic_id}
        for topic_id in self._gone.keys() & self._names.keys():
            del self._gone[topic_id]

    def _remember(self, topics: Iterable[TopicMetadata]) -> None:
        """Keep the leader epochs of topics that are not known any more."""
        self._gone.update((topic.topic_id, topic) for topic in topics if topic.topic_id)
        for oldest in list(self._gone)[:-MOST_GONE]:
            del self._gone[oldest]

    def _put_partition(self, partition: PartitionMetadata) -> None:
        topic = self.snapshot.topics[partition.topic]
        changed = replace(topic, partitions={**topic.partitions, partition.partition: partition})
        topics: Mapping[str, TopicMetadata] = {**self.snapshot.topics, topic.name: changed}
        self.snapshot = replace(self.snapshot, topics=topics)
        self.changes += 1


def _epoch(partition: PartitionMetadata) -> int:
    return -1 if partition.leader_epoch is None else partition.leader_epoch


def _later(known: PartitionMetadata | None, fresh: PartitionMetadata) -> PartitionMetadata:
    """The one with the higher leader epoch; the fresh one where there are none."""
    if known is not None and fresh.leader_epoch is not None and _epoch(known) > fresh.leader_epoch:
        return known
    return fresh


def _brokers(answer: MetadataResponse) -> tuple[dict[int, BrokerInfo], list[str]]:
    found: dict[int, BrokerInfo] = {}
    lies = []
    for entry in answer.brokers:
        if entry.node_id < 0 or not is_address(entry.host, entry.port):
            lies.append(f"broker {entry.node_id} at {entry.host[:255]!r}:{entry.port}")
        elif entry.node_id in found:
            lies.append(f"broker {entry.node_id} twice")
        else:
            found[entry.node_id] = BrokerInfo(entry.node_id, entry.host, entry.port, entry.rack)
    return found, lies


def _topic(entry: MetadataResponse.MetadataResponseTopic) -> tuple[TopicMetadata, list[str]]:
    name = entry.name or ""
    partitions: dict[int, PartitionMetadata] = {}
    lies = []
    for item in entry.partitions:
        if item.partition_index < 0 or item.partition_index in partitions:
            lies.append(f"partition {item.partition_index} of {name!r}")
        else:
            partitions[item.partition_index] = _partition(name, item)
    topic = TopicMetadata(
        name=name,
        topic_id=None if entry.topic_id == NO_TOPIC_ID else entry.topic_id,
        partitions=partitions,
        error=error_for(entry.error_code, topic=name),
        internal=entry.is_internal,
    )
    return topic, lies


def _partition(topic: str, entry: MetadataResponse.MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        topic=topic,
        partition=entry.partition_index,
        leader=entry.leader_id if entry.leader_id >= 0 else None,
        leader_epoch=entry.leader_epoch if entry.leader_epoch >= 0 else None,
        replicas=tuple(entry.replica_nodes),
        in_sync_replicas=tuple(entry.isr_nodes),
        offline_replicas=tuple(entry.offline_replicas),
        error=error_for(entry.error_code, topic=topic, partition=entry.partition_index),
    )
