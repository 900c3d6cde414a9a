"""Offsets that groups store: committing them, reading them back, what is still unread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from karrow.aio.calls.base import Reply, Request
from karrow.aio.calls.offsets import Key, OffsetCalls
from karrow.aio.calls.stored import Stored, StoredCalls
from karrow.errors import (
    CommitFailed,
    ConfigError,
    KarrowError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
    error_for,
)
from karrow.net.retry import is_commit_retriable
from karrow.types import CommittedOffset, Node, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from karrow.aio.calls.stored import Topics
    from karrow.net.connection import Connection

    Committable = int | tuple[int, str] | CommittedOffset

# The OffsetCommit versions with members, with retention, with static members, with topic ids.
FIRST_WITH_MEMBERS = 1
RETENTION = (2, 4)
FIRST_WITH_INSTANCE = 7
COMMIT_IDS_SINCE = 10


class CommitCalls(OffsetCalls, StoredCalls):
    """Calls about the offsets of groups."""

    default_group: str | None

    async def commit_offsets(
        self,
        group: str | None,
        offsets: Mapping[Key, Committable],
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        retention: float | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Store offsets for a group: an offset, (offset, metadata) or a CommittedOffset for each.

        None is the default group. ``generation`` and ``member_id`` are those of a member; without
        them the group must be empty. ``retention`` in seconds only exists in versions 2 to 4.
        """
        name = self._group(group)
        wanted = {TopicPartition(*key): committable(value) for key, value in offsets.items()}
        read = self._topics_read()

        def body(version: int, connection: Connection) -> dict[str, Any]:
            require = connection.versions.require
            if generation != -1 or member_id:
                require("OffsetCommit", version, "a member", FIRST_WITH_MEMBERS)
            if instance_id is not None:
                require("OffsetCommit", version, "an instance id", FIRST_WITH_INSTANCE)
            if retention is not None:
                require("OffsetCommit", version, "a retention time", *RETENTION)
            if any(self._is_other(topic, read) for topic in {key.topic for key in left}):
                # Since they were looked at, a moment ago; the next attempt tells which.
                raise UnknownTopicOrPartition(api="OffsetCommit", group=name)
            return {
                "group_id": name,
                "generation_id_or_member_epoch": generation,
                "member_id": member_id,
                "group_instance_id": instance_id,
                "retention_time_ms": -1 if retention is None else round(retention * 1000),
                "topics": self._committed_topics(left, version),
            }

        left: dict[TopicPartition, CommittedOffset] = {}

        async def ask(keys: list[TopicPartition]) -> dict[TopicPartition, KarrowError | None]:
            lost = await self._lost({key.topic for key in keys}, read)
            gone: dict[TopicPartition, KarrowError | None] = {
                key: lost[key.topic] for key in keys if key.topic in lost
            }
            left.clear()
            left.update((key, wanted[key]) for key in keys if key not in gone)
            if not left:
                return gone
            request = Request(
                "OffsetCommit",
                Node.coordinator(name),
                body,
                api_version,
                most=None if retention is None else RETENTION[1],
                topics=tuple({key.topic for key in left}),
                ids_since=COMMIT_IDS_SINCE,
            )
            outcomes = self._read_committed(await self._send(request), list(left))
            self._learn_all(outcomes.values(), request.to)
            return {**outcomes, **gone}

        await self._call_many(
            wanted, ask, "commit_offsets", retries=retries, retryable=is_commit_retriable
        )

    def _topics_read(self) -> dict[str, UUID]:
        """The ids of topics that offsets were read from, as of now; a client has read none."""
        return {}

    async def _lost(
        self, topics: Iterable[str], read: Mapping[str, UUID]
    ) -> dict[str, KarrowError]:
        """Topics that are not there, or were deleted and made again since they were read (KIP-516).

        Asked at each attempt: a commit that waits for its topic would go to the next one of its
        name, and other topics need not wait. Brokers that take no ids leave the moment between
        this and the answer.
        """
        known = read.keys() & set(topics)
        await self._cluster.look_up(known)
        found: dict[str, KarrowError] = {}
        for topic in known:
            try:
                await self._cluster.topic(topic)  # which asks again about one that is gone
            except KarrowError as error:
                found[topic] = error
            if self._is_other(topic, read):
                found[topic] = CommitFailed(
                    "the topic was deleted and made again: its offsets are others",
                    group=self.default_group,
                    topic=topic,
                )
        return found

    def _is_other(self, topic: str, read: Mapping[str, UUID]) -> bool:
        here = self._cluster.cache.topic_id(topic)
        return topic in read and here is not None and here != read[topic]

    def _committed_topics(
        self, offsets: Mapping[TopicPartition, CommittedOffset], version: int
    ) -> list[dict[str, Any]]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), stored in offsets.items():
            entry = {
                "partition_index": partition,
                "committed_offset": stored.offset,
                "committed_leader_epoch": -1
                if stored.leader_epoch is None
                else stored.leader_epoch,
                "committed_metadata": stored.metadata,
            }
            topics.setdefault(topic, []).append(entry)
        return [
            {**self._topic(topic, version, COMMIT_IDS_SINCE), "partitions": entries}
            for topic, entries in topics.items()
        ]

    def _read_committed(
        self, reply: Reply, keys: list[TopicPartition]
    ) -> dict[TopicPartition, KarrowError | None]:
        codes = {
            (self._topic_name(topic, reply.version, COMMIT_IDS_SINCE), entry.partition_index): entry
            for topic in reply.message.topics
            for entry in topic.partitions
        }
        outcomes: dict[TopicPartition, KarrowError | None] = {}
        for key in keys:
            context = reply.context("OffsetCommit", topic=key.topic, partition=key.partition)
            entry = codes.get(key)
            if entry is None:
                outcomes[key] = RemoteProtocolError("the answer lacks the partition", **context)
            else:
                outcomes[key] = error_for(entry.error_code, **context)
        return outcomes

    async def committed_offsets(
        self,
        group: str | None = None,
        topics: Topics | None = None,
        *,
        stable: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offsets a group has stored; ``offset`` is None where it has none.

        ``topics`` are names, (topic, partition) or (topic, partitions) pairs, or a mapping of
        topics to partitions; None is everything that is stored. ``stable`` waits for transactions
        that are about to store offsets (KIP-447).
        """
        name = self._group(group)
        wanted = None if topics is None else await self._partitions(topics, retries)
        to = Node.coordinator(name)

        async def ask(left: list[str]) -> Mapping[str, Stored | KarrowError]:
            outcomes = await self._fetch_stored(to, left, wanted, stable, api_version)
            self._learn_all(outcomes.values(), to)
            return outcomes

        found = await self._call_many(
            [name], ask, "committed_offsets", retries=retries, retryable=is_commit_retriable
        )
        return found[name]

    async def unread_offsets(
        self,
        topic: str | tuple[str, Sequence[int]],
        group: str | None = None,
        limit: int | None = None,
        *,
        retries: int | None = None,
    ) -> list[tuple[int, int]]:
        """The (partition, offset) pairs that a group has not read, all or the next ``limit``.

        A partition without a stored offset is unread from its start. Partitions take turns, so
        that a limit does not favour one. Without a limit the list is as long as the lag.
        """
        name, partitions = topic if isinstance(topic, tuple) else (topic, None)
        asked: Topics = [name] if partitions is None else {name: partitions}
        stored = await self.committed_offsets(group, asked, retries=retries)
        ends = await self.list_offsets(dict.fromkeys(stored, "latest"), retries=retries)
        starts = await self.list_offsets(dict.fromkeys(stored, "earliest"), retries=retries)
        unread = {}
        for key, place in stored.items():
            first = starts[key].offset or 0
            begin = first if place.offset is None else max(first, place.offset)
            unread[key.partition] = range(begin, ends[key].offset or 0)
        return list(islice(_in_turns(unread), limit))

    def _group(self, group: str | None) -> str:
        chosen = self.default_group if group is None else group
        if chosen is None:
            raise ConfigError("no group is named", hint="name one, or set default_group")
        return chosen


def committable(value: Committable) -> CommittedOffset:
    """An offset, (offset, metadata) or a CommittedOffset, as the last."""
    if isinstance(value, CommittedOffset):
        stored = value
    elif isinstance(value, tuple):
        if len(value) != 2:
            raise ConfigError(f"{value!r} cannot be committed", hint="give (offset, metadata)")
        stored = CommittedOffset(value[0], metadata=value[1])
    else:
        stored = CommittedOffset(value)
    if not isinstance(stored.offset, int) or stored.offset < 0:
        raise ConfigError(f"offset {stored.offset!r} cannot be committed")
    return stored


def _in_turns(ranges: Mapping[int, range]) -> Iterable[tuple[int, int]]:
    """One offset of each partition after the other, until all are through."""
    left = {partition: iter(offsets) for partition, offsets in sorted(ranges.items())}
    while left:
        for partition in list(left):
            offset = next(left[partition], None)
            if offset is None:
                del left[partition]
            else:
                yield partition, offset
