"""Blocking calls about groups: their offsets, their members, their coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from karrow.aio.calls.groups import CONSUMER
from karrow.aio.calls.membership import MembershipCalls
from karrow.sync.twin import ClientTwin

if TYPE_CHECKING:
    from karrow.aio.calls.commits import Committable
    from karrow.aio.calls.membership import Assignment
    from karrow.aio.calls.offsets import Key
    from karrow.aio.calls.stored import Topics
    from karrow.types import (
        CommittedOffset,
        Coordinator,
        CoordinatorKind,
        GroupAssignment,
        GroupDescription,
        GroupListing,
        JoinedGroup,
        TopicPartition,
    )


class GroupCalls(ClientTwin):
    """Calls about groups."""

    default_protocol = staticmethod(MembershipCalls.default_protocol)

    @property
    def default_group(self) -> str | None:
        """The group of calls that name none."""
        return self._twin.default_group

    @default_group.setter
    def default_group(self, group: str | None) -> None:
        self._twin.default_group = group

    def commit_offsets(
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
        return self._run(
            self._twin.commit_offsets(
                group,
                offsets,
                generation=generation,
                member_id=member_id,
                instance_id=instance_id,
                retention=retention,
                api_version=api_version,
                retries=retries,
            )
        )

    def committed_offsets(
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
        return self._run(
            self._twin.committed_offsets(
                group, topics, stable=stable, api_version=api_version, retries=retries
            )
        )

    def unread_offsets(
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
        return self._run(self._twin.unread_offsets(topic, group, limit, retries=retries))

    def find_coordinator(
        self,
        key: str,
        kind: CoordinatorKind = "group",
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> Coordinator:
        """The broker that coordinates a group or a transactional id, asked for now."""
        return self._run(
            self._twin.find_coordinator(key, kind, api_version=api_version, retries=retries)
        )

    def list_groups(
        self,
        broker: int | None = None,
        *,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
        api_version: int | None = None,
        retries: int | None = None,
    ) -> list[GroupListing]:
        """The groups that one broker coordinates, or all of them."""
        return self._run(
            self._twin.list_groups(
                broker, states=states, types=types, api_version=api_version, retries=retries
            )
        )

    def describe_group(
        self,
        group: str,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> GroupDescription:
        """A group's state and members; a group of the new protocol (KIP-848) is found as well."""
        return self._run(self._twin.describe_group(group, api_version=api_version, retries=retries))

    def join_group(
        self,
        group: str,
        protocols: Iterable[tuple[str, bytes]],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        protocol_type: str = CONSUMER,
        session_timeout: float = 10.0,
        rebalance_timeout: float | None = None,
        reason: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> JoinedGroup:
        """Join a group and wait until the generation is complete.

        ``protocols`` are (name, metadata) pairs, most wanted first; ``default_protocol`` makes one.
        A new member first gets its id and joins with it again (KIP-394). ``rebalance_timeout`` is
        how long the others have to join, by default as long as the session.
        """
        return self._run(
            self._twin.join_group(
                group,
                protocols,
                member_id=member_id,
                instance_id=instance_id,
                protocol_type=protocol_type,
                session_timeout=session_timeout,
                rebalance_timeout=rebalance_timeout,
                reason=reason,
                api_version=api_version,
                retries=retries,
            )
        )

    def sync_group(
        self,
        group: str,
        *,
        generation: int,
        member_id: str,
        assignments: Mapping[str, Assignment] | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> GroupAssignment:
        """Hand out assignments, if this member is the leader, and get one's own.

        An assignment is a mapping of topics to partitions, such a mapping and user data, or bytes
        in a protocol of one's own.
        """
        return self._run(
            self._twin.sync_group(
                group,
                generation=generation,
                member_id=member_id,
                assignments=assignments,
                instance_id=instance_id,
                protocol_type=protocol_type,
                protocol=protocol,
                api_version=api_version,
                retries=retries,
            )
        )

    def heartbeat(
        self,
        group: str,
        *,
        generation: int,
        member_id: str,
        instance_id: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Tell the coordinator that a member is alive; RebalanceInProgress says to join again."""
        return self._run(
            self._twin.heartbeat(
                group,
                generation=generation,
                member_id=member_id,
                instance_id=instance_id,
                api_version=api_version,
                retries=retries,
            )
        )

    def leave_group(
        self,
        group: str,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        reason: str | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Take a member out of its group; a static one is named by its instance id alone."""
        return self._run(
            self._twin.leave_group(
                group,
                member_id,
                instance_id=instance_id,
                reason=reason,
                api_version=api_version,
                retries=retries,
            )
        )
