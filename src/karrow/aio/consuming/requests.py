"""Fetch requests: the version that can name some partitions, and the body that does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from karrow.aio._fetch import FIRST_BY_HAND, LAST_BY_HAND, FetchCodec
from karrow.aio.calls.offsets import isolation_level
from karrow.aio.consuming.session import FetchSession, Plan
from karrow.config.fetch import FRAME_OVERHEAD
from karrow.errors import LocalProtocolError
from karrow.records._header import run_of
from karrow.types import TopicPartition
from karrow.wire import Prepared

if TYPE_CHECKING:
    from karrow.config import ConsumerConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection

# The Fetch versions that brought a limit for all, and topic ids.
FIRST_WITH_LIMIT = 3
FIRST_WITH_TOPIC_IDS = 13

# What a session tells of a partition: the offset and the leader epoch.
Session: TypeAlias = FetchSession[TopicPartition, tuple[int, int]]
Asked: TypeAlias = Plan[TopicPartition, tuple[int, int]]


class FetchRequests:
    """Makes the requests of one consumer."""

    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        # By version and wait, as long as topics have the ids that they had.
        self._codecs: dict[tuple[int, float], FetchCodec] = {}
        self._changes = -1
        # Of partitions with a message that was larger than what they were asked for.
        self._grown: dict[TopicPartition, int] = {}

    def version(
        self, connection: Connection, session: Session, wanted: Iterable[TopicPartition]
    ) -> int:
        """The newest that can name the topics; those of a session are named in one way."""
        cache = self._cluster.cache
        topics = {topic for topic, _ in wanted} | {topic for topic, _ in session.told}
        ids = {topic: cache.topic_id(topic) for topic in topics}
        has_ids = all(ids.values())
        if any(session.topic_ids.get(topic, known) != known for topic, known in ids.items()):
            session.end()  # the broker would go on with the topic that was there before
        if session.names_by_id is not has_ids:
            session.end()
            session.names_by_id = has_ids
        session.topic_ids = ids
        most = None if has_ids else FIRST_WITH_TOPIC_IDS - 1
        return connection.versions.choose("Fetch", most=most)

    def codec(self, version: int, wait: float) -> FetchCodec | None:
        """What writes and reads this version; None where that is left to the generic codec."""
        if not FIRST_BY_HAND <= version <= LAST_BY_HAND:
            return None
        changes = self._cluster.cache.changes
        if self._changes != changes:
            self._codecs = {}
            self._changes = changes
        found = self._codecs.get((version, wait))
        if found is None:
            found = self._codecs[version, wait] = FetchCodec(
                version,
                max_wait_ms=round(wait * 1000),
                min_bytes=self._config.min_bytes,
                max_bytes=self._config.max_bytes,
                partition_max_bytes=self._config.partition_max_bytes,
                isolation_level=isolation_level(self._config.isolation),
                rack=self._config.rack or "",
            )
        return found

    def prepared(self, codec: FetchCodec, plan: Asked) -> Prepared:
        """A request with the partitions of a plan."""
        for topic, _ in (*plan.asked, *plan.forgotten):
            if topic not in codec.names:
                codec.add(topic, self._name(codec.version, topic))
        body = codec.encode(plan.session_id, plan.epoch, plan.asked, plan.forgotten)
        return Prepared([body], [], shortcut=codec.decode)

    def _name(self, version: int, topic: str) -> bytes:
        if version < FIRST_WITH_TOPIC_IDS:
            return topic.encode()
        known = self._cluster.cache.topic_id(topic)
        if known is None:
            raise LocalProtocolError(
                "this version names topics by id, which is unknown", topic=topic
            )
        return known.bytes

    def old_body(self, version: int, wait: float, plan: Asked) -> dict[str, Any]:
        """As ``prepared``, for brokers from before record batches."""
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, number), (offset, _) in plan.asked.items():
            entry = {
                "partition": number,
                "fetch_offset": offset,
                "partition_max_bytes": self._size(TopicPartition(topic, number)),
            }
            topics.setdefault(topic, []).append(entry)
        body: dict[str, Any] = {
            "max_wait_ms": round(wait * 1000),
            "min_bytes": self._config.min_bytes,
            "topics": [{"topic": topic, "partitions": topics[topic]} for topic in topics],
        }
        if version >= FIRST_WITH_LIMIT:
            body["max_bytes"] = self._config.max_bytes
        return body

    def grow(
        self, version: int, partition: TopicPartition, records: bytes | memoryview | None
    ) -> bool:
        """Ask for more from now on, if an old broker has cut off the first message; or False."""
        if version >= FIRST_WITH_LIMIT or not records or run_of(records)[1]:
            return False
        most = self._config.max_frame_bytes - FRAME_OVERHEAD
        asked = self._size(partition)
        if len(records) < asked or asked >= most:
            return False  # there was room for more
        self._grown[partition] = min(2 * asked, most)
        return True

    def _size(self, partition: TopicPartition) -> int:
        return self._grown.get(partition, self._config.partition_max_bytes)
