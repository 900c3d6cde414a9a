"""The explicit client without await."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack

from karrow.aio.client import AsyncClient
from karrow.sync.groups import GroupCalls
from karrow.sync.partitions import PartitionCalls

if TYPE_CHECKING:
    from karrow.config import ClientConfig, Servers
    from karrow.config.options import ClientOptions
    from karrow.net.versions import Range
    from karrow.types import BrokerInfo, ClusterMetadata, CreatedTopic, NewTopic, Node
    from karrow.wire.codec import Body


class Client(PartitionCalls, GroupCalls):
    """Speaks to a cluster call by call; nothing happens between calls.

    Making one opens no connection. Each call finds its broker, negotiates the version unless
    ``api_version`` names one, and retries what may succeed in a moment until ``api_timeout``;
    ``retries=0`` sends once.

    Example::

        with Client("localhost:9092") as client:
            client.produce("orders", [b"a", (b"key", b"b")])
            print(client.fetch("orders", 0, "earliest").records)
    """

    __module__ = "karrow"

    def __init__(
        self,
        bootstrap: Servers | None = None,
        *,
        config: ClientConfig | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(AsyncClient(bootstrap, config=config, **options))

    @property
    def config(self) -> ClientConfig:
        """The options in use."""
        return self._twin.config

    @property
    def correlation_id(self) -> int:
        """The correlation id of the newest request on the connection used last."""
        return self._twin.correlation_id

    def api_versions(
        self, broker: int | None = None, *, retries: int | None = None
    ) -> Mapping[str, Range]:
        """The first and last version of every API that a broker has, by name.

        ``broker`` is an id; without it any broker answers. What was negotiated when the connection
        was made is what counts, so nothing is asked again.
        """
        return self._run(self._twin.api_versions(broker, retries=retries))

    def brokers(
        self, *, api_version: int | None = None, retries: int | None = None
    ) -> list[BrokerInfo]:
        """The brokers that the cluster has now, by id."""
        return self._run(self._twin.brokers(api_version=api_version, retries=retries))

    def metadata(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        create: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> ClusterMetadata:
        """Brokers and topics, asked for now; None is all topics.

        With ``create`` the broker may create topics that it does not have. A topic that cannot be
        described has its ``error`` set; nothing is raised for it.
        """
        return self._run(
            self._twin.metadata(topics, create=create, api_version=api_version, retries=retries)
        )

    def cluster_metadata(self) -> ClusterMetadata:
        """What is known without asking; asked for once if nothing is."""
        return self._run(self._twin.cluster_metadata())

    def create_topics(
        self,
        topics: Iterable[NewTopic | str],
        *,
        timeout: float | None = None,
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> dict[str, CreatedTopic]:
        """Create topics; a name alone leaves everything to the broker.

        ``timeout`` is how long the broker may take, ``validate_only`` checks without creating.
        """
        return self._run(
            self._twin.create_topics(
                topics,
                timeout=timeout,
                validate_only=validate_only,
                api_version=api_version,
                retries=retries,
            )
        )

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str | None] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        timeout: float | None = None,
        validate_only: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> CreatedTopic:
        """Create a topic; -1 leaves a number to the broker.

        ``assignments`` places the replicas by hand, partition to broker ids.
        """
        return self._run(
            self._twin.create_topic(
                name,
                partitions,
                replication_factor,
                config,
                assignments=assignments,
                timeout=timeout,
                validate_only=validate_only,
                api_version=api_version,
                retries=retries,
            )
        )

    def delete_topics(
        self,
        topics: Iterable[str],
        *,
        timeout: float | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Delete topics and everything in them."""
        return self._run(
            self._twin.delete_topics(
                topics, timeout=timeout, api_version=api_version, retries=retries
            )
        )

    def delete_topic(
        self,
        name: str,
        *,
        timeout: float | None = None,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> None:
        """Delete a topic and everything in it."""
        return self._run(
            self._twin.delete_topic(name, timeout=timeout, api_version=api_version, retries=retries)
        )

    def request(
        self,
        name: str,
        body: Body | None = None,
        *,
        to: Node | None = None,
        api_version: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Send any request to any broker and return its answer.

        ``body`` is a dict of snake_case fields or a message object; what is left out has its
        default. ``to`` is any broker by default. Error codes in the answer are values, nothing is
        raised for them. It is sent once: only finding and reaching the broker is retried.
        """
        return self._run(
            self._twin.request(name, body, to=to, api_version=api_version, timeout=timeout)
        )

    def close(self) -> None:
        """Close every connection; more than once does no harm."""
        self._run(self._twin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.config.client_id!r} of {self.config.bootstrap}>"
