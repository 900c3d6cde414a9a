"""What no sane client sends: the same observations on the embedded broker and on real ones."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from karrow import wire
from karrow.wire.messages import ApiVersionsResponse
from tests.brokers import RawConnection
from tests.contract.transactional import name_of
from tests.fix_any import AnyKafka

VERSIONS = wire.api("ApiVersions").key
METADATA = wire.api("Metadata").key
UNSUPPORTED = 35


def header(key: int, version: int, client: bytes = b"\0\1c") -> bytes:
    """A request's header of the form that has no tags."""
    return struct.pack(">hhi", key, version, 4711) + client


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def frame(connection: RawConnection) -> bytes | None:
    """The next frame, undecoded; None if the connection ended instead."""
    data = b""
    try:
        while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
            more = connection.socket.recv(65536)
            if not more:
                return None
            data += more
    except ConnectionResetError:
        return None
    return data[4:]


def answer(any_kafka: AnyKafka, data: bytes) -> bytes | None:
    with any_kafka.connect() as connection:
        connection.socket.sendall(data)
        return frame(connection)


def is_alive(any_kafka: AnyKafka) -> bool:
    with any_kafka.connect() as connection:
        return len(connection.request("Metadata", {"topics": []}, 1).brokers) == 1


@pytest.mark.parametrize(
    "data",
    [
        framed(header(999, 0)),
        framed(header(-1, 0)),
        framed(header(METADATA, 99) + b"\0\0\0\0"),
        framed(header(METADATA, -1) + b"\0\0\0\0"),
        framed(b""),
        framed(b"\0\3"),
        framed(struct.pack(">hh", METADATA, 1)),
        framed(header(METADATA, 1)),
        framed(header(METADATA, 1) + b"\x7f\xff\xff\xff"),
        framed(header(METADATA, 1) + b"\0\0\0\1\0\x09ab"),
        framed(header(METADATA, 9, b"\0\1c\0") + b"\xff\xff\xff\xff\x0f"),
        framed(header(METADATA, 1, b"\x7f\xffc")),
        framed(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">i", -1) + b"abc",
        struct.pack(">i", 0x7FFFFFFF) + b"abc",
    ],
    ids=[
        "unknown-api",
        "negative-api",
        "version-too-new",
        "negative-version",
        "empty",
        "cut-key",
        "cut-header",
        "no-body",
        "count-beyond-end",
        "text-beyond-end",
        "compact-count-beyond-end",
        "client-beyond-end",
        "framed-http",
        "http",
        "negative-size",
        "huge-size",
    ],
)
def test_what_makes_no_sense_ends_the_connection(any_kafka: AnyKafka, data: bytes) -> None:
    assert answer(any_kafka, data) is None
    assert is_alive(any_kafka)


def test_bytes_behind_a_request_are_ignored_or_end_the_connection(any_kafka: AnyKafka) -> None:
    request = header(METADATA, 1) + b"\0\0\0\0" + b"rest"
    found = answer(any_kafka, framed(request))
    assert found is None or found[:4] == struct.pack(">i", 4711)
    assert is_alive(any_kafka)


@pytest.mark.parametrize("version", [5, 99, 0x7FFF])
def test_unknown_version_of_versions_is_answered_in_the_first(
    any_kafka: AnyKafka, version: int
) -> None:
    data = framed(header(VERSIONS, version, b"\0\1c\0") + b"whatever follows")
    with any_kafka.connect() as connection:
        connection.socket.sendall(data)
        found = frame(connection)
        assert found is not None
        assert found[:4] == struct.pack(">i", 4711)
        told = wire.decode(ApiVersionsResponse, 0, found[4:])
        assert told.error_code == UNSUPPORTED
        low, high = connection.api_versions()["ApiVersions"]
        assert [(k.api_key, k.min_version, k.max_version) for k in told.api_keys] == [
            (VERSIONS, low, high)
        ]


@pytest.mark.parametrize(
    ("name", "version", "error"),
    [
        ("karrow", "1.0", "NONE"),
        ("k", "1", "NONE"),
        ("with.dots-and-dashes", "1.0-rc1", "NONE"),
        ("", "1", "INVALID_REQUEST"),
        ("karrow", "", "INVALID_REQUEST"),
        ("-karrow", "1", "INVALID_REQUEST"),
        ("kar row", "1", "INVALID_REQUEST"),
        ("karrow", "1;", "INVALID_REQUEST"),
        ("karrow\n", "1", "INVALID_REQUEST"),
        ("karröw", "1", "INVALID_REQUEST"),
    ],
)
def test_software_must_be_named_properly(
    any_kafka: AnyKafka, name: str, version: str, error: str
) -> None:
    with any_kafka.connect() as connection:
        body: dict[str, Any] = {"client_software_name": name, "client_software_version": version}
        told = connection.request("ApiVersions", body, 3)
        assert name_of(told.error_code) == error
        assert bool(told.api_keys) is (error == "NONE")
        assert connection.request("Metadata", {"topics": []}, 1).brokers


def test_requests_are_answered_in_their_order(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    item = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fetch = {
        "max_wait_ms": 200,
        "min_bytes": 1,
        "max_bytes": 1000,
        "topics": [{"topic": topic, "partitions": [item]}],
    }
    with any_kafka.connect() as connection:
        connection.send("Fetch", 4, fetch)
        connection.send("Metadata", 1, {"topics": []})
        connection.send("ApiVersions", 0, {})
        kinds = [type(connection.receive()).__name__ for _ in range(3)]
        assert kinds == ["FetchResponse", "MetadataResponse", "ApiVersionsResponse"]


def test_requests_may_come_in_pieces(any_kafka: AnyKafka) -> None:
    data = framed(header(METADATA, 1) + b"\0\0\0\0")
    with any_kafka.connect() as connection:
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(data)):
            connection.socket.sendall(data[at : at + 1])
        found = frame(connection)
        assert found is not None
        assert found[:4] == struct.pack(">i", 4711)


def test_client_may_have_no_name(any_kafka: AnyKafka) -> None:
    found = answer(any_kafka, framed(header(METADATA, 1, b"\xff\xff") + b"\0\0\0\0"))
    assert found is not None
