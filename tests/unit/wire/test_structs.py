from __future__ import annotations

import inspect
import pickle

import pytest

from karrow import wire
from karrow.errors import StateError
from karrow.wire import messages
from karrow.wire.messages import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    SaslAuthenticateRequest,
)
from karrow.wire.structs import struct_class
from karrow.wire.table import names


def test_class_has_the_fields_of_every_version_with_their_defaults() -> None:
    request = FetchRequest()
    assert request.replica_id == -1
    assert request.cluster_id is None
    assert request.rack_id == ""
    assert request.topics == []


def test_defaults_are_not_shared_between_objects() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchRequest.FetchTopic(topic="t"))
    first.replica_state.replica_id = 7
    assert second.topics == []
    assert second.replica_state.replica_id == -1


def test_default_struct_of_a_decoded_message_is_its_own() -> None:
    data = wire.encode("Fetch", 12, {"responses": [{"partitions": [{}, {}]}]}, kind="response")
    one, other = wire.decode(FetchResponse, 12, data).responses[0].partitions
    one.current_leader.leader_id = 5
    assert one.current_leader.leader_id == 5
    assert other.current_leader.leader_id == -1


def test_classes_are_slotted_and_one_per_message() -> None:
    request = MetadataRequest()
    with pytest.raises(AttributeError):
        request.topic = "t"  # type: ignore[attr-defined]
    assert type(wire.decode("Metadata", 1, b"\0\0\0\0", "request")) is MetadataRequest
    assert wire.message("MetadataRequest") is MetadataRequest


def test_unknown_keyword_names_the_nearest() -> None:
    with pytest.raises(TypeError, match="no field 'topcs'; did you mean 'topics'"):
        MetadataRequest(topcs=[])  # type: ignore[call-arg]


def test_constructor_has_a_real_signature() -> None:
    assert "allow_auto_topic_creation" in inspect.signature(MetadataRequest).parameters


def test_equality_is_by_value() -> None:
    assert FetchRequest.FetchTopic(topic="a") == FetchRequest.FetchTopic(topic="a")
    assert FetchRequest.FetchTopic(topic="a") != FetchRequest.FetchTopic(topic="b")
    assert FetchRequest.FetchTopic() != FetchRequest.ForgottenTopic()
    with pytest.raises(TypeError, match="unhashable"):
        hash(MetadataRequest())


def test_repr_shows_what_is_not_default() -> None:
    topic = FetchRequest.FetchTopic(topic="a")
    expected = "FetchRequest(max_wait_ms=5, topics=[FetchRequest.FetchTopic(topic='a')])"
    assert repr(FetchRequest(max_wait_ms=5, topics=[topic])) == expected


def test_repr_measures_long_record_data() -> None:
    partition = FetchResponse.PartitionData(records=bytes(1000))
    assert "records=<1000 bytes>" in repr(partition)


def test_repr_hides_secrets() -> None:
    hidden = [
        SaslAuthenticateRequest(auth_bytes=b"hunter2"),
        messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            salt=b"hunter2", salted_password=b"hunter2"
        ),
        messages.CreateDelegationTokenResponse(hmac=b"hunter2"),
        messages.RenewDelegationTokenRequest(hmac=b"hunter2"),
        messages.IncrementalAlterConfigsRequest.AlterableConfig(value="hunter2"),
    ]
    for message in hidden:
        assert "hunter2" not in repr(message)
        assert "***" in repr(message)


def test_messages_pickle() -> None:
    topic = FetchRequest.FetchTopic(topic="a")
    request = FetchRequest(topics=[topic], unknown_tags={9: b"x"})
    assert pickle.loads(pickle.dumps(request)) == request


def test_views_of_a_frame_pickle_as_bytes() -> None:
    partition = {"records": b"data", "aborted_transactions": None}
    data = wire.encode("Fetch", 4, {"responses": [{"partitions": [partition]}]}, "response")
    response = wire.decode(FetchResponse, 4, data)
    again: FetchResponse = pickle.loads(pickle.dumps(response))
    assert again == response
    assert type(again.responses[0].partitions[0].records) is bytes


def test_secrets_do_not_pickle() -> None:
    with pytest.raises(StateError, match="auth_bytes is a secret"):
        pickle.dumps(SaslAuthenticateRequest(auth_bytes=b"hunter2"))
    pickle.dumps(SaslAuthenticateRequest())


def test_every_class_is_found_under_its_name() -> None:
    for name in names():
        assert getattr(messages, name) is struct_class(name)
    assert set(names()) <= set(dir(messages))


def test_unknown_class_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="FetchRequst"):
        getattr(messages, "FetchRequst")  # noqa: B009 - mypy knows that it is not there
