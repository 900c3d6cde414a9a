"""Topics and partitions: their names, their state in the cluster, and requests for new ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from karrow.errors import KarrowError

__all__ = [
    "CreatedTopic",
    "NewPartitions",
    "NewTopic",
    "PartitionMetadata",
    "TopicMetadata",
    "TopicPartition",
    "is_topic_name",
]

NO_TOPIC_ID = UUID(int=0)
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: object) -> bool:
    """Whether Kafka could have a topic of that name."""
    is_legal = isinstance(name, str) and _TOPIC_NAME.fullmatch(name) is not None
    return is_legal and name not in (".", "..")


class TopicPartition(NamedTuple):
    """One partition of a topic; equal to the plain tuple.

    >>> TopicPartition("orders", 0) == ("orders", 0)
    True
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


TopicPartition.__module__ = "karrow"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Where a partition lives.

    ``leader`` is a broker id, None while there is none; ``leader_epoch`` is None before Kafka 2.1.
    """

    __module__ = "karrow"

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: KarrowError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as the cluster describes it; ``error`` is set when it could not be described.

    ``partitions`` maps partition numbers to their metadata. ``topic_id`` is None where the broker
    knows no ids (before Kafka 2.8, KIP-516).
    """

    __module__ = "karrow"

    name: str
    topic_id: UUID | None = None
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)
    error: KarrowError | None = field(default=None, compare=False)
    internal: bool = False


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the broker (Kafka 2.4, KIP-464).

    ``assignments`` places replicas by hand, partition number to broker ids, and replaces both
    numbers.

    >>> NewTopic("orders", partitions=6, config={"retention.ms": "86400000"}).partitions
    6
    """

    __module__ = "karrow"

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    config: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What the broker made of a NewTopic; numbers are None where its answer lacks them."""

    __module__ = "karrow"

    name: str
    topic_id: UUID | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Grow a topic to ``total`` partitions.

    ``assignments`` holds the replicas of each added partition, in order.
    """

    __module__ = "karrow"

    total: int
    assignments: Sequence[Sequence[int]] | None = None
