"""kafka-python's and aiokafka's record code behind one face.

Builders write what a producer sends, so offsets and the broker's own fields are patched in
afterwards, as a broker does; both peers name their classes and arguments alike.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import aiokafka.record.default_records as aiokafka_default
import aiokafka.record.legacy_records as aiokafka_legacy
import aiokafka.record.memory_records as aiokafka_memory
import crc32c
import kafka.record.default_records as kafka_default
import kafka.record.legacy_records as kafka_legacy
import kafka.record.memory_records as kafka_memory

from tests.property.plain import Plain

ROOM = 1 << 30


@dataclass(frozen=True)
class Peer:
    name: str
    reader: type[aiokafka_memory.MemoryRecords | kafka_memory.MemoryRecords]
    builder: type[
        aiokafka_default.DefaultRecordBatchBuilder | kafka_default.DefaultRecordBatchBuilder
    ]
    legacy: type[aiokafka_legacy.LegacyRecordBatchBuilder | kafka_legacy.LegacyRecordBatchBuilder]

    def __str__(self) -> str:
        return self.name

    def supports(self, magic: int, codec: str | None) -> bool:
        """aiokafka refuses the lz4 frames of magic 0, whose header checksum is wrong by design."""
        return not (self.name == "aiokafka" and magic == 0 and codec == "lz4")

    def read(self, data: bytes) -> list[Plain]:
        """Every record of the data, CRCs checked."""
        records = []
        reader = self.reader(data)
        while batch := reader.next_batch():
            assert batch.validate_crc()
            records += [
                Plain(
                    r.offset,
                    r.timestamp,
                    -1 if r.timestamp_type is None else r.timestamp_type,
                    r.key,
                    r.value,
                    tuple(r.headers),
                )
                for r in batch
            ]
        return records

    def write(self, records: Sequence[Plain], magic: int, codec: int) -> bytes:
        """The records as a broker that got them from this library would serve them."""
        return (
            self._write_batch(records, codec)
            if magic == 2
            else self._write_messages(records, magic, codec)
        )

    def _write_batch(self, records: Sequence[Plain], codec: int) -> bytes:
        builder = self.builder(2, codec, 0, -1, -1, -1, ROOM)
        base = records[0].offset
        for r in records:
            delta = r.offset - base
            assert builder.append(delta, r.timestamp_ms, r.key, r.value, list(r.headers))
        data = builder.build()
        struct.pack_into(">q", data, 0, base)
        return bytes(data)

    def _write_messages(self, records: Sequence[Plain], magic: int, codec: int) -> bytes:
        builder = self.legacy(magic, codec, ROOM)
        # Inside a wrapper, magic 1 counts from 0 and magic 0 absolutely.
        base = records[0].offset if codec and magic == 1 else 0
        for r in records:
            assert builder.append(r.offset - base, r.timestamp_ms, r.key, r.value)
        data = builder.build()
        if codec:
            struct.pack_into(">q", data, 0, records[-1].offset)
        return bytes(data)


KAFKA_PYTHON = Peer(
    "kafka-python",
    kafka_memory.MemoryRecords,
    kafka_default.DefaultRecordBatchBuilder,
    kafka_legacy.LegacyRecordBatchBuilder,
)
AIOKAFKA = Peer(
    "aiokafka",
    aiokafka_memory.MemoryRecords,
    aiokafka_default.DefaultRecordBatchBuilder,
    aiokafka_legacy.LegacyRecordBatchBuilder,
)
PEERS = [KAFKA_PYTHON, AIOKAFKA]


def stamp_on_append(data: bytes, timestamp_ms: int) -> bytes:
    """Mark a batch or a single message as a broker with LogAppendTime does."""
    stamped = bytearray(data)
    if stamped[16] == 2:
        attributes = struct.unpack_from(">h", stamped, 21)[0]
        struct.pack_into(">h", stamped, 21, attributes | 0x08)
        struct.pack_into(">q", stamped, 35, timestamp_ms)
        struct.pack_into(">I", stamped, 17, crc32c.crc32c(bytes(stamped[21:])))
    else:
        stamped[17] |= 0x08
        struct.pack_into(">q", stamped, 18, timestamp_ms)
        struct.pack_into(">I", stamped, 12, zlib.crc32(stamped[16:]))
    return bytes(stamped)
