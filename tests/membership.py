"""Members of groups without a consumer around them: who owns what, and when."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import karrow
from karrow import errors
from karrow.aio.groups.member import AnyMembership, MemberState
from karrow.aio.groups.membership import Membership
from karrow.aio.groups.served import ServedMembership
from karrow.config import ConsumerConfig
from karrow.net.cluster import Cluster
from karrow.types import TopicPartition

GROUP = "g"
TOPIC = "t"
Partitions = frozenset[TopicPartition]
Pair = tuple[AnyMembership, "Reader"]


def run(main: Coroutine[Any, Any, None], limit: float = 30.0) -> None:
    """Run a test that ends."""
    asyncio.run(asyncio.wait_for(main, limit))


def parts(*numbers: int, topic: str = TOPIC) -> Partitions:
    """Partitions of the topic."""
    return frozenset(TopicPartition(topic, number) for number in numbers)


class Reader:
    """An owner that notes what it hears; ``owners`` is shared, to see that none has two."""

    def __init__(self, owners: dict[TopicPartition, Reader], *topics: str) -> None:
        self.topics = frozenset(topics or (TOPIC,))
        self.regex: str | None = None
        self.owners = owners
        self.news: list[tuple[str, Partitions]] = []
        self.errors: list[errors.KarrowError] = []
        self.generations: list[int] = []
        self.gate: asyncio.Event | None = None
        self.begun = 0

    def subscription(self) -> frozenset[str]:
        return self.topics

    def pattern(self) -> str | None:
        return self.regex

    def owned(self) -> Partitions:
        return frozenset(one for one, owner in self.owners.items() if owner is self)

    async def assigned(self, added: Partitions, generation: int) -> None:
        await asyncio.sleep(0)
        assert not added & self.owners.keys(), "owned twice"
        self.owners.update(dict.fromkeys(added, self))
        self.generations.append(generation)
        self.news.append(("assigned", added))

    async def revoking(self, gone: Partitions) -> None:
        self.begun += 1
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        self._remove("revoked", gone)

    def lost(self, gone: Partitions) -> None:
        self._remove("lost", gone)

    def failed(self, error: errors.KarrowError) -> None:
        self.errors.append(error)

    def heard(self, what: str) -> list[Partitions]:
        """The partitions of all news of a kind."""
        return [partitions for kind, partitions in self.news if kind == what]

    def _remove(self, what: str, gone: Partitions) -> None:
        assert gone
        assert gone <= self.owned()
        for one in gone:
            del self.owners[one]
        self.news.append((what, gone))


class Members:
    """Members of a group, which come and go; ``options`` are theirs unless they have others."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        self.owners: dict[TopicPartition, Reader] = {}
        self._options = {
            "bootstrap": bootstrap,
            "group": GROUP,
            "heartbeat_interval": 0.05,
            "session_timeout": 10.0,
            "retry_backoff": 0.02,
            **options,
        }
        self._stack = contextlib.AsyncExitStack()

    async def join(
        self,
        *topics: str,
        pattern: str | None = None,
        join_attempts: int | None = None,
        **options: Any,
    ) -> Pair:
        """One that has been started."""
        config = ConsumerConfig(**{**self._options, **options})
        cluster = Cluster(config)
        self._stack.push_async_callback(cluster.close)
        reader = Reader(self.owners, *topics)
        reader.regex = pattern
        kind = ServedMembership if config.protocol == "consumer" else Membership
        found = kind(config, cluster, reader, join_attempts=join_attempts)
        self._stack.push_async_callback(found.close)
        await found.start()
        return found, reader

    async def close(self) -> None:
        """End all."""
        await self._stack.aclose()


class EmbeddedGroup(Members):
    """Members of a group at an embedded broker."""

    def __init__(self, broker: karrow.AsyncBroker, **options: Any) -> None:
        super().__init__(broker.bootstrap, **options)
        self.broker = broker

    def sent(self, api: str) -> list[Any]:
        """The requests of a kind that the broker has seen."""
        return [one for one in self.broker.requests if one.api == api]


@contextlib.asynccontextmanager
async def group(
    partitions: int = 4, brokers: int = 1, version: str | None = None, **options: Any
) -> AsyncIterator[EmbeddedGroup]:
    """A group without members."""
    async with karrow.AsyncBroker(brokers, version=version, heartbeat_interval=0.05) as broker:
        broker.create_topic(TOPIC, partitions)
        found = EmbeddedGroup(broker, **options)
        try:
            yield found
        finally:
            await found.close()


async def until(condition: Callable[[], object], limit: float = 10.0) -> None:
    """Wait for something to be so."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "it never was"
        await asyncio.sleep(0.01)


def settled(*members: Pair) -> Callable[[], bool]:
    """All in one generation, and everybody owns something."""

    def check() -> bool:
        found = {member.generation for member, _ in members}
        stable = all(member.state is MemberState.STABLE for member, _ in members)
        return stable and len(found) == 1 and all(reader.owned() for _, reader in members)

    return check


async def takes_over(reader: Reader, added: Partitions, generation: int) -> None:
    """Instead of ``Reader.assigned`` where the broker does not wait for the member before."""
    await until(lambda: not added & reader.owners.keys())
    reader.owners.update(dict.fromkeys(added, reader))
    reader.generations.append(generation)


class Clock:
    """Time, as memberships see it."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead
