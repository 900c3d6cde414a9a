"""Which broker coordinates a group or a transactional id: found once, forgotten when it moves.

Rules:
- Answers are kept until a broker says NOT_COORDINATOR or the like, or cannot be reached.
- Everybody who asks for the same key waits for the same answer.
- A coordinator that is still unknown to the cluster is an error to be retried by the caller, with
  its back-off; others are not held up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from karrow.errors import RemoteProtocolError, UnsupportedVersion, error_for
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
        if found.error is not None:
            raise found.error
        return self._known[kind, key]

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Ask again next time."""
        self._known.pop((kind, key), None)

    async def find(
        self, kind: CoordinatorKind, key: str, *, api_version: int | None = None
    ) -> Coordinator:
        """Ask the cluster; an error of the coordinator is a value in the answer."""
        if api_version is not None:
            return await self._ask(kind, key, api_version)
        return await self._searches.run((kind, key), lambda: self._ask(kind, key, None))

    async def close(self) -> None:
        """End the searches under way."""
        await self._searches.close()

    async def _ask(self, kind: CoordinatorKind, key: str, api_version: int | None) -> Coordinator:
        connection = await self._connect()
        version = connection.versions.choose("FindCoordinator", api_version)
        if version < FIRST_WITH_KIND[kind]:
            raise UnsupportedVersion(
                f"FindCoordinator v{version} cannot find the coordinator of a {kind}: "
                f"it takes v{FIRST_WITH_KIND[kind]}",
                api="FindCoordinator",
                broker=connection.peer,
            )
        answer = await connection.request("FindCoordinator", version, _body(kind, key, version))
        found = self._read(kind, key, answer, version, connection)
        if found.broker is not None:
            self._known[kind, key] = found.broker.id
        return found

    def _read(
        self, kind: CoordinatorKind, key: str, answer: Any, version: int, connection: Connection
    ) -> Coordinator:
        context: dict[str, Any] = {"api": "FindCoordinator", "broker": connection.peer}
        entry = answer
        if version >= FIRST_WITH_KEYS:
            entry = next((one for one in answer.coordinators if one.key == key), None)
            if entry is None:
                raise RemoteProtocolError(f"the answer does not speak of {key!r}", **context)
        error = error_for(entry.error_code, entry.error_message or None, **context)
        if error is not None:
            return Coordinator(key, kind, None, error)
        broker = BrokerInfo(entry.node_id, entry.host, entry.port)
        if not self._learn(broker):
            raise RemoteProtocolError(
                f"the coordinator's address {broker} is impossible", **context
            )
        return Coordinator(key, kind, broker)


def _body(kind: CoordinatorKind, key: str, version: int) -> dict[str, Any]:
    if version >= FIRST_WITH_KEYS:
        return {"coordinator_keys": [key], "key_type": KEY_TYPES[kind]}
    return {"key": key, "key_type": KEY_TYPES[kind]}
