"""What tests do to a broker that runs: trouble for requests, leaders, nodes, logs and sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from karrow.broker.faults import Fault, Kind, Moment, error_from
from karrow.errors import BrokerError, ConfigError

if TYPE_CHECKING:
    from karrow.broker.cluster import Cluster
    from karrow.broker.dispatch import Dispatcher, SeenRequest
    from karrow.broker.topic import Partition


class Scope(TypedDict, total=False):
    """Which requests a fault meets: how many, about what, and at which broker."""

    times: int
    topic: str | None
    partition: int | None
    broker: int | None


AnyError = str | int | type[BrokerError] | BrokerError


class Controls(ABC):
    """The part of a broker that is for tests. Everything happens on the broker's loop."""

    @property
    @abstractmethod
    def _cluster(self) -> Cluster: ...

    @property
    @abstractmethod
    def _dispatcher(self) -> Dispatcher: ...

    # Trouble for the next requests.

    def fail(self, api: str, error: AnyError, **scope: Unpack[Scope]) -> Fault:
        """Refuse requests with an error, given by Kafka's name for it, its code, or our class.

        With a topic or partition only that part of a request fails. Nothing is acted on.
        """
        return self._arm("fail", api, scope, error=error_from(error))

    def drop(self, api: str, *, when: Moment = "before", **scope: Unpack[Scope]) -> Fault:
        """Never answer, and leave the connection open; before or after acting on the request."""
        return self._arm("drop", api, scope, moment=when)

    def _hang_up(self, api: str, when: Moment, scope: Scope) -> Fault:
        return self._arm("close", api, scope, moment=when)

    def delay(
        self, api: str, seconds: float, *, when: Moment = "before", **scope: Unpack[Scope]
    ) -> Fault:
        """Answer late; the request is acted on after the delay, or before it."""
        return self._arm("delay", api, scope, moment=when, seconds=seconds)

    def corrupt(self, api: str = "Fetch", **scope: Unpack[Scope]) -> Fault:
        """Answer with one bit wrong: of the record data where there is some, else anywhere."""
        return self._arm("corrupt", api, scope)

    def raw(self, api: str, data: bytes, **scope: Unpack[Scope]) -> Fault:
        """Answer with these bytes, frame length and all."""
        return self._arm("raw", api, scope, data=data)

    def throttle(self, seconds: float, api: str | None = None, **scope: Unpack[Scope]) -> Fault:
        """Answer with a throttle time, and read nothing from that connection for so long."""
        return self._arm("throttle", api, scope, seconds=seconds)

    def reset(self) -> None:
        """Forget all topics, groups, transactions, faults and requests, as if just started."""
        self._cluster.reset()
        self.clear_faults()
        self.clear_requests()

    def clear_faults(self) -> None:
        """Disarm everything."""
        self._cluster.faults.clear()

    @property
    def requests(self) -> list[SeenRequest]:
        """The requests received so far, the newest 10,000 of them."""
        return list(self._dispatcher.seen)

    def clear_requests(self) -> None:
        """Forget the requests received so far."""
        self._dispatcher.seen.clear()

    # Partitions.

    def move_leader(self, topic: str, partition: int, broker: int | None = None) -> int:
        """Let another broker lead, by default the next replica; gives its id."""
        found = self._cluster.partition(topic, partition)
        leader = self._next_replica(found) if broker is None else broker
        if leader != -1 and leader not in self._cluster.nodes:
            raise ConfigError(f"broker={leader}: there is none with this id")
        if leader != -1 and leader not in found.replicas:
            found.replicas.append(leader)
            found.isr.append(leader)
        self._cluster.move_leader(found, leader)
        return leader

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Lose the records from ``offset`` on and begin a leader epoch: an unclean election."""
        found = self._cluster.partition(topic, partition)
        self._cluster.move_leader(found, found.leader)
        found.cut(offset)

    def apply_retention(self) -> None:
        """Drop what is too old or too much now, not at the next check."""
        self._cluster.apply_retention()

    def _next_replica(self, partition: Partition) -> int:
        alive = [node.node_id for node in self._cluster.alive]
        ids = [id_ for id_ in partition.replicas if id_ in alive] or alive
        if len(ids) == 1:
            ids = alive
        place = ids.index(partition.leader) + 1 if partition.leader in ids else 0
        return ids[place % len(ids)]

    # What clients believe.

    def hide_from_metadata(self, broker: int, *, hidden: bool = True) -> None:
        """Leave a broker out of metadata though it answers, or show it again."""
        if hidden:
            self._cluster.hidden.add(broker)
        else:
            self._cluster.hidden.discard(broker)

    def move_coordinator(self, key: str, broker: int, *, transactional: bool = False) -> None:
        """Let a broker coordinate a group, or with ``transactional`` a transactional id."""
        if broker not in self._cluster.nodes:
            raise ConfigError(f"broker={broker}: there is none with this id")
        self._cluster.pinned[int(transactional), key] = broker

    def expire_session(
        self, *, group: str | None = None, member: str | None = None, broker: int | None = None
    ) -> int:
        """Expire members of a group, or without one the fetch sessions; gives how many."""
        if group is not None:
            return self._cluster.groups.expire(group, member)
        return self._cluster.fetch_sessions.expire(broker)

    def _arm(self, kind: Kind, api: str | None, scope: Scope, **more: Any) -> Fault:
        return self._cluster.faults.arm(Fault(kind, api, **scope, **more))
