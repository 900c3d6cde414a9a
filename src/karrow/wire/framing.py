"""Requests and answers on one connection: headers and correlation. No I/O, no clock.

Rules of the client's side:
- Every request gets the next correlation id: 0, 1, ... 2^31 - 1, then 0 again.
- Answers come in the order of the requests; any other correlation id breaks the connection.
- A produce request with acks=0 is never answered.
- An ApiVersions request in a version the broker lacks is answered in version 0 with error 35.
- After a SaslHandshake in version 0 tokens travel as bare frames, without header or id.

Rules of the server's side:
- The first eight bytes of a request never change: key, version and correlation id can be read
  whatever the rest is, so an unknown request is an outcome, not an error.
- Bytes after a request's last field are ignored, as Kafka does: librdkafka sends some.
- Answers are built in the version of their request, except the ApiVersions one above.
"""

from __future__ import annotations

import functools
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from karrow.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersion
from karrow.wire.codec import decode_from, decode_prefix, encode_pieces, join_parts
from karrow.wire.decoder import read_varint
from karrow.wire.frames import MAX_FRAME, FrameReader
from karrow.wire.structs import struct_class
from karrow.wire.table import Api, api, apis

if TYPE_CHECKING:
    from karrow.wire.codec import Body
    from karrow.wire.structs import Struct

    Part = bytes | memoryview

MAX_CORRELATION_ID = 0x7FFFFFFF
UNSUPPORTED_VERSION = UnsupportedVersion.code

_REQUEST = struct.Struct(">hhi")
_KIND = struct.Struct(">hh")
_ANSWER = struct.Struct(">i")


class Answer(NamedTuple):
    """A decoded answer and the request it belongs to.

    ``version`` is the one the answer is in. A bare SASL token has neither correlation id nor API;
    its message is a SaslAuthenticateResponse, as if the token had come in one.
    """

    correlation_id: int | None
    api: Api | None
    version: int
    message: Any


# Reads an answer's body from a frame, a start and a version; None leaves it to the codec.
Shortcut = Callable[[memoryview, int, int], Any]


class Prepared(NamedTuple):
    """The body of a request that its sender has encoded, and how it reads the answer.

    ``acks`` are those of a Produce request: without any there is no answer.
    """

    pieces: list[Part]
    cuts: list[int]
    acks: int = -1
    shortcut: Shortcut | None = None


class Undecoded(NamedTuple):
    """An answer whose request is known but whose body, after ``start``, is still bytes."""

    correlation_id: int | None
    api: Api | None
    version: int
    frame: memoryview
    start: int
    shortcut: Shortcut | None = None

    def decode(self) -> Answer:
        """Decode the body; this may happen in another thread than the connection's."""
        if self.api is None:
            return Answer(None, None, 0, _token(self.frame))
        version = self.version
        if self.shortcut is not None:
            short = self.shortcut(self.frame, self.start, version)
            if short is not None:
                return Answer(self.correlation_id, self.api, version, short)
        if self.api.name == "ApiVersions" and _refused(self.frame[self.start :]):
            version = 0
        message = decode_from(f"{self.api.name}Response", version, self.frame, self.start)
        return Answer(self.correlation_id, self.api, version, message)


class _Expected(NamedTuple):
    correlation_id: int | None
    api: Api | None
    version: int
    has_tags: bool = False
    shortcut: Shortcut | None = None


class _Head(NamedTuple):
    """What the headers of an API's requests in one version have in common."""

    api: Api
    start: bytes
    end: bytes
    has_tags: bool  # ... that of the answer


class ClientFraming:
    """The client's side of one connection.

    >>> framing = ClientFraming("me")
    >>> framing.send("ApiVersions", 0, {})
    (0, [b'\\x00\\x00\\x00\\x0c\\x00\\x12\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02me'])
    """

    def __init__(self, client_id: str | None = None, *, max_frame: int = MAX_FRAME) -> None:
        self.frames = FrameReader(max_frame)
        self._client_id = _nullable_string(client_id)
        self._next_id = 0
        self._expected: deque[_Expected] = deque()
        self._heads: dict[tuple[str | int, int], _Head] = {}

    @property
    def in_flight(self) -> int:
        """Requests whose answers have not come yet."""
        return len(self._expected)

    def send(self, name: str | int, version: int, body: Body | Prepared) -> tuple[int, list[Part]]:
        """A request's correlation id, and the buffers to write.

        Nothing is registered when the body cannot be encoded.
        """
        head = self._heads.get((name, version)) or self._head(name, version)
        shortcut: Shortcut | None = None
        if isinstance(body, Prepared):
            pieces, cuts, shortcut = body.pieces, body.cuts, body.shortcut
        else:
            pieces, cuts = encode_pieces(f"{head.api.name}Request", version, body)
        number = self._next_id
        self._next_id = (number + 1) & MAX_CORRELATION_ID
        if head.api.name != "Produce" or _acks_of(body) != 0:
            self._expected.append(_Expected(number, head.api, version, head.has_tags, shortcut))
        return number, _framed(head.start + number.to_bytes(4, "big") + head.end, pieces, cuts)

    def _head(self, name: str | int, version: int) -> _Head:
        target = api(name)
        kind = target.request_header_version(version)
        end = self._client_id if kind else b""
        found = self._heads[name, version] = _Head(
            target,
            _KIND.pack(target.key, version),
            end + b"\0" if kind == 2 else end,
            bool(target.response_header_version(version)),
        )
        return found

    def send_token(self, token: bytes) -> list[Part]:
        """A SASL token as a bare frame, as brokers before 1.0 want it."""
        self._expected.append(_Expected(None, None, 0))
        return _framed(b"", [token], [])

    def match(self, frame: memoryview) -> Undecoded:
        """Find the request that a frame answers."""
        expected, start = self._match(frame)
        return Undecoded(
            expected.correlation_id,
            expected.api,
            expected.version,
            frame,
            start,
            expected.shortcut,
        )

    def _match(self, frame: memoryview) -> tuple[_Expected, int]:
        """The request that a frame answers, and where the answer's body begins."""
        if not self._expected:
            raise RemoteProtocolError("an answer came that nothing asked for")
        expected = self._expected.popleft()
        if expected.api is None:
            return expected, 0
        if len(frame) < _ANSWER.size:
            raise RemoteProtocolError(f"an answer of {len(frame)} bytes has no correlation id")
        (correlation_id,) = _ANSWER.unpack_from(frame)
        if correlation_id != expected.correlation_id:
            raise RemoteProtocolError(
                f"answer {correlation_id} came where {expected.correlation_id} was due",
                api=expected.api.name,
            )
        start = _ANSWER.size
        if expected.has_tags:
            start = _skip_tags(frame, start)
        return expected, start

    def receive(self, frame: memoryview) -> Answer:
        """The answer in a frame."""
        expected, start = self._match(frame)
        number, target, version, _, shortcut = expected
        if shortcut is not None:
            short = shortcut(frame, start, version)
            if short is not None:
                return Answer(number, target, version, short)
        return Undecoded(number, target, version, frame, start).decode()


class RequestHead(NamedTuple):
    """What every request begins with; ``client_id`` is None where the header lacks it."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None


class Request(NamedTuple):
    """A request that the server understands."""

    head: RequestHead
    api: Api
    version: int
    body: Any


class UnsupportedRequest(NamedTuple):
    """A request of an unknown API (``api`` is None) or in a version the server lacks.

    ApiVersions must be answered with error 35, which ``ServerFraming.respond`` does in version 0;
    otherwise there is no way to answer, and Kafka closes the connection.
    """

    head: RequestHead
    api: Api | None


class ServerFraming:
    """The server's side of one connection.

    ``supported`` narrows what the server speaks: by API name, the first and last version. The
    default is everything in the table.
    """

    def __init__(
        self,
        supported: Mapping[str, tuple[int, int]] | None = None,
        *,
        max_frame: int = MAX_FRAME,
    ) -> None:
        self.frames = FrameReader(max_frame)
        self._supported = _everything() if supported is None else _by_key(supported)

    def receive(self, frame: memoryview) -> Request | UnsupportedRequest:
        """The request in a frame. Raises RemoteProtocolError when its bytes make no sense."""
        if len(frame) < _REQUEST.size:
            raise RemoteProtocolError(f"a request of {len(frame)} bytes has no header")
        key, version, correlation_id = _REQUEST.unpack_from(frame)
        target, first, last = self._supported.get(key, (None, 0, -1))
        if target is None or not first <= version <= last:
            head = RequestHead(key, version, correlation_id, None)
            return UnsupportedRequest(head, target)
        start = _REQUEST.size
        client_id = None
        header_version = target.request_header_version(version)
        if header_version:
            client_id, start = _read_client_id(frame, start)
        if header_version == 2:
            start = _skip_tags(frame, start)
        body, _ = decode_prefix(f"{target.name}Request", version, frame, start)
        return Request(RequestHead(key, version, correlation_id, client_id), target, version, body)

    def respond(self, request: Request | UnsupportedRequest, body: Body) -> list[Part]:
        """The buffers of the answer to a request."""
        target, version = request.api, request.head.version
        if target is None:
            raise LocalProtocolError("a request of an unknown API has no answer")
        if isinstance(request, UnsupportedRequest):
            if target.name != "ApiVersions":
                raise LocalProtocolError("only ApiVersions has an answer in an unknown version")
            version = 0
        pieces, cuts = encode_pieces(f"{target.name}Response", version, body)
        header = _ANSWER.pack(request.head.correlation_id)
        if target.response_header_version(version):
            header += b"\0"
        return _framed(header, pieces, cuts)


@functools.cache
def _everything() -> dict[int, tuple[Api, int, int]]:
    return {item.key: (item, item.versions[0], item.versions[-1]) for item in apis().values()}


def _by_key(supported: Mapping[str, tuple[int, int]]) -> dict[int, tuple[Api, int, int]]:
    found = {}
    for name, (first, last) in supported.items():
        target = api(name)
        target.require(first)
        target.require(last)
        found[target.key] = (target, first, last)
    return found


def _framed(header: bytes, pieces: list[Part], cuts: list[int]) -> list[Part]:
    """A frame's buffers: length and header joined with what follows them."""
    size = len(header) + sum(map(len, pieces))
    if size > MAX_CORRELATION_ID:
        raise LocalProtocolError(f"a frame of {size} bytes: its length is an int32")
    start = size.to_bytes(4, "big") + header
    if not cuts:
        return [b"".join([start, *pieces])]
    return join_parts([start, *pieces], [cut + 1 for cut in cuts])


def _nullable_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    if len(raw) > 0x7FFF:
        raise LocalProtocolError(f"a client id of {len(raw)} bytes")
    return len(raw).to_bytes(2, "big") + raw


def _acks_of(body: Body | Prepared) -> object:
    """The acks of a Produce request; without any it is not answered."""
    return body.get("acks", 0) if isinstance(body, Mapping) else getattr(body, "acks", 0)


def _token(frame: memoryview) -> Struct:
    return struct_class("SaslAuthenticateResponse")(auth_bytes=bytes(frame))


def _refused(body: memoryview) -> bool:
    return len(body) >= 2 and int.from_bytes(body[:2], "big", signed=True) == UNSUPPORTED_VERSION


def _read_client_id(frame: memoryview, start: int) -> tuple[str | None, int]:
    length = int.from_bytes(frame[start : start + 2], "big", signed=True)
    body = start + 2
    stop = body + max(length, 0)
    if stop > len(frame) or length < -1:
        raise RemoteProtocolError("the request's header is cut short")
    if length == -1:
        return None, body
    try:
        return str(frame[body:stop], "utf-8"), stop
    except UnicodeDecodeError:
        raise RemoteProtocolError("the client id is not UTF-8") from None


def _skip_tags(frame: memoryview, start: int) -> int:
    """Where the body begins: after the header's tagged fields, of which none is defined yet."""
    if start < len(frame) and not frame[start]:
        return start + 1
    try:
        count, start = read_varint(frame, start)
        for _ in range(count):
            _, start = read_varint(frame, start)
            size, start = read_varint(frame, start)
            start += size
    except IndexError:
        raise RemoteProtocolError("the header's tagged fields are cut short") from None
    if start > len(frame):
        raise RemoteProtocolError("the header's tagged fields are cut short")
    return start
