"""The cluster as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from karrow.aio.admin_calls.base import AdminCalls, raise_for
from karrow.aio.calls.base import Reply, Request
from karrow.errors import UnsupportedVersion
from karrow.types import BrokerInfo, ClusterDescription, Node
from karrow.types.acls import operations_in

if TYPE_CHECKING:
    from karrow.net.connection import Connection

# The DescribeCluster version that can show fenced brokers (KIP-1073).
FIRST_WITH_FENCED = 2


class ClusterAdminCalls(AdminCalls):
    """Calls about the cluster."""

    async def describe_cluster(
        self,
        *,
        authorized_operations: bool = False,
        fenced: bool = False,
        api_version: int | None = None,
        retries: int | None = None,
    ) -> ClusterDescription:
        """The cluster's id, its controller and its brokers; with ``fenced`` also those kept out.

        With ``authorized_operations`` also what the caller may do to the cluster.
        """

        def body(version: int, connection: Connection) -> dict[str, Any]:
            question = {"include_cluster_authorized_operations": authorized_operations}
            if not fenced:
                return question
            connection.versions.require("DescribeCluster", version, "fenced", FIRST_WITH_FENCED)
            return {**question, "include_fenced_brokers": True}

        request = Request("DescribeCluster", Node.any(), body, api_version)
        try:
            return await self._call(request, _read_cluster, retries=retries)
        except UnsupportedVersion:
            # Brokers before 2.8 (KIP-700) say the same in their metadata.
            if api_version is not None or fenced or authorized_operations:
                raise
        found = await self._client.metadata((), retries=retries)
        return ClusterDescription(found.cluster_id or "", found.controller_id, found.brokers)


def _read_cluster(reply: Reply) -> ClusterDescription:
    raise_for(reply, "DescribeCluster")
    answer = reply.message
    return ClusterDescription(
        answer.cluster_id,
        answer.controller_id if answer.controller_id >= 0 else None,
        {
            one.broker_id: BrokerInfo(one.broker_id, one.host, one.port, one.rack)
            for one in answer.brokers
        },
        frozenset(one.broker_id for one in answer.brokers if one.is_fenced),
        operations_in(answer.cluster_authorized_operations),
    )
