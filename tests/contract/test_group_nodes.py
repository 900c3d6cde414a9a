"""Groups where a broker is not alone, or not always there."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from karrow.broker.threaded import Broker
from tests.brokers import KafkaCluster, RawConnection
from tests.contract.grouping import Peer, name_of, new_id, until
from tests.fix_any import AnyKafka


def requests(group: str) -> dict[str, dict[str, Any]]:
    """A request of every API that a coordinator answers."""
    join = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    beat = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "topic_partitions": []}
    return {
        "JoinGroup": {"group_id": group, **join},
        "SyncGroup": {"group_id": group, "protocol_type": "consumer", "protocol_name": "range"},
        "Heartbeat": {"group_id": group},
        "LeaveGroup": {"group_id": group, "members": [{"member_id": "m"}]},
        "DescribeGroups": {"groups": [group]},
        "DeleteGroups": {"groups_names": [group]},
        "ConsumerGroupHeartbeat": {"group_id": group, "member_id": "m", **beat},
        "ConsumerGroupDescribe": {"group_ids": [group]},
        "OffsetFetch": {"groups": [{"group_id": group, "topics": []}]},
        "OffsetDelete": {"group_id": group, "topics": []},
    }


def errors_of(connection: RawConnection, group: str) -> dict[str, str]:
    """The error of each of them."""
    found = {}
    for api, body in requests(group).items():
        answer = connection.request(api, body)
        if api in ("DescribeGroups", "ConsumerGroupDescribe", "OffsetFetch"):
            answer = answer.groups[0]
        elif api == "DeleteGroups":
            answer = answer.results[0]
        found[api] = name_of(answer.error_code)
    return found


def check_coordinators(connections: dict[int, RawConnection]) -> None:
    group = new_id()
    first = next(iter(connections.values()))

    def find() -> Any:
        return first.request("FindCoordinator", {"coordinator_keys": [group]}).coordinators[0]

    node_id = until(find, lambda found: found.error_code == 0).node_id
    for other, connection in connections.items():
        if other != node_id:
            wrong = dict.fromkeys(requests(group), "NOT_COORDINATOR")
            assert errors_of(connection, group) == wrong
    assert "NOT_COORDINATOR" not in errors_of(connections[node_id], group).values()


def test_other_nodes_do_not_answer_for_a_group() -> None:
    with Broker(3) as broker, contextlib.ExitStack() as stack:
        addresses = [address.rsplit(":", 1) for address in broker.bootstrap.split(",")]
        check_coordinators(
            {
                number: stack.enter_context(RawConnection(host, int(port)))
                for number, (host, port) in enumerate(addresses, 1)
            }
        )


@pytest.mark.slow
def test_other_nodes_of_a_real_cluster_do_not_answer_either(kafka_three: KafkaCluster) -> None:
    with contextlib.ExitStack() as stack:
        nodes = {node.id: stack.enter_context(node.connect()) for node in kafka_three.nodes}
        check_coordinators(nodes)


def test_members_go_on_after_a_restart(tmp_path: Path) -> None:
    group = new_id()
    with Broker(data_dir=tmp_path) as broker, Peer(AnyKafka("4.3", broker), group) as peer:
        topic = AnyKafka("4.3", broker).create_topic(partitions=2)
        joined = peer.settle()
        assert peer.commit(topic, {0: 5}, joined.member, 1) == [""]
        peer.group = "new"
        peer.subscribe("a", [topic])
    with Broker(data_dir=tmp_path) as broker, Peer(AnyKafka("4.3", broker), group) as peer:
        assert peer.heartbeat(joined.member, 1) == ""
        assert peer.sync(joined) == ("", b"mine")
        assert peer.fetch(None) == {(topic, 0): (5, "", "")}
        peer.group = "new"
        assert peer.beat("a", 2) == ("", 2, None, "a")


@pytest.mark.slow
def test_members_go_on_after_a_restart_of_a_real_broker(kafka: KafkaCluster) -> None:
    group = new_id()
    topic = kafka.create_topic(partitions=2)
    with Peer(AnyKafka("4.3", kafka), group) as peer:
        peer.wait_until_coordinated()
        joined = peer.settle()
        peer.group = f"new-{group}"
        peer.subscribe("a", [topic])
    kafka.stop()
    kafka.start()
    with Peer(AnyKafka("4.3", kafka), new_id()) as peer:
        peer.wait_until_coordinated()
        peer.group = group
        until(lambda: peer.sync(joined), lambda seen: seen == ("", b"mine"))
        assert peer.heartbeat(joined.member, 1) == ""
        peer.group = f"new-{group}"
        until(lambda: peer.beat("a", 2), lambda seen: seen == ("", 2, None, "a"))
