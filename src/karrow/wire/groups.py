"""What consumers put into JoinGroup and SyncGroup: subscriptions and assignments.

Each is an int16 version, then the message in that version. A reader that meets a version newer than
it knows reads the newest layout it knows and ignores the rest; fields are only ever added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from karrow.errors import RemoteProtocolError
from karrow.wire.codec import decode_prefix, encode
from karrow.wire.table import schema

if TYPE_CHECKING:
    from karrow.wire.codec import Body, Buffer
    from karrow.wire.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription
    from karrow.wire.structs import Struct

SUBSCRIPTION = "ConsumerProtocolSubscription"
ASSIGNMENT = "ConsumerProtocolAssignment"


def encode_subscription(body: Body, version: int | None = None) -> bytes:
    """A member's subscription, as JoinGroup carries it; by default in the newest version."""
    return _encode(SUBSCRIPTION, body, version)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """A subscription of any version."""
    return cast("ConsumerProtocolSubscription", _decode(SUBSCRIPTION, data))


def encode_assignment(body: Body, version: int | None = None) -> bytes:
    """A member's assignment, as SyncGroup carries it; by default in the newest version."""
    return _encode(ASSIGNMENT, body, version)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """An assignment of any version."""
    return cast("ConsumerProtocolAssignment", _decode(ASSIGNMENT, data))


def _encode(name: str, body: Body, version: int | None) -> bytes:
    version = schema(name).versions[-1] if version is None else version
    content = encode(name, version, body)
    return version.to_bytes(2, "big") + content


def _decode(name: str, data: Buffer) -> Struct:
    view = memoryview(data).cast("B")
    version = int.from_bytes(view[:2], "big", signed=True)
    if len(view) < 2 or version < 0:
        raise RemoteProtocolError(f"{name} has no version or a negative one")
    known = min(version, schema(name).versions[-1])
    return decode_prefix(name, known, view, 2)[0]
