"""Kafka's wire protocol: messages to bytes and back, frames, headers. No I/O, no clock.

    >>> from karrow import wire
    >>> data = wire.encode("Metadata", 12, {"topics": [{"name": "orders"}]})
    >>> wire.decode("Metadata", 12, data, kind="request").topics[0].name
    'orders'

Message classes stand in ``karrow.wire.messages`` under Kafka's names, with every version's fields;
which of them travel is the version's business.
"""

from __future__ import annotations

from karrow.wire import messages
from karrow.wire.codec import decode, encode, encode_parts
from karrow.wire.frames import FrameReader
from karrow.wire.framing import (
    Answer,
    ClientFraming,
    Prepared,
    Request,
    RequestHead,
    ServerFraming,
    Undecoded,
    UnsupportedRequest,
)
from karrow.wire.groups import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from karrow.wire.structs import Struct
from karrow.wire.structs import struct_class as message
from karrow.wire.table import Api, Versions, api, apis, versions

__all__ = [
    "Answer",
    "Api",
    "ClientFraming",
    "FrameReader",
    "Prepared",
    "Request",
    "RequestHead",
    "ServerFraming",
    "Struct",
    "Undecoded",
    "UnsupportedRequest",
    "Versions",
    "api",
    "apis",
    "decode",
    "decode_assignment",
    "decode_subscription",
    "encode",
    "encode_assignment",
    "encode_parts",
    "encode_subscription",
    "message",
    "messages",
    "versions",
]
