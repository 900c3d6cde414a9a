"""Offsets that groups store, changed from outside: listed, altered, deleted, reset.

A group's members own its offsets while there are any. The coordinator refuses a commit from
outside then, and so do we, before anything is looked up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from karrow.aio.admin_calls.base import (
    by_topic,
    nothing,
    partitions_named,
    raise_for,
    read_each,
    settled,
)
from karrow.aio.admin_calls.groups import GroupAdminCalls
from karrow.aio.admin_calls.topics import TopicAdminCalls
from karrow.aio.calls.base import Reply, Request
from karrow.aio.calls.groups import DEAD
from karrow.aio.calls.stored import FIRST_WITH_GROUPS, Stored, StoredCalls
from karrow.errors import (
    ConfigError,
    DuplicateResource,
    GroupIdNotFound,
    KarrowError,
    NonEmptyGroup,
    PartialError,
    UnknownMemberId,
)
from karrow.net.retry import is_commit_retriable
from karrow.types import (
    CommittedOffset,
    GroupDescription,
    Node,
    OffsetLike,
    OffsetSpec,
    TopicPartition,
)

if TYPE_CHECKING:
    from karrow.aio.calls.commits import Committable
    from karrow.aio.calls.offsets import Key
    from karrow.aio.calls.stored import Topics
    from karrow.types import OffsetResult

Place = TypeVar("Place", bound=str | tuple[str, int])

STOP_THEM = "the group has members, which own its offsets: stop them first"


class OffsetAdminCalls(GroupAdminCalls, TopicAdminCalls, StoredCalls):
    """Calls about the offsets of groups."""

    async def list_group_offsets(
        self,
        group: str,
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
        return await self._client.committed_offsets(
            group, topics, stable=stable, api_version=api_version, retries=retries
        )

    async def list_groups_offsets(
        self,
        groups: Iterable[str],
        topics: Topics | None = None,
        *,
        stable: bool = False,
        retries: int | None = None,
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """The offsets that several groups have stored, by group; see ``list_group_offsets``."""
        wanted = None if topics is None else await self._partitions(topics, retries)

        async def ask(place: Node, names: list[str]) -> Mapping[str, Stored | KarrowError]:
            way = await self._cluster.connection(place)
            if way.versions.usable("OffsetFetch")[1] >= FIRST_WITH_GROUPS:
                return await self._fetch_stored(place, names, wanted, stable)
            parts = await settled(
                self._fetch_stored(place, [name], wanted, stable) for name in names
            )
            return {
                name: part if isinstance(part, KarrowError) else part[name]
                for name, part in zip(names, parts, strict=True)
            }

        return await self._call_many(
            dict.fromkeys(groups),
            lambda left: self._split(left, Node.coordinator, ask),
            "list_groups_offsets",
            retries=retries,
            retryable=is_commit_retriable,
        )

    async def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[Key, Committable],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Store offsets for a group that has no members, which comes into being if it is new.

        Each is an offset, (offset, metadata) or a CommittedOffset.
        """
        try:
            await self._client.commit_offsets(
                group, offsets, api_version=api_version, retries=retries
            )
        except (UnknownMemberId, PartialError) as error:
            _explain(error)
            raise

    async def delete_group_offsets(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Forget what a group has stored for partitions of topics that no member subscribes to."""
        to = Node.coordinator(group)

        async def ask(left: list[TopicPartition]) -> Mapping[TopicPartition, KarrowError | None]:
            topics = [
                {"name": topic, "partitions": [{"partition_index": one} for one in numbers]}
                for topic, numbers in by_topic(left).items()
            ]
            question = {"group_id": group, "topics": topics}
            return await self._outcomes(
                Request("OffsetDelete", to, lambda _version, _connection: question, api_version),
                lambda reply: _read_deleted(reply, group, left),
            )

        wanted = [TopicPartition(*key) for key in partitions]
        await self._call_many(wanted, ask, "delete_group_offsets", retries=retries)

    async def create_group(
        self, group: str, offsets: Mapping[Place, OffsetLike], *, retries: int | None = None
    ) -> dict[TopicPartition, int]:
        """Make an empty group that will read on from these places, and return their offsets.

        A key is a topic, which is all its partitions, or (topic, partition).
        """
        if not offsets:
            raise ConfigError("a group without members exists by its offsets: name at least one")
        if await self._exists(group, retries):
            raise DuplicateResource(
                "the group exists already", group=group, hint="reset_group moves its offsets"
            )
        return await self._store(group, offsets, retries)

    async def reset_group(
        self, group: str, offsets: Mapping[Place, OffsetLike], *, retries: int | None = None
    ) -> dict[TopicPartition, int]:
        """Move a group that has no members to other places, and return the offsets they have.

        A key is a topic, which is all its partitions, or (topic, partition); a place is an offset,
        "earliest", "latest", a datetime or an age such as "-1h". An offset outside the partition
        becomes the nearest end, a time after the last record the end.
        """
        found = await self._exists(group, retries)
        if found is None:
            raise GroupIdNotFound(
                "the group does not exist", group=group, hint="create_group makes one"
            )
        if found.active:
            count = len(found.members)
            raise NonEmptyGroup(f"the group has members ({count})", group=group, hint=STOP_THEM)
        return await self._store(group, offsets, retries)

    async def _exists(self, group: str, retries: int | None) -> GroupDescription | None:
        try:
            found = await self.describe_group(group, retries=retries)
        except GroupIdNotFound:
            return None
        if found.state == DEAD and not await self.list_group_offsets(group, retries=retries):
            return None
        return found

    async def _store(
        self, group: str, offsets: Mapping[Place, OffsetLike], retries: int | None
    ) -> dict[TopicPartition, int]:
        specs = await self._specs(offsets, retries)
        chosen = await self._resolve(specs, retries)
        await self.alter_group_offsets(group, chosen, retries=retries)
        return chosen

    async def _specs(
        self, offsets: Mapping[Place, OffsetLike], retries: int | None
    ) -> dict[TopicPartition, OffsetSpec]:
        """The place for each partition; one named by itself goes before its topic."""
        places = {key: OffsetSpec.parse(place) for key, place in offsets.items()}
        names = {key: place for key, place in places.items() if isinstance(key, str)}
        topics = await self.describe_topics(names, retries=retries)
        specs = {
            TopicPartition(name, partition): place
            for name, place in names.items()
            for partition in sorted(topics[name].partitions)
        }
        for key, place in places.items():
            if not isinstance(key, str):
                specs[TopicPartition(*key)] = place
        return specs

    async def _resolve(
        self, specs: Mapping[TopicPartition, OffsetSpec], retries: int | None
    ) -> dict[TopicPartition, int]:
        sought = {key: spec for key, spec in specs.items() if spec.needs_broker}
        starts, ends, found = await asyncio.gather(
            self._client.list_offsets(dict.fromkeys(specs, "earliest"), retries=retries),
            self._client.list_offsets(dict.fromkeys(specs, "latest"), retries=retries),
            self._client.list_offsets(sought, retries=retries),
        )
        return {
            key: within(
                starts[key], ends[key], spec.value if key not in found else found[key].offset
            )
            for key, spec in specs.items()
        }


def within(start: OffsetResult, end: OffsetResult, offset: int | None) -> int:
    """The offset, or the end of the partition nearest to it; the last one for None."""
    first, last = start.offset or 0, end.offset or 0
    return last if offset is None else min(max(offset, first), last)


def _explain(error: KarrowError) -> None:
    """Say what a refused commit from outside means."""
    found = error.errors.values() if isinstance(error, PartialError) else [error]
    for one in found:
        if isinstance(one, UnknownMemberId):
            one.hint = STOP_THEM


def _read_deleted(
    reply: Reply, group: str, left: list[TopicPartition]
) -> dict[TopicPartition, KarrowError | None]:
    raise_for(reply, "OffsetDelete", group=group)
    answers: dict[TopicPartition, Any] = {
        TopicPartition(topic.name, answer.partition_index): answer
        for topic in reply.message.topics
        for answer in topic.partitions
    }
    where = {key: {"group": group, **more} for key, more in partitions_named(left).items()}
    return read_each(reply, "OffsetDelete", answers, where, nothing)
