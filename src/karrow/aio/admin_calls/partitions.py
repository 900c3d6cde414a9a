"""Partitions as an administrator sees them: old records deleted, leaders elected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from karrow.aio.admin_calls.base import (
    AdminCalls,
    by_topic,
    partitions_named,
    raise_for,
    read_each,
)
from karrow.aio.calls.base import Reply, Request, sorted_out
from karrow.errors import (
    ConfigError,
    ElectionNotNeeded,
    KarrowError,
    NotController,
    error_for,
)
from karrow.types import ElectionResult, Node, OffsetLike, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from karrow.aio.calls.offsets import Key
    from karrow.net.connection import Connection

Election = Literal["preferred", "unclean"]
# The ElectLeaders version that can elect a replica that is not in sync (KIP-460).
FIRST_WITH_UNCLEAN = 1
HIGH_WATERMARK = -1


class PartitionAdminCalls(AdminCalls):
    """Calls about partitions."""

    async def delete_records(
        self,
        partitions: Mapping[Key, OffsetLike],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the broker's, not ours
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[Key, int]:
        """Delete the records before a place, and return the first offset left in each partition.

        A place is an offset, "latest" for everything, or a time: a datetime or an age like "-7d".
        """
        ends = await self._ends(partitions, retries)
        limit = self._limit(timeout)

        async def one(
            place: Node, group: list[TopicPartition]
        ) -> Mapping[TopicPartition, int | KarrowError]:
            def body(_version: int, _connection: Connection) -> dict[str, Any]:
                topics = [
                    {"name": topic, "partitions": [_end(ends, topic, number) for number in numbers]}
                    for topic, numbers in by_topic(group).items()
                ]
                return {"topics": topics, "timeout_ms": round(limit * 1000)}

            return await self._outcomes(
                Request("DeleteRecords", place, body, api_version, self._wait(limit)),
                lambda reply: read_each(
                    reply,
                    "DeleteRecords",
                    _answers(reply.message.topics),
                    partitions_named(group),
                    lambda answer: int(answer.low_watermark),
                ),
            )

        found = await self._call_many(
            ends,
            lambda left: self._split(left, lambda key: Node.leader(*key), one),
            "delete_records",
            retries=retries,
        )
        return {key: found[TopicPartition(*key)] for key in partitions}

    async def _ends(
        self, partitions: Mapping[Key, OffsetLike], retries: int | None
    ) -> dict[TopicPartition, int]:
        """The offsets before which to delete; where nothing is as new as a time, all is older."""
        specs = {TopicPartition(*key): OffsetSpec.parse(one) for key, one in partitions.items()}
        unknown = {
            key: spec for key, spec in specs.items() if spec.kind not in ("offset", "latest")
        }
        found = await self._client.list_offsets(unknown, retries=retries)
        ends: dict[TopicPartition, int] = {}
        for key, spec in specs.items():
            offset = found[key].offset if key in found else None
            ends[key] = HIGH_WATERMARK if offset is None else offset
            if spec.kind == "offset":
                ends[key] = spec.value
        return ends

    async def elect_leaders(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        kind: Election = "preferred",
        timeout: float | None = None,  # noqa: ASYNC109 - the broker's, not ours
        api_version: int | None = None,
        retries: int | None = None,
    ) -> ElectionResult:
        """Give partitions back to their first replica, or with "unclean" to one not in sync.

        None is all partitions. An unclean election loses the records that only the old leader had.
        Where the leader is the right one already, the result holds ElectionNotNeeded.
        """
        if kind not in get_args(Election):
            raise ConfigError(f"kind={kind!r} is none of {', '.join(get_args(Election))}")
        wanted = None if partitions is None else [TopicPartition(*key) for key in partitions]
        limit = self._limit(timeout)

        def body(version: int, connection: Connection) -> dict[str, Any]:
            question: dict[str, Any] = {
                "topic_partitions": None if wanted is None else _topics(wanted),
                "timeout_ms": round(limit * 1000),
            }
            if kind == "preferred":
                return question
            connection.versions.require("ElectLeaders", version, kind, FIRST_WITH_UNCLEAN)
            return {**question, "election_type": get_args(Election).index(kind)}

        to, wait = Node.controller(), self._wait(limit)
        request = Request("ElectLeaders", to, body, api_version, wait)
        found = await self._call(request, _read_elections, retries=retries)
        failed = {
            key: error
            for key, error in found.items()
            if error is not None and not isinstance(error, ElectionNotNeeded)
        }
        sorted_out({key: failed.get(key) for key in found}, list(found), "elect_leaders")
        return ElectionResult(found)


def _end(ends: Mapping[TopicPartition, int], topic: str, partition: int) -> dict[str, int]:
    return {"partition_index": partition, "offset": ends[TopicPartition(topic, partition)]}


def _answers(topics: Iterable[Any]) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic.name, answer.partition_index): answer
        for topic in topics
        for answer in topic.partitions
    }


def _topics(partitions: list[TopicPartition]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partitions": numbers} for topic, numbers in by_topic(partitions).items()
    ]


def _read_elections(reply: Reply) -> dict[TopicPartition, KarrowError | None]:
    raise_for(reply, "ElectLeaders")
    found: dict[TopicPartition, KarrowError | None] = {}
    for topic in reply.message.replica_election_results:
        for answer in topic.partition_result:
            key = TopicPartition(topic.topic, answer.partition_id)
            context = reply.context("ElectLeaders", topic=key.topic, partition=key.partition)
            error = error_for(answer.error_code, answer.error_message or None, **context)
            # Version 0 has no error of its own; the wrong broker says so in each partition.
            if isinstance(error, NotController):
                raise error
            found[key] = error
    return found
