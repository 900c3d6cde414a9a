"""Produce requests: the version that can carry some batches, and the body with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from karrow.wire.messages import ProduceRequest

if TYPE_CHECKING:
    from karrow.aio._batch import Batch
    from karrow.config import ProducerConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection

# The versions that brought timestamps, record batches, zstd, and topic ids.
FIRST_WITH_TIMESTAMPS = 2
FIRST_WITH_BATCHES = 3
FIRST_WITH_ZSTD = 7
FIRST_WITH_TOPIC_IDS = 13


def produce_version(
    config: ProducerConfig,
    cluster: Cluster,
    connection: Connection,
    batches: list[Batch],
    newest: int | None,
) -> int:
    """The newest version that the broker has and that can carry the batches."""
    if any(cluster.cache.topic_id(batch.partition.topic.name) is None for batch in batches):
        without_ids = FIRST_WITH_TOPIC_IDS - 1
        newest = without_ids if newest is None else min(newest, without_ids)
    version = connection.versions.choose("Produce", most=newest)
    if config.compression == "zstd":
        connection.versions.require("Produce", version, "zstd", FIRST_WITH_ZSTD)
    return version


def produce_body(
    config: ProducerConfig, cluster: Cluster, version: int, batches: list[Batch]
) -> ProduceRequest:
    """A request with the batches, by topic."""
    topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
    for batch in batches:
        data = ProduceRequest.PartitionProduceData(
            index=batch.partition.number, records=_records(config, version, batch)
        )
        topics.setdefault(batch.partition.topic.name, []).append(data)
    return ProduceRequest(
        transactional_id=config.transactional_id,
        acks=-1 if config.acks == "all" else config.acks,
        timeout_ms=round(config.request_timeout * 1000),
        topic_data=[
            ProduceRequest.TopicProduceData(
                **_name(cluster, version, topic), partition_data=partitions
            )
            for topic, partitions in topics.items()
        ],
    )


def _name(cluster: Cluster, version: int, topic: str) -> dict[str, Any]:
    if version < FIRST_WITH_TOPIC_IDS:
        return {"name": topic}
    return {"topic_id": cluster.cache.topic_id(topic)}


def _records(config: ProducerConfig, version: int, batch: Batch) -> memoryview | bytes:
    """The bytes of a batch; brokers before 0.11 get message sets."""
    if version >= FIRST_WITH_BATCHES:
        return memoryview(batch)
    magic = int(version >= FIRST_WITH_TIMESTAMPS)
    return batch.message_set(magic, config.compression, config.compression_level)
