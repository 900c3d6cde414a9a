"""What must hold for any bytes that reach the wire's decoders.

Each target takes bytes and returns, or raises something that is a bug.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import TYPE_CHECKING

from karrow.errors import RemoteProtocolError
from karrow.wire import ClientFraming, FrameReader, Request, ServerFraming, decode, encode
from karrow.wire.table import names, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Case = tuple[str, int]

# What the client has asked when the fuzzed answers arrive.
ASKED: tuple[tuple[str, int, dict[str, object]], ...] = (
    ("ApiVersions", 3, {}),
    ("Metadata", 12, {}),
    ("Metadata", 1, {}),
    ("Fetch", 11, {}),
    ("Fetch", 16, {}),
    ("Produce", 9, {"acks": -1}),
    ("JoinGroup", 9, {}),
)
MAX_FRAME = 1 << 16


@functools.cache
def every_case() -> tuple[Case, ...]:
    """Every message in every version; a fuzz input's first two bytes choose one."""
    return tuple((name, version) for name in names() for version in schema(name).versions)


def prefix(case: Case) -> bytes:
    """The bytes that choose a case."""
    return every_case().index(case).to_bytes(2, "big")


def message_target(data: bytes) -> None:
    """A message decodes or is refused; what decoded can be sent again and then reads the same."""
    cases = every_case()
    name, version = cases[int.from_bytes(data[:2], "big") % len(cases)]
    try:
        message = decode(name, version, data[2:])
    except RemoteProtocolError:
        return
    again = encode(name, version, message)
    assert encode(name, version, decode(name, version, again)) == again


def frames_target(data: bytes) -> None:
    """A stream gives the same frames, and the same error, whole and byte by byte."""
    whole = _frames([data])
    single = _frames(data[index : index + 1] for index in range(len(data)))
    assert whole == single


def client_target(data: bytes) -> None:
    """Answers are matched or refused, the same whole and byte by byte."""
    assert _answers([data]) == _answers(data[index : index + 1] for index in range(len(data)))


def server_target(data: bytes) -> None:
    """Requests are understood, reported as unsupported, or refused."""
    framing = ServerFraming(max_frame=MAX_FRAME)
    with suppress(RemoteProtocolError):
        for frame in framing.frames.feed(data):
            request = framing.receive(frame)
            if isinstance(request, Request):
                encode(request.api.name, request.version, request.body)


def _frames(portions: Iterable[bytes]) -> tuple[list[bytes], str]:
    reader = FrameReader(MAX_FRAME)
    found: list[bytes] = []
    try:
        for portion in portions:
            room = reader.get_buffer()
            if len(portion) <= len(room):
                room[: len(portion)] = portion
                found += map(bytes, reader.advance(len(portion)))
            else:
                found += map(bytes, reader.feed(portion))
        reader.get_buffer()
    except RemoteProtocolError as error:
        return found, str(error)
    return found, ""


def _answers(portions: Iterable[bytes]) -> tuple[list[str], str]:
    framing = ClientFraming("fuzz", max_frame=MAX_FRAME)
    for name, version, body in ASKED:
        framing.send(name, version, body)
    found: list[str] = []
    try:
        for portion in portions:
            frames = framing.frames.feed(portion)
            found += (repr(framing.receive(frame).message) for frame in frames)
        framing.frames.get_buffer()
    except RemoteProtocolError as error:
        return found, str(error)
    return found, ""


TARGETS: dict[str, Callable[[bytes], None]] = {
    "message": message_target,
    "frames": frames_target,
    "client": client_target,
    "server": server_target,
}
