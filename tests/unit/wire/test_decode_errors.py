from __future__ import annotations

import tracemalloc
from typing import Literal

import pytest

from karrow import wire
from karrow.errors import RemoteProtocolError

GOOD = wire.encode("Heartbeat", 4, {"group_id": "group", "member_id": "member"})


def refused(
    name: str, version: int, data: bytes, kind: Literal["request", "response"] = "request"
) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        wire.decode(name, version, data, kind)
    return str(caught.value)


def test_every_truncation_is_refused() -> None:
    for version in (0, 3, 4):
        data = wire.encode("Heartbeat", version, {"group_id": "group", "member_id": "member"})
        for size in range(len(data)):
            assert f"HeartbeatRequest v{version}" in refused("Heartbeat", version, data[:size])


def test_trailing_bytes_are_refused() -> None:
    assert "2 bytes too many" in refused("Heartbeat", 4, GOOD + b"xx")


def test_string_past_the_end_is_refused() -> None:
    assert "group_id has 32767 bytes where 1 are left" in refused("Heartbeat", 0, b"\x7f\xffx")


def test_null_where_null_is_not_allowed_is_refused() -> None:
    assert "group_id is null" in refused("Heartbeat", 0, b"\xff\xff")
    assert "group_id is null" in refused("Heartbeat", 4, b"\0")


def test_length_below_null_is_refused() -> None:
    assert "length -2" in refused("Metadata", 2, b"\0\0\0\0\xff\xfe", "response")
    assert "-2 elements" in refused("Metadata", 1, b"\xff\xff\xff\xfe")


def test_text_that_is_not_utf8_is_refused() -> None:
    assert "not UTF-8" in refused("Heartbeat", 0, b"\0\2\xc3\x28\0\0\0\0\0\0")
    produce = b"\xff\xff\0\0\0\0\0\0\0\0\0\1\0\1\xff\0\0\0\0"
    assert "not UTF-8" in refused("Produce", 3, produce)


@pytest.mark.parametrize(
    "varint", [b"\xff\xff\xff\xff\xff", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f"]
)
def test_varint_of_more_than_32_bits_is_refused(varint: bytes) -> None:
    assert "32 bits" in refused("Heartbeat", 4, varint + bytes(16))


def test_compact_lengths_are_held_to_the_plain_ones() -> None:
    assert "the most is 32767" in refused("Heartbeat", 4, b"\x81\x80\x02" + bytes(40_000))
    assert "the most is 2147483647" in refused("Metadata", 9, b"\xff\xff\xff\xff\x0f")


@pytest.mark.parametrize("version", [1, 9])
def test_huge_count_allocates_nothing(version: int) -> None:
    bomb = b"\x7f\xff\xff\xff" if version < 9 else b"\xff\xff\xff\xff\x07"
    refused("Metadata", version, bomb)
    tracemalloc.start()
    try:
        assert "elements where 3 bytes are left" in refused("Metadata", version, bomb + b"\0\0\0")
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_count_is_weighed_with_the_smallest_element() -> None:
    # Ten topics of at least two bytes each cannot stand in fifteen.
    assert "10 elements" in refused("Metadata", 1, b"\0\0\0\x0a" + bytes(15))
    assert len(wire.decode("Metadata", 1, b"\0\0\0\x0a" + bytes(20), "request").topics) == 10


def test_huge_integer_array_is_refused() -> None:
    data = wire.encode("Metadata", 0, {"topics": [{"partitions": [{}]}]}, "response")
    bad = data[:-8] + b"\x3f\xff\xff\xff" + data[-4:]
    assert "replica_nodes has 1073741823 elements" in refused("Metadata", 0, bad, "response")


def test_records_past_the_end_are_refused() -> None:
    body = {"responses": [{"partitions": [{"records": b"abc"}]}]}
    data = wire.encode("Fetch", 4, body, "response")
    bad = data.replace(b"\0\0\0\3abc", b"\0\0\0\4abc")
    assert "records has 4 bytes where 3 are left" in refused("Fetch", 4, bad, "response")


class TestTags:
    plain = wire.encode("ApiVersions", 3, {}, "response")[:-1]

    def test_out_of_order_are_refused(self) -> None:
        assert "out of order" in refused("ApiVersions", 3, self.plain + b"\2\5\0\4\0", "response")

    def test_twice_are_refused(self) -> None:
        assert "out of order" in refused("ApiVersions", 3, self.plain + b"\2\5\0\5\0", "response")

    def test_of_a_wrong_size_are_refused(self) -> None:
        assert "wrong size" in refused("ApiVersions", 3, self.plain + b"\1\3\2\1\0", "response")

    def test_past_the_end_are_refused(self) -> None:
        assert "wrong size" in refused("ApiVersions", 3, self.plain + b"\1\x63\x7fx", "response")

    def test_without_end_are_refused(self) -> None:
        bomb = self.plain + b"\xff\xff\xff\xff\x0f\x63\0"
        assert "cut short" in refused("ApiVersions", 3, bomb, "response")

    def test_in_a_struct_that_has_none_are_held_to_the_same(self) -> None:
        assert "out of order" in refused("Heartbeat", 4, GOOD[:-1] + b"\2\5\0\5\0")
        assert "wrong size" in refused("Heartbeat", 4, GOOD[:-1] + b"\1\5\x09x")


def test_any_true_byte_is_true() -> None:
    data = wire.encode("Metadata", 4, {"topics": []})[:-1]
    assert wire.decode("Metadata", 4, data + b"\x02", "request").allow_auto_topic_creation is True


def test_only_buffers_are_decoded() -> None:
    for wrong in (5, "text", [1, 2]):
        with pytest.raises(TypeError):
            wire.decode("Heartbeat", 0, wrong)  # type: ignore[call-overload]
