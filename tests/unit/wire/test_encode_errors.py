from __future__ import annotations

from typing import Any, Literal

import pytest

from karrow import wire
from karrow.errors import LocalProtocolError
from karrow.wire.messages import FetchRequest, FetchResponse

TOPIC = "FetchRequest v4: topics[0]"


def topics(**partition: Any) -> dict[str, Any]:
    return {"topics": [{"topic": "t", "partitions": [partition]}]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"topics": [{"topic": 5}]}, "topics[0].topic must be a str, not int 5"),
        ({"topics": [{"topic": b"t"}]}, "topics[0].topic must be a str, not bytes"),
        ({"topics": [{"topic": None}]}, "topics[0].topic must not be null in this version"),
        ({"topics": [{"topic": "\ud800"}]}, "topics[0].topic must be text that UTF-8 can hold"),
        ({"topics": [{"topic": "x" * 32768}]}, "topics[0].topic must be at most 32767 bytes"),
        ({"topics": "abc"}, "topics must be a list, not str 'abc'"),
        ({"topics": {"topic": "t"}}, "topics must be a list, not dict"),
        ({"topics": 5}, "topics must be a list, not int 5"),
        ({"topics": ["t"]}, "topics[0] must be a FetchRequest.FetchTopic or a dict, not str 't'"),
        ({"topics": [None]}, "topics[0] must be a FetchRequest.FetchTopic or a dict"),
        ({"topics": [FetchResponse()]}, "or a dict, not FetchResponse"),
        ({"max_wait_ms": 1 << 31}, "max_wait_ms must be from -2147483648 to 2147483647"),
        ({"max_wait_ms": 1.5}, "max_wait_ms must be an int32, not float 1.5"),
        ({"max_wait_ms": "1"}, "max_wait_ms must be an int32, not str '1'"),
        (topics(partition="0"), "topics[0].partitions[0].partition must be an int32"),
        ({"max_wait": 1}, "v4 has no field 'max_wait'; did you mean 'max_wait_ms'?"),
        (topics(offset=1), "topics[0].partitions[0] has no field 'offset'"),
        ({"forgotten_topics_data": [{}]}, "only versions 7 to 18 have it"),
        ({"unknown_tags": {5: b""}}, "this version has no tagged fields"),
    ],
)
def test_bad_value_is_named_by_message_version_and_path(body: dict[str, Any], message: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        wire.encode("Fetch", 4, body)
    assert "FetchRequest v4" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "version", "kind", "body", "message"),
    [
        ("Metadata", 4, "request", {"allow_auto_topic_creation": 2}, "must be a bool, not int 2"),
        ("Metadata", 4, "request", {"allow_auto_topic_creation": "no"}, "must be a bool"),
        ("Metadata", 12, "request", {"topics": [{"topic_id": "x"}]}, "must be a uuid"),
        ("SyncGroup", 0, "request", {"assignments": [{"assignment": [1]}]}, "must be bytes"),
        ("SyncGroup", 0, "request", {"assignments": [{"assignment": 5}]}, "must be bytes"),
        ("Heartbeat", 4, "request", {"unknown_tags": {-1: b""}}, "no tag at all"),
        ("Heartbeat", 4, "request", {"unknown_tags": {1: "x"}}, "must hold bytes"),
        ("Heartbeat", 4, "request", {"unknown_tags": 5}, "must be a dict"),
        ("Fetch", 12, "request", {"unknown_tags": {0: b""}}, "which is a field"),
        ("Produce", 12, "response", {"node_endpoints": None}, "must not be null"),
        ("DescribeClientQuotas", 0, "response", {"entries": [{"values": [{"value": "x"}]}]}, "64"),
    ],
)
def test_bad_values_of_every_type(
    name: str,
    version: int,
    kind: Literal["request", "response"],
    body: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        wire.encode(name, version, body, kind)
    assert message in str(caught.value)


def test_objects_are_checked_as_dicts_are() -> None:
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=5)])  # type: ignore[arg-type]
    with pytest.raises(LocalProtocolError, match=r"topics\[0\]\.topic must be a str, not int 5"):
        wire.encode("Fetch", 4, request)


def test_value_that_a_version_would_lose_is_refused() -> None:
    request = FetchRequest(forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="t")])
    with pytest.raises(LocalProtocolError, match="forgotten_topics_data cannot be sent"):
        wire.encode("Fetch", 6, request)
    wire.encode("Fetch", 7, request)


def test_nested_struct_that_a_version_would_lose_is_refused() -> None:
    state = FetchRequest.ReplicaState(replica_id=3)
    with pytest.raises(LocalProtocolError, match="replica_state cannot be sent"):
        wire.encode("Fetch", 14, FetchRequest(replica_state=state))


def test_string_too_long_is_refused_in_both_forms() -> None:
    for version in (0, 4):
        with pytest.raises(LocalProtocolError, match="at most 32767 bytes"):
            wire.encode("Heartbeat", version, {"group_id": "é" * 20_000})


def test_secrets_do_not_show_in_errors() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        wire.encode("SaslAuthenticate", 1, {"auth_bytes": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_body_of_another_message_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="must be a FetchRequest or a dict"):
        wire.encode("Fetch", 4, FetchResponse())


def test_unknown_names_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="did you mean 'Fetch'"):
        wire.encode("Fetsch", 4, {})
    with pytest.raises(LocalProtocolError, match="kind must be"):
        wire.encode("Fetch", 4, {}, kind="answer")  # type: ignore[arg-type]


def test_failure_leaves_the_encoder_usable() -> None:
    with pytest.raises(LocalProtocolError):
        wire.encode("Heartbeat", 0, {"group_id": 5})
    assert wire.encode("Heartbeat", 0, {}) == b"\0\0\0\0\0\0\0\0"


def test_array_that_can_be_read_once_is_sent_whole_or_refused() -> None:
    topics = ({"name": name} for name in ("a", "b"))
    sent = wire.encode("Metadata", 4, {"topics": topics})
    assert sent == wire.encode("Metadata", 4, {"topics": [{"name": "a"}, {"name": "b"}]})
    wrong = ({"name": name} for name in ("a", 5))
    with pytest.raises(LocalProtocolError, match=r"topics\[1\]\.name must be a str"):
        wire.encode("Metadata", 4, {"topics": wrong})
