"""Blocking calls about partitions: records in, records out, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from karrow.sync.twin import ClientTwin

if TYPE_CHECKING:
    from karrow.aio.calls.offsets import Key
    from karrow.aio.calls.produce import Acks, Message, Partitioner
    from karrow.config.fetch import Isolation
    from karrow.records import Record
    from karrow.records.typing import Bytes
    from karrow.types import FetchResult, OffsetLike, OffsetResult, RecordMetadata

MEBIBYTE = 1 << 20


class PartitionCalls(ClientTwin):
    """Calls that read and write partitions."""

    def produce(
        self,
        topic: str,
        messages: Iterable[Message],
        *,
        partition: int | None = None,
        acks: Acks = "all",
        timeout: float = 5.0,
        compression: str | None = None,
        partitioner: Partitioner | None = None,
        transactional_id: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[RecordMetadata]:
        """Write values, (key, value) pairs or Records; where each one went, in their order.

        Without ``partition``, ``partitioner`` chooses by the key: a name in
        ``karrow.records.PARTITIONERS`` or a function of topic, key and number of partitions;
        records without a key share one partition drawn at random. ``acks`` is "all", 1, or 0: then
        the broker does not answer and offsets are None. ``timeout`` is how long the broker may wait
        for its replicas. Only what surely was not written is retried.
        """
        return self._run(
            self._twin.produce(
                topic,
                messages,
                partition=partition,
                acks=acks,
                timeout=timeout,
                compression=compression,
                partitioner=partitioner,
                transactional_id=transactional_id,
                api_version=api_version,
                retries=retries,
            )
        )

    def produce_one(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Iterable[tuple[str, Bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
        acks: Acks = "all",
        timeout: float = 5.0,
        compression: str | None = None,
        partitioner: Partitioner | None = None,
        transactional_id: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> RecordMetadata:
        """Write one record; the arguments are those of ``produce``."""
        return self._run(
            self._twin.produce_one(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp_ms=timestamp_ms,
                partition=partition,
                acks=acks,
                timeout=timeout,
                compression=compression,
                partitioner=partitioner,
                transactional_id=transactional_id,
                api_version=api_version,
                retries=retries,
            )
        )

    def fetch(
        self,
        topic: str,
        partition: int | None = None,
        offset: OffsetLike | None = None,
        *,
        max_bytes: int = MEBIBYTE,
        min_bytes: int = 1,
        max_wait: float = 0.5,
        isolation: Isolation = "read_uncommitted",
        broker: int | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> FetchResult[Record]:
        """Records from an offset on, as many as fit into ``max_bytes``, but at least one batch.

        Without ``partition`` it is the one with the highest offset, without ``offset`` the last
        record's. The broker answers when it has ``min_bytes`` or after ``max_wait`` seconds.
        ``broker`` reads from a replica, which ``preferred_read_replica`` may have named.
        """
        return self._run(
            self._twin.fetch(
                topic,
                partition,
                offset,
                max_bytes=max_bytes,
                min_bytes=min_bytes,
                max_wait=max_wait,
                isolation=isolation,
                broker=broker,
                api_version=api_version,
                retries=retries,
            )
        )

    def fetch_all(
        self,
        topic: str,
        partition: int = 0,
        *,
        max_bytes: int = MEBIBYTE,
        isolation: Isolation = "read_uncommitted",
        api_version: int | None = None,
        retries: int | None = None,
    ) -> FetchResult[Record]:
        """Every record from the earliest to the high watermark of the moment of the call.

        Each request asks for ``max_bytes``; all records are held in memory.
        """
        return self._run(
            self._twin.fetch_all(
                topic,
                partition,
                max_bytes=max_bytes,
                isolation=isolation,
                api_version=api_version,
                retries=retries,
            )
        )

    def list_offsets(
        self,
        offsets: Mapping[Key, OffsetLike],
        *,
        isolation: Isolation = "read_uncommitted",
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[Key, OffsetResult]:
        """The offsets of places in partitions, under the caller's own keys.

        A place is "earliest", "latest", "max_timestamp", an aware datetime, an age such as "-1h",
        or ``Offset.at_timestamp_ms(...)``: the first record that is not older.
        """
        return self._run(
            self._twin.list_offsets(
                offsets, isolation=isolation, api_version=api_version, retries=retries
            )
        )

    def offsets_before(
        self,
        offsets: Mapping[Key, OffsetLike],
        *,
        max_offsets: int = 1,
        api_version: int = 0,
        retries: int | None = None,
    ) -> dict[Key, tuple[int, ...]]:
        """Up to ``max_offsets`` starts of log segments before a time, the newest first.

        This is the form of ListOffsets v0, which only brokers before 4.0 have.
        """
        return self._run(
            self._twin.offsets_before(
                offsets, max_offsets=max_offsets, api_version=api_version, retries=retries
            )
        )

    def earliest_offset(
        self,
        topic: str,
        partition: int,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> int:
        """The first offset that a partition still has."""
        return self._run(
            self._twin.earliest_offset(topic, partition, api_version=api_version, retries=retries)
        )

    def latest_offset(
        self,
        topic: str,
        partition: int,
        *,
        isolation: Isolation = "read_uncommitted",
        api_version: int | None = None,
        retries: int | None = None,
    ) -> int:
        """The offset that the next record gets; with "read_committed" the end of what is stable."""
        return self._run(
            self._twin.latest_offset(
                topic, partition, isolation=isolation, api_version=api_version, retries=retries
            )
        )
