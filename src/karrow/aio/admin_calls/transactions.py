"""Transactions and producers (KIP-664): what is open, who holds it, and how to end what hangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from karrow.aio.admin_calls.base import (
    AdminCalls,
    by_topic,
    named,
    partitions_named,
    raise_for,
    read_each,
)
from karrow.aio.calls.base import Reply, Request
from karrow.errors import ConfigError, KarrowError, RemoteProtocolError, error_for
from karrow.types import (
    Node,
    ProducerState,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)

if TYPE_CHECKING:
    from karrow.aio.calls.offsets import Key
    from karrow.net.connection import Connection

# The ListTransactions versions that brought filters by age (KIP-994) and by id (KIP-1152).
FIRST_WITH_AGE = 1
FIRST_WITH_PATTERN = 2


class TransactionAdminCalls(AdminCalls):
    """Calls about transactions."""

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        min_age: float | None = None,
        pattern: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids that the brokers know, with the states of their transactions.

        ``states`` are Kafka's names, such as "Ongoing"; ``min_age`` is in seconds; ``pattern`` is
        a regular expression (RE2) over whole ids.
        """

        def body(version: int, connection: Connection) -> dict[str, Any]:
            require = connection.versions.require
            filters: dict[str, Any] = {
                "state_filters": list(states),
                "producer_id_filters": list(producer_ids),
            }
            if min_age is not None:
                require("ListTransactions", version, "min_age", FIRST_WITH_AGE)
                filters["duration_filter"] = round(min_age * 1000)
            if pattern is not None:
                require("ListTransactions", version, "pattern", FIRST_WITH_PATTERN)
                filters["transactional_id_pattern"] = pattern
            return filters

        async def one(broker_id: int) -> list[TransactionListing]:
            request = Request("ListTransactions", Node.id(broker_id), body, api_version)
            return await self._call(request, _read_listing, retries=retries)

        return await self._everywhere(one, retries)

    async def describe_transactions(
        self,
        transactional_ids: Iterable[str],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[str, TransactionDescription]:
        """States, producers and partitions of transactions, by transactional id."""

        async def one(
            place: Node, ids: list[str]
        ) -> Mapping[str, TransactionDescription | KarrowError]:
            return await self._outcomes(
                Request(
                    "DescribeTransactions",
                    place,
                    lambda _version, _connection: {"transactional_ids": ids},
                    api_version,
                ),
                lambda reply: read_each(
                    reply,
                    "DescribeTransactions",
                    {
                        answer.transactional_id: answer
                        for answer in reply.message.transaction_states
                    },
                    named("transactional_id", ids),
                    lambda answer: _description(answer, reply),
                ),
            )

        return await self._call_many(
            dict.fromkeys(transactional_ids),
            lambda left: self._split(left, Node.transaction_coordinator, one),
            "describe_transactions",
            retries=retries,
        )

    async def describe_transaction(
        self,
        transactional_id: str,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> TransactionDescription:
        """The state, the producer and the partitions of a transaction."""
        found = await self.describe_transactions(
            [transactional_id], api_version=api_version, retries=retries
        )
        return found[transactional_id]

    async def describe_producers(
        self,
        partitions: Iterable[Key],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[Key, tuple[ProducerState, ...]]:
        """The idempotent and transactional producers that partitions' leaders remember."""
        keys = {TopicPartition(*key): key for key in partitions}

        async def one(
            place: Node, group: list[TopicPartition]
        ) -> Mapping[TopicPartition, tuple[ProducerState, ...] | KarrowError]:
            topics = [
                {"name": topic, "partition_indexes": numbers}
                for topic, numbers in by_topic(group).items()
            ]
            return await self._outcomes(
                Request(
                    "DescribeProducers",
                    place,
                    lambda _version, _connection: {"topics": topics},
                    api_version,
                ),
                lambda reply: _read_producers(reply, group),
            )

        found = await self._call_many(
            keys,
            lambda left: self._split(left, lambda key: Node.leader(*key), one),
            "describe_producers",
            retries=retries,
        )
        return {keys[key]: producers for key, producers in found.items()}

    async def abort_transaction(
        self,
        topic: str,
        partition: int,
        producer: ProducerState,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """End a transaction that hangs in a partition because its coordinator has forgotten it.

        ``producer`` is what ``describe_producers`` says of it. Aborting a transaction that its
        coordinator still knows breaks it: let its producer or its time-out end that one.
        """
        if producer.transaction_start_offset is None:
            raise ConfigError(f"producer {producer.producer_id} has no transaction there")
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch or 0,
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [partition]}],
        }
        request = Request(
            "WriteTxnMarkers",
            Node.leader(topic, partition),
            lambda _version, _connection: {"markers": [marker]},
            api_version,
        )
        key = TopicPartition(topic, partition)
        await self._call(request, lambda reply: _read_marked(reply, key), retries=retries)


def _read_listing(reply: Reply) -> list[TransactionListing]:
    raise_for(reply, "ListTransactions")
    unknown = reply.message.unknown_state_filters
    if unknown:
        raise ConfigError(
            f"no state of a transaction is called {', '.join(map(repr, unknown))}",
            **reply.context("ListTransactions"),
        )
    return [
        TransactionListing(
            one.transactional_id,
            one.producer_id,
            one.transaction_state,
            reply.connection.peer.broker_id,
        )
        for one in reply.message.transaction_states
    ]


def _description(answer: Any, reply: Reply) -> TransactionDescription:
    started = answer.transaction_start_time_ms
    return TransactionDescription(
        answer.transactional_id,
        answer.transaction_state,
        answer.producer_id,
        answer.producer_epoch,
        answer.transaction_timeout_ms / 1000,
        started if started >= 0 else None,
        tuple(
            TopicPartition(topic.topic, partition)
            for topic in answer.topics
            for partition in topic.partitions
        ),
        reply.connection.peer.broker_id,
    )


def _read_producers(
    reply: Reply, group: list[TopicPartition]
) -> dict[TopicPartition, tuple[ProducerState, ...] | KarrowError]:
    answers = {
        TopicPartition(topic.name, answer.partition_index): answer
        for topic in reply.message.topics
        for answer in topic.partitions
    }

    def producers(answer: Any) -> tuple[ProducerState, ...]:
        return tuple(_producer(one) for one in answer.active_producers)

    return read_each(reply, "DescribeProducers", answers, partitions_named(group), producers)


def _producer(answer: Any) -> ProducerState:
    start, epoch = answer.current_txn_start_offset, answer.coordinator_epoch
    return ProducerState(
        answer.producer_id,
        answer.producer_epoch,
        answer.last_sequence,
        answer.last_timestamp,
        epoch if epoch >= 0 else None,
        start if start >= 0 else None,
    )


def _read_marked(reply: Reply, key: TopicPartition) -> None:
    context = reply.context("WriteTxnMarkers", topic=key.topic, partition=key.partition)
    codes = {
        TopicPartition(topic.name, answer.partition_index): answer.error_code
        for marker in reply.message.markers
        for topic in marker.topics
        for answer in topic.partitions
    }
    if key not in codes:
        raise RemoteProtocolError("the answer lacks the partition", **context)
    error = error_for(codes[key], **context)
    if error is not None:
        raise error
