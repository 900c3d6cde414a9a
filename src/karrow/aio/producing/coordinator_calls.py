"""What a transactional producer asks of its coordinator: the requests and how answers are read.

Rules:
- One request at a time is under way, with all its retries: what comes later is asked later.
- Every request may be repeated as it is when no answer came. Passing errors are retried until
  ``api_timeout``, with short first pauses: mostly a transaction is just about to be complete.
- In a transaction of version 1 (before KIP-890) only those versions are used that do not change
  what a transaction is: they would add partitions and groups unasked, and begin new epochs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.aio.calls.groups import checked
from karrow.errors import (
    ConfigError,
    ConnectError,
    InvalidProducerEpoch,
    KarrowError,
    NetworkError,
    OperationNotAttempted,
    ProducerFenced,
    RemoteProtocolError,
    RequestTimeout,
    UnknownServerError,
    error_for,
)
from karrow.net.retry import JITTER, backoff_delay, is_commit_retriable
from karrow.types import CommittedOffset, GroupMetadata, Node, TopicPartition

if TYPE_CHECKING:
    from karrow.config.producer import ProducerConfig
    from karrow.net.cluster import Cluster
    from karrow.net.connection import Connection
    from karrow.wire.codec import Body


T = TypeVar("T")

# The feature that says which kind of transactions the cluster has (KIP-890), and the second kind.
FEATURE = "transaction.version"
IMPLICIT = 2
# InitProducerId since which a producer may name the identity it had (KIP-360).
FIRST_WITH_IDENTITY = 3
# The newest versions that clients may use at all, or in a transaction of version 1.
NEWEST_ADD_PARTITIONS = 3
NEWEST_END_OF_1 = 4
NEWEST_OFFSETS_OF_1 = 4
# TxnOffsetCommit since which there are members (KIP-447), and topic ids.
FIRST_WITH_MEMBERS = 3
OFFSETS_IDS_SINCE = 6
# Java waits as long where a transaction is about to be complete (KAFKA-5477).
FIRST_PAUSE = 0.02


class Identity(NamedTuple):
    """The producer in the eyes of the brokers."""

    producer_id: int
    epoch: int

    @property
    def fenced(self) -> Identity:
        """The identity that stands behind the fence when brokers abort what this one has open."""
        return Identity(self.producer_id, self.epoch + 1)


NOBODY = Identity(-1, -1)


class CoordinatorCalls(Calls):
    """The requests, each with its retries."""

    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        super().__init__(config, cluster)
        if config.transactional_id is None:
            raise ConfigError("transactions need the option transactional_id")
        self.transactional_id = config.transactional_id
        self._timeout = config.transaction_timeout
        self._to = Node.transaction_coordinator(config.transactional_id)
        self._one_at_a_time = asyncio.Lock()
        # Whether the coordinator lets a producer go on with a new epoch; known after the first.
        self._can_renew = False
        # What got no answer under the present identity: it may still be acted on.
        self._unanswered: set[str] = set()

    async def _transaction_version(self) -> int:
        """Which kind of transactions the coordinator's cluster has now."""

        async def attempt() -> int:
            try:
                connection = await self._cluster.connection(self._to)
            except KarrowError as error:
                self._cluster.learn(error, self._to)
                raise
            return connection.versions.features.get(FEATURE, 1)

        return await self._attempts(attempt, retryable=is_commit_retriable)

    async def _init_producer_id(self, had: Identity = NOBODY) -> Identity:
        """Who the producer is from now on; whoever was it before is fenced."""

        def body(version: int, _: Connection) -> dict[str, Any]:
            named = {"producer_id": had.producer_id, "producer_epoch": had.epoch}
            return {
                "transactional_id": self.transactional_id,
                "transaction_timeout_ms": round(self._timeout * 1000),
                **(named if version >= FIRST_WITH_IDENTITY else {}),
            }

        def read(reply: Reply) -> Identity:
            self._can_renew = reply.version >= FIRST_WITH_IDENTITY
            found = _identity(reply)
            if min(found) < 0:
                context = reply.context("InitProducerId")
                raise RemoteProtocolError(f"{found} is no producer", **context)
            return found

        return await self._coordinate("InitProducerId", body, read)

    async def _fence_producer(self, had: Identity, *, is_open: bool) -> Identity:
        """Abort what is open so that nothing of this identity can follow, and get a new one.

        Before transaction version 2 the coordinator forgets whom it has fenced: whoever asked for
        it is refused too, by an unknown error when epochs have run out, unless it names the epoch
        of the fence. That is only safe to do when the transaction was open for sure. Else the epoch
        could be another producer's.
        """
        try:
            return await self._init_producer_id(had)
        except (ProducerFenced, InvalidProducerEpoch, UnknownServerError):
            if not is_open:
                raise
        return await self._init_producer_id(had.fenced)

    async def _add_partitions(self, who: Identity, partitions: Iterable[TopicPartition]) -> None:
        """Let partitions take part; all of them do, or none."""
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions):
            topics.setdefault(topic, []).append(partition)
        body = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": who.producer_id,
            "v3_and_below_producer_epoch": who.epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": numbers} for topic, numbers in topics.items()
            ],
        }
        await self._call_alone(
            Request("AddPartitionsToTxn", self._to, lambda *_: body, most=NEWEST_ADD_PARTITIONS),
            lambda reply: _read_added(reply, topics),
        )

    async def _add_group(self, who: Identity, group: str) -> None:
        """Let a group's offsets take part."""
        body = {**self._named(who), "group_id": group}
        await self._coordinate("AddOffsetsToTxn", lambda *_: body, _nothing)

    async def _end_transaction(
        self, who: Identity, *, commit: bool, implicit: bool
    ) -> Identity | None:
        """Commit or abort; the identity to go on with, where the end begins a new epoch."""
        body = {**self._named(who), "committed": commit}
        most = None if implicit else NEWEST_END_OF_1

        def read(reply: Reply) -> Identity | None:
            found = _identity(reply)
            return found if found.producer_id >= 0 else None

        return await self._coordinate("EndTxn", lambda *_: body, read, most=most)

    async def _commit_offsets(
        self,
        who: Identity,
        offsets: Mapping[TopicPartition, CommittedOffset],
        group: GroupMetadata,
        *,
        implicit: bool,
    ) -> None:
        """Store offsets when the transaction commits; this asks the group's own coordinator."""

        def body(version: int, connection: Connection) -> dict[str, Any]:
            asked = {
                **self._named(who),
                "group_id": group.group,
                "topics": self._offset_topics(offsets, version),
            }
            if group == GroupMetadata(group.group):
                return asked
            connection.versions.require("TxnOffsetCommit", version, "a member", FIRST_WITH_MEMBERS)
            return {
                **asked,
                "generation_id_or_member_epoch": group.generation,
                "member_id": group.member_id,
                "group_instance_id": group.instance_id,
            }

        request = Request(
            "TxnOffsetCommit",
            Node.coordinator(group.group),
            body,
            most=None if implicit else NEWEST_OFFSETS_OF_1,
            topics=tuple({topic for topic, _ in offsets}),
            ids_since=OFFSETS_IDS_SINCE,
        )
        await self._call_alone(request, lambda reply: self._read_offsets(reply, offsets))

    def _offset_topics(
        self, offsets: Mapping[TopicPartition, CommittedOffset], version: int
    ) -> list[dict[str, Any]]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), stored in offsets.items():
            entry = {
                "partition_index": partition,
                "committed_offset": stored.offset,
                "committed_metadata": stored.metadata,
                "committed_leader_epoch": _or_none(stored.leader_epoch),
            }
            topics.setdefault(topic, []).append(entry)
        return [
            {**self._topic(topic, version, OFFSETS_IDS_SINCE), "partitions": entries}
            for topic, entries in topics.items()
        ]

    def _read_offsets(self, reply: Reply, wanted: Iterable[TopicPartition]) -> None:
        codes = {
            (self._topic_name(topic, reply.version, OFFSETS_IDS_SINCE), entry.partition_index): (
                entry.error_code
            )
            for topic in reply.message.topics
            for entry in topic.partitions
        }
        _raise_worst(reply, "TxnOffsetCommit", codes, wanted)

    # ---- how

    def _named(self, who: Identity) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": who.producer_id,
            "producer_epoch": who.epoch,
        }

    async def _coordinate(
        self,
        name: str,
        body: Callable[[int, Connection], Body],
        read: Callable[[Reply], T],
        most: int | None = None,
    ) -> T:
        """A request to the coordinator whose answer has an error code of its own."""
        request = Request(name, self._to, body, most=most)
        return await self._call_alone(request, lambda reply: checked(reply, name, read))

    async def _call_alone(self, request: Request, read: Callable[[Reply], T]) -> T:
        async with self._one_at_a_time:
            return await self._call(
                request, read, retryable=lambda error: self._may_repeat(request.name, error)
            )

    def _may_repeat(self, name: str, error: BaseException) -> bool:
        is_lost = isinstance(error, (NetworkError, RequestTimeout))
        if is_lost and not isinstance(error, ConnectError):
            self._unanswered.add(name)
        return is_commit_retriable(error)

    def _pause(self, made: int) -> float:
        first = min(FIRST_PAUSE, self._config.retry_backoff)
        return backoff_delay(made, first, self._config.retry_backoff_max, jitter=JITTER)


def _identity(reply: Reply) -> Identity:
    return Identity(reply.message.producer_id, reply.message.producer_epoch)


def _nothing(_: Reply) -> None:
    return None


def _or_none(epoch: int | None) -> int:
    return -1 if epoch is None else epoch


def _read_added(reply: Reply, topics: Mapping[str, Iterable[int]]) -> None:
    codes = {
        (topic.name, entry.partition_index): entry.partition_error_code
        for topic in reply.message.results_by_topic_v3_and_below
        for entry in topic.results_by_partition
    }
    wanted = [TopicPartition(topic, one) for topic, numbers in topics.items() for one in numbers]
    _raise_worst(reply, "AddPartitionsToTxn", codes, wanted)


def _raise_worst(
    reply: Reply,
    name: str,
    codes: Mapping[tuple[str | None, int], int],
    wanted: Iterable[TopicPartition],
) -> None:
    """Raise the error that says most about why partitions were refused, if any was.

    One that will not pass comes before one that may; that others were not tried says nothing.
    """
    errors: list[KarrowError] = []
    for topic, partition in wanted:
        context = reply.context(name, topic=topic, partition=partition)
        code = codes.get((topic, partition))
        if code is None:
            raise RemoteProtocolError("the answer lacks the partition", **context)
        error = error_for(code, **context)
        if error is not None:
            errors.append(error)
    if errors:
        raise min(errors, key=_hope)


def _hope(error: KarrowError) -> int:
    if isinstance(error, OperationNotAttempted):
        return 2
    return int(is_commit_retriable(error))
