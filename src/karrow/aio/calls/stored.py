"""How offsets that groups have stored are read from their coordinator, one group or many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.errors import (
    KarrowError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    error_for,
)
from karrow.types import CommittedOffset, Node, TopicPartition

if TYPE_CHECKING:
    from karrow.net.connection import Connection

    Topics = Iterable[str | tuple[str, int | Iterable[int]]] | Mapping[str, Iterable[int]]

Stored = dict[TopicPartition, CommittedOffset]

# The OffsetFetch versions that can ask for all topics, for stable offsets, for many groups, and
# that name topics by id.
FIRST_WITH_ALL = 2
FIRST_WITH_STABLE = 7
FIRST_WITH_GROUPS = 8
IDS_SINCE = 10


class StoredCalls(Calls):
    """What Client and Admin have in common about stored offsets."""

    async def _fetch_stored(
        self,
        to: Node,
        groups: list[str],
        wanted: Mapping[str, list[int]] | None,
        stable: bool,
        api_version: int | None = None,
    ) -> dict[str, Stored | KarrowError]:
        """One attempt; ``wanted`` are partitions by topic, None is everything that is stored.

        Versions before 8 can carry only one group.
        """

        def body(version: int, connection: Connection) -> dict[str, Any]:
            require = connection.versions.require
            if wanted is None:
                require("OffsetFetch", version, "all topics", FIRST_WITH_ALL)
            if stable:
                require("OffsetFetch", version, "stable", FIRST_WITH_STABLE)
            if len(groups) > 1:
                require("OffsetFetch", version, "several groups", FIRST_WITH_GROUPS)
            topics = None if wanted is None else self._asked_topics(wanted, version)
            questions: list[dict[str, Any]] = [
                {"group_id": group, "topics": topics} for group in groups
            ]
            if version >= FIRST_WITH_GROUPS:
                return {"groups": questions, "require_stable": stable}
            return {**questions[0], **({"require_stable": True} if stable else {})}

        request = Request(
            "OffsetFetch",
            to,
            body,
            api_version,
            # An answer about everything may hold ids of topics that we have never heard of.
            most=IDS_SINCE - 1 if wanted is None else None,
            topics=tuple(wanted or ()),
            ids_since=IDS_SINCE,
        )
        reply = await self._send(request)
        answers = {groups[0]: reply.message}
        if reply.version >= FIRST_WITH_GROUPS:
            answers = {answer.group_id: answer for answer in reply.message.groups}
        return {group: self._read_stored(reply, group, answers.get(group)) for group in groups}

    def _asked_topics(self, wanted: Mapping[str, list[int]], version: int) -> list[dict[str, Any]]:
        return [
            {**self._topic(topic, version, IDS_SINCE), "partition_indexes": partitions}
            for topic, partitions in wanted.items()
        ]

    def _read_stored(self, reply: Reply, group: str, answer: Any) -> Stored | KarrowError:
        """What a group has stored, or its error, or that of the first partition that has one."""
        context = reply.context("OffsetFetch", group=group)
        if answer is None:
            return RemoteProtocolError("the answer does not speak of the group", **context)
        error = error_for(answer.error_code, **context)
        if error is not None:
            return error
        stored: Stored = {}
        for topic in answer.topics:
            name = self._topic_name(topic, reply.version, IDS_SINCE)
            for entry in topic.partitions:
                key = TopicPartition(name or str(topic.topic_id), entry.partition_index)
                found = _committed(entry, reply, key)
                if isinstance(found, KarrowError):
                    return found
                stored[key] = found
        return stored

    async def _partitions(self, topics: Topics, retries: int | None) -> dict[str, list[int]]:
        """Topics with their partitions; those of a bare name come from the metadata."""
        found: dict[str, list[int]] = {}
        for item in topics.items() if isinstance(topics, Mapping) else topics:
            if isinstance(item, str):
                numbers: Iterable[int] = await self._numbers(item, retries)
                name = item
            else:
                name, chosen = item
                numbers = [chosen] if isinstance(chosen, int) else chosen
            known = found.setdefault(name, [])
            known += [number for number in numbers if number not in known]
        return found

    async def _numbers(self, topic: str, retries: int | None) -> list[int]:
        async def attempt() -> list[int]:
            return sorted((await self._cluster.topic(topic)).partitions)

        return await self._attempts(attempt, retries=retries)


def _committed(entry: Any, reply: Reply, key: TopicPartition) -> CommittedOffset | KarrowError:
    """One partition's stored offset, or its error."""
    context = reply.context("OffsetFetch", topic=key.topic, partition=key.partition)
    error = error_for(entry.error_code, **context)
    # Version 0 reads ZooKeeper, and says so when nothing is stored there.
    if error is not None and not (
        reply.version == 0 and isinstance(error, UnknownTopicOrPartition)
    ):
        return error
    return CommittedOffset(
        entry.committed_offset if entry.committed_offset >= 0 else None,
        entry.committed_leader_epoch if entry.committed_leader_epoch >= 0 else None,
        entry.metadata or "",
    )
