"""Messages to bytes and back: the public face of the compiled encoders and decoders."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from karrow.errors import LocalProtocolError, RemoteProtocolError
from karrow.wire.checks import checked
from karrow.wire.decoder import compile_decoder, has_records
from karrow.wire.encoder import as_bytes, compile_encoder
from karrow.wire.structs import Struct, from_mapping, struct_class
from karrow.wire.table import apis, names, nearest, schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karrow.wire.encoder import Piece

    Buffer = bytes | bytearray | memoryview
    Kind = Literal["request", "response"]
    Body = Struct | Mapping[str, Any]

M = TypeVar("M", bound=Struct)

# Record data up to this size is joined with its surroundings: a buffer of its own would cost more
# in the socket call than the copy does.
JOINED_RECORDS = 4096

_UNWRITABLE = (
    ArithmeticError,
    AttributeError,
    BufferError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)
_full_names: dict[tuple[str, str], str] = {}


def full_name(name: str | type[Struct], kind: Kind) -> str:
    """The message meant by an API's name and a kind, a message's own name, or its class.

    >>> full_name("Fetch", "response"), full_name("RequestHeader", "request")
    ('FetchResponse', 'RequestHeader')
    """
    if not isinstance(name, str):
        return name.__name__
    found = _full_names.get((name, kind))
    if found is None:
        found = _full_names[name, kind] = _resolve(name, kind)
    return found


def _resolve(name: str, kind: Kind) -> str:
    if kind not in ("request", "response"):
        raise LocalProtocolError(f"kind must be 'request' or 'response', not {kind!r}")
    if name in apis():
        return name + kind.capitalize()
    if name in names():
        return name
    hint = nearest(name, [*apis(), *names()])
    raise LocalProtocolError(f"Kafka has no API or message {name!r}", hint=hint)


def encode(name: str | type[Struct], version: int, body: Body, kind: Kind = "request") -> bytes:
    """A message as bytes, without header or length.

    ``body`` is an object of the message's class or a dict of its fields; what is left out has its
    default, and nested structs may be dicts too.

    >>> encode("Heartbeat", 0, {"group_id": "g", "generation_id": 5, "member_id": "m"})
    b'\\x00\\x01g\\x00\\x00\\x00\\x05\\x00\\x01m'
    """
    pieces, _ = encode_pieces(full_name(name, kind), version, body)
    return b"".join(pieces)


def encode_parts(
    name: str | type[Struct], version: int, body: Body, kind: Kind = "request"
) -> list[Piece]:
    """A message as buffers to be sent one after the other.

    Large record data is among them as a view of the caller's own buffer, not copied.
    """
    return join_parts(*encode_pieces(full_name(name, kind), version, body))


def encode_pieces(name: str, version: int, body: Body) -> tuple[list[Piece], list[int]]:
    """The encoder's raw output: many small pieces, and which of them are record data."""
    encoder = compile_encoder(name, version)
    pieces: list[Piece] = []
    cuts: list[int] = []
    kind = struct_class(name)
    try:
        message = body if isinstance(body, kind) else from_mapping(kind, cast("Any", body))
        encoder(message, pieces, cuts)
    except _UNWRITABLE:
        pieces, cuts = [], []
    else:
        return pieces, cuts
    complete = checked(schema(name), version, body)
    try:
        encoder(complete, pieces, cuts)
    except _UNWRITABLE as error:
        raise LocalProtocolError(f"{name} v{version}: {error}") from error
    return pieces, cuts


def join_parts(pieces: list[Piece], cuts: list[int]) -> list[Piece]:
    """Join neighbours, but leave large record data alone."""
    parts: list[Piece] = []
    start = 0
    for cut in cuts:
        if len(pieces[cut]) > JOINED_RECORDS:
            if start < cut:
                parts.append(b"".join(pieces[start:cut]))
            parts.append(pieces[cut])
            start = cut + 1
    if start < len(pieces):
        parts.append(b"".join(pieces[start:]))
    return parts


@overload
def decode(name: type[M], version: int, data: Buffer, kind: Kind = ...) -> M: ...
@overload
def decode(name: str, version: int, data: Buffer, kind: Kind = ...) -> Any: ...
def decode(name: str | type[Struct], version: int, data: Buffer, kind: Kind = "response") -> Any:
    """A message from all of ``data``, which has neither header nor length.

    Record data comes out as a view of ``data``, not copied. Raises RemoteProtocolError when the
    bytes are not that message.

    >>> decode("Heartbeat", 0, b"\\x00\\x1b").error_code
    27
    """
    return decode_from(full_name(name, kind), version, data, 0)


def decode_from(name: str, version: int, data: Buffer, start: int) -> Struct:
    """A message from all of ``data`` after ``start``."""
    message, left = decode_prefix(name, version, data, start)
    if left:
        raise RemoteProtocolError(f"{name} v{version}: {left} bytes too many")
    return message


def decode_prefix(name: str, version: int, data: Buffer, start: int) -> tuple[Struct, int]:
    """A message that begins at ``start``, and how many bytes there are after it."""
    decoder = compile_decoder(name, version)
    buffer = _owner(data) if has_records(name) else as_bytes(data)
    size = len(buffer)
    message, stop = decoder(buffer, start, size)
    return message, size - stop


def _owner(data: Buffer) -> Buffer:
    """What a view is of, when it is of the whole: a byte of it is read much faster."""
    if not isinstance(data, memoryview):
        return data
    whole = data.obj
    if isinstance(whole, (bytes, bytearray)) and len(whole) == data.nbytes and data.c_contiguous:
        return whole
    return data.cast("B") if data.c_contiguous else data.tobytes()
