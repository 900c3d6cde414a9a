"""What must hold for any bytes that reach the kernel's reader of Fetch answers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from karrow.aio._fetch import FIRST_BY_HAND, LAST_BY_HAND, FetchCodec, Fetched
from karrow.aio.consuming.requests import FIRST_WITH_TOPIC_IDS
from karrow.records._header import run_of
from karrow.wire import decode, encode

TOPIC = "orders"
ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
FIRST_WITH_SESSIONS = 7
VERSIONS = range(FIRST_BY_HAND, LAST_BY_HAND + 1)


def codec_for(version: int) -> FetchCodec:
    """A codec that knows one topic."""
    codec = FetchCodec(
        version,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        partition_max_bytes=1 << 16,
        isolation_level=1,
        rack="r1",
    )
    codec.add(TOPIC, ID.bytes if version >= FIRST_WITH_TOPIC_IDS else TOPIC.encode())
    return codec


def answer(version: int, records: bytes = b"", **fields: object) -> bytes:
    """An answer about two partitions; ``fields`` are those of both."""
    partitions = [
        {
            "partition_index": number,
            "high_watermark": 100 + number,
            "last_stable_offset": 90,
            "log_start_offset": 5,
            "aborted_transactions": [{"producer_id": 7, "first_offset": 3}] if number else None,
            "records": records if number else None,
            **fields,
        }
        for number in range(2)
    ]
    name = {"topic_id": ID} if version >= FIRST_WITH_TOPIC_IDS else {"topic": TOPIC}
    body: dict[str, object] = {
        "throttle_time_ms": 12,
        "responses": [{**name, "partitions": partitions}],
    }
    if version >= FIRST_WITH_SESSIONS:
        body["session_id"] = 77
    return encode("Fetch", version, body, kind="response")


def fetch_target(data: bytes) -> None:
    """An answer that is read by hand says what the generic codec finds in it; the rest is None."""
    version = VERSIONS[data[0] % len(VERSIONS)] if data else VERSIONS[0]
    found = codec_for(version).decode(memoryview(data), 1, version) if data else None
    if found is not None:
        same(found, decode("Fetch", version, memoryview(data)[1:]), version)


def same(found: Fetched, expected: Any, version: int) -> None:
    """Compare an answer with that of the generic codec."""
    assert expected.error_code == 0
    assert not expected.node_endpoints
    assert found.throttle_time_ms == expected.throttle_time_ms
    assert found.session_id == expected.session_id
    assert len(found.topics) == len(expected.responses)
    for (topic, parts), entry in zip(found.topics, expected.responses, strict=True):
        if version >= FIRST_WITH_TOPIC_IDS:
            assert (topic, entry.topic_id) == (TOPIC, ID)
        else:
            assert topic == entry.topic
        for part, item in zip(parts, entry.partitions, strict=True):
            same_partition(part, item)


def same_partition(part: Any, item: Any) -> None:
    assert item.error_code == 0
    assert part.partition_index == item.partition_index
    assert part.high_watermark == item.high_watermark
    assert part.last_stable == (None if item.last_stable_offset < 0 else item.last_stable_offset)
    assert part.log_start == (None if item.log_start_offset < 0 else item.log_start_offset)
    assert part.preferred_read_replica == item.preferred_read_replica
    aborted = item.aborted_transactions
    assert part.aborted_transactions == (
        None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted]
    )
    records = bytes(item.records or b"")
    after, size, epoch = run_of(records)
    assert part.size == len(records)
    assert part.next_offset == after
    assert part.leader_epoch == (None if epoch < 0 else epoch)
    if records:
        assert part.whole == records[: size or len(records)]
