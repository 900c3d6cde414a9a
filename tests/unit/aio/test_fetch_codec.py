"""The kernel's Fetch requests and answers against those of the generic codec."""

from __future__ import annotations

import functools
from typing import Any
from uuid import UUID

import pytest

from karrow import wire
from karrow.aio._fetch import FIRST_BY_HAND, LAST_BY_HAND, FetchCodec, FetchedPartition
from karrow.aio.consuming.requests import FIRST_WITH_TOPIC_IDS
from karrow.errors import LocalProtocolError
from karrow.records import BatchBuilder
from karrow.types import TopicPartition

VERSIONS = range(FIRST_BY_HAND, LAST_BY_HAND + 1)
FIRST_WITH_SESSIONS, FIRST_WITH_RACKS, FIRST_COMPACT = 7, 11, 12
IDS = {"orders": UUID(int=5), "b" * 249: UUID(int=1 << 100)}
A, B = IDS


def codec_for(version: int, rack: str = "r1") -> FetchCodec:
    codec = FetchCodec(
        version,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        partition_max_bytes=1 << 16,
        isolation_level=1,
        rack=rack,
    )
    for topic, topic_id in IDS.items():
        codec.add(topic, topic_id.bytes if version >= FIRST_WITH_TOPIC_IDS else topic.encode())
    return codec


def named(version: int, topic: str) -> dict[str, Any]:
    return {"topic_id": IDS[topic]} if version >= FIRST_WITH_TOPIC_IDS else {"topic": topic}


@functools.cache
def some_records() -> bytes:
    builder = BatchBuilder()
    for number in range(3):
        builder.append(None, b"%d" % number)
    return builder.build()


# ---- requests


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("rack", ["", "zone-é", "x" * 300])
def test_request_is_what_the_codec_makes(version: int, rack: str) -> None:
    asked = {
        TopicPartition(A, 0): (1 << 40, 7),
        TopicPartition(B, 9): (0, -1),
        TopicPartition(A, 3): (5, 0),
    }
    forgotten = (TopicPartition(B, 1), TopicPartition(B, 2))

    body = codec_for(version, rack).encode(12, 3, asked, forgotten)

    def place(topic: str, number: int) -> dict[str, Any]:
        offset, epoch = asked[TopicPartition(topic, number)]
        return {
            "partition": number,
            "fetch_offset": offset,
            "current_leader_epoch": epoch,
            "partition_max_bytes": 1 << 16,
        }

    expected: dict[str, Any] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "topics": [
            {**named(version, A), "partitions": [place(A, 0), place(A, 3)]},
            {**named(version, B), "partitions": [place(B, 9)]},
        ],
        "rack_id": rack,
    }
    if version >= FIRST_WITH_SESSIONS:
        expected |= {
            "session_id": 12,
            "session_epoch": 3,
            "forgotten_topics_data": [{**named(version, B), "partitions": [1, 2]}],
        }
    assert body == wire.encode("Fetch", version, expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_request_that_names_nothing(version: int) -> None:
    body = wire.decode("Fetch", version, codec_for(version).encode(12, 3, {}, ()), "request")
    assert body.topics == []
    assert body.session_id == (12 if version >= FIRST_WITH_SESSIONS else 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_request_for_many_partitions(version: int) -> None:
    asked = {TopicPartition(A, number): (number, number) for number in range(3000)}
    body = codec_for(version).encode(0, 0, asked, ())
    decoded = wire.decode("Fetch", version, body, "request")
    assert [one.fetch_offset for one in decoded.topics[0].partitions] == list(range(3000))


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="v3"):
        codec_for(3)
    with pytest.raises(LocalProtocolError, match="v19"):
        codec_for(LAST_BY_HAND + 1)
    with pytest.raises(LocalProtocolError, match="40000 bytes"):
        codec_for(12).add("x", b"x" * 40_000)
    with pytest.raises(LocalProtocolError, match="40000 bytes"):
        codec_for(12, rack="x" * 40_000)
    codec = codec_for(12)
    with pytest.raises(KeyError):
        codec.encode(0, 0, {TopicPartition("unknown", 0): (0, 0)}, ())
    with pytest.raises(OverflowError):
        codec.encode(0, 0, {TopicPartition(A, 1 << 40): (0, 0)}, ())
    with pytest.raises(OverflowError):
        codec.encode(0, 0, {TopicPartition(A, 0): (1 << 70, 0)}, ())


# ---- answers


def answer(version: int, **fields: Any) -> bytes:
    partition = {
        "partition_index": 3,
        "high_watermark": 100,
        "last_stable_offset": 90,
        "log_start_offset": 5,
        "aborted_transactions": [{"producer_id": 7, "first_offset": 3}],
        "records": some_records(),
    }
    top_error = fields.pop("top_error", 0)
    body: dict[str, Any] = {
        "throttle_time_ms": 12,
        "node_endpoints": fields.pop("node_endpoints", []),
        "responses": [
            {**named(version, A), "partitions": [partition | fields]},
            {**named(version, B), "partitions": [{"partition_index": 0, "records": None}]},
        ],
    }
    if version >= FIRST_WITH_SESSIONS:
        body |= {"session_id": 77, "error_code": top_error}
    return wire.encode("Fetch", version, body, kind="response")


def read(version: int, data: bytes) -> Any:
    return codec_for(version).decode(memoryview(b"head" + data), 4, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_answer_is_read_as_the_codec_does(version: int) -> None:
    found = read(version, answer(version))

    assert found.throttle_time_ms == 12
    assert found.error_code == 0
    assert found.session_id == (77 if version >= FIRST_WITH_SESSIONS else 0)
    assert [topic for topic, _ in found.topics] == [A, B]
    (part,) = found.topics[0][1]
    assert (part.partition_index, part.high_watermark, part.last_stable) == (3, 100, 90)
    assert part.log_start == (5 if version >= 5 else None)
    assert part.preferred_read_replica == -1
    assert part.aborted_transactions == [(7, 3)]
    assert bytes(part.whole) == some_records()
    assert (part.size, part.next_offset, part.leader_epoch) == (len(some_records()), 3, None)
    (nothing,) = found.topics[1][1]
    assert (nothing.size, nothing.next_offset) == (0, None)
    assert not nothing.aborted_transactions


@pytest.mark.parametrize("version", range(FIRST_WITH_RACKS, LAST_BY_HAND + 1))
def test_replica_that_is_nearer(version: int) -> None:
    found = read(version, answer(version, preferred_read_replica=4))
    assert found.topics[0][1][0].preferred_read_replica == 4


def test_batch_that_was_cut_off_counts_as_bytes_only() -> None:
    whole = some_records()
    part = read(11, answer(11, records=whole + whole[:30])).topics[0][1][0]
    assert part.size == len(whole) + 30
    assert bytes(part.whole) == whole
    cut = read(11, answer(11, records=whole[:30])).topics[0][1][0]
    assert bytes(cut.whole) == whole[:30]
    assert cut.next_offset is None


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_wrong_or_unusual_is_left_to_the_codec(version: int) -> None:
    assert read(version, answer(version, error_code=6)) is None
    if version >= FIRST_WITH_SESSIONS:
        assert read(version, answer(version, top_error=70)) is None
    if version >= FIRST_COMPACT:
        hint = {"leader_id": 2, "leader_epoch": 4}
        assert read(version, answer(version, current_leader=hint)) is None
        end = {"epoch": 2, "end_offset": 4}
        assert read(version, answer(version, diverging_epoch=end)) is None
    if version >= 16:
        node = {"node_id": 1, "host": "b1", "port": 9092}
        assert read(version, answer(version, node_endpoints=[node])) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_topic_that_nobody_has_asked_for_is_left_to_the_codec(version: int) -> None:
    codec = codec_for(version)
    stranger = FetchCodec(
        version,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=0,
        partition_max_bytes=0,
        isolation_level=0,
        rack="",
    )
    data = memoryview(answer(version))
    assert codec.decode(data, 0, version) is not None
    assert stranger.decode(data, 0, version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_answer_that_is_cut_or_too_long_is_left_to_the_codec(version: int) -> None:
    data = answer(version)
    codec = codec_for(version)
    for cut in range(len(data)):
        assert codec.decode(memoryview(data[:cut]), 0, version) is None
    assert codec.decode(memoryview(data + b"\0"), 0, version) is None
    assert codec.decode(memoryview(data), len(data) + 1, version) is None
    assert codec.decode(memoryview(data), -1, version) is None
    assert codec.decode(memoryview(data), 0, version + 1) is None


def test_partition_of_the_generic_codec() -> None:
    part = FetchedPartition(
        3,
        some_records(),
        high_watermark=9,
        last_stable_offset=-1,
        log_start_offset=0,
        preferred_read_replica=-1,
        aborted_transactions=[],
    )
    assert (part.last_stable, part.log_start, part.next_offset) == (None, 0, 3)
    assert bytes(part.whole) == some_records()
