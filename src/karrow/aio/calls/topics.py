"""Topics made and deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.errors import (
    KarrowError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    error_for,
)
from karrow.types import CreatedTopic, NewTopic, Node
from karrow.types.topics import NO_TOPIC_ID

if TYPE_CHECKING:
    from karrow.net.connection import Connection

# The CreateTopics versions that can only check, and that leave numbers to the broker (KIP-464).
FIRST_WITH_VALIDATION = 1
FIRST_WITH_DEFAULTS = 4
FIRST_WITH_STATES = 6


class TopicCalls(Calls):
    """Calls that make and delete topics."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the broker's, not ours
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[str, CreatedTopic]:
        """Create topics; a name alone leaves everything to the broker.

        ``timeout`` is how long the broker may take, ``validate_only`` checks without creating.
        """
        wanted = [NewTopic(topic) if isinstance(topic, str) else topic for topic in topics]
        limit = self._config.request_timeout if timeout is None else timeout

        async def ask(names: list[str]) -> Mapping[str, CreatedTopic | KarrowError]:
            chosen = [topic for topic in wanted if topic.name in names]

            def body(version: int, connection: Connection) -> dict[str, Any]:
                return _creation(chosen, version, connection, limit, validate_only=validate_only)

            to = Node.controller()
            wait = limit + self._config.request_timeout
            reply = await self._send(Request("CreateTopics", to, body, api_version, wait))
            outcomes = _read(reply, "CreateTopics", reply.message.topics, names, _created)
            self._learn_all(outcomes.values(), to)
            return outcomes

        names = list(dict.fromkeys(topic.name for topic in wanted))
        done = await self._call_many(names, ask, "create_topics", retries=retries)
        for name in names:
            self._cluster.cache.forget(name)
        return done

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str | None] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the broker's, not ours
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> CreatedTopic:
        """Create a topic; -1 leaves a number to the broker.

        ``assignments`` places the replicas by hand, partition to broker ids.
        """
        topic = NewTopic(name, partitions, replication_factor, assignments, config)
        made = await self.create_topics(
            [topic],
            timeout=timeout,
            validate_only=validate_only,
            api_version=api_version,
            retries=retries,
        )
        return made[name]

    async def delete_topics(
        self,
        topics: Iterable[str],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the broker's, not ours
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Delete topics and everything in them."""
        wanted = list(dict.fromkeys(topics))
        limit = self._config.request_timeout if timeout is None else timeout

        async def ask(names: list[str]) -> Mapping[str, KarrowError | None]:
            def body(version: int, _: Connection) -> dict[str, Any]:
                wait = {"timeout_ms": round(limit * 1000)}
                if version >= FIRST_WITH_STATES:
                    return {"topics": [{"name": name} for name in names], **wait}
                return {"topic_names": names, **wait}

            to = Node.controller()
            wait = limit + self._config.request_timeout
            reply = await self._send(Request("DeleteTopics", to, body, api_version, wait))
            outcomes = _read(reply, "DeleteTopics", reply.message.responses, names, _nothing)
            self._learn_all(outcomes.values(), to)
            return outcomes

        await self._call_many(wanted, ask, "delete_topics", retries=retries)
        for name in wanted:
            self._cluster.cache.forget(name)

    async def delete_topic(
        self,
        name: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the broker's, not ours
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Delete a topic and everything in it."""
        await self.delete_topics([name], timeout=timeout, api_version=api_version, retries=retries)


def _creation(
    topics: list[NewTopic],
    version: int,
    connection: Connection,
    limit: float,
    *,
    validate_only: bool,
) -> dict[str, Any]:
    require = connection.versions.require
    if validate_only:
        require("CreateTopics", version, "validate_only", FIRST_WITH_VALIDATION)
    if any(not topic.assignments and _has_default(topic) for topic in topics):
        require("CreateTopics", version, "the broker's default numbers", FIRST_WITH_DEFAULTS)
    body = {"topics": [_new(topic) for topic in topics], "timeout_ms": round(limit * 1000)}
    return {**body, "validate_only": True} if validate_only else body


def _has_default(topic: NewTopic) -> bool:
    return -1 in (topic.partitions, topic.replication_factor)


def _new(topic: NewTopic) -> dict[str, Any]:
    placed = topic.assignments or {}
    return {
        "name": topic.name,
        "num_partitions": -1 if placed else topic.partitions,
        "replication_factor": -1 if placed else topic.replication_factor,
        "assignments": [
            {"partition_index": partition, "broker_ids": list(brokers)}
            for partition, brokers in placed.items()
        ],
        "configs": [{"name": name, "value": value} for name, value in (topic.config or {}).items()],
    }


def _read(
    reply: Reply, name: str, answers: Iterable[Any], wanted: list[str], result: Any
) -> dict[str, Any]:
    """The outcome for each topic that was asked for."""
    found = {answer.name: answer for answer in answers}
    outcomes: dict[str, Any] = {}
    for topic in wanted:
        context = reply.context(name, topic=topic)
        answer = found.get(topic)
        if answer is None:
            outcomes[topic] = RemoteProtocolError("the answer lacks the topic", **context)
        else:
            error = error_for(answer.error_code, answer.error_message or None, **context)
            if isinstance(error, UnknownTopicOrPartition):
                error.retriable = False  # the controller knows which topics there are
            outcomes[topic] = error or result(answer)
    return outcomes


def _nothing(_: Any) -> None:
    return None


def _created(answer: Any) -> CreatedTopic:
    config = None if answer.configs is None else {one.name: one.value for one in answer.configs}
    return CreatedTopic(
        answer.name,
        None if answer.topic_id == NO_TOPIC_ID else answer.topic_id,
        answer.num_partitions if answer.num_partitions >= 0 else None,
        answer.replication_factor if answer.replication_factor >= 0 else None,
        config or None,
    )
