"""The cluster: brokers, selectors that name one of them, and metadata about them all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from karrow.types.topics import TopicMetadata, TopicPartition

if TYPE_CHECKING:
    from karrow.errors import KarrowError

__all__ = [
    "BrokerInfo",
    "ClusterDescription",
    "ClusterMetadata",
    "Coordinator",
    "CoordinatorKind",
    "Node",
    "NodeKind",
]

NodeKind = Literal[
    "id", "any", "random", "controller", "leader", "coordinator", "transaction_coordinator"
]
CoordinatorKind = Literal["group", "transaction", "share"]


@dataclass(frozen=True, slots=True)
class Node:
    """Says which broker a request goes to; made by the class methods, resolved by the client.

    >>> Node.leader("orders", 0)
    Node.leader('orders', 0)
    """

    __module__ = "karrow"

    kind: NodeKind
    key: tuple[str | int, ...] = ()

    @classmethod
    def id(cls, broker_id: int) -> Node:
        """The broker with this id."""
        return cls("id", (broker_id,))

    @classmethod
    def any(cls) -> Node:
        """Whichever broker is the cheapest to reach: connected and least busy first."""
        return cls("any")

    @classmethod
    def random(cls) -> Node:
        """A broker drawn at random."""
        return cls("random")

    @classmethod
    def controller(cls) -> Node:
        """The broker that stands for the controller in the metadata."""
        return cls("controller")

    @classmethod
    def leader(cls, topic: str, partition: int) -> Node:
        """The leader of a partition."""
        return cls("leader", (topic, partition))

    @classmethod
    def coordinator(cls, group: str) -> Node:
        """The coordinator of a group."""
        return cls("coordinator", (group,))

    @classmethod
    def transaction_coordinator(cls, transactional_id: str) -> Node:
        """The coordinator of a transactional id."""
        return cls("transaction_coordinator", (transactional_id,))

    @property
    def broker_id(self) -> int:
        """The id of ``Node.id``."""
        return int(self.key[0])

    @property
    def partition(self) -> TopicPartition:
        """The partition of ``Node.leader``."""
        return TopicPartition(str(self.key[0]), int(self.key[1]))

    def __repr__(self) -> str:
        return f"Node.{self.kind}({', '.join(map(repr, self.key))})"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker's id and the address it advertises."""

    __module__ = "karrow"

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.id} ({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Brokers by id and topics by name, as one answer of the cluster has them.

    ``cluster_id`` and ``controller_id`` are None where the broker gave none.
    """

    __module__ = "karrow"

    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    controller_id: int | None = None
    cluster_id: str | None = None
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)

    @property
    def controller(self) -> BrokerInfo | None:
        """The controller's address, None while it is unknown."""
        return None if self.controller_id is None else self.brokers.get(self.controller_id)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Answer to DescribeCluster; ``authorized_operations`` only where they were asked for."""

    __module__ = "karrow"

    cluster_id: str
    controller_id: int | None
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    fenced_brokers: frozenset[int] = frozenset()
    authorized_operations: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that coordinates ``key``, a group or a transactional id."""

    __module__ = "karrow"

    key: str
    kind: CoordinatorKind
    broker: BrokerInfo | None
    error: KarrowError | None = field(default=None, compare=False)
