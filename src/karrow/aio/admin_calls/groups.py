"""Groups as an administrator sees them: many described, deleted, their members removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from karrow.aio.admin_calls.base import AdminCalls, named, nothing, raise_for, read_each
from karrow.aio.calls.base import Reply, Request
from karrow.aio.calls.groups import FIRST_WITH_LEAVERS, GroupCalls
from karrow.types import GroupDescription, Node

if TYPE_CHECKING:
    from karrow.errors import KarrowError
    from karrow.net.connection import Connection

    # Member id and instance id, one of which may be missing.
    Identity = tuple[str, str | None]


class GroupAdminCalls(AdminCalls, GroupCalls):
    """Calls about groups that the Client does not have."""

    async def describe_groups(
        self, groups: Iterable[str], *, retries: int | None = None
    ) -> dict[str, GroupDescription]:
        """States and members of groups, by name, whichever protocol they speak."""
        return await self._call_many(
            dict.fromkeys(groups),
            lambda left: self._split(left, Node.coordinator, self._described),
            "describe_groups",
            retries=retries,
        )

    async def delete_groups(
        self,
        groups: Iterable[str],
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Delete groups with everything they have stored; they must have no members."""

        async def one(place: Node, names: list[str]) -> Mapping[str, KarrowError | None]:
            return await self._outcomes(
                Request(
                    "DeleteGroups",
                    place,
                    lambda _version, _connection: {"groups_names": names},
                    api_version,
                ),
                lambda reply: read_each(
                    reply,
                    "DeleteGroups",
                    {answer.group_id: answer for answer in reply.message.results},
                    named("group", names),
                    nothing,
                ),
            )

        await self._call_many(
            dict.fromkeys(groups),
            lambda left: self._split(left, Node.coordinator, one),
            "delete_groups",
            retries=retries,
        )

    async def delete_group(
        self,
        group: str,
        *,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Delete a group with everything it has stored; it must have no members."""
        await self.delete_groups([group], api_version=api_version, retries=retries)

    async def remove_members(
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
        wanted: dict[str, Identity] = {
            member_id: (member_id, None) for member_id in member_ids or ()
        }
        wanted |= {instance_id: ("", instance_id) for instance_id in instance_ids or ()}
        if member_ids is None and instance_ids is None:
            found = await self.describe_group(group, retries=retries)
            wanted = {one.member_id: (one.member_id, one.instance_id) for one in found.members}
        if not wanted:
            return
        to = Node.coordinator(group)

        async def ask(left: list[str]) -> Mapping[str, KarrowError | None]:
            members = {name: wanted[name] for name in left}

            def body(version: int, connection: Connection) -> dict[str, Any]:
                return _leaving(group, list(members.values()), reason, version, connection)

            request = Request("LeaveGroup", to, body, api_version)
            return await self._outcomes(request, lambda reply: _read_left(reply, group, members))

        await self._call_many(wanted, ask, "remove_members", retries=retries)


def _leaving(
    group: str,
    members: list[Identity],
    reason: str | None,
    version: int,
    connection: Connection,
) -> dict[str, Any]:
    if version >= FIRST_WITH_LEAVERS:
        leavers = [
            {"member_id": member_id, "group_instance_id": instance_id, "reason": reason}
            for member_id, instance_id in members
        ]
        return {"group_id": group, "members": leavers}
    if len(members) > 1 or members[0][1] is not None:
        connection.versions.require("LeaveGroup", version, "these members", FIRST_WITH_LEAVERS)
    return {"group_id": group, "member_id": members[0][0]}


def _read_left(
    reply: Reply, group: str, members: Mapping[str, Identity]
) -> dict[str, KarrowError | None]:
    raise_for(reply, "LeaveGroup", group=group)
    if reply.version < FIRST_WITH_LEAVERS:
        return dict.fromkeys(members)
    answers = {(one.member_id, one.group_instance_id): one for one in reply.message.members}
    by_name = {name: answers[key] for name, key in members.items() if key in answers}
    where = {name: {"group": group, "member": name} for name in members}
    return read_each(reply, "LeaveGroup", by_name, where, nothing)
