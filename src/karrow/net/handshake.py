"""What is said on a connection before anything else: which versions the broker speaks.

Rules:
- ApiVersions goes first, in version 4. A broker that lacks it answers error 35 with the versions it
  has, or, before 2.4, with none, which means version 0; asked once more, never a third time.
- A broker before 0.10 closes instead. It is dialled again and taken to speak what 0.9 spoke.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow.errors import UnsupportedVersion, error_for
from karrow.net.versions import BEFORE_NEGOTIATION, BrokerVersions
from karrow.version import __version__

if TYPE_CHECKING:
    from karrow.net.connection import Connection
    from karrow.wire.messages import ApiVersionsResponse

FIRST_ASKED = 4
# KIP-1242: the version in which we name the cluster and the broker that we mean to reach.
NAMES_CLUSTER = 5
SOFTWARE = {"client_software_name": "karrow", "client_software_version": __version__}


async def negotiate(connection: Connection, *, cluster_id: str | None = None) -> None:
    """Learn which versions the broker speaks."""
    answer = await _ask(connection, FIRST_ASKED)
    if answer.error_code == UnsupportedVersion.code:
        answer = await _ask(connection, _newest_known(answer))
    _require(answer, connection)
    connection.versions = BrokerVersions.of(answer, connection.version_limits)
    if cluster_id is not None and connection.versions["ApiVersions"][1] >= NAMES_CLUSTER:
        _require(await _ask(connection, NAMES_CLUSTER, cluster_id), connection)


async def _ask(
    connection: Connection, version: int, cluster_id: str | None = None
) -> ApiVersionsResponse:
    broker_id = connection.peer.broker_id
    names = {"cluster_id": cluster_id, "node_id": -1 if broker_id is None else broker_id}
    body = {**SOFTWARE, **names} if version >= NAMES_CLUSTER else SOFTWARE
    answer: ApiVersionsResponse = await connection.send_past("ApiVersions", version, body)
    return answer


def _newest_known(refusal: ApiVersionsResponse) -> int:
    """The version to ask in next, from the range that came with error 35."""
    offered = BrokerVersions.of(refusal).get("ApiVersions")
    return 0 if offered is None else min(offered[1], FIRST_ASKED - 1)


def _require(answer: ApiVersionsResponse, connection: Connection) -> None:
    error = error_for(answer.error_code, api="ApiVersions", broker=connection.peer)
    if error is not None:
        raise error


async def assume_before_negotiation(connection: Connection) -> None:
    """Take the broker for a 0.9, after making sure that it speaks Kafka at all."""
    limits = connection.version_limits
    connection.versions = BrokerVersions(BEFORE_NEGOTIATION, limits=limits)
    await connection.send_past("ListGroups", 0, {})
