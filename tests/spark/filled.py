"""Topics with records of every kind, filled once for each broker and then only read."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import karrow
from tests.brokers import KafkaCluster
from tests.fix_admin import new_name

START_MS = 1_700_000_000_000
STEP_MS = 1000

# Partitions of different sizes, written in thirds with these codecs in turn.
CODECS: tuple[Any, ...] = ("gzip", "snappy", "lz4", "zstd", None)
SIZES = (210, 45, 6)

HEADERS: tuple[Any, ...] = (
    (),
    (("trace", b"1"), ("trace", b"2"), ("trace", b"1")),
    (("none", None), ("empty", b"")),
    (("größe", b"\x00\xff"),),
)
KEYS = (None, b"", b"key", b"\xff\xfe")


@dataclass(frozen=True)
class Filled:
    """The names of what is there."""

    orders: str
    """Partitions of SIZES, with all codecs, a record each second from START_MS on."""
    sparse: str
    """Three partitions, of which only the second has records."""
    empty: str
    """Two partitions with nothing."""
    stamped: str
    """One partition whose times are the broker's."""
    trimmed: str
    """Two partitions: the first 40 of 100 records are deleted, and all 30."""
    dealt: str
    """One partition: 20 committed, 15 aborted, 10 committed, 5 aborted; its end is a marker."""


def moment(number: int) -> int:
    """When the record of that number was written."""
    return START_MS + number * STEP_MS


def record(number: int) -> dict[str, Any]:
    """What is in the record of that number."""
    return {
        "value": None if number % 7 == 3 else b"%d." % number * (number % 11),
        "key": KEYS[number % len(KEYS)],
        "headers": HEADERS[number % len(HEADERS)],
        "timestamp_ms": moment(number),
    }


def put(bootstrap: str, topic: str, partition: int, numbers: Iterable[int], **options: Any) -> None:
    """Write records of these numbers."""
    with karrow.Producer(bootstrap, **options) as producer:
        for number in numbers:
            producer.send(topic, partition=partition, **record(number))


def filled(cluster: KafkaCluster) -> Filled:
    """The topics of that cluster."""
    return _filled(cluster.bootstrap(), cluster)


def new_topic(
    cluster: KafkaCluster,
    name: str | None = None,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
) -> str:
    """A topic that keeps records from START_MS, which is long ago."""
    kept = {"retention.ms": "-1", **(config or {})}
    return cluster.create_topic(name, partitions=partitions, config=kept)


@functools.cache
def _filled(bootstrap: str, cluster: KafkaCluster) -> Filled:
    family = new_name("parity")

    def topic(name: str, partitions: int, config: Mapping[str, str] | None = None) -> str:
        return new_topic(cluster, f"{family}.{name}", partitions, config)

    made = Filled(
        orders=topic("orders", len(SIZES)),
        sparse=topic("sparse", 3),
        empty=topic("empty", 2),
        stamped=topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"}),
        trimmed=topic("trimmed", 2),
        dealt=topic("dealt", 1),
    )
    codecs = itertools.cycle(CODECS)
    for partition, size in enumerate(SIZES):
        third = size // 3
        for start in range(0, size, third):
            numbers = range(start, start + third)
            put(bootstrap, made.orders, partition, numbers, compression=next(codecs))
    put(bootstrap, made.sparse, 1, range(10))
    put(bootstrap, made.stamped, 0, range(5))
    put(bootstrap, made.trimmed, 0, range(100))
    put(bootstrap, made.trimmed, 1, range(30))
    with karrow.Admin(bootstrap) as admin:
        admin.delete_records({(made.trimmed, 0): 40, (made.trimmed, 1): "latest"})
    deal(bootstrap, made.dealt, (20, True), (15, False), (10, True), (5, False))
    return made


def deal(bootstrap: str, topic: str, *transactions: tuple[int, bool]) -> None:
    """Transactions with so many records each, committed or aborted."""
    with karrow.Producer(bootstrap, transactional_id=new_name("dealer")) as producer:
        producer.init_transactions()
        for size, committed in transactions:
            producer.begin_transaction()
            for number in range(size):
                producer.send(topic, partition=0, **record(number))
            producer.flush()
            if committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
