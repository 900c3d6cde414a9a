"""Blocking calls about groups and the offsets they store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from karrow.sync.admin_calls.base import AdminTwin

if TYPE_CHECKING:
    from karrow.aio.admin_calls.offsets import Place
    from karrow.aio.calls.commits import Committable
    from karrow.aio.calls.offsets import Key
    from karrow.aio.calls.stored import Topics
    from karrow.types import CommittedOffset, GroupDescription, OffsetLike, TopicPartition


class GroupCalls(AdminTwin):
    """Calls about groups."""

    def describe_groups(
        self,
        groups: Iterable[str],
        *,
        retries: int | None = None,
    ) -> dict[str, GroupDescription]:
        """States and members of groups, by name, whichever protocol they speak."""
        return self._run(self._twin.describe_groups(groups, retries=retries))

    def delete_groups(
        self,
        groups: Iterable[str],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Delete groups with everything they have stored; they must have no members."""
        return self._run(self._twin.delete_groups(groups, api_version=api_version, retries=retries))

    def delete_group(
        self,
        group: str,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Delete a group with everything it has stored; it must have no members."""
        return self._run(self._twin.delete_group(group, api_version=api_version, retries=retries))

    def remove_members(
        self,
        group: str,
        *,
        member_ids: Iterable[str] | None = None,
        instance_ids: Iterable[str] | None = None,
        reason: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Take members out of a group, static ones by their instance ids; all if none are named.

        A member that still lives joins again: it is to be stopped first.
        """
        return self._run(
            self._twin.remove_members(
                group,
                member_ids=member_ids,
                instance_ids=instance_ids,
                reason=reason,
                api_version=api_version,
                retries=retries,
            )
        )

    def list_group_offsets(
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
        return self._run(
            self._twin.list_group_offsets(
                group, topics, stable=stable, api_version=api_version, retries=retries
            )
        )

    def list_groups_offsets(
        self,
        groups: Iterable[str],
        topics: Topics | None = None,
        *,
        stable: bool = False,
        retries: int | None = None,
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """The offsets that several groups have stored, by group; see ``list_group_offsets``."""
        return self._run(
            self._twin.list_groups_offsets(groups, topics, stable=stable, retries=retries)
        )

    def alter_group_offsets(
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
        return self._run(
            self._twin.alter_group_offsets(group, offsets, api_version=api_version, retries=retries)
        )

    def delete_group_offsets(
        self,
        group: str,
        partitions: Iterable[tuple[str, int]],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Forget what a group has stored for partitions of topics that no member subscribes to."""
        return self._run(
            self._twin.delete_group_offsets(
                group, partitions, api_version=api_version, retries=retries
            )
        )

    def create_group(
        self,
        group: str,
        offsets: Mapping[Place, OffsetLike],
        *,
        retries: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Make an empty group that will read on from these places, and return their offsets.

        A key is a topic, which is all its partitions, or (topic, partition).
        """
        return self._run(self._twin.create_group(group, offsets, retries=retries))

    def reset_group(
        self,
        group: str,
        offsets: Mapping[Place, OffsetLike],
        *,
        retries: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Move a group that has no members to other places, and return the offsets they have.

        A key is a topic, which is all its partitions, or (topic, partition); a place is an offset,
        "earliest", "latest", a datetime or an age such as "-1h". An offset outside the partition
        becomes the nearest end, a time after the last record the end.
        """
        return self._run(self._twin.reset_group(group, offsets, retries=retries))
