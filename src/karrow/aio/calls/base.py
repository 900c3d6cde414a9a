"""How a call becomes requests: a broker is found, a version chosen, a failure retried or raised.

Rules:
- A call lasts at most ``api_timeout``, with everything: connecting, finding brokers, pauses. When
  the time is up, the last failure is what the caller gets.
- Retriable errors are retried with growing pauses until then; ``retries`` may set fewer, and 0
  sends once. Between two attempts the cluster looks again for a leader or coordinator that moved.
- A call to many targets retries only those that failed. What still fails at the end is a
  PartialError; one error that all targets share is raised as it is.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from karrow.errors import KarrowError, LocalProtocolError, PartialError, RequestTimeout
from karrow.net.pool import HEARTBEATS
from karrow.net.retry import Classifier, is_transient, retry_pause
from karrow.types import BrokerInfo, Node, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from karrow.config import ClientConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection
    from karrow.wire.codec import Body

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

# Requests that the broker may hold back; whatever else is on their connection waits with them.
HELD_BY_BROKER = frozenset({"Fetch", "JoinGroup", "SyncGroup", "ShareFetch"})
# Requests with a connection of their own to a broker, on which nothing else travels.
SPECIAL = {
    "Heartbeat": HEARTBEATS,
    "ConsumerGroupHeartbeat": HEARTBEATS,
    "ShareGroupHeartbeat": HEARTBEATS,
}
NO_IDS = 99


class Reply(NamedTuple):
    """An answer, the version it is in, and the connection it came by."""

    message: Any
    version: int
    connection: Connection

    def context(self, name: str, **more: Any) -> dict[str, Any]:
        """What an error about this answer names."""
        return {"api": name, "broker": self.connection.peer, **more}


class Request(NamedTuple):
    """What to ask: ``body`` is made for the version that was chosen.

    ``limit`` is how many seconds it may take, ``most`` the newest version that can carry it.
    ``topics`` are those it names, by id from version ``ids_since`` on.
    """

    name: str
    to: Node
    body: Callable[[int, Connection], Body]
    api_version: int | None = None
    limit: float | None = None
    most: int | None = None
    topics: tuple[str, ...] = ()
    ids_since: int = NO_IDS


class Calls:
    """What every noun needs: the cluster, the options, and the loop of attempts."""

    def __init__(self, config: ClientConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster

    # ---- one request

    async def _send(self, request: Request) -> Reply:
        """One attempt."""
        way: Connection | None = None
        try:
            if request.name in HELD_BY_BROKER:
                async with self._cluster.alone(request.to) as way:
                    return await self._ask(request, way)
            way = await self._cluster.connection(request.to, SPECIAL.get(request.name))
            return await self._ask(request, way)
        except KarrowError as error:
            self._cluster.learn(error, request.to, None if way is None else way.peer.broker_id)
            raise

    async def _ask(self, request: Request, way: Connection) -> Reply:
        most = await self._newest(request) if request.topics else request.most
        version = way.versions.choose(request.name, request.api_version, most=most)
        body = request.body(version, way)
        message = await way.send(request.name, version, body, limit=request.limit)
        return Reply(message, version, way)

    async def _call(
        self,
        request: Request,
        read: Callable[[Reply], T],
        *,
        retries: int | None = None,
        retryable: Classifier = is_transient,
    ) -> T:
        """Send, read, and again while ``read`` or the way there fails for a moment."""

        return await self._attempts(
            lambda: self._once(request, read), retries=retries, retryable=retryable
        )

    async def _once(self, request: Request, read: Callable[[Reply], T]) -> T:
        """Send and read; a failure that means so has the way looked for again next time."""
        reply = await self._send(request)
        try:
            return read(reply)
        except KarrowError as error:
            self._cluster.learn(error, request.to, reply.connection.peer.broker_id)
            raise

    async def _attempts(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        retries: int | None = None,
        retryable: Classifier = is_transient,
    ) -> T:
        """Repeat an attempt until it succeeds, fails for good, or the call's time is up."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._config.call_timeout
        limit = asyncio.timeout_at(deadline)
        last: KarrowError | None = None
        made = 0
        try:
            async with limit:
                while True:
                    try:
                        return await attempt()
                    except KarrowError as error:
                        last = error
                        pause = self._pause(made)
                        is_last = made == retries or clock() + pause >= deadline
                        if is_last or not retryable(error):
                            raise
                    made += 1
                    await asyncio.sleep(pause)
        except TimeoutError as error:
            if isinstance(error, KarrowError) or not limit.expired():
                raise
            raise last or self._out_of_time() from None

    def _out_of_time(self) -> BaseException:
        """What a call gets that ended before its first failure: it may have waited to reconnect."""
        trouble = self._cluster.pool.trouble
        if trouble is not None:
            return copy.copy(trouble)
        return RequestTimeout(f"no success within {self._config.call_timeout:.1f} s")

    def _pause(self, made: int) -> float:
        return retry_pause(self._config, made)

    # ---- many targets

    async def _call_many(
        self,
        keys: Iterable[K],
        ask: Callable[[list[K]], Awaitable[Mapping[K, T | KarrowError]]],
        what: str,
        *,
        retries: int | None = None,
        retryable: Classifier = is_transient,
    ) -> dict[K, T]:
        """Ask for many keys; those whose outcome is a retryable error are asked for again."""
        wanted = list(keys)
        outcomes: dict[K, T | KarrowError] = {}

        async def attempt() -> None:
            left = [key for key in wanted if _is_open(outcomes, key, retryable)]
            outcomes.update(await ask(left))
            failed = [outcomes[key] for key in left if _is_open(outcomes, key, retryable)]
            if failed and isinstance(failed[0], KarrowError):
                raise failed[0]

        try:
            await self._attempts(attempt, retries=retries, retryable=retryable)
        except KarrowError as error:
            for key in wanted:
                outcomes.setdefault(key, error)
        return sorted_out(outcomes, wanted, what)

    async def _by_leader(
        self,
        partitions: list[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, Any]]],
    ) -> dict[TopicPartition, Any]:
        """Ask each leader for its own partitions, all leaders at once."""
        await self._cluster.look_up({partition.topic for partition in partitions})
        outcomes: dict[TopicPartition, Any] = {}
        groups: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            try:
                found = await self._cluster.leader(*partition)
            except KarrowError as error:
                outcomes[partition] = error
            else:
                groups.setdefault(found.leader or 0, []).append(partition)

        async def ask_one(broker_id: int, group: list[TopicPartition]) -> None:
            try:
                answers = await ask(broker_id, group)
            except KarrowError as error:
                answers = dict.fromkeys(group, error)
            for key, outcome in answers.items():
                outcomes[key] = outcome
                if isinstance(outcome, KarrowError):
                    self._cluster.learn(outcome, Node.leader(*key), broker_id)

        await asyncio.gather(*(ask_one(*group) for group in groups.items()))
        return outcomes

    def _learn_all(self, outcomes: Iterable[Any], to: Node) -> None:
        """Draw the conclusions from the errors among outcomes."""
        for outcome in outcomes:
            if isinstance(outcome, KarrowError):
                self._cluster.learn(outcome, to)

    # ---- topic ids

    async def _newest(self, request: Request) -> int | None:
        """The newest version that can carry a request; None when that is up to the broker.

        Versions that name topics by id are avoided while an id is unknown, unless the caller asks
        for one: then the ids are looked up. One that a broker did not know is looked up again.
        """
        await self._cluster.renew(request.topics)
        if (request.api_version or 0) >= request.ids_since:
            for topic in request.topics:
                await self._cluster.topic(topic)
        if all(self._cluster.cache.topic_id(topic) for topic in request.topics):
            return request.most
        newest = request.ids_since - 1
        return newest if request.most is None else min(request.most, newest)

    def _topic(self, topic: str, version: int, since: int, field: str = "name") -> dict[str, Any]:
        """A topic's entry in a request: its name, or its id in versions that have ids."""
        if version < since:
            return {field: topic}
        return {"topic_id": self._topic_id(topic)}

    def _follow(self, where: TopicPartition, answer: Any, endpoints: Iterable[Any]) -> None:
        """Take the hint about the new leader that came with an error (KIP-951)."""
        hint = answer.current_leader
        brokers = [BrokerInfo(one.node_id, one.host, one.port, one.rack) for one in endpoints]
        self._cluster.cache.set_leader(*where, hint.leader_id, hint.leader_epoch, brokers)

    def _topic_id(self, topic: str) -> UUID:
        found = self._cluster.cache.topic_id(topic)
        if found is None:
            raise LocalProtocolError(
                "this version names topics by id, which is unknown", topic=topic
            )
        return found

    def _topic_name(self, entry: Any, version: int, since: int, field: str = "name") -> str | None:
        """The name of a topic in an answer; None for an id that nobody has heard of."""
        if version < since:
            name: str = getattr(entry, field)
            return name
        return self._cluster.cache.topic_name(entry.topic_id)


def _is_open(outcomes: Mapping[K, Any], key: K, retryable: Classifier) -> bool:
    """Whether a key has no outcome yet, or one that may be better next time."""
    if key not in outcomes:
        return True
    outcome = outcomes[key]
    return isinstance(outcome, KarrowError) and retryable(outcome)


def sorted_out(outcomes: Mapping[K, T | KarrowError], wanted: list[K], what: str) -> dict[K, T]:
    """The results, or the errors among them raised."""
    results: dict[K, T] = {}
    errors: dict[K, KarrowError] = {}
    for key in wanted:
        outcome = outcomes[key]
        if isinstance(outcome, KarrowError):
            errors[key] = outcome
        else:
            results[key] = outcome
    if errors and not results and len(set(map(id, errors.values()))) == 1:
        raise next(iter(errors.values()))
    if errors:
        raise PartialError(f"{what}: {len(errors)} of {len(wanted)} failed", results, errors)
    return results
