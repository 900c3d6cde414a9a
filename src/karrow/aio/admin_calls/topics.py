"""Topics as an administrator sees them: their names, their partitions, more partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from karrow.aio.admin_calls.base import AdminCalls, named, nothing, read_each
from karrow.aio.calls.base import Request
from karrow.errors import KarrowError, UnknownTopicOrPartition
from karrow.types import NewPartitions, Node, TopicMetadata

if TYPE_CHECKING:
    from karrow.net.connection import Connection


class TopicAdminCalls(AdminCalls):
    """Calls about topics that the Client does not have."""

    async def list_topics(
        self,
        *,
        internal: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[str]:
        """The names of all topics, in order; Kafka's own only with ``internal``."""
        found = await self._client.metadata(None, api_version=api_version, retries=retries)
        return sorted(
            name for name, topic in found.topics.items() if internal or not topic.internal
        )

    async def describe_topics(
        self,
        topics: Iterable[str],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[str, TopicMetadata]:
        """Ids, partitions, leaders and replicas of topics, by name."""

        async def ask(names: list[str]) -> Mapping[str, TopicMetadata | KarrowError]:
            said = await self._cluster.refresh(names, api_version=api_version)
            return {name: _described(name, said.topics.get(name)) for name in names}

        wanted = dict.fromkeys(topics)
        return await self._call_many(wanted, ask, "describe_topics", retries=retries)

    async def describe_topic(
        self,
        name: str,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> TopicMetadata:
        """A topic's id, partitions, leaders and replicas."""
        found = await self.describe_topics([name], api_version=api_version, retries=retries)
        return found[name]

    async def create_partitions(
        self,
        topics: Mapping[str, int | NewPartitions],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the broker's, not ours
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Let topics grow to so many partitions; keys then fall into other partitions than before.

        ``timeout`` is how long the broker may take, ``validate_only`` checks without creating.
        """
        wanted = {name: _grown(growth) for name, growth in topics.items()}
        limit = self._limit(timeout)

        async def ask(names: list[str]) -> Mapping[str, KarrowError | None]:
            def body(_version: int, _connection: Connection) -> dict[str, Any]:
                return {
                    "topics": [_entry(name, wanted[name]) for name in names],
                    "timeout_ms": round(limit * 1000),
                    "validate_only": validate_only,
                }

            to, wait = Node.controller(), self._wait(limit)
            return await self._outcomes(
                Request("CreatePartitions", to, body, api_version, wait),
                lambda reply: read_each(
                    reply,
                    "CreatePartitions",
                    {one.name: one for one in reply.message.results},
                    named("topic", names),
                    nothing,
                ),
            )

        await self._call_many(wanted, ask, "create_partitions", retries=retries)
        for name in wanted:
            self._cluster.cache.forget(name)


def _described(name: str, found: TopicMetadata | None) -> TopicMetadata | KarrowError:
    if found is not None and not isinstance(found.error, UnknownTopicOrPartition):
        return found.error or found
    error = UnknownTopicOrPartition("the topic does not exist", api="Metadata", topic=name)
    error.retriable = False
    return error


def _grown(growth: int | NewPartitions) -> NewPartitions:
    return growth if isinstance(growth, NewPartitions) else NewPartitions(growth)


def _entry(name: str, growth: NewPartitions) -> dict[str, Any]:
    placed = growth.assignments
    return {
        "name": name,
        "count": growth.total,
        "assignments": None if placed is None else [{"broker_ids": list(ids)} for ids in placed],
    }
