"""The cluster as the client sees it: brokers to reach, metadata to believe, requests to route.

Rules:
- Constructing it opens nothing; the first request does. Between requests nothing runs.
- Metadata is asked for when a request needs it: unknown, older than ``metadata_max_age``, or after
  an error that says it is stale. Equal questions under way are asked once.
- Any broker will do for metadata: connected ones first, then known ones, then the bootstrap
  addresses, which are evaluated and resolved anew each time (KIP-899).
- When known brokers can be reached but have given no metadata for ``rebootstrap_after``, or one of
  them asks us to bootstrap again (KIP-1102), we forget every address, but not which cluster we
  belong to. ``metadata_recovery="none"`` forbids that, and going back to the bootstrap addresses.
- A broker of another cluster is refused: its answer is dropped and its connection closed.
- What is unknown after a refresh is an error for the caller, not a reason to ask for ever.
- An id that a coordinator does not know is that of a topic which was made again: the topic is asked
  for before it is named by its id the next time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from karrow import events
from karrow.errors import (
    AuthenticationError,
    BrokerNotAvailable,
    ConfigError,
    ConnectError,
    InconsistentClusterId,
    InconsistentTopicId,
    KarrowError,
    LeaderNotAvailable,
    LocalProtocolError,
    NetworkError,
    RebootstrapRequired,
    RemoteProtocolError,
    RequestTimeout,
    StaleCoordinator,
    StaleMetadata,
    StateError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    error_for,
)
from karrow.net.connection import Connection, Peer
from karrow.net.coordinators import Coordinators
from karrow.net.dial import Dialer
from karrow.net.metadata import MetadataCache
from karrow.net.pool import COORDINATOR, GENERAL, LANE, WAITING, Link, Pool
from karrow.net.sharing import Sharing
from karrow.types import Node
from karrow.wire import api

if TYPE_CHECKING:
    from karrow.config import ClientConfig
    from karrow.types import (
        BrokerInfo,
        ClusterMetadata,
        CoordinatorKind,
        PartitionMetadata,
        TopicMetadata,
    )

# Metadata versions: before 1 an empty list means all topics; before 4 asking creates a topic.
FIRST_WITH_NULL_FOR_ALL = 1
FIRST_WITH_CREATE_FLAG = 4
# What a coordinator says of a topic that it does not know, or not by that id.
UNKNOWN_TOPICS = (UnknownTopicOrPartition, UnknownTopicId, InconsistentTopicId)
# Selectors of coordinators, and what these coordinate.
COORDINATORS: dict[str, CoordinatorKind] = {
    "coordinator": "group",
    "transaction_coordinator": "transaction",
}
# How often and how patiently a topic is looked for after asking for it has created it.
CREATION_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)


class Cluster:
    """Brokers, metadata and routing of one client."""

    def __init__(self, config: ClientConfig, dialer: Dialer | None = None) -> None:
        _check_names(config)
        self.config = config
        self.cache = MetadataCache()
        self._dialer = dialer or Dialer(config)
        self.pool = Pool(self._dialer, config)
        self.coordinators = Coordinators(self.any_connection, self.cache.add_broker)
        self._refreshes: Sharing[ClusterMetadata] = Sharing()
        # Since when metadata has been asked for in vain.
        self._lacking_since: float | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._closed = False

    # ---- routing

    async def connection(self, to: Node, purpose: str | None = None) -> Connection:
        """An open connection to the broker that a selector names, the usual or a special one."""
        if to.kind == "any":
            return await self.any_connection()
        self._check()
        broker = await self.broker(to)
        usual = COORDINATOR if to.kind in COORDINATORS else GENERAL
        return await self._open(self._link(broker, purpose or usual))

    @contextlib.asynccontextmanager
    async def alone(self, to: Node) -> AsyncIterator[Connection]:
        """A connection that nobody else uses meanwhile, unless any broker will do.

        A broker reads nothing more from a connection while it holds a request back, so a fetch or
        a join that waits must not have others behind it.
        """
        if to.kind == "any":
            yield await self.any_connection()
            return
        self._check()
        with self._link(await self.broker(to), WAITING).claimed() as link:
            yield await self._open(link)

    async def lane(self, broker_id: int, owner: int, number: int) -> Connection:
        """A connection that only an owner's batches use: the ``number``-th to a broker."""
        self._check()
        known = self.cache.snapshot.brokers.get(broker_id)
        broker = known or await self.broker(Node.id(broker_id))
        return await self._open(self._link(broker, f"{LANE}-{owner}-{number}"))

    async def close_lanes(self, owner: int) -> None:
        """Close all connections of an owner."""
        await self.pool.close_purposes(f"{LANE}-{owner}-")

    async def broker(self, to: Node) -> BrokerInfo:
        """The broker that a selector names; the metadata is refreshed once if it has none."""
        broker_id = await self._broker_id(to)
        found = self.cache.snapshot.brokers.get(broker_id)
        if found is None:
            await self.refresh(())
            found = self.cache.snapshot.brokers.get(broker_id)
        if found is None:
            known = ", ".join(map(str, sorted(self.cache.snapshot.brokers))) or "none"
            raise BrokerNotAvailable(
                f"the cluster has no broker {broker_id}", hint=f"its brokers are {known}"
            )
        return found

    async def _broker_id(self, to: Node) -> int:
        if to.kind == "id":
            return to.broker_id
        if to.kind == "leader":
            return (await self.leader(*to.partition)).leader or 0
        if to.kind in COORDINATORS:
            return await self.coordinators.broker_id(COORDINATORS[to.kind], str(to.key[0]))
        return await self._any_id(to)

    async def find_coordinators(self, nodes: Sequence[Node]) -> dict[Node, KarrowError]:
        """Learn with one question who coordinates many; the selectors without anybody, and why."""
        lost: dict[Node, KarrowError] = {}
        for selector, kind in COORDINATORS.items():
            found = {str(node.key[0]): node for node in nodes if node.kind == selector}
            errors = await self.coordinators.look_up(kind, found)
            lost |= {found[key]: error for key, error in errors.items()}
        return lost

    async def _any_id(self, to: Node) -> int:
        if self._is_old() or not self.cache.snapshot.brokers:
            await self.refresh(())
        snapshot = self.cache.snapshot
        if to.kind == "random" and snapshot.brokers:
            return random.choice(list(snapshot.brokers))  # noqa: S311 - no secret
        if to.kind == "controller" and snapshot.controller_id is not None:
            return snapshot.controller_id
        error = BrokerNotAvailable(f"the metadata names no broker for {to!r}")
        error.retriable = True  # a cluster that starts or elects has one in a moment
        self.cache.updated_at = None
        raise error

    async def leader(self, topic: str, partition: int) -> PartitionMetadata:
        """A partition that has a leader; LeaderNotAvailable while it has none."""
        found = self.cache.partition(topic, partition)
        if found is None or found.leader is None or self._is_old(topic):
            said = await self._refresh_for(topic, is_known=found is not None)
            found = self.cache.partition(topic, partition)
            if found is None:
                raise missing(said, topic, partition)
        if found.leader is None:
            raise LeaderNotAvailable(topic=topic, partition=partition)
        return found

    async def topic(self, topic: str, *, create: bool = False) -> TopicMetadata:
        """A topic with its partitions, from memory if it is there and not too old.

        With ``create`` it may come into being by being asked for, which takes a moment.
        """
        for pause in CREATION_PAUSES if create else ():
            try:
                return await self._topic(topic, create=True)
            except (UnknownTopicOrPartition, LeaderNotAvailable):
                await asyncio.sleep(pause)
        return await self._topic(topic, create=create)

    async def _topic(self, topic: str, *, create: bool) -> TopicMetadata:
        found = self.cache.snapshot.topics.get(topic)
        if found is None or not found.partitions or self._is_old(topic):
            said = await self._refresh_for(topic, is_known=found is not None, create=create)
            found = self.cache.snapshot.topics.get(topic)
            if found is None or not found.partitions:
                raise missing(said, topic, None)
        return found

    async def _refresh_for(
        self, topic: str, *, is_known: bool, create: bool = False
    ) -> ClusterMetadata:
        """Ask about a topic; what is known of it stays good while nobody answers."""
        try:
            return await self.refresh([topic], create=create)
        except (NetworkError, RequestTimeout):
            if not is_known:
                raise
            return self.cache.snapshot

    def _is_old(self, topic: str | None = None) -> bool:
        now = asyncio.get_running_loop().time()
        age = self.cache.age(now) if topic is None else self.cache.age_of(topic, now)
        return age > self.config.metadata_max_age

    def _link(self, broker: BrokerInfo, purpose: str = GENERAL) -> Link:
        return self.pool.link(Peer(broker.host, broker.port, broker.id), purpose)

    def learn(self, error: BaseException, to: Node, broker_id: int | None = None) -> None:
        """Draw the conclusions from an error that a request to ``to`` met at a broker."""
        is_stale = isinstance(error, (StaleMetadata, NetworkError, RequestTimeout))
        if to.kind == "leader" and is_stale:
            self._doubt_leader(*to.partition, broker_id)
        elif to.kind == "controller" and is_stale:
            self.cache.updated_at = None
        elif to.kind in COORDINATORS and isinstance(error, UNKNOWN_TOPICS):
            self.cache.forget(str(error.context.get("topic")))
        elif to.kind in COORDINATORS and (is_stale or isinstance(error, StaleCoordinator)):
            self.coordinators.forget(COORDINATORS[to.kind], str(to.key[0]))

    def _doubt_leader(self, topic: str, partition: int, broker_id: int | None) -> None:
        """Ask again, unless the cluster has named another leader in the meantime (KIP-951)."""
        known = self.cache.partition(topic, partition)
        if known is None or broker_id is None or known.leader == broker_id:
            self.cache.forget(topic)

    # ---- any broker

    async def any_connection(self) -> Connection:
        """A connection to whichever broker answers first in the order of least effort."""
        found = await self._any_connection()
        # A bootstrap address may have been given up while it was dialled, for brokers known now.
        return await self._any_connection() if found.is_closed else found

    async def _any_connection(self) -> Connection:
        self._check()
        for link in self.pool.connected():
            found = link.connection
            if found is not None and not found.is_muted:
                return found
        connection, errors = await self._open_first(self._known_links())
        if connection is None and self._may_bootstrap():
            connection, more = await self._open_first(await self._bootstrap_links())
            errors += more
        if connection is None:
            raise _unreachable(errors)
        return connection

    def _may_bootstrap(self) -> bool:
        return not self.cache.snapshot.brokers or self.config.metadata_recovery == "rebootstrap"

    def _known_links(self) -> list[Link]:
        """In any order, but those last that a throttled answer has muted."""
        links = [self._link(broker) for broker in self.cache.snapshot.brokers.values()]
        random.shuffle(links)
        return sorted(links, key=lambda link: link.is_muted)

    async def _bootstrap_links(self) -> list[Link]:
        """The first addresses; a callable is asked anew, in a thread, since it may block."""
        find = self.config.addresses
        addresses = list(
            await asyncio.to_thread(find) if callable(self.config.bootstrap) else find()
        )
        random.shuffle(addresses)
        return [self.pool.link(Peer(host, port)) for host, port in addresses]

    async def _open_first(self, links: list[Link]) -> tuple[Connection | None, list[KarrowError]]:
        """Try links one after the other; those that have just failed only if there is no other."""
        errors: list[KarrowError] = []
        for link in [link for link in links if not link.is_resting] or links[:1]:
            try:
                return await link.open(), errors
            except AuthenticationError:
                raise
            except RebootstrapRequired as error:
                await self._sent_back(error)
                return None, [error]  # the other links have just been given up
            except (NetworkError, RemoteProtocolError) as error:
                errors.append(error)
        return None, errors

    async def _open(self, link: Link) -> Connection:
        try:
            return await link.open()
        except RebootstrapRequired as error:
            await self._sent_back(error)
            text = "the broker sends us back to the bootstrap servers"
            raise ConnectError(text, broker=link.peer) from error

    # ---- metadata

    async def refresh(
        self,
        topics: Iterable[str] | None,
        *,
        create: bool = False,
        api_version: int | None = None,
    ) -> ClusterMetadata:
        """Ask for topics, or with None for all; the brokers come with every answer.

        Returns what this answer said; ``cache.snapshot`` is everything known.
        """
        self._check()
        names = None if topics is None else tuple(sorted(set(topics)))
        return await self._refreshes.run(
            (names, create, api_version), lambda: self._refresh(names, api_version, create=create)
        )

    async def look_up(self, topics: Iterable[str]) -> None:
        """Have many topics in the cache, with one question for all that are unknown or old."""
        known = self.cache.snapshot.topics
        unknown = {topic for topic in topics if topic not in known or self._is_old(topic)}
        if len(unknown) > 1:
            await self.refresh(unknown)

    async def renew(self, topics: Iterable[str]) -> None:
        """Ask for those that are known but in doubt; what is known stays while nobody answers."""
        doubted = [topic for topic in topics if self.cache.is_doubted(topic)]
        if doubted:
            with contextlib.suppress(NetworkError, RequestTimeout):
                await self.refresh(doubted)

    async def _refresh(
        self, names: tuple[str, ...] | None, api_version: int | None, *, create: bool
    ) -> ClusterMetadata:
        asked = [] if names is None else list(names)
        with events.span("metadata.update", client_id=self.config.client_id, topics=asked) as span:
            said, lies = await self._ask(names, api_version, create=create)
            span.set(broker_count=len(said.brokers), topic_count=len(said.topics))
            if lies:
                span.set(refused=lies[:100])
            return said

    async def _ask(
        self, names: tuple[str, ...] | None, api_version: int | None, *, create: bool
    ) -> tuple[ClusterMetadata, list[str]]:
        """Ask one broker after the other until one of our own cluster answers."""
        tries = len(self.cache.snapshot.brokers) + 2
        for left in reversed(range(tries)):
            await self._watch_recovery()
            connection = await self.any_connection()
            try:
                return await self._ask_one(connection, names, api_version, create=create)
            except InconsistentClusterId as error:
                connection.close("metadata_update", error)
                if not left:
                    raise
            except RebootstrapRequired as error:
                await self._sent_back(error)
                if not left:
                    raise
            except (NetworkError, RequestTimeout, RemoteProtocolError) as error:
                if not left or not (error.retriable or isinstance(error, RemoteProtocolError)):
                    raise
        raise ConnectError("no broker answered")

    async def _ask_one(
        self,
        connection: Connection,
        names: tuple[str, ...] | None,
        api_version: int | None,
        *,
        create: bool,
    ) -> tuple[ClusterMetadata, list[str]]:
        version = connection.versions.choose("Metadata", api_version)
        body, everything = _question(names, version, create=create)
        answer = await connection.request("Metadata", version, body)
        error = error_for(answer.error_code, api="Metadata", broker=connection.peer)
        if error is not None:
            raise error
        now = asyncio.get_running_loop().time()
        said, lies = self.cache.merge(answer, now=now, everything=everything)
        self._lacking_since = None
        self._dialer.cluster_id = self.cache.snapshot.cluster_id
        self._settle(connection.peer, said)
        return said, lies

    def _settle(self, peer: Peer, said: ClusterMetadata) -> None:
        """Fit the connections to the brokers that the cluster has now."""
        for broker in said.brokers.values():
            if (broker.host, broker.port) == (peer.host, peer.port):
                self.pool.adopt(peer, broker)
        if said.brokers:
            self.pool.update(self.cache.snapshot.brokers)

    async def _watch_recovery(self) -> None:
        """Begin anew when known brokers have kept us without metadata for too long."""
        now = asyncio.get_running_loop().time()
        if self._lacking_since is None:
            self._lacking_since = now
        elif now - self._lacking_since >= self.config.rebootstrap_after and self._may_bootstrap():
            self._lacking_since = now
            await self._start_anew()

    async def _sent_back(self, error: RebootstrapRequired) -> None:
        if not self._may_bootstrap():
            raise error
        await self._start_anew()

    async def _start_anew(self) -> None:
        self.cache.forget_brokers()
        await self.pool.reset("reconnecting")

    # ---- life

    def _check(self) -> None:
        if self._closed:
            raise StateError("the client is closed")
        here = (os.getpid(), asyncio.get_running_loop())
        if self._home is None:
            self._home = here
        elif self._home[0] != here[0]:
            raise StateError(
                "the client was opened in another process",
                hint="make a new one after the fork; connections cannot be shared",
            )
        elif self._home[1] is not here[1]:
            raise StateError("the client belongs to another event loop")

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def has_connections(self) -> bool:
        """Whether anything is open."""
        return any(link.connection is not None for link in self.pool.links())

    @property
    def correlation_id(self) -> int:
        """The id of the newest request on the connection used last; -1 before the first."""
        found = [link.connection for link in self.pool.links() if link.connection is not None]
        return max(found, key=lambda one: one.used_at).correlation_id if found else -1

    async def close(self) -> None:
        """Close every connection; more than once does no harm."""
        self._closed = True
        await self._refreshes.close()
        await self.coordinators.close()
        await self.pool.close()


def _check_names(config: ClientConfig) -> None:
    for name in config.api_versions or ():
        try:
            api(name)
        except LocalProtocolError as error:
            raise ConfigError(f"api_versions: {error.message}", hint=error.hint) from None


def _question(
    names: tuple[str, ...] | None, version: int, *, create: bool
) -> tuple[dict[str, Any], bool]:
    """The body of a Metadata request, and whether it asks for all topics.

    Versions that create whatever they are asked about are asked about everything instead.
    """
    creates_always = version < FIRST_WITH_CREATE_FLAG
    everything = names is None or (creates_always and not create and (names or version == 0))
    topics: list[dict[str, str]] | None = [{"name": name} for name in names or ()]
    if everything:
        topics = None if version >= FIRST_WITH_NULL_FOR_ALL else []
    flag = {} if creates_always else {"allow_auto_topic_creation": create and not everything}
    return {"topics": topics, **flag}, bool(everything)


def missing(said: ClusterMetadata, topic: str, partition: int | None) -> KarrowError:
    """Why something is not in the metadata: an error of its own, or it does not exist."""
    found = said.topics.get(topic)
    if found is not None and found.error is not None:
        if not isinstance(found.error, UnknownTopicOrPartition):
            return found.error
        found = None
    what = "the topic does not exist"
    if found is not None and partition is not None:
        what = f"the topic has partitions 0 to {len(found.partitions) - 1}"
    error = UnknownTopicOrPartition(what, topic=topic, partition=partition)
    # The cluster has just been asked: asking again would only put off the answer.
    error.retriable = False
    return error


def _unreachable(errors: list[KarrowError]) -> KarrowError:
    if len(errors) == 1 or (errors and not any(error.retriable for error in errors)):
        return errors[0]
    text = "; ".join(dict.fromkeys(str(error) for error in errors)) or "no address is known"
    return ConnectError(f"no broker can be reached: {text}")
