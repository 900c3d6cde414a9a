"""The administrator's client: topics, configurations, groups, users, rights, transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from karrow.aio.admin_calls.acls import AclAdminCalls
from karrow.aio.admin_calls.cluster import ClusterAdminCalls
from karrow.aio.admin_calls.configs import ConfigAdminCalls
from karrow.aio.admin_calls.offsets import OffsetAdminCalls
from karrow.aio.admin_calls.partitions import PartitionAdminCalls
from karrow.aio.admin_calls.transactions import TransactionAdminCalls
from karrow.aio.admin_calls.users import UserAdminCalls
from karrow.aio.calls.topics import TopicCalls
from karrow.aio.client import AsyncClient
from karrow.errors import ConfigError

if TYPE_CHECKING:
    from karrow.config import ClientConfig, Servers
    from karrow.config.options import ClientOptions


class AsyncAdmin(
    ClusterAdminCalls,
    OffsetAdminCalls,
    PartitionAdminCalls,
    ConfigAdminCalls,
    AclAdminCalls,
    UserAdminCalls,
    TransactionAdminCalls,
    TopicCalls,
):
    """Administers a cluster.

    A call about one thing returns its result. A call about many returns a dict by what the caller
    named, and raises PartialError when some failed. Each is retried like a call of the Client.
    Given an open client, it shares that one's connections and leaves it open.

    Example::

        async with AsyncAdmin("localhost:9092") as admin:
            await admin.create_topic("orders", partitions=6)
            print(await admin.describe_topic("orders"))
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | AsyncClient | None = None,
        *,
        config: ClientConfig | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._is_owner = not isinstance(bootstrap, AsyncClient)
        if not isinstance(bootstrap, AsyncClient):
            client = AsyncClient(bootstrap, config=config, **options)
        elif config is None and not options:
            client = bootstrap
        else:
            raise ConfigError("an open client has its options already")
        super().__init__(client)

    @property
    def client(self) -> AsyncClient:
        """The client it speaks through; its ``request`` sends what Admin has no call for."""
        return self._client

    async def close(self) -> None:
        """Close every connection, unless the client was given; more than once does no harm."""
        if self._is_owner:
            await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._config.client_id!r} of {self._config.bootstrap}>"
