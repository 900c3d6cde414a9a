"""The administrator's client without await."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from karrow.errors import ConfigError
from karrow.sync.admin_calls.base import of_client
from karrow.sync.admin_calls.cluster import ClusterCalls
from karrow.sync.admin_calls.groups import GroupCalls
from karrow.sync.admin_calls.security import SecurityCalls
from karrow.sync.admin_calls.transactions import TransactionCalls
from karrow.sync.client import Client

if TYPE_CHECKING:
    from karrow.config import ClientConfig, Servers
    from karrow.config.options import ClientOptions


class Admin(ClusterCalls, GroupCalls, SecurityCalls, TransactionCalls):
    """Administers a cluster.

    A call about one thing returns its result. A call about many returns a dict by what the caller
    named, and raises PartialError when some failed. Each is retried like a call of the Client.
    Given an open client, it shares that one's connections and leaves it open.

    Example::

        with Admin("localhost:9092") as admin:
            admin.create_topic("orders", partitions=6)
            print(admin.describe_topic("orders"))
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | Client | None = None,
        *,
        config: ClientConfig | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._is_owner = not isinstance(bootstrap, Client)
        if not isinstance(bootstrap, Client):
            client = Client(bootstrap, config=config, **options)
        elif config is None and not options:
            client = bootstrap
        else:
            raise ConfigError("an open client has its options already")
        super().__init__(client)

    create_topics = of_client(Client.create_topics)
    create_topic = of_client(Client.create_topic)
    delete_topics = of_client(Client.delete_topics)
    delete_topic = of_client(Client.delete_topic)
    find_coordinator = of_client(Client.find_coordinator)
    list_groups = of_client(Client.list_groups)
    describe_group = of_client(Client.describe_group)

    def close(self) -> None:
        """Close every connection, unless the client was given; more than once does no harm."""
        if self._is_owner:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        config = self._client.config
        return f"<{type(self).__name__} {config.client_id!r} of {config.bootstrap}>"
