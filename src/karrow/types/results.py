"""What produce and fetch give back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from karrow.types.topics import TopicPartition

__all__ = ["AbortedTransaction", "FetchResult", "RecordMetadata", "SendSummary"]

RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record ended up; ``offset`` is None with acks=0, when the broker does not answer.

    ``timestamp_ms`` is the broker's where the topic stamps on append, else the record's own.
    """

    __module__ = "karrow"

    topic: str
    partition: int
    offset: int | None
    timestamp_ms: int | None = None
    log_start_offset: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition as one key."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class SendSummary:
    """What became of Arrow data: rows written, and for each partition how many and from where.

    ``partitions`` maps a TopicPartition to the count and the offset of the first row, which is None
    where the broker did not say; rows of others may lie between ours.
    """

    __module__ = "karrow"

    records: int
    partitions: Mapping[TopicPartition, tuple[int, int | None]]


class AbortedTransaction(NamedTuple):
    """The records of this producer from ``first_offset`` to its abort marker do not count."""

    producer_id: int
    first_offset: int


AbortedTransaction.__module__ = "karrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult(Generic[RecordT]):
    """The records of one partition and what the broker said about its log.

    ``next_offset`` is where to fetch next: past control records, aborted data and gaps, which
    ``records`` leaves out. Offsets that the answer's version lacks are None. ``throttle_time`` is
    in seconds.
    """

    __module__ = "karrow"

    topic: str
    partition: int
    records: Sequence[RecordT]
    high_watermark: int
    next_offset: int
    last_stable_offset: int | None = None
    log_start_offset: int | None = None
    preferred_read_replica: int | None = None
    aborted_transactions: tuple[AbortedTransaction, ...] = ()
    throttle_time: float = 0.0
