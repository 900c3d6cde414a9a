"""The options of everybody who fetches records."""
# ruff: noqa: RUF009 - option() makes a dataclass field

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from karrow.config.client import MAX_BUFFER_BYTES, MEBIBYTE, ClientConfig
from karrow.config.option import option
from karrow.errors import ConfigError

__all__ = ["FetchConfig", "Isolation"]

Isolation = Literal["read_uncommitted", "read_committed"]

# What an answer has beside records; librdkafka keeps the same distance.
FRAME_OVERHEAD = 512
MAX_FETCH_BYTES = MAX_BUFFER_BYTES - FRAME_OVERHEAD
# Requests have these durations as milliseconds in 32 bits.
MAX_DURATION = (2**31 - 1) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig(ClientConfig):
    """How records are fetched, besides what every client can be told."""

    __module__ = "karrow"

    isolation: Isolation = option(
        "read_uncommitted",
        doc="Whether to hand out records of transactions that are open or were aborted.",
        choices=("read_uncommitted", "read_committed"),
        librdkafka="isolation.level",
        java="isolation.level",
    )
    min_bytes: int = option(
        1,
        doc="A broker that has less than this waits for more, up to max_wait.",
        unit="bytes",
        minimum=0,
        maximum=MAX_BUFFER_BYTES,
        librdkafka="fetch.min.bytes",
        java="fetch.min.bytes",
    )
    max_bytes: int = option(
        50 * MEBIBYTE,
        doc="How much a broker may answer at once; a single batch may be larger.",
        unit="bytes",
        minimum=1,
        maximum=MAX_FETCH_BYTES,
        librdkafka="fetch.max.bytes",
        java="fetch.max.bytes",
    )
    partition_max_bytes: int = option(
        4 * MEBIBYTE,
        doc="How much of that may come from one partition; a single batch may be larger.",
        unit="bytes",
        minimum=1,
        maximum=MAX_FETCH_BYTES,
        librdkafka="fetch.message.max.bytes",
        java="max.partition.fetch.bytes",
    )
    max_wait: float = option(
        0.5,
        doc="How long a broker may wait for min_bytes before it answers.",
        unit="seconds",
        minimum=0,
        maximum=MAX_DURATION,
        librdkafka="fetch.wait.max.ms",
        java="fetch.max.wait.ms",
    )
    buffer_bytes: int = option(
        64 * MEBIBYTE,
        doc="How much fetched data may wait to be handed out; fetching rests beyond that.",
        unit="bytes",
        minimum=1024,
        librdkafka="queued.max.messages.kbytes",
    )
    max_decompressed_bytes: int = option(
        128 * MEBIBYTE,
        doc="How large a batch may be without its compression; a larger one is an error.",
        unit="bytes",
        minimum=1024,
        maximum=MAX_BUFFER_BYTES,
    )
    check_crcs: bool = option(
        True,
        doc="Compare the checksum of every batch with its bytes.",
        librdkafka="check.crcs",
        java="check.crcs",
    )
    fetch_sessions: bool = option(
        True,
        doc="Let brokers remember what is fetched, so that requests name only changes (KIP-227).",
    )

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)  # super() does not know a class that slots has remade
        if self.max_wait >= self.request_timeout:
            raise ConfigError(
                f"max_wait={self.max_wait} is not below request_timeout={self.request_timeout}",
                hint="a fetch without news would look like a broker that is gone",
            )
        self._check_sizes()

    def _check_sizes(self) -> None:
        if self.partition_max_bytes > self.max_bytes:
            raise ConfigError(
                f"partition_max_bytes={self.partition_max_bytes} is above "
                f"max_bytes={self.max_bytes}",
                hint="lower partition_max_bytes, or raise max_bytes",
            )
        if self.max_bytes + FRAME_OVERHEAD > self.max_frame_bytes:
            raise ConfigError(
                f"max_bytes={self.max_bytes} does not fit into "
                f"max_frame_bytes={self.max_frame_bytes}",
                hint=f"answers need {FRAME_OVERHEAD} bytes more than their records",
            )
