"""Brokers, their versions, topics: what the cluster says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from karrow.aio.calls.base import Calls
from karrow.types import BrokerInfo, ClusterMetadata, Node

if TYPE_CHECKING:
    from karrow.net.versions import Range


class MetadataCalls(Calls):
    """Calls about the cluster itself."""

    async def api_versions(
        self, broker: int | None = None, *, retries: int | None = None
    ) -> Mapping[str, Range]:
        """The first and last version of every API that a broker has, by name.

        ``broker`` is an id; without it any broker answers. What was negotiated when the connection
        was made is what counts, so nothing is asked again.
        """
        to = Node.any() if broker is None else Node.id(broker)

        async def attempt() -> Mapping[str, Range]:
            return dict((await self._cluster.connection(to)).versions)

        return await self._attempts(attempt, retries=retries)

    async def brokers(
        self, *, api_version: int | None = None, retries: int | None = None
    ) -> list[BrokerInfo]:
        """The brokers that the cluster has now, by id."""
        found = await self.metadata((), api_version=api_version, retries=retries)
        return [found.brokers[broker_id] for broker_id in sorted(found.brokers)]

    async def metadata(
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
        names = [topics] if isinstance(topics, str) else topics
        wanted = None if names is None else tuple(names)

        async def attempt() -> ClusterMetadata:
            said = await self._cluster.refresh(wanted, create=create, api_version=api_version)
            if wanted is None:
                return said
            chosen = {name: topic for name, topic in said.topics.items() if name in wanted}
            return ClusterMetadata(said.brokers, said.controller_id, said.cluster_id, chosen)

        return await self._attempts(attempt, retries=retries)

    async def cluster_metadata(self) -> ClusterMetadata:
        """What is known without asking; asked for once if nothing is."""
        if self._cluster.cache.updated_at is None:
            await self.metadata(())
        return self._cluster.cache.snapshot
