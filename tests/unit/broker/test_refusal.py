from __future__ import annotations

import json
from importlib import resources

import pytest

from karrow import wire
from karrow.broker.refusal import refusal
from karrow.wire import messages
from karrow.wire.structs import Struct

RELEASES = json.loads(resources.files("karrow.broker").joinpath("releases.json").read_text())
NEWEST = RELEASES["4.3"]["apis"]


def codes(answer: Struct, version: int) -> list[int]:
    """Every error code in an answer, at any depth."""
    found = []
    for field in answer.fields:
        value = getattr(answer, field.name)
        if version not in field.versions:
            continue
        if field.name.endswith("error_code"):
            found.append(value)
        elif field.array and field.is_struct:
            for item in value or ():
                found += codes(item, version)
    return found


@pytest.mark.parametrize("api", sorted(NEWEST))
def test_every_api_can_be_refused_in_every_version(api: str) -> None:
    first, last = NEWEST[api]
    for version in range(max(first, wire.api(api).versions[0]), last + 1):
        request = wire.message(f"{api}Request")()
        answer = refusal(api, version, request, 41)
        data = wire.encode(api, version, answer, kind="response")
        decoded = wire.decode(api, version, data)
        assert set(codes(decoded, version)) <= {41}


def test_a_produce_is_refused_by_partition() -> None:
    request = messages.ProduceRequest(
        topic_data=[
            messages.ProduceRequest.TopicProduceData(
                name="orders",
                partition_data=[
                    messages.ProduceRequest.PartitionProduceData(index=index) for index in (0, 4)
                ],
            )
        ]
    )
    answer = refusal("Produce", 9, request, 6)
    assert isinstance(answer, messages.ProduceResponse)
    (topic,) = answer.responses
    assert topic.name == "orders"
    assert [(p.index, p.error_code) for p in topic.partition_responses] == [(0, 6), (4, 6)]


def test_lists_of_plain_names_are_mirrored() -> None:
    request = messages.DescribeGroupsRequest(groups=["a", "b"])
    answer = refusal("DescribeGroups", 5, request, 15)
    assert isinstance(answer, messages.DescribeGroupsResponse)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("a", 15), ("b", 15)]


def test_lists_of_plain_numbers_are_mirrored() -> None:
    topic = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[2])
    request = messages.AddPartitionsToTxnRequest(v3_and_below_topics=[topic])
    answer = refusal("AddPartitionsToTxn", 3, request, 51)
    assert isinstance(answer, messages.AddPartitionsToTxnResponse)
    (found,) = answer.results_by_topic_v3_and_below
    (partition,) = found.results_by_partition
    assert (partition.partition_index, partition.partition_error_code) == (2, 51)


def test_an_error_at_the_top_is_set() -> None:
    answer = refusal("Heartbeat", 4, messages.HeartbeatRequest(group_id="g"), 27)
    assert isinstance(answer, messages.HeartbeatResponse)
    assert answer.error_code == 27
