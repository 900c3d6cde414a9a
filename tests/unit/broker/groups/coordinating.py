"""A coordinator without sockets: a cluster of one node, a clock by hand, tables in memory."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from karrow import errors, wire
from karrow.broker.clock import ManualClock
from karrow.broker.cluster import Cluster, Endpoint
from karrow.broker.groups import Groups
from karrow.broker.groups.consumer import Beat, Beaten
from karrow.broker.groups.members import Join, Joined, Sync
from karrow.broker.releases import release
from karrow.broker.store import MemoryStore

GROUP = "group"
PLAIN = (("range", b""),)

T = TypeVar("T")


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test inside a loop, which those who wait need."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Tables(MemoryStore):
    """A store whose tables outlive the cluster."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}

    def load(self, table: str) -> dict[str, Any]:
        return dict(self.tables.get(table, {}))

    def put(self, table: str, key: str, value: Any) -> None:
        rows = self.tables.setdefault(table, {})
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = json.loads(json.dumps(value))


class Coordinating:
    """A cluster with its clock, and members' requests in short."""

    def __init__(self, **topics: int) -> None:
        self.clock = ManualClock()
        self.store = Tables()
        self._start()
        for name, partitions in topics.items():
            self.cluster.create_topic(name, partitions)

    @property
    def groups(self) -> Groups:
        return self.cluster.groups

    def restart(self) -> None:
        """A new process on the same data."""
        self.cluster.groups.close()
        self._start()
        self.cluster.recover_topics()
        self.groups.recover()

    def _start(self) -> None:
        self.cluster = Cluster(
            clock=self.clock, store=self.store, seed=1, release=release("4.3", ())
        )
        self.cluster.nodes[1] = Endpoint(1, "127.0.0.1", 9092)

    # The classic protocol.

    def join(self, member_id: str = "", **more: Any) -> asyncio.Future[Joined]:
        wish = {
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "session_timeout": 10.0,
            "rebalance_timeout": 30.0,
            "protocol_type": "consumer",
            "protocols": PLAIN,
        }
        return self.groups.join(GROUP, Join(**{**wish, **more}, member_id=member_id))

    def new_id(self, **more: Any) -> str:
        """The id that a new member is given."""
        try:
            self.join(**more)
        except errors.MemberIdRequired as error:
            return str(error.context["member_id"])
        raise AssertionError("no id was given")

    def enter(self, **more: Any) -> asyncio.Future[Joined]:
        return self.join(self.new_id(**more), **more)

    def sync(self, joined: Joined, **assignments: bytes) -> asyncio.Future[Any]:
        wish = Sync(
            member_id=joined.member_id,
            generation=joined.generation,
            assignments={joined.member_id: b"mine", **assignments},
        )
        return self.groups.sync(GROUP, wish)

    def settle(self, **more: Any) -> Joined:
        """The only member of a stable group."""
        joined = self.enter(**more).result()
        assert self.sync(joined).result().assignment == b"mine"
        return joined

    def heartbeat(self, joined: Joined) -> str:
        return outcome(self.groups.heartbeat, GROUP, joined.member_id, None, joined.generation)

    @property
    def state(self) -> str:
        return self.groups.find(GROUP).state_name

    # The consumer protocol.

    def beat(self, member_id: str, epoch: int, **more: Any) -> Beaten:
        beat = Beat(member_id=member_id, epoch=epoch, **more)
        return self.groups.consumer_heartbeat(GROUP, beat)

    def subscribe(self, member_id: str, *topics: str, **more: Any) -> Beaten:
        wish: Any = {"rebalance_timeout": 30.0, "topics": frozenset(topics), "owned": frozenset()}
        return self.beat(member_id, 0, **{**wish, **more})

    def partitions(self, topic: str, *indexes: int) -> frozenset[Any]:
        return frozenset((self.cluster.topic(topic).id, index) for index in indexes)


def outcome(call: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """The name of the error that a call raises, if it does."""
    try:
        call(*args, **kwargs)
    except errors.BrokerError as error:
        return error.name
    return ""


def refused(future: asyncio.Future[Any]) -> str:
    """The name of the error that somebody who waited was told."""
    error = future.exception()
    assert isinstance(error, errors.BrokerError)
    return error.name


def wanting(*topics: str) -> Any:
    """What a consumer says of itself."""
    return (("range", wire.encode_subscription({"topics": list(topics)}, 0)),)
