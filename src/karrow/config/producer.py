"""The options that only producers have."""
# ruff: noqa: RUF009 - option() makes a dataclass field

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from karrow.config.client import MEBIBYTE, ClientConfig
from karrow.config.option import nearest, option
from karrow.errors import ConfigError

__all__ = [
    "PARTITIONERS",
    "Acks",
    "AfterFork",
    "Callbacks",
    "Compression",
    "Partitioner",
    "ProducerConfig",
]

Acks = Literal["all", 1, 0, -1]
AfterFork = Literal["error", "restart"]
Callbacks = Literal["caller", "thread"]
Compression = Literal["gzip", "snappy", "lz4", "zstd", "none"]
# From the topic, the key and the number of partitions to a partition.
Partitioner = Callable[[str, bytes | None, int], int]

PARTITIONERS = ("murmur2", "murmur2_legacy", "consistent", "fnv1a", "random")
# Brokers remember the last five batches of a producer, and can put no more than those in order.
MAX_IDEMPOTENT_IN_FLIGHT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """What a producer can be told, besides what every client can.

    >>> ProducerConfig(acks=-1, linger=0).acks
    'all'
    """

    __module__ = "karrow"

    acks: Acks = option(
        "all",
        doc="Who has to have a batch before it counts: 'all' in-sync replicas, 1 leader, 0 nobody.",
        choices=("all", 1, 0, -1),
        librdkafka="acks",
        java="acks",
    )
    linger: float = option(
        0.005,
        doc="How long a batch waits for more records while there is room in it.",
        unit="seconds",
        minimum=0,
        librdkafka="queue.buffering.max.ms",
        java="linger.ms",
    )
    batch_bytes: int = option(
        1_000_000,
        doc="How large a batch grows before compression; a larger record is a batch of its own.",
        unit="bytes",
        minimum=1,
        maximum=2**30,
        librdkafka="batch.size",
        java="batch.size",
    )
    buffer_bytes: int = option(
        64 * MEBIBYTE,
        doc="How much may wait to be delivered; send waits for room beyond that.",
        unit="bytes",
        minimum=1024,
        librdkafka="queue.buffering.max.kbytes",
        java="buffer.memory",
    )
    compression: Compression | None = option(
        None,
        doc="How batches are compressed; None and 'none' leave them as they are.",
        choices=("gzip", "snappy", "lz4", "zstd", "none"),
        librdkafka="compression.type",
        java="compression.type",
    )
    compression_level: int | None = option(
        None,
        doc="The codec's own level; None is its default.",
        unit="level",
        librdkafka="compression.level",
    )
    delivery_timeout: float = option(
        120.0,
        doc="How long a record may take from send to its delivery, with all retries.",
        unit="seconds",
        above=0,
        librdkafka="delivery.timeout.ms",
        java="delivery.timeout.ms",
    )
    max_request_bytes: int = option(
        16 * MEBIBYTE,
        doc="The largest request that is sent; a record that does not fit is refused.",
        unit="bytes",
        minimum=1000,
        maximum=2**31 - 1,
        librdkafka="message.max.bytes",
        java="max.request.size",
    )
    max_block: float | None = option(
        None,
        doc="How long send may wait for room, or for a topic; None is as long as it takes.",
        unit="seconds",
        minimum=0,
        java="max.block.ms",
    )
    partitioner: str | Partitioner = option(
        "murmur2",
        doc="Where a key goes: a hash by name, 'random', or f(topic, key, partitions).",
        librdkafka="partitioner",
    )
    adaptive_partitioning: bool = option(
        True,
        doc="Send fewer records without a key to partitions whose brokers are slow (KIP-794).",
        java="partitioner.adaptive.partitioning.enable",
    )
    idempotent: bool = option(
        True,
        doc="Let the broker drop what is sent twice and keep the order across retries.",
        librdkafka="enable.idempotence",
        java="enable.idempotence",
    )
    gapless: bool = option(
        False,
        doc="A batch that fails ends the producer, so that nothing after it is written.",
        librdkafka="enable.gapless.guarantee",
    )
    allow_duplicates: bool = option(
        False,
        doc="Without idempotence, send a batch again whose answer never came.",
    )
    transactional_id: str | None = option(
        None,
        doc="The name under which the producer's transactions go on after a restart.",
        librdkafka="transactional.id",
        java="transactional.id",
    )
    transaction_timeout: float = option(
        60.0,
        doc="The broker aborts a transaction that is open for longer.",
        unit="seconds",
        above=0,
        librdkafka="transaction.timeout.ms",
        java="transaction.timeout.ms",
    )
    callbacks: Callbacks = option(
        "caller",
        doc="Where done callbacks of a blocking Producer run: in calls of it, or in a thread.",
        choices=("caller", "thread"),
    )
    after_fork: AfterFork = option(
        "error",
        doc="What a forked child finds: an error, or an empty producer of its own.",
        choices=("error", "restart"),
    )
    connections_per_broker: int = option(
        2,
        doc="Over how many connections the batches for one broker may go.",
        unit="count",
        minimum=1,
        maximum=16,
    )
    topic_propagation: float = option(
        30.0,
        doc="How long a known topic may be missing from the metadata before its records fail.",
        unit="seconds",
        minimum=0,
        librdkafka="topic.metadata.propagation.max.ms",
    )
    exit_timeout: float = option(
        5.0,
        doc="How long the end of the interpreter waits for records that were not flushed.",
        unit="seconds",
        minimum=0,
    )

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)  # super() does not know a class that slots has remade
        if self.acks == -1:
            object.__setattr__(self, "acks", "all")
        if self.compression == "none":
            object.__setattr__(self, "compression", None)
        self._check_partitioner()
        self._check_compression()
        self._check_idempotence()
        self._check_transactions()

    def _check_partitioner(self) -> None:
        if callable(self.partitioner) or self.partitioner in PARTITIONERS:
            return
        near = nearest(str(self.partitioner), PARTITIONERS)
        raise ConfigError(
            f"partitioner={self.partitioner!r} is none of {', '.join(map(repr, PARTITIONERS))}",
            hint=f"did you mean {near!r}?" if near else "or give a function that chooses",
        )

    def _check_compression(self) -> None:
        if self.compression_level is not None and self.compression is None:
            raise ConfigError(
                f"compression_level={self.compression_level} without compression",
                hint="set compression= too, or leave out compression_level",
            )

    def _check_idempotence(self) -> None:
        if not self.idempotent:
            if self.gapless:
                raise ConfigError(
                    "gapless needs idempotent", hint="leave out idempotent=False, or gapless"
                )
            return
        if self.acks != "all":
            raise ConfigError(
                f"idempotent needs acks='all', not {self.acks}",
                hint="leave out acks, or set idempotent=False",
            )
        if self.max_in_flight > MAX_IDEMPOTENT_IN_FLIGHT:
            raise ConfigError(
                f"idempotent needs max_in_flight up to {MAX_IDEMPOTENT_IN_FLIGHT}, "
                f"not {self.max_in_flight}",
                hint="lower max_in_flight, or set idempotent=False",
            )
        if self.allow_duplicates:
            raise ConfigError(
                "allow_duplicates contradicts idempotent",
                hint="leave out allow_duplicates, or set idempotent=False",
            )

    def _check_transactions(self) -> None:
        if self.transactional_id is None:
            return
        if not self.transactional_id:
            raise ConfigError(
                "transactional_id is empty", hint="give it a name, or None for no transactions"
            )
        if not self.idempotent:
            raise ConfigError(
                "transactional_id needs idempotent",
                hint="leave out idempotent=False, or transactional_id",
            )
