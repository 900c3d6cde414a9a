"""Offsets of partitions: their ends, and where a time is found in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from karrow.aio.calls.base import Calls, Reply, Request
from karrow.config.fetch import Isolation
from karrow.errors import ConfigError, KarrowError, RemoteProtocolError, error_for
from karrow.types import Node, OffsetLike, OffsetResult, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from karrow.net.connection import Connection

T = TypeVar("T")
# A (topic, partition) pair of the caller's own type.
Key = TypeVar("Key", bound=tuple[str, int])

# The ListOffsets versions that brought single offsets, isolation, and the special times.
FIRST_WITH_ONE_OFFSET = 1
FIRST_WITH_ISOLATION = 2
FIRST_WITH_KIND = {"max_timestamp": 7, "earliest_local": 8, "latest_tiered": 9}
CLIENT = -1


def isolation_level(isolation: str) -> int:
    """The number of an isolation level on the wire."""
    levels = get_args(Isolation)
    if isolation not in levels:
        raise ConfigError(f"isolation={isolation!r} is none of {', '.join(levels)}")
    return levels.index(isolation)


class OffsetCalls(Calls):
    """Calls about places in partitions."""

    async def list_offsets(
        self,
        offsets: Mapping[Key, OffsetLike],
        *,
        isolation: Isolation = "read_uncommitted",
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[Key, OffsetResult]:
        """The offsets of places in partitions, under the caller's own keys.

        A place is "earliest", "latest", "max_timestamp", an aware datetime, an age such as "-1h",
        or ``Offset.at_timestamp_ms(...)``: the first record that is not older.
        """
        return await self._list(
            offsets, _result, isolation=isolation, api_version=api_version, retries=retries
        )

    async def offsets_before(
        self,
        offsets: Mapping[Key, OffsetLike],
        *,
        max_offsets: int = 1,
        api_version: int = 0,
        retries: int | None = None,
    ) -> dict[Key, tuple[int, ...]]:
        """Up to ``max_offsets`` starts of log segments before a time, the newest first.

        This is the form of ListOffsets v0, which only brokers before 4.0 have.
        """
        if api_version >= FIRST_WITH_ONE_OFFSET:
            raise ConfigError(f"only ListOffsets v0 gives several offsets, not v{api_version}")
        return await self._list(
            offsets, _old_offsets, count=max_offsets, api_version=0, retries=retries
        )

    async def earliest_offset(
        self,
        topic: str,
        partition: int,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> int:
        """The first offset that a partition still has."""
        where = TopicPartition(topic, partition)
        found = await self.list_offsets(
            {where: "earliest"}, api_version=api_version, retries=retries
        )
        return found[where].offset or 0

    async def latest_offset(
        self,
        topic: str,
        partition: int,
        *,
        isolation: Isolation = "read_uncommitted",
        api_version: int | None = None,
        retries: int | None = None,
    ) -> int:
        """The offset that the next record gets; with "read_committed" the end of what is stable."""
        where = TopicPartition(topic, partition)
        found = await self.list_offsets(
            {where: "latest"}, isolation=isolation, api_version=api_version, retries=retries
        )
        return found[where].offset or 0

    async def _list(
        self,
        offsets: Mapping[Key, OffsetLike],
        result: Callable[[Any], T],
        *,
        count: int = 1,
        isolation: Isolation = "read_uncommitted",
        api_version: int | None,
        retries: int | None,
    ) -> dict[Key, T]:
        level = isolation_level(isolation)
        specs = {TopicPartition(*key): _place(spec) for key, spec in offsets.items()}
        keys = {TopicPartition(*key): key for key in offsets}

        async def one(broker_id: int, group: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
            def body(version: int, connection: Connection) -> dict[str, Any]:
                chosen = {key: specs[key] for key in group}
                _check_version(chosen.values(), level, version, connection)
                return {
                    "replica_id": CLIENT,
                    "isolation_level": level,
                    "topics": _topics(chosen, count, version),
                    "timeout_ms": round(self._config.request_timeout * 1000),
                }

            reply = await self._send(Request("ListOffsets", Node.id(broker_id), body, api_version))
            return _read(reply, group, result)

        found = await self._call_many(
            specs, lambda left: self._by_leader(left, one), "list_offsets", retries=retries
        )
        return {keys[key]: outcome for key, outcome in found.items()}


def _place(spec: OffsetLike) -> OffsetSpec:
    parsed = OffsetSpec.parse(spec)
    if not parsed.needs_broker:
        raise ConfigError(
            f"offset {parsed.value} needs no look-up",
            hint="a time in milliseconds is written Offset.at_timestamp_ms(...)",
        )
    return parsed


def _check_version(
    specs: Iterable[OffsetSpec], level: int, version: int, connection: Connection
) -> None:
    """Refuse what a version cannot ask."""
    require = connection.versions.require
    if level:
        require("ListOffsets", version, "read_committed", FIRST_WITH_ISOLATION)
    for spec in specs:
        if spec.kind in FIRST_WITH_KIND:
            require("ListOffsets", version, f"{spec.kind!r}", FIRST_WITH_KIND[spec.kind])


def _topics(
    specs: Mapping[TopicPartition, OffsetSpec], count: int, version: int
) -> list[dict[str, Any]]:
    now = time.time_ns() // 1_000_000
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), spec in specs.items():
        entry = {"partition_index": partition, "timestamp": spec.timestamp_ms(now)}
        if version < FIRST_WITH_ONE_OFFSET:
            entry["max_num_offsets"] = count
        topics.setdefault(topic, []).append(entry)
    return [{"name": name, "partitions": entries} for name, entries in topics.items()]


def _read(
    reply: Reply, group: list[TopicPartition], result: Callable[[Any], T]
) -> dict[TopicPartition, T | KarrowError]:
    """The outcome for each partition that was asked for."""
    answers = {
        TopicPartition(topic.name, entry.partition_index): entry
        for topic in reply.message.topics
        for entry in topic.partitions
    }
    outcomes: dict[TopicPartition, T | KarrowError] = {}
    for key in group:
        context = reply.context("ListOffsets", topic=key.topic, partition=key.partition)
        entry = answers.get(key)
        if entry is None:
            outcomes[key] = RemoteProtocolError("the answer lacks the partition", **context)
        else:
            outcomes[key] = error_for(entry.error_code, **context) or result(entry)
    return outcomes


def _result(entry: Any) -> OffsetResult:
    if entry.old_style_offsets:
        return OffsetResult(entry.old_style_offsets[0])
    if entry.offset < 0:
        return OffsetResult(None)
    return OffsetResult(
        entry.offset,
        entry.timestamp if entry.timestamp >= 0 else None,
        entry.leader_epoch if entry.leader_epoch >= 0 else None,
    )


def _old_offsets(entry: Any) -> tuple[int, ...]:
    return tuple(entry.old_style_offsets)
