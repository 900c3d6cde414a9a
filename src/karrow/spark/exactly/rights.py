"""What a sink may do, asked of brokers before it does it (KIP-430).

Without the right to write rows a batch fails in its tasks, and without the right to the ledger
after all of its rows were written; both would be tried again.

Rules:
- Only a definite no counts. A broker that does not tell (before 2.3), or cannot at the moment, is
  not asked again: the batch will show it.
- Reading and writing imply describing, so who may not describe may not do these either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from karrow.errors import GroupAuthorizationFailed, KarrowError, TopicAuthorizationFailed
from karrow.types import AclOperation, Node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karrow.aio.client import AsyncClient

__all__ = ["require_group", "require_topics"]

# The first versions that tell rights; newer ones have nothing more to say of them.
_METADATA = 8
_DESCRIBE_GROUPS = 3
_UNKNOWN = -(1 << 31)


async def require_topics(
    client: AsyncClient, topics: Iterable[str], *operations: AclOperation
) -> None:
    """Raise for a topic on which an operation is not allowed."""
    body = {
        "topics": [{"name": name} for name in sorted(topics)],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    answer = await _asked(client, "Metadata", body, _METADATA)
    for found in () if answer is None else answer.topics:
        wanted = _missing(found.topic_authorized_operations, operations)
        if found.error_code == TopicAuthorizationFailed.code or (not found.error_code and wanted):
            names = " and ".join(one.name.capitalize() for one in wanted or operations)
            raise TopicAuthorizationFailed(
                f"the sink may not {names} there", hint=f"it needs {names}", topic=found.name
            )


async def require_group(client: AsyncClient, group: str) -> None:
    """Raise if offsets may not be stored for a group."""
    body = {"groups": [group], "include_authorized_operations": True}
    to = Node.coordinator(group)
    answer = await _asked(client, "DescribeGroups", body, _DESCRIBE_GROUPS, to)
    for found in () if answer is None else answer.groups:
        wanted = _missing(found.authorized_operations, [AclOperation.READ])
        if found.error_code == GroupAuthorizationFailed.code or (not found.error_code and wanted):
            raise GroupAuthorizationFailed(
                "the sink may not keep its ledger there", hint="it needs Read", group=group
            )


async def _asked(
    client: AsyncClient, name: str, body: dict[str, Any], version: int, to: Node | None = None
) -> Any:
    """The answer; None where none is to be had."""
    try:
        return await client.request(name, body, to=to or Node.any(), api_version=version)
    except KarrowError:
        return None


def _missing(bits: int, operations: Iterable[AclOperation]) -> list[AclOperation]:
    """What is not among the operations that a broker allows."""
    return [one for one in operations if bits != _UNKNOWN and not bits >> one & 1]
