"""Messages: bytes to an object and back, against the other codec made from Kafka's schemas."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest, FetchResponse, HeartbeatRequest
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import ProduceRequest

from bench.model import OURS, Benchmark, Job, Row
from karrow import wire

PEER = "kafka-python"
RECORD_DATA = bytes(100_000)


class Case(NamedTuple):
    """A message of a size that is common on real connections."""

    name: str
    message: str
    version: int
    body: dict[str, Any]
    peer: type[ApiMessage]


CASES = (
    Case(
        "Heartbeat request",
        "HeartbeatRequest",
        4,
        {"group_id": "billing", "generation_id": 7, "member_id": "billing-0a1b2c3d"},
        HeartbeatRequest,
    ),
    Case(
        "Metadata response, 6 brokers, 500 partitions",
        "MetadataResponse",
        12,
        {
            "brokers": [{"node_id": n, "host": f"broker-{n}", "port": 9092} for n in range(6)],
            "cluster_id": "4L6g3nShT-eMCtK--X86sw",
            "controller_id": 1,
            "topics": [
                {
                    "name": f"topic-{topic}",
                    "partitions": [
                        {
                            "partition_index": partition,
                            "leader_id": partition % 6,
                            "leader_epoch": 12,
                            "replica_nodes": [0, 1, 2],
                            "isr_nodes": [0, 1, 2],
                        }
                        for partition in range(25)
                    ],
                }
                for topic in range(20)
            ],
        },
        MetadataResponse,
    ),
    Case(
        "Fetch request, 50 partitions",
        "FetchRequest",
        12,
        {
            "max_bytes": 1 << 26,
            "topics": [
                {
                    "topic": "orders",
                    "partitions": [
                        {"partition": n, "fetch_offset": 10**9, "partition_max_bytes": 1 << 20}
                        for n in range(50)
                    ],
                }
            ],
        },
        FetchRequest,
    ),
    Case(
        "Fetch response, 50 partitions, 100 kB of records each",
        "FetchResponse",
        12,
        {
            "responses": [
                {
                    "topic": "orders",
                    "partitions": [
                        {"partition_index": n, "high_watermark": 10**9, "records": RECORD_DATA}
                        for n in range(50)
                    ],
                }
            ]
        },
        FetchResponse,
    ),
    Case(
        "Produce request, 10 partitions, 100 kB of records each",
        "ProduceRequest",
        9,
        {
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [
                {
                    "name": "orders",
                    "partition_data": [{"index": n, "records": RECORD_DATA} for n in range(10)],
                }
            ],
        },
        ProduceRequest,
    ),
)


def encoded(case: Case) -> bytes:
    """The bytes that both decode; both must also write them."""
    data = wire.encode(case.message, case.version, case.body)
    if bytes(case.peer.decode(data, case.version).encode()) != data:
        raise ValueError(f"{PEER} writes {case.name} otherwise")
    return data


def karrow_decode(case: Case) -> Job:
    data = encoded(case)
    return lambda: wire.decode(case.message, case.version, data)


def peer_decode(case: Case) -> Job:
    data = encoded(case)
    return lambda: case.peer.decode(data, case.version)


def karrow_encode(case: Case) -> Job:
    message = wire.decode(case.message, case.version, encoded(case))
    return lambda: wire.encode(case.message, case.version, message)


def peer_encode(case: Case) -> Job:
    return case.peer.decode(encoded(case), case.version).encode


def rows() -> Iterator[Row]:
    for group, ours, theirs in (
        ("Decode", karrow_decode, peer_decode),
        ("Encode", karrow_encode, peer_encode),
    ):
        for case in CASES:
            libraries = {
                OURS: functools.partial(ours, case),
                PEER: functools.partial(theirs, case),
            }
            yield Row(group=group, case=case.name, units=1, libraries=libraries)


BENCHMARK = Benchmark(
    name="wire",
    title="Messages",
    about=(
        "Bytes to an object with attributes and back to the same bytes, in the versions named by "
        "the benchmark's source. Both libraries compile a codec for a message's version on first "
        "use, which is outside the timer."
    ),
    unit="messages",
    peers=(PEER,),
    rows=tuple(rows()),
)
