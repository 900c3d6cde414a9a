from __future__ import annotations

from typing import Any

import pytest

from karrow import wire
from karrow.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from karrow.wire import ClientFraming, Request, ServerFraming, UnsupportedRequest
from karrow.wire.framing import MAX_CORRELATION_ID


def joined(parts: list[bytes | memoryview]) -> bytes:
    return b"".join(parts)


def frame(stream: bytes) -> memoryview:
    return memoryview(stream)[4:]


def answer(correlation_id: int, body: bytes, *, flexible: bool = False) -> memoryview:
    return memoryview(correlation_id.to_bytes(4, "big") + (b"\0" if flexible else b"") + body)


def exchange(
    name: str, version: int, body: dict[str, Any], response: dict[str, Any]
) -> tuple[Request, wire.Answer]:
    client, server = ClientFraming("me"), ServerFraming()
    _, parts = client.send(name, version, body)
    (sent,) = server.frames.feed(joined(parts))
    request = server.receive(sent)
    assert isinstance(request, Request)
    (received,) = client.frames.feed(joined(server.respond(request, response)))
    return request, client.receive(received)


@pytest.mark.parametrize("version", [0, 1, 8, 9, 12, 13])
def test_request_and_answer_cross_the_wire(version: int) -> None:
    request, got = exchange("Metadata", version, {}, {"brokers": [{"node_id": 5}]})
    assert request.head == (3, version, 0, "me")
    assert request.api.name == "Metadata"
    assert (got.correlation_id, got.version) == (0, version)
    assert got.message.brokers[0].node_id == 5


@pytest.mark.parametrize("name", list(wire.apis()))
def test_every_api_crosses_the_wire_in_its_newest_version(name: str) -> None:
    version = wire.versions(name).last
    request, got = exchange(name, version, {"acks": 1} if name == "Produce" else {}, {})
    assert request.body.__class__.__name__ == f"{name}Request"
    assert got.message.__class__.__name__ == f"{name}Response"


def test_oldest_controlled_shutdown_has_no_client_id() -> None:
    _, parts = ClientFraming("me").send("ControlledShutdown", 0, {"broker_id": 1})
    assert joined(parts) == b"\0\0\0\x0c\0\7\0\0\0\0\0\0\0\0\0\1"
    request = ServerFraming().receive(frame(joined(parts)))
    assert request.head.client_id is None


def test_client_id_may_be_null() -> None:
    _, parts = ClientFraming().send("ListGroups", 0, {})
    assert joined(parts)[12:] == b"\xff\xff"
    request = ServerFraming().receive(frame(joined(parts)))
    assert request.head.client_id is None


def test_correlation_ids_count_up_and_wrap() -> None:
    client = ClientFraming("me")
    assert [client.send("ListGroups", 0, {})[0] for _ in range(3)] == [0, 1, 2]
    client._next_id = MAX_CORRELATION_ID
    assert [client.send("ListGroups", 0, {})[0] for _ in range(2)] == [MAX_CORRELATION_ID, 0]


def test_answers_are_matched_in_order() -> None:
    client = ClientFraming("me")
    client.send("Heartbeat", 0, {})
    client.send("LeaveGroup", 0, {})
    assert client.in_flight == 2
    first = client.receive(answer(0, b"\0\1"))
    second = client.receive(answer(1, b"\0\2"))
    assert first.api is not None
    assert second.api is not None
    assert (first.api.name, first.message.error_code) == ("Heartbeat", 1)
    assert (second.api.name, second.message.error_code) == ("LeaveGroup", 2)
    assert client.in_flight == 0


def test_answer_out_of_order_is_refused() -> None:
    client = ClientFraming("me")
    client.send("Heartbeat", 0, {})
    client.send("Heartbeat", 0, {})
    with pytest.raises(RemoteProtocolError, match="answer 1 came where 0 was due"):
        client.receive(answer(1, b"\0\0"))


def test_answer_that_nothing_asked_for_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="nothing asked"):
        ClientFraming("me").receive(answer(0, b""))


def test_answer_without_a_correlation_id_is_refused() -> None:
    client = ClientFraming("me")
    client.send("Heartbeat", 0, {})
    with pytest.raises(RemoteProtocolError, match="no correlation id"):
        client.receive(memoryview(b"\0\0"))


def test_answer_that_does_not_decode_is_refused() -> None:
    client = ClientFraming("me")
    client.send("Heartbeat", 0, {})
    with pytest.raises(RemoteProtocolError, match="HeartbeatResponse v0"):
        client.receive(answer(0, b"\0"))


def test_tags_in_the_answers_header_are_skipped() -> None:
    client = ClientFraming("me")
    client.send("Heartbeat", 4, {})
    body = b"\0\0\0\0\0\7\0"
    got = client.receive(memoryview(b"\0\0\0\0\1\5\2hi" + body))
    assert got.message.error_code == 7


@pytest.mark.parametrize("tags", [b"", b"\1", b"\1\5\x7f", b"\xff\xff\xff\xff\xff\xff"])
def test_broken_tags_in_the_header_are_refused(tags: bytes) -> None:
    client = ClientFraming("me")
    client.send("Heartbeat", 4, {})
    with pytest.raises(RemoteProtocolError):
        client.receive(memoryview(b"\0\0\0\0" + tags))


@pytest.mark.parametrize("as_dict", [True, False])
def test_produce_without_acks_expects_no_answer(as_dict: bool) -> None:
    client = ClientFraming("me")
    body = {"acks": 0} if as_dict else wire.messages.ProduceRequest(acks=0)
    correlation_id, _ = client.send("Produce", 3, body)
    assert (correlation_id, client.in_flight) == (0, 0)
    client.send("Produce", 3, {"acks": 1})
    assert client.in_flight == 1
    assert client.receive(answer(1, b"\0\0\0\0\0\0\0\0")).correlation_id == 1


def test_request_that_cannot_be_encoded_leaves_no_trace() -> None:
    client = ClientFraming("me")
    with pytest.raises(LocalProtocolError):
        client.send("Heartbeat", 0, {"group_id": 5})
    with pytest.raises(UnsupportedVersion):
        client.send("Heartbeat", 99, {})
    assert client.in_flight == 0
    assert client.send("Heartbeat", 0, {})[0] == 0


def test_large_records_are_sent_as_they_are() -> None:
    records = bytes(100_000)
    body = {"acks": 1, "topic_data": [{"name": "t", "partition_data": [{"records": records}]}]}
    _, parts = ClientFraming("me").send("Produce", 9, body)
    assert isinstance(parts[1], memoryview)
    assert parts[1].obj is records
    size = int.from_bytes(parts[0][:4], "big")
    assert size == len(joined(parts)) - 4


def test_answer_may_be_decoded_later() -> None:
    client = ClientFraming("me")
    client.send("Heartbeat", 0, {})
    undecoded = client.match(answer(0, b"\0\1"))
    assert client.in_flight == 0
    assert undecoded.decode().message.error_code == 1


def test_api_versions_refusal_is_read_in_version_0() -> None:
    client = ClientFraming("me")
    client.send("ApiVersions", 4, {})
    body = b"\0\x23\0\0\0\1\0\x12\0\0\0\3"
    got = client.receive(answer(0, body))
    assert got.version == 0
    assert got.message.error_code == 35
    assert got.message.api_keys[0].max_version == 3


def test_tokens_travel_bare() -> None:
    client = ClientFraming("me")
    assert joined(client.send_token(b"token")) == b"\0\0\0\5token"
    got = client.receive(memoryview(b"challenge"))
    assert got[:3] == (None, None, 0)
    assert got.message.auth_bytes == b"challenge"
    assert "challenge" not in repr(got)
    assert joined(client.send_token(b"")) == b"\0\0\0\0"


class TestServer:
    def test_unknown_api_is_an_outcome(self) -> None:
        request = ServerFraming().receive(memoryview(b"\x03\xe7\0\1\0\0\0\7"))
        assert isinstance(request, UnsupportedRequest)
        assert request.api is None
        assert request.head == (999, 1, 7, None)

    def test_unknown_version_is_an_outcome(self) -> None:
        request = ServerFraming().receive(memoryview(b"\0\1\0\x63\0\0\0\7"))
        assert isinstance(request, UnsupportedRequest)
        assert request.api == wire.api("Fetch")

    def test_supported_versions_can_be_narrowed(self) -> None:
        server = ServerFraming({"Heartbeat": (0, 1), "ApiVersions": (0, 0)})
        client = ClientFraming("me")
        for version, kind in ((1, Request), (2, UnsupportedRequest)):
            sent = joined(client.send("Heartbeat", version, {})[1])
            assert isinstance(server.receive(frame(sent)), kind)
        sent = joined(client.send("Metadata", 1, {})[1])
        assert isinstance(server.receive(frame(sent)), UnsupportedRequest)

    def test_narrowing_to_what_does_not_exist_is_refused(self) -> None:
        with pytest.raises(UnsupportedVersion):
            ServerFraming({"Heartbeat": (0, 99)})
        with pytest.raises(LocalProtocolError, match="did you mean 'Heartbeat'"):
            ServerFraming({"Heartbeet": (0, 1)})

    def test_api_versions_in_an_unknown_version_is_answered_in_version_0(self) -> None:
        server, client = ServerFraming({"ApiVersions": (0, 2)}), ClientFraming("me")
        request = server.receive(frame(joined(client.send("ApiVersions", 4, {})[1])))
        assert isinstance(request, UnsupportedRequest)
        keys = [{"api_key": 18, "min_version": 0, "max_version": 2}]
        parts = server.respond(request, {"error_code": 35, "api_keys": keys})
        got = client.receive(frame(joined(parts)))
        assert (got.version, got.message.error_code) == (0, 35)
        assert got.message.api_keys[0].max_version == 2

    def test_other_unknown_requests_have_no_answer(self) -> None:
        server = ServerFraming()
        for head in (b"\x03\xe7\0\1\0\0\0\7", b"\0\1\0\x63\0\0\0\7"):
            request = server.receive(memoryview(head))
            with pytest.raises(LocalProtocolError, match="answer"):
                server.respond(request, {})

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\0\3\0\1\0\0\0",
            b"\0\3\0\1\0\0\0\0",
            b"\0\3\0\1\0\0\0\0\0\5me",
            b"\0\3\0\1\0\0\0\0\xff\xfe",
            b"\0\3\0\1\0\0\0\0\0\1\xff\0\0\0\0",
            b"\0\3\0\1\0\0\0\0\0\2me\0\0\0",
            b"\0\3\0\x09\0\0\0\0\0\2me\1",
        ],
    )
    def test_broken_request_is_refused(self, data: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            ServerFraming().receive(memoryview(data))

    def test_produced_records_are_a_view_of_the_frame(self) -> None:
        body = {"acks": 1, "topic_data": [{"partition_data": [{"records": b"r" * 100}]}]}
        stream = joined(ClientFraming("me").send("Produce", 3, body)[1])
        server = ServerFraming()
        (received,) = server.frames.feed(stream)
        request = server.receive(received)
        assert isinstance(request, Request)
        records = request.body.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records.obj is received.obj
