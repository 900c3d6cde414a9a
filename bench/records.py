"""Record batches: decode to Arrow, encode from Arrow, and record objects.

Every library reads the same bytes. Values are text that compresses about as well as JSON events do.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import aiokafka.record.default_records as aiokafka_batch
import aiokafka.record.legacy_records as aiokafka_legacy
import aiokafka.record.memory_records as aiokafka_memory
import kafka.record.default_records as kafka_batch
import kafka.record.legacy_records as kafka_legacy
import kafka.record.memory_records as kafka_memory
import pyarrow as pa

from bench.model import OURS, Benchmark, Job, Row
from karrow import records

RECORDS = 9_000
VALUE_BYTES = 100
START_MS = 1_700_000_000_000
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
WITH_HEADERS = "keys, headers"
CASES = (*CODECS, WITH_HEADERS)
# The peers fix these two; the level of lz4 is each library's default.
LEVELS = {"gzip": 9, "zstd": 3}

Headers = list[tuple[str, bytes | None]]
Source = tuple[bytes | None, bytes, Headers]
Batch = (
    aiokafka_batch.DefaultRecordBatch
    | aiokafka_legacy.LegacyRecordBatch
    | kafka_batch.DefaultRecordBatch
    | kafka_legacy.LegacyRecordBatch
)


@dataclass(frozen=True)
class Peer:
    """A library's reader and builder; the two peers name and shape them alike."""

    reader: type[aiokafka_memory.MemoryRecords | kafka_memory.MemoryRecords]
    builder: type[aiokafka_batch.DefaultRecordBatchBuilder | kafka_batch.DefaultRecordBatchBuilder]

    def decode(self, case: str, *, crc: bool) -> Job:
        """Iterate over the records."""
        data = batch(case)

        def job() -> None:
            for found in self._batches(data, crc=crc):
                for _ in found:
                    pass

        return job

    def objects(self, case: str) -> Job:
        """Iterate and read every field."""
        data = batch(case)

        def job() -> None:
            for found in self._batches(data, crc=True):
                for r in found:
                    _ = (r.offset, r.timestamp, r.key, r.value, r.headers)

        return job

    def encode(self, case: str) -> Job:
        """Append record by record and build."""
        taken = source(case)

        def job() -> bytearray:
            builder = self.builder(2, CODECS.get(case, 0), 0, -1, -1, -1, 1 << 30)
            append = builder.append
            for offset, (key, value, headers) in enumerate(taken):
                append(offset, START_MS + offset, key, value, headers)
            return builder.build()

        return job

    def _batches(self, data: bytes, *, crc: bool) -> Iterator[Batch]:
        reader = self.reader(data)
        while found := reader.next_batch():
            if crc and not found.validate_crc():
                raise ValueError("the CRC is wrong")
            yield found


PEERS = {
    "aiokafka": Peer(aiokafka_memory.MemoryRecords, aiokafka_batch.DefaultRecordBatchBuilder),
    "kafka-python": Peer(kafka_memory.MemoryRecords, kafka_batch.DefaultRecordBatchBuilder),
}


@functools.cache
def source(case: str) -> list[Source]:
    """The records as Python objects: key, value, headers."""
    rng = random.Random(RECORDS)
    taken: list[Source] = []
    for number in range(RECORDS):
        event = (
            f'{{"order":{number},"customer":"{rng.getrandbits(32):08x}","status":"shipped",'
            f'"cents":{rng.randrange(100_000)},"note":"'
        )
        value = event.ljust(VALUE_BYTES - 2, ".").encode() + b'"}'
        if case == WITH_HEADERS:
            headers: Headers = [("trace", rng.randbytes(16)), ("source", b"web")]
            taken.append((rng.randbytes(16), value, headers))
        else:
            taken.append((None, value, []))
    return taken


@functools.cache
def batch(case: str) -> bytes:
    """The bytes that every reader gets."""
    built = PEERS["aiokafka"].encode(case)()
    assert isinstance(built, bytearray)
    return bytes(built)


def table(case: str) -> pa.Table:
    """The same records as an Arrow table."""
    taken = source(case)
    stamps = [START_MS + offset for offset in range(RECORDS)]
    columns = {
        "value": pa.array([value for _, value, _ in taken], pa.binary()),
        "timestamp": pa.array(stamps, pa.timestamp("ms", "UTC")),
    }
    if case == WITH_HEADERS:
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        rows = [[{"key": k, "value": v} for k, v in headers] for _, _, headers in taken]
        columns["key"] = pa.array([key for key, _, _ in taken], pa.binary())
        columns["headers"] = pa.array(rows, pa.list_(header))
    return pa.table(columns)


def karrow_decode(case: str, *, crc: bool, columns: list[str] | None = None) -> Job:
    """Build the Arrow columns, ready to be handed out through the PyCapsule interface."""
    data = batch(case)
    return lambda: records.decode(data, columns=columns, check_crc=crc)


def karrow_pyarrow(case: str) -> Job:
    """The same, and make a pyarrow object of them."""
    data = batch(case)
    return lambda: pa.record_batch(records.decode(data))


def karrow_objects(case: str) -> Job:
    data = batch(case)

    def job() -> None:
        for r in records.RecordReader(data, topic="t", partition=0):
            _ = (r.offset, r.timestamp_ms, r.key, r.value, r.headers)

    return job


def karrow_encode(case: str) -> Job:
    columns = table(case)
    compression = case if CODECS.get(case) else None
    level = LEVELS.get(case)
    return lambda: records.encode(columns, compression=compression, level=level)


def karrow_append(case: str) -> Job:
    taken = source(case)
    compression = case if CODECS.get(case) else None
    level = LEVELS.get(case)

    def job() -> bytes:
        builder = records.BatchBuilder(compression=compression, level=level, max_bytes=1 << 24)
        append = builder.append
        for offset, (key, value, headers) in enumerate(taken):
            append(key, value, timestamp_ms=START_MS + offset, headers=headers)
        return builder.build()

    return job


def block(
    group: str,
    ours: Callable[[str], Job],
    theirs: Callable[[Peer, str], Job],
    wanted: Mapping[str, float] | None = None,
) -> Iterator[Row]:
    """One row per case, each library doing the same job."""
    for case in CASES:
        libraries = {OURS: functools.partial(ours, case)}
        for name, peer in PEERS.items():
            libraries[name] = functools.partial(theirs, peer, case)
        yield Row(
            group=group,
            case=case,
            units=RECORDS,
            libraries=libraries,
            wanted=wanted or {} if not CODECS.get(case) else {},
            headline=case in ("uncompressed", "zstd") and "no CRC" not in group,
        )


def rows() -> Iterator[Row]:
    for crc, words in ((True, "CRC checked"), (False, "no CRC")):
        yield from block(
            f"Decode to Arrow, {words}",
            functools.partial(karrow_decode, crc=crc),
            functools.partial(Peer.decode, crc=crc),
            {"aiokafka": 10, "kafka-python": 300},
        )
    yield from block(
        "Decode to a pyarrow batch, CRC checked",
        karrow_pyarrow,
        functools.partial(Peer.decode, crc=True),
    )
    yield from block(
        "Decode the value column only, CRC checked",
        functools.partial(karrow_decode, crc=True, columns=["value"]),
        functools.partial(Peer.decode, crc=True),
    )
    yield from block(
        "Record objects, all fields read, CRC checked",
        karrow_objects,
        Peer.objects,
        {"aiokafka": 2},
    )
    yield from block("Encode from Arrow, CRC made", karrow_encode, Peer.encode, {"aiokafka": 10})
    yield from block("Encode by appending records, CRC made", karrow_append, Peer.encode)


BENCHMARK = Benchmark(
    name="records",
    title="Record batches",
    about=(
        f"One batch of {RECORDS:,} records with values of {VALUE_BYTES} bytes and timestamps; the "
        "last case of each block has keys of 16 bytes and two headers as well. All libraries read "
        "the same bytes; whether the CRC was checked stands in the block's name and holds for all "
        "of them. karrow builds all Arrow columns (and, where it says so, a pyarrow record batch "
        "of them), the peers are iterated to the end: "
        "aiokafka with its compiled reader and builder, kafka-python with the compiled crc32c "
        "package. karrow encodes an Arrow table, the peers Python objects made beforehand. gzip "
        "writes level 9 and zstd level 3 everywhere, lz4 each library's default. The ratios that "
        "are wanted (dashed in the chart) concern the cases without a codec: no reader can save "
        "the time of the codec itself."
    ),
    unit="records",
    peers=tuple(PEERS),
    rows=tuple(rows()),
)
