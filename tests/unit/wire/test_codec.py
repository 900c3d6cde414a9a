from __future__ import annotations

from uuid import UUID

import pytest

from karrow import wire
from karrow.wire.messages import (
    ApiVersionsResponse,
    FetchResponse,
    HeartbeatRequest,
    MetadataRequest,
    ProduceRequest,
    RequestHeader,
)

PARTITION = ProduceRequest.PartitionProduceData
TOPIC = ProduceRequest.TopicProduceData


def produce(*records: bytes) -> ProduceRequest:
    partitions = [PARTITION(index=index, records=data) for index, data in enumerate(records)]
    return ProduceRequest(acks=-1, topic_data=[TOPIC(name="t", partition_data=partitions)])


def test_plain_strings_and_integers() -> None:
    body = HeartbeatRequest(group_id="g", generation_id=5, member_id="me")
    assert wire.encode("Heartbeat", 0, body) == b"\0\1g\0\0\0\5\0\2me"


def test_compact_strings_null_and_tags() -> None:
    body = HeartbeatRequest(group_id="g", generation_id=5, member_id="me")
    assert wire.encode("Heartbeat", 4, body) == b"\2g\0\0\0\5\3me\0\0"


def test_null_and_empty_arrays_differ() -> None:
    assert wire.encode("Metadata", 1, {"topics": None}) == b"\xff\xff\xff\xff"
    assert wire.encode("Metadata", 1, {"topics": []}) == b"\0\0\0\0"
    assert wire.decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None


def test_nullable_struct_has_a_marker_byte() -> None:
    cursor = {"topic_name": "t", "partition_index": 1}
    body = {"topics": [], "response_partition_limit": 2, "cursor": cursor}
    data = wire.encode("DescribeTopicPartitions", 0, body)
    assert data == b"\1\0\0\0\2\1\2t\0\0\0\1\0\0"
    data = wire.encode("DescribeTopicPartitions", 0, {**body, "cursor": None})
    assert data == b"\1\0\0\0\2\xff\0"


def test_client_id_stays_plain_in_the_flexible_header() -> None:
    header = RequestHeader(request_api_key=3, request_api_version=9, client_id="me")
    assert wire.encode("RequestHeader", 2, header) == b"\0\3\0\t\0\0\0\0\0\2me\0"


def test_tagged_fields_are_left_out_when_default_and_sorted_when_not() -> None:
    plain = wire.encode("ApiVersions", 3, {}, "response")
    assert plain.endswith(b"\0")
    body = {"zk_migration_ready": True, "finalized_features_epoch": 3}
    data = wire.encode("ApiVersions", 3, body, "response")
    assert data == plain[:-1] + b"\2\1\x08" + (3).to_bytes(8, "big") + b"\3\1\1"
    response = wire.decode(ApiVersionsResponse, 3, data)
    assert (response.zk_migration_ready, response.finalized_features_epoch) == (True, 3)


def test_unknown_tags_are_kept_and_written_back() -> None:
    plain = wire.encode("ApiVersions", 3, {}, "response")
    data = plain[:-1] + b"\2\3\1\1\x63\2hi"
    response = wire.decode(ApiVersionsResponse, 3, data)
    assert response.unknown_tags == {99: b"hi"}
    assert wire.encode("ApiVersions", 3, response, "response") == data


def test_unknown_tags_in_a_struct_without_tagged_fields() -> None:
    data = b"\2g\0\0\0\5\3me\0\1\7\1x"
    request = wire.decode(HeartbeatRequest, 4, data)
    assert request.unknown_tags == {7: b"x"}
    assert wire.encode("Heartbeat", 4, request) == data


def test_uuid_travels_as_its_sixteen_bytes() -> None:
    topic = UUID("00112233-4455-6677-8899-aabbccddeeff")
    data = wire.encode("Metadata", 12, {"topics": [{"topic_id": topic, "name": None}]})
    assert bytes.fromhex("00112233445566778899aabbccddeeff") in data
    topics = wire.decode(MetadataRequest, 12, data).topics
    assert topics is not None
    assert topics[0].topic_id == topic


def test_long_compact_lengths() -> None:
    for size in (126, 127, 128, 16_382, 16_383, 16_384, 32_767):
        body = HeartbeatRequest(group_id="x" * size)
        data = wire.encode("Heartbeat", 4, body)
        assert wire.decode(HeartbeatRequest, 4, data) == body


def test_dict_and_object_give_the_same_bytes() -> None:
    body = {"acks": -1, "topic_data": [{"name": "t", "partition_data": [{"records": b"r"}]}]}
    assert wire.encode("Produce", 9, body) == wire.encode("Produce", 9, produce(b"r"))


def test_dicts_may_stand_inside_objects() -> None:
    mixed = ProduceRequest(acks=-1, topic_data=[{"name": "t"}])  # type: ignore[list-item]
    assert wire.encode("Produce", 9, mixed) == wire.encode(
        "Produce", 9, {"acks": -1, "topic_data": [{"name": "t"}]}
    )


def test_tuples_and_buffers_are_taken() -> None:
    body = {"topics": ({"name": "a"},)}
    assert wire.encode("Metadata", 1, body) == b"\0\0\0\1\0\1a"
    partition = {"records": memoryview(bytearray(b"rec"))}
    data = wire.encode("Produce", 3, {"topic_data": [{"partition_data": [partition]}]})
    assert data.endswith(b"\0\0\0\3rec")


def test_buffers_of_wider_items_are_measured_in_bytes() -> None:
    wide = memoryview(bytearray(8)).cast("q")
    data = wire.encode("Produce", 3, produce(wide))  # type: ignore[arg-type]
    assert data.endswith(b"\0\0\0\x08" + bytes(8))


def test_fields_a_version_lacks_are_ignored_when_ignorable() -> None:
    with_rack = wire.encode("Fetch", 4, {"rack_id": "r"})
    assert with_rack == wire.encode("Fetch", 4, {})


def test_large_records_are_parts_of_their_own() -> None:
    large, small = bytes(10_000), b"tiny"
    parts = wire.encode_parts("Produce", 9, produce(large, small, large))
    assert b"".join(parts) == wire.encode("Produce", 9, produce(large, small, large))
    views = [part for part in parts if isinstance(part, memoryview)]
    assert [view.obj is large for view in views] == [True, True]
    assert len(parts) == 5


def test_message_without_records_is_one_part() -> None:
    assert wire.encode_parts("Heartbeat", 0, {}) == [wire.encode("Heartbeat", 0, {})]


def test_decoded_records_share_the_frames_memory() -> None:
    body = {"responses": [{"partitions": [{"records": b"records", "error_code": 0}]}]}
    frame = bytearray(wire.encode("Fetch", 12, body, "response"))
    for data in (frame, memoryview(frame), memoryview(bytearray(b"xx") + frame)[2:]):
        response = wire.decode(FetchResponse, 12, data)
        records = response.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert records.readonly
        assert bytes(records) == b"records"
    place = frame.index(b"records")
    records = wire.decode(FetchResponse, 12, frame).responses[0].partitions[0].records
    frame[place : place + 1] = b"R"
    assert records == b"Records"


def test_bytes_fields_are_copied_out() -> None:
    body = {"members": [{"metadata": b"meta"}]}
    data = bytearray(wire.encode("JoinGroup", 5, body, "response"))
    response = wire.decode("JoinGroup", 5, data)
    assert type(response.members[0].metadata) is bytes


def test_name_may_be_an_api_a_message_or_a_class() -> None:
    expected = wire.encode("Heartbeat", 0, {})
    assert wire.encode("HeartbeatRequest", 0, {}) == expected
    assert wire.encode(HeartbeatRequest, 0, {}) == expected
    assert wire.decode("HeartbeatRequest", 0, expected) == HeartbeatRequest()


@pytest.mark.parametrize("version", range(19))
def test_fields_absent_from_a_version_decode_to_their_defaults(version: int) -> None:
    data = wire.encode("Fetch", version, {}, "response")
    assert wire.decode(FetchResponse, version, data) == FetchResponse()
