"""The explicit client: every API, every version, any broker."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from karrow.aio.calls.base import Reply, Request
from karrow.aio.calls.commits import CommitCalls
from karrow.aio.calls.fetch import FetchCalls
from karrow.aio.calls.groups import GroupCalls
from karrow.aio.calls.membership import MembershipCalls
from karrow.aio.calls.metadata import MetadataCalls
from karrow.aio.calls.produce import ProduceCalls
from karrow.aio.calls.topics import TopicCalls
from karrow.config import ClientConfig
from karrow.errors import ConnectError, KarrowError
from karrow.net.cluster import Cluster
from karrow.net.retry import is_transient
from karrow.types import Node
from karrow.wire import api

if TYPE_CHECKING:
    from karrow.config import Servers
    from karrow.config.options import ClientOptions
    from karrow.wire.codec import Body

C = TypeVar("C", bound=ClientConfig)

ANY = Node.any()


class AsyncClient(
    MetadataCalls,
    ProduceCalls,
    FetchCalls,
    CommitCalls,
    GroupCalls,
    MembershipCalls,
    TopicCalls,
):
    """Speaks to a cluster call by call; nothing happens between calls.

    Making one opens no connection. Each call finds its broker, negotiates the version unless
    ``api_version`` names one, and retries what may succeed in a moment until ``api_timeout``;
    ``retries=0`` sends once.

    Example::

        async with AsyncClient("localhost:9092") as client:
            await client.produce("orders", [b"a", (b"key", b"b")])
            print((await client.fetch("orders", 0, "earliest")).records)
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | None = None,
        *,
        config: ClientConfig | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        chosen = ClientConfig.for_servers(bootstrap, config, {**options})
        super().__init__(chosen, Cluster(chosen))
        self.default_group = chosen.default_group

    @property
    def config(self) -> ClientConfig:
        """The options in use."""
        return self._config

    @property
    def cluster(self) -> Cluster:
        """Metadata, routing and connections, which other clients may share."""
        return self._cluster

    @property
    def correlation_id(self) -> int:
        """The correlation id of the newest request on the connection used last."""
        return self._cluster.correlation_id

    async def request(
        self,
        name: str,
        body: Body | None = None,
        *,
        to: Node | None = None,
        api_version: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - ends the connection, not the call
    ) -> Any:
        """Send any request to any broker and return its answer.

        ``body`` is a dict of snake_case fields or a message object; what is left out has its
        default. ``to`` is any broker by default. Error codes in the answer are values, nothing is
        raised for them. It is sent once: only finding and reaching the broker is retried.
        """
        target = api(name)
        request = Request(
            target.name,
            ANY if to is None else to,
            lambda _version, _connection: {} if body is None else body,
            api_version,
            timeout,
        )

        async def attempt() -> Reply:
            return await self._send(request)

        reply = await self._attempts(
            attempt, retryable=lambda error: _is_unsent(error, target.name)
        )
        return reply.message

    async def close(self) -> None:
        """Close every connection; more than once does no harm."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        # The constructor may have failed before there was a cluster.
        cluster: Cluster | None = getattr(self, "_cluster", None)
        if cluster is not None and cluster.has_connections:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, 2, source=self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._config.client_id!r} of {self._config.bootstrap}>"


def config_and_cluster(
    kind: type[C],
    bootstrap: Servers | AsyncClient | None,
    config: C | None,
    options: Mapping[str, Any],
) -> tuple[C, Cluster]:
    """What a client of another kind works with: its own, or those of the open client it shares."""
    if isinstance(bootstrap, AsyncClient):
        return kind.for_open_client(bootstrap.config, config, options), bootstrap.cluster
    chosen = kind.for_servers(bootstrap, config, options)
    return chosen, Cluster(chosen)


def _is_unsent(error: BaseException, name: str) -> bool:
    """Whether a request did not leave: its broker was not found, or not connected to."""
    if isinstance(error, ConnectError):
        return True
    is_ours = isinstance(error, KarrowError) and error.context.get("api") == name
    return is_transient(error) and not is_ours
