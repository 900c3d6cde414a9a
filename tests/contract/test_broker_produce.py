"""What brokers refuse to store: the same observations on the embedded broker and on real ones."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any

import crc32c
import pytest

from karrow.records import BatchBuilder, RecordReader
from tests.brokers import RawConnection
from tests.contract.transactional import Producer, batch, name_of, new_id
from tests.fix_any import AnyKafka

OLD_TIME = 1_700_000_000_000
HOUR_MS = 3_600_000
LENGTH_AT, MAGIC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 8, 16, 21, 23, 57


@pytest.fixture
def connection(any_kafka: AnyKafka) -> Iterator[RawConnection]:
    with any_kafka.connect() as connection:
        yield connection


def send(
    connection: RawConnection,
    topic: str,
    data: bytes,
    *,
    version: int | None = None,
    acks: int = -1,
    partition: int = 0,
) -> Any:
    """The partition's part of the answer."""
    body = {
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": data}]}],
    }
    newest = min(connection.newest("Produce"), 12)
    answer = connection.request("Produce", body, newest if version is None else version)
    return answer.responses[0].partition_responses[0]


def code(*args: Any, **options: Any) -> str:
    return name_of(send(*args, **options).error_code)


def changed(data: bytes, position: int, value: int, layout: str = ">i") -> bytes:
    """A batch with another number in its header, and the checksum that goes with it."""
    found = bytearray(data)
    struct.pack_into(layout, found, position, value)
    struct.pack_into(">I", found, 17, crc32c.crc32c(bytes(found[21:])))
    return bytes(found)


def test_damaged_data_is_refused(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic()
    good = batch(b"a", b"b")
    flipped = bytearray(good)
    flipped[-1] ^= 1
    assert code(connection, topic, bytes(flipped)) == "CORRUPT_MESSAGE"
    assert code(connection, topic, b"x" * 100) == "CORRUPT_MESSAGE"
    for wrong in (
        good[:-3],
        good + good,
        changed(good, COUNT_AT, 5),
        changed(good, LAST_DELTA_AT, 7),
        changed(good, 0, 1000, ">q"),
    ):
        assert code(connection, topic, wrong) == "INVALID_RECORD"
    answer = send(connection, topic, good)
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_what_a_topic_does_not_take_is_refused(
    any_kafka: AnyKafka, connection: RawConnection
) -> None:
    small = any_kafka.create_topic(config={"max.message.bytes": "200"})
    assert code(connection, small, batch(b"x" * 500)) == "MESSAGE_TOO_LARGE"
    compacted = any_kafka.create_topic(config={"cleanup.policy": "compact"})
    mixed = BatchBuilder()
    for key in (b"k", None, b"k", None):
        mixed.append(key, b"v", timestamp_ms=OLD_TIME)
    answer = send(connection, compacted, mixed.build())
    assert name_of(answer.error_code) == "INVALID_RECORD"
    assert [item.batch_index for item in answer.record_errors] == [1, 3]
    assert (answer.base_offset, answer.log_start_offset) == (-1, 0)


def test_times_that_are_far_off_are_refused(any_kafka: AnyKafka, connection: RawConnection) -> None:
    if any_kafka.number < (3, 6):
        pytest.skip("one setting was for both directions")
    config = {
        "message.timestamp.before.max.ms": str(HOUR_MS),
        "message.timestamp.after.max.ms": str(HOUR_MS),
    }
    topic = any_kafka.create_topic(config=config)
    now = int(time.time() * 1000)
    builder = BatchBuilder()
    for hours in (0, -2, 0, 2):
        builder.append(None, b"v", timestamp_ms=now + hours * HOUR_MS)
    answer = send(connection, topic, builder.build())
    assert name_of(answer.error_code) == "INVALID_TIMESTAMP"
    assert [item.batch_index for item in answer.record_errors] == [1, 3]
    assert code(connection, topic, batch(b"v", timestamp_ms=now)) == "NONE"


def test_acks_are_all_one_or_none(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic()
    for acks in (2, -2):
        assert code(connection, topic, batch(b"a"), acks=acks) == "INVALID_REQUIRED_ACKS"
    assert code(connection, topic, batch(b"a"), acks=1) == "NONE"
    assert code(connection, topic, batch(b"a"), partition=7) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_failure_without_acks_ends_the_connection(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    for partition, lives in ((0, True), (7, False)):
        item = {"index": partition, "records": batch(b"a")}
        body = {"acks": 0, "topic_data": [{"name": topic, "partition_data": [item]}]}
        with any_kafka.connect() as connection:
            connection.send("Produce", 9, body)
            if lives:
                assert connection.request("Metadata", {"topics": []}, 1).brokers
            else:
                with pytest.raises(ConnectionError):
                    connection.request("Metadata", {"topics": []}, 1)


def test_duplicate_is_answered_with_the_first_ones_time(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(config={"retention.ms": "-1"})
    with Producer(any_kafka) as producer:
        assert producer.init() == "NONE"
        data = batch(b"a", producer=producer.identity, sequence=0, timestamp_ms=OLD_TIME)
        times = [send(producer.connection, topic, data).log_append_time_ms for _ in range(2)]
    assert times == [-1, OLD_TIME]


def test_zstd_needs_a_newer_request(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic()
    builder = BatchBuilder(compression="zstd")
    builder.append(None, b"a" * 100, timestamp_ms=OLD_TIME)
    refused = code(connection, topic, builder.build(), version=6)
    assert refused == "UNSUPPORTED_COMPRESSION_TYPE"
    assert code(connection, topic, builder.build(), version=7) == "NONE"


def test_nothing_and_the_brokers_own_are_refused(
    any_kafka: AnyKafka, connection: RawConnection
) -> None:
    topic = any_kafka.create_topic()
    empty = changed(changed(batch(b"a")[:61], COUNT_AT, 0), LAST_DELTA_AT, -1)
    empty = changed(empty, LENGTH_AT, len(empty) - 12)
    control = changed(batch(b"a"), ATTRIBUTES_AT, 0x20, ">h")
    future = bytearray(batch(b"a"))
    future[MAGIC_AT] = 3
    assert code(connection, topic, empty) == "INVALID_RECORD"
    assert code(connection, topic, control) == "INVALID_RECORD"
    assert code(connection, topic, bytes(future)) == "CORRUPT_MESSAGE"
    assert code(connection, topic, b"") == "INVALID_RECORD"
    assert code(connection, topic, batch(b"a")) == "NONE"


def test_partitions_succeed_and_fail_one_by_one(
    any_kafka: AnyKafka, connection: RawConnection
) -> None:
    topic, absent = any_kafka.create_topic(partitions=2), new_id("absent")
    parts = [
        {"index": 0, "records": batch(b"a")},
        {"index": 1, "records": changed(batch(b"a"), COUNT_AT, 5)},
        {"index": 2, "records": batch(b"a")},
    ]
    body = {
        "acks": -1,
        "timeout_ms": 10_000,
        "topic_data": [
            {"name": topic, "partition_data": parts},
            {"name": absent, "partition_data": parts[:1]},
        ],
    }
    for version in range(3, min(connection.newest("Produce"), 12) + 1):
        answer = connection.request("Produce", body, version)
        found = {
            (item.name, part.index): (name_of(part.error_code), part.base_offset)
            for item in answer.responses
            for part in item.partition_responses
        }
        unknown = ("UNKNOWN_TOPIC_OR_PARTITION", -1)
        assert found == {
            (topic, 0): ("NONE", version - 3),
            (topic, 1): ("INVALID_RECORD", -1),
            (topic, 2): unknown,
            (absent, 0): unknown,
        }


def test_what_cannot_be_told_apart_fails_the_whole_request(
    any_kafka: AnyKafka, connection: RawConnection
) -> None:
    topic = any_kafka.create_topic(partitions=2)
    magic, size = bytearray(batch(b"a")), bytearray(batch(b"a"))
    magic[MAGIC_AT] = 3
    struct.pack_into(">i", size, LENGTH_AT, 13)
    for wrong in (magic, size):
        parts = [{"index": 0, "records": batch(b"a")}, {"index": 1, "records": bytes(wrong)}]
        topics = [
            {"name": topic, "partition_data": parts},
            {"name": new_id("absent"), "partition_data": parts[:1]},
        ]
        answer = connection.request("Produce", {"acks": -1, "topic_data": topics}, 9)
        told = [part.error_code for item in answer.responses for part in item.partition_responses]
        assert [name_of(error) for error in told] == ["CORRUPT_MESSAGE"] * 3
    assert send(connection, topic, batch(b"a")).base_offset == 0


def test_topics_are_named_by_id(any_kafka: AnyKafka, connection: RawConnection) -> None:
    if connection.newest("Produce") < 13:
        pytest.skip("Produce 13")
    topic = any_kafka.create_topic()
    known = connection.request("Metadata", {"topics": [{"name": topic}]}).topics[0].topic_id
    for topic_id, error in ((known, "NONE"), (uuid.uuid4(), "UNKNOWN_TOPIC_ID")):
        parts = [{"index": 0, "records": batch(b"a")}]
        body = {"acks": -1, "topic_data": [{"topic_id": topic_id, "partition_data": parts}]}
        (told,) = connection.request("Produce", body, 13).responses
        assert (told.topic_id, name_of(told.partition_responses[0].error_code)) == (topic_id, error)


def test_topic_may_want_the_brokers_time(any_kafka: AnyKafka, connection: RawConnection) -> None:
    topic = any_kafka.create_topic(config={"message.timestamp.type": "LogAppendTime"})
    begun = int(time.time() * 1000)
    answer = send(connection, topic, batch(b"a", b"b", timestamp_ms=OLD_TIME))
    assert begun <= answer.log_append_time_ms <= time.time() * 1000
    item = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    topics = [{"topic": topic, "partitions": [item]}]
    for version in (2, 4):
        if version in range(connection.api_versions()["Fetch"][0], 5):
            body = {"replica_id": -1, "max_wait_ms": 0, "topics": topics}
            body |= {"max_bytes": 1 << 20} if version >= 3 else {}
            found = connection.request("Fetch", body, version).responses[0].partitions[0]
            told = [(r.timestamp_ms, r.timestamp_type) for r in RecordReader(found.records)]
            assert told == [(answer.log_append_time_ms, 1)] * 2


def messages(magic: int, *values: bytes, compression: str | None = None) -> bytes:
    builder = BatchBuilder(magic=magic, compression=compression)
    for value in values:
        builder.append(b"k", value, timestamp_ms=OLD_TIME if magic else None)
    return builder.build()


def test_messages_of_old_formats_are_taken_by_old_brokers(
    any_kafka: AnyKafka, connection: RawConnection
) -> None:
    topic = any_kafka.create_topic(config={"retention.ms": "-1", "segment.ms": str(1 << 60)})
    if any_kafka.number >= (4, 0):
        # They are advertised for the sake of old clients, which look but do not use them.
        with pytest.raises(ConnectionError):
            send(connection, topic, messages(1, b"a"), version=2)
        return
    sent = [
        (2, messages(1, b"a", b"b"), 0),
        (1, messages(0, b"c"), 2),
        (0, messages(0, b"d", b"e"), 3),
        (2, messages(1, b"f", b"g", compression="gzip"), 5),
        (1, messages(0, b"h", compression="snappy"), 7),
        (2, messages(1, b"cut short")[:-2], -1),
        (2, batch(b"i"), 8),
    ]
    for version, data, offset in sent:
        answer = send(connection, topic, data, version=version)
        assert (answer.error_code, answer.base_offset) == (0, offset)
    damaged = bytearray(messages(1, b"x"))
    damaged[-1] ^= 1
    assert code(connection, topic, bytes(damaged), version=2) == "CORRUPT_MESSAGE"
    assert code(connection, topic, messages(1, b"x"), version=3) == "INVALID_RECORD"
    item = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    body = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "max_bytes": 1 << 20,
        "topics": [{"topic": topic, "partitions": [item]}],
    }
    found = connection.request("Fetch", body, 4).responses[0].partitions[0]
    stored = [(record.value, record.timestamp_ms) for record in RecordReader(found.records)][:8]
    values = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]
    assert [value for value, _ in stored] == values
    times = [OLD_TIME, OLD_TIME, -1, -1, -1, OLD_TIME, OLD_TIME, -1]
    assert [stamp for _, stamp in stored] == times
