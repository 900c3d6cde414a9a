"""Record data written byte by byte in plain Python: what the kernel's tests decode."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace

import crc32c


def varint(value: int) -> bytes:
    """A zigzag varint of any size."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def sized(data: bytes | None) -> bytes:
    """Bytes behind their length, -1 for null."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset_delta: int = 0,
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers: tuple[tuple[bytes, bytes | None], ...] = (),
    timestamp_delta: int = 0,
) -> bytes:
    """One record of a batch."""
    body = b"\x00" + varint(timestamp_delta) + varint(offset_delta) + sized(key) + sized(value)
    body += varint(len(headers))
    for name, content in headers:
        body += sized(name) + sized(content)
    return varint(len(body)) + body


@dataclass(frozen=True)
class Batch:
    """A batch whose every field can be given, right or wrong."""

    payload: bytes = field(default_factory=record)
    base_offset: int = 0
    leader_epoch: int = 0
    magic: int = 2
    attributes: int = 0
    last_delta: int = 0
    base_timestamp: int = 1000
    max_timestamp: int = 1000
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int = 1
    length: int | None = None
    crc: int | None = None

    def __bytes__(self) -> bytes:
        tail = struct.pack(
            ">hiqqqhii",
            self.attributes,
            self.last_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        )
        tail += self.payload
        crc = crc32c.crc32c(tail) if self.crc is None else self.crc
        length = len(tail) + 9 if self.length is None else self.length
        return (
            struct.pack(">qiibI", self.base_offset, length, self.leader_epoch, self.magic, crc)
            + tail
        )

    def but(self, **changes: object) -> Batch:
        """The same batch with other fields."""
        return replace(self, **changes)  # type: ignore[arg-type]


def batch_of(*values: bytes | None, base_offset: int = 0, **fields: object) -> Batch:
    """A batch of values at consecutive offsets."""
    payload = b"".join(record(place, value) for place, value in enumerate(values))
    made = Batch(payload, base_offset, last_delta=len(values) - 1, count=len(values))
    return made.but(**fields)


def control_batch(base_offset: int, producer_id: int, kind: int) -> Batch:
    """A marker that ends a transaction: kind 0 aborts, 1 commits."""
    key = struct.pack(">hh", 0, kind)
    return Batch(
        record(0, struct.pack(">hi", 0, 0), key),
        base_offset,
        attributes=0x30,
        producer_id=producer_id,
        producer_epoch=0,
    )


def message(
    offset: int,
    value: bytes | None = b"v",
    key: bytes | None = None,
    *,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 1000,
    crc: int | None = None,
) -> bytes:
    """One message of magic 0 or 1."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    checksum = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4, checksum) + body


def gzipped(data: bytes) -> bytes:
    """gzip by the standard library, not by the kernel's own."""
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()
