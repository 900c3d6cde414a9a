"""Which broker coordinates a group or a transactional id: found once, forgotten when it moves.

Rules:
- Answers are kept until a broker says NOT_COORDINATOR or the like, or cannot be reached.
- Everybody who asks for the same key waits for the same answer. Many keys are one question, where
  the broker takes many (KIP-699).
- A coordinator that is still unknown to the cluster is an error to be retried by the caller, with
  its back-off; others are not held up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from karrow.errors import (
    CoordinatorNotAvailable,
    KarrowError,
    RemoteProtocolError,
    UnsupportedVersion,
    error_for,
)
from karrow.net.sharing import Sharing
from karrow.types import BrokerInfo, Coordinator, CoordinatorKind

if TYPE_CHECKING:
    from karrow.net.connection import Connection

KEY_TYPES: dict[CoordinatorKind, int] = {"group": 0, "transaction": 1, "share": 2}
# The FindCoordinator versions that brought the key's type, share groups, and many keys at once.
FIRST_WITH_KIND = {"group": 0, "transaction": 1, "share": 6}
FIRST_WITH_KEYS = 4

Key = tuple[CoordinatorKind, str]


class Coordinators:
    """The cache; ``connect`` gives a connection to any broker, ``learn`` takes an address."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        learn: Callable[[BrokerInfo], bool],
    ) -> None:
        self._connect = connect
        self._learn = learn
        self._known: dict[Key, int] = {}
        self._searches: Sharing[Coordinator] = Sharing()

    async def broker_id(self, kind: CoordinatorKind, key: str) -> int:
        """The coordinator's id, from memory if it is there."""
        known = self._known.get((kind, key))
        if known is not None:
            return known
        found = await self.find(kind, key)
        if found.broker is None:
            raise found.error or CoordinatorNotAvailable(f"nobody coordinates {key!r}")
        return found.broker.id

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Ask again next time."""
        self._known.pop((kind, key), None)

    async def find(
        self, kind: CoordinatorKind, key: str, *, api_version: int | None = None
    ) -> Coordinator:
        """Ask the cluster; an error of the coordinator is a value in the answer."""
        if api_version is not None:
            return (await self._ask(kind, [key], api_version))[key]
        return await self._searches.run((kind, key), lambda: self._ask_one(kind, key))

    async def look_up(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, KarrowError]:
        """Have many in memory; those who have no coordinator, and why.

        Brokers that take one key at a time are not asked here.
        """
        unknown = [key for key in dict.fromkeys(keys) if (kind, key) not in self._known]
        if len(unknown) < 2:
            return {}
        connection = await self._connect()
        if connection.versions.choose("FindCoordinator") < FIRST_WITH_KEYS:
            return {}
        found = await self._ask(kind, unknown, None, connection)
        return {key: one.error for key, one in found.items() if one.error is not None}

    async def close(self) -> None:
        """End the searches under way."""
        await self._searches.close()

    async def _ask_one(self, kind: CoordinatorKind, key: str) -> Coordinator:
        return (await self._ask(kind, [key], None))[key]

    async def _ask(
        self,
        kind: CoordinatorKind,
        keys: list[str],
        api_version: int | None,
        connection: Connection | None = None,
    ) -> dict[str, Coordinator]:
        connection = connection or await self._connect()
        version = connection.versions.choose("FindCoordinator", api_version)
        if version < FIRST_WITH_KIND[kind]:
            raise UnsupportedVersion(
                f"FindCoordinator v{version} cannot find the coordinator of a {kind}: "
                f"it takes v{FIRST_WITH_KIND[kind]}",
                api="FindCoordinator",
                broker=connection.peer,
            )
        answer = await connection.request("FindCoordinator", version, _body(kind, keys, version))
        entries = {keys[0]: answer}
        if version >= FIRST_WITH_KEYS:
            entries = {entry.key: entry for entry in answer.coordinators}
        context: dict[str, Any] = {"api": "FindCoordinator", "broker": connection.peer}
        return {key: self._read(kind, key, entries.get(key), context) for key in keys}

    def _read(
        self, kind: CoordinatorKind, key: str, entry: Any, context: dict[str, Any]
    ) -> Coordinator:
        if entry is None:
            error: KarrowError | None = RemoteProtocolError(
                f"the answer does not speak of {key!r}", **context
            )
        else:
            error = error_for(entry.error_code, entry.error_message or None, **context)
        if error is not None:
            return Coordinator(key, kind, None, error)
        broker = BrokerInfo(entry.node_id, entry.host, entry.port)
        if not self._learn(broker):
            text = f"the coordinator's address {broker} is impossible"
            return Coordinator(key, kind, None, RemoteProtocolError(text, **context))
        self._known[kind, key] = broker.id
        return Coordinator(key, kind, broker)


def _body(kind: CoordinatorKind, keys: list[str], version: int) -> dict[str, Any]:
    if version >= FIRST_WITH_KEYS:
        return {"coordinator_keys": keys, "key_type": KEY_TYPES[kind]}
    return {"key": keys[0], "key_type": KEY_TYPES[kind]}
