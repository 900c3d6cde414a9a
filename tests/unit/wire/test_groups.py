from __future__ import annotations

import pytest

from karrow import wire
from karrow.errors import RemoteProtocolError, UnsupportedVersion
from karrow.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription


def test_version_goes_first() -> None:
    data = wire.encode_subscription({"topics": ["a"], "user_data": None}, version=0)
    assert data == b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_subscription_of_every_version_is_read(version: int) -> None:
    body = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"x")
    assert wire.decode_subscription(wire.encode_subscription(body, version)) == body


def test_newest_version_is_the_default() -> None:
    owned = ConsumerProtocolSubscription.TopicPartition(topic="a", partitions=[1, 2])
    body = ConsumerProtocolSubscription(
        topics=["a"], owned_partitions=[owned], generation_id=7, rack_id="r"
    )
    data = wire.encode_subscription(body)
    assert data[:2] == b"\0\3"
    assert wire.decode_subscription(data) == body


def test_newer_version_is_read_with_the_newest_known_layout() -> None:
    data = wire.encode_subscription({"topics": ["a"], "rack_id": "r"})
    subscription = wire.decode_subscription(b"\0\x63" + data[2:] + b"what a later version added")
    assert (subscription.topics, subscription.rack_id) == (["a"], "r")


def test_assignment_round_trip() -> None:
    partitions = [ConsumerProtocolAssignment.TopicPartition(topic="a", partitions=[0, 3])]
    body = ConsumerProtocolAssignment(assigned_partitions=partitions, user_data=None)
    assert wire.decode_assignment(memoryview(wire.encode_assignment(body))) == body


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1", b"\0\0\x7f\xff\xff\xff"])
def test_broken_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.decode_subscription(data)


def test_unknown_version_is_not_written() -> None:
    for version in (-1, 4):
        with pytest.raises(UnsupportedVersion):
            wire.encode_assignment({}, version)
