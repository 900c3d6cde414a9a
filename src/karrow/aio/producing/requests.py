"""Produce requests: the version that can carry some batches, and the body with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow.aio._produce import decode_written, encode_batches, encode_head
from karrow.aio.calls.produce import (
    FIRST_WITH_BATCHES,
    FIRST_WITH_TIMESTAMPS,
    FIRST_WITH_TOPIC_IDS,
    FIRST_WITH_ZSTD,
)
from karrow.errors import LocalProtocolError
from karrow.wire import Prepared
from karrow.wire.messages import ProduceRequest

if TYPE_CHECKING:
    from karrow.aio._batch import Batch
    from karrow.config import ProducerConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection


class Requests:
    """Makes the requests of one producer."""

    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        self._acks = -1 if config.acks == "all" else config.acks
        self._timeout_ms = round(config.request_timeout * 1000)
        self._heads: dict[int, bytes] = {}

    def version(self, connection: Connection, batches: list[Batch], newest: int | None) -> int:
        """The newest version that the broker has and that can carry the batches."""
        topic_id = self._cluster.cache.topic_id
        for batch in batches:
            if topic_id(batch.partition.topic.name) is None:
                without_ids = FIRST_WITH_TOPIC_IDS - 1
                newest = without_ids if newest is None else min(newest, without_ids)
        version = connection.versions.choose("Produce", most=newest)
        if self._config.compression == "zstd":
            connection.versions.require("Produce", version, "zstd", FIRST_WITH_ZSTD)
        return version

    def body(
        self, version: int, batches: list[Batch], names: list[bytes]
    ) -> Prepared | ProduceRequest:
        """A request with the batches, by topic; brokers before 0.11 get message sets."""
        topics: dict[bytes, list[Batch]] = {}
        for batch, name in zip(batches, names, strict=True):
            topics.setdefault(name, []).append(batch)
        if version < FIRST_WITH_BATCHES:
            return self._message_sets(version, topics)
        head = self._heads.get(version)
        if head is None:
            acks, timeout = self._acks, self._timeout_ms
            head = encode_head(version, self._config.transactional_id, acks, timeout)
            self._heads[version] = head
        pieces, cuts = encode_batches(version, head, list(topics.items()))
        return Prepared(pieces, cuts, self._acks, decode_written)

    def names(self, version: int, batches: list[Batch]) -> list[bytes]:
        """How a version names the batches' topics."""
        return [self._name(version, batch.partition.topic.name) for batch in batches]

    def _name(self, version: int, topic: str) -> bytes:
        if version < FIRST_WITH_TOPIC_IDS:
            return topic.encode()
        known = self._cluster.cache.topic_id(topic)
        if known is None:
            raise LocalProtocolError("this version names topics by id, which is unknown")
        return known.bytes

    def _message_sets(self, version: int, topics: dict[bytes, list[Batch]]) -> ProduceRequest:
        magic = int(version >= FIRST_WITH_TIMESTAMPS)
        codec, level = self._config.compression, self._config.compression_level
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=self._timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic.decode(),
                    partition_data=[
                        ProduceRequest.PartitionProduceData(
                            index=batch.partition.number,
                            records=batch.message_set(magic, codec, level),
                        )
                        for batch in group
                    ],
                )
                for topic, group in topics.items()
            ],
        )
