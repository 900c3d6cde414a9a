"""The kernel's Produce requests and answers against those of the generic codec."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from karrow import wire
from karrow.aio._produce import decode_written, encode_batches, encode_head
from karrow.aio.calls.produce import FIRST_WITH_TOPIC_IDS
from karrow.errors import LocalProtocolError
from tests.unit.aio.accumulating import filled_batch, new_accumulator

VERSIONS = range(3, 14)
ID = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)


def topic_fields(version: int, name: str) -> dict[str, object]:
    return {"topic_id": ID} if version >= FIRST_WITH_TOPIC_IDS else {"name": name}


def topic_bytes(version: int, name: str) -> bytes:
    return ID.bytes if version >= FIRST_WITH_TOPIC_IDS else name.encode()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "billing-1", "é" * 200])
def test_request_is_what_the_codec_makes(version: int, transactional_id: str | None) -> None:
    accumulator = new_accumulator(topics={"orders": 3})
    batches = [filled_batch(accumulator, "orders", partition) for partition in range(3)]
    head = encode_head(version, transactional_id, -1, 30_000)
    groups = [(topic_bytes(version, "orders"), batches)]

    pieces, cuts = encode_batches(version, head, groups)

    body = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [
            {
                **topic_fields(version, "orders"),
                "partition_data": [
                    {"index": batch.partition.number, "records": bytes(memoryview(batch))}
                    for batch in batches
                ],
            }
        ],
    }
    assert b"".join(pieces) == wire.encode("Produce", version, body)
    assert [bytes(pieces[cut]) for cut in cuts] == [bytes(memoryview(batch)) for batch in batches]


@pytest.mark.parametrize("version", [3, 9])
def test_request_with_several_topics(version: int) -> None:
    accumulator = new_accumulator(topics={"a": 1, "b" * 249: 1})
    first = filled_batch(accumulator, "a", 0)
    second = filled_batch(accumulator, "b" * 249, 0)
    head = encode_head(version, None, 1, 5)

    pieces, _ = encode_batches(version, head, [(b"a", [first]), (b"b" * 249, [second])])

    decoded = wire.decode("Produce", version, b"".join(pieces), kind="request")
    assert [topic.name for topic in decoded.topic_data] == ["a", "b" * 249]
    assert decoded.acks == 1
    assert decoded.timeout_ms == 5


def test_name_that_no_topic_has_is_refused() -> None:
    accumulator = new_accumulator(topics={"a": 1})
    batch = filled_batch(accumulator, "a", 0)
    with pytest.raises(LocalProtocolError, match="300 bytes"):
        encode_batches(9, encode_head(9, None, 1, 5), [(b"x" * 300, [batch])])
    with pytest.raises(LocalProtocolError, match="transactional_id"):
        encode_head(9, "x" * 40_000, 1, 5)


def answer(version: int, **partition: object) -> bytes:
    body = {
        "responses": [
            {
                **topic_fields(version, "orders"),
                "partition_responses": [
                    {
                        "index": index,
                        "base_offset": 1000 + index,
                        "log_append_time_ms": 77,
                        "log_start_offset": 5,
                        **partition,
                    }
                    for index in range(3)
                ],
            }
        ],
        "throttle_time_ms": 12,
    }
    return wire.encode("Produce", version, body, kind="response")


@pytest.mark.parametrize("version", VERSIONS)
def test_answer_is_read_as_the_codec_does(version: int) -> None:
    data = b"head" + answer(version)

    written = decode_written(memoryview(data), 4, version)

    assert written is not None
    name = topic_bytes(version, "orders")
    start = 5 if version >= 5 else -1
    assert written.partitions == {(name, index): (1000 + index, 77, start) for index in range(3)}
    assert written.throttle_time_ms == 12


@pytest.mark.parametrize("version", VERSIONS)
def test_answer_with_an_error_is_left_to_the_codec(version: int) -> None:
    assert decode_written(memoryview(answer(version, error_code=6)), 0, version) is None


@pytest.mark.parametrize("version", range(8, 14))
def test_answer_that_says_more_is_left_to_the_codec(version: int) -> None:
    message = answer(version, error_message="why")
    refused = answer(version, record_errors=[{"batch_index": 1}])
    assert decode_written(memoryview(message), 0, version) is None
    assert decode_written(memoryview(refused), 0, version) is None


@pytest.mark.parametrize("version", range(10, 14))
def test_answer_with_a_hint_is_left_to_the_codec(version: int) -> None:
    hint = answer(version, current_leader={"leader_id": 2, "leader_epoch": 4})
    assert decode_written(memoryview(hint), 0, version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_any_bytes_give_an_answer_or_none(version: int) -> None:
    data = answer(version)
    chance = random.Random(version)
    for cut in range(len(data)):
        assert decode_written(memoryview(data[:cut]), 0, version) is None
    assert decode_written(memoryview(data + b"\0"), 0, version) is None
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        decode_written(memoryview(damaged), 0, version)


def test_batch_keeps_its_bytes_while_a_view_is_out() -> None:
    accumulator = new_accumulator(topics={"a": 1})
    batch = filled_batch(accumulator, "a", 0)
    view = memoryview(batch)
    before = bytes(view)
    batch.succeed(0)
    for _ in range(20):
        filled_batch(accumulator, "a", 0, values=[b"z" * 1000])
    assert bytes(view) == before
    view.release()
    with pytest.raises(BufferError):
        memoryview(batch)
