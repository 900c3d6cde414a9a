"""Raw requests that read logs, shortened to what tests look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self
from uuid import UUID

from karrow.records import RecordReader, batches
from tests.brokers import RawConnection
from tests.contract.transactional import batch, name_of
from tests.fix_any import AnyKafka

NO_ID = UUID(int=0)
# From these versions on: sessions; the leader's epoch; the epoch of what was read last; topic ids.
SESSIONS, EPOCHS, FETCHED, IDS = 7, 9, 12, 13

Place = tuple[str, int]


class Part(NamedTuple):
    """What an answer says of a partition."""

    error: str
    high_watermark: int
    values: list[bytes | None]
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None


class Fetched(NamedTuple):
    """An answer to Fetch."""

    error: str
    session: int
    parts: dict[Place, Part]


class Reader:
    """One connection, and the APIs that read over it."""

    def __init__(self, kafka: AnyKafka) -> None:
        self.kafka = kafka
        self.connection: RawConnection = kafka.connect()
        self._ids: dict[str, UUID] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def versions(self, api: str) -> list[int]:
        low, high = self.connection.api_versions()[api]
        return list(range(low, min(high, self.connection.newest(api)) + 1))

    def topic_id(self, topic: str) -> UUID:
        """A topic's id, which it is given at random if it does not exist."""
        if topic not in self._ids:
            body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
            answer = self.connection.request("Metadata", body)
            found: UUID = answer.topics[0].topic_id
            self._ids[topic] = found if found != NO_ID else UUID(int=4711 + len(self._ids))
        return self._ids[topic]

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Write one batch; gives its first offset."""
        records = {"index": partition, "records": batch(*values)}
        body = {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "partition_data": [records]}],
        }
        version = min(self.connection.newest("Produce"), 12)
        answer = self.connection.request("Produce", body, version)
        found = answer.responses[0].partition_responses[0]
        assert found.error_code == 0
        offset: int = found.base_offset
        return offset

    def send_fetch(
        self,
        wanted: Mapping[Place, int | dict[str, Any]],
        version: int | None = None,
        *,
        wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 1 << 20,
        isolation: int = 0,
        session: tuple[int, int] = (0, -1),
        forgotten: Iterable[Place] = (),
    ) -> None:
        version = self.connection.newest("Fetch") if version is None else version
        body: dict[str, Any] = {"max_wait_ms": wait_ms, "min_bytes": min_bytes}
        body["topics"] = [
            {
                **self._named(topic, version),
                "partitions": [
                    {
                        "partition": partition,
                        "partition_max_bytes": 1 << 20,
                        **(place if isinstance(place, dict) else {"fetch_offset": place}),
                    }
                ],
            }
            for (topic, partition), place in wanted.items()
        ]
        if version >= 3:
            body["max_bytes"] = max_bytes
        if version >= 4:
            body["isolation_level"] = isolation
        if version >= SESSIONS:
            body["session_id"], body["session_epoch"] = session
            body["forgotten_topics_data"] = [
                {**self._named(topic, version), "partitions": [partition]}
                for topic, partition in forgotten
            ]
        self.connection.send("Fetch", version, body)

    def receive_fetch(self) -> Fetched:
        answer = self.connection.receive()
        names = {id_: name for name, id_ in self._ids.items()}
        parts = {
            (topic.topic or names[topic.topic_id], item.partition_index): _part(item)
            for topic in answer.responses
            for item in topic.partitions
        }
        return Fetched(name_of(answer.error_code), answer.session_id, parts)

    def fetch(
        self, wanted: Mapping[Place, Any], version: int | None = None, **more: Any
    ) -> Fetched:
        self.send_fetch(wanted, version, **more)
        return self.receive_fetch()

    def read(self, topic: str, place: Any = 0, version: int | None = None, **more: Any) -> Part:
        """What is told of a topic's first partition."""
        return self.fetch({(topic, 0): place}, version, **more).parts[topic, 0]

    def _named(self, topic: str, version: int) -> dict[str, Any]:
        return {"topic_id": self.topic_id(topic)} if version >= IDS else {"topic": topic}


def _part(item: Any) -> Part:
    aborted = item.aborted_transactions
    return Part(
        name_of(item.error_code),
        item.high_watermark,
        whole(bytes(item.records or b"")),
        item.last_stable_offset,
        item.log_start_offset,
        None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted],
    )


def whole(data: bytes) -> list[bytes | None]:
    """The values of all batches that are whole; real brokers cut the last one anywhere."""
    size = sum(one.size_bytes for one in batches(data))
    return [record.value for record in RecordReader(data[:size])]
