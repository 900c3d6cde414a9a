"""Every API of the newest release that a client may call, through ``request``, in every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import karrow
from karrow import errors, wire
from karrow.types import Node
from tests.brokers import KafkaCluster
from tests.fix_any import AnyKafka

# Between brokers and controllers only; a client's listener does not have the first group at all.
ABSENT = {
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "ControlledShutdown",
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "AlterPartition",
    "Envelope",
    "FetchSnapshot",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "AllocateProducerIds",
    "ControllerRegistration",
    "AssignReplicasToDirs",
    "UpdateRaftVoter",
    # Without a telemetry reporter the broker does not offer these (KIP-714).
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    # New in 4.4.
    "StreamsGroupTopologyDescriptionUpdate",
    "UnregisterController",
}
# Said once in the life of a connection, which dial does; here they would confuse it.
HANDSHAKES = {"SaslHandshake", "SaslAuthenticate"}


def body_for(name: str, version: int, topic: str) -> dict[str, Any]:
    """A body that the broker answers, be it with an error code."""
    bodies: dict[str, dict[str, Any]] = {
        "Produce": {"acks": 1, "timeout_ms": 1000},
        "Fetch": {"max_wait_ms": 0, "min_bytes": 0},
        "ListOffsets": {"replica_id": -1},
        "FindCoordinator": {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"},
        "ApiVersions": {"client_software_name": "karrow", "client_software_version": "1"}
        if version >= 3
        else {},
        "JoinGroup": {"group_id": "", "session_timeout_ms": 6000, "protocol_type": "consumer"},
        "OffsetFetch": {"groups": [{"group_id": "g"}]} if version >= 8 else {"group_id": "g"},
        "InitProducerId": {"transaction_timeout_ms": 60_000},
        "AddPartitionsToTxn": {"transactions": [{"transactional_id": "t", "producer_id": 1}]}
        if version >= 4
        else {"v3_and_below_transactional_id": "t", "v3_and_below_producer_id": 1},
        "DescribeAcls": {"resource_type_filter": 1, "operation": 1, "permission_type": 1},
        "UnregisterBroker": {"broker_id": 4242},
        "DescribeTopicPartitions": {"topics": [{"name": topic}], "response_partition_limit": 10},
        "DescribeQuorum": {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        },
        "ShareFetch": {"group_id": "g", "member_id": str(uuid.uuid4()), "share_session_epoch": 0},
    }
    return bodies.get(name, {})


def test_the_list_of_apis_is_complete(kafka: KafkaCluster) -> None:
    with karrow.Client(kafka.bootstrap()) as client:
        assert set(wire.apis()) - set(client.api_versions()) == ABSENT


def callable_apis() -> list[str]:
    return [name for name in wire.apis() if name not in ABSENT | HANDSHAKES]


@pytest.mark.parametrize("name", callable_apis())
def test_request_reaches_every_api(newest_kafka: AnyKafka, name: str) -> None:
    topic = newest_kafka.create_topic()
    to = Node.coordinator("g") if "Group" in name or "Offset" in name else Node.controller()
    with karrow.Client(newest_kafka.bootstrap, request_timeout=10.0) as client:
        if name not in client.api_versions():
            assert newest_kafka.is_embedded
            with pytest.raises(errors.UnsupportedVersion, match="the broker does not have it"):
                client.request(name, body_for(name, 0, topic), to=to)
            return
        low, high = client.api_versions()[name]
        low = max(low, 3) if name == "Produce" else low
        for version in range(low, high + 1):
            body = body_for(name, version, topic)
            answer = client.request(name, body, to=to, api_version=version)
            assert type(answer).__name__ == f"{name}Response"
        for version in (low - 1, high + 1):
            with pytest.raises(errors.UnsupportedVersion, match=rf"the broker {low} to {high}"):
                client.request(name, {}, to=to, api_version=version)
