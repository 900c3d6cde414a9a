"""Several nodes in one process: leaders move, nodes die and come back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import karrow
from karrow import errors
from tests.brokers import RawConnection


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(3) as broker:
        broker.create_topic("orders", partitions=3, replication_factor=3)
        yield broker


def leaders(client: karrow.Client, topic: str = "orders") -> dict[int, int]:
    found = client.metadata([topic]).topics[topic].partitions
    return {index: p.leader for index, p in found.items() if p.leader is not None}


def test_partitions_are_spread_over_the_nodes(broker: karrow.Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        assert leaders(client) == {0: 1, 1: 2, 2: 3}
        assert sorted(client.metadata([]).brokers) == [1, 2, 3]


def test_a_client_follows_a_moved_leader(broker: karrow.Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        client.produce("orders", [b"1"], partition=0)
        assert broker.move_leader("orders", 0) == 2
        client.produce("orders", [b"2"], partition=0)
        assert leaders(client)[0] == 2
        assert [r.value for r in client.fetch("orders", 0, offset=0).records] == [b"1", b"2"]


def test_the_old_leader_says_who_leads(broker: karrow.Broker) -> None:
    broker.move_leader("orders", 0, broker=3)
    host, port = broker.bootstrap.split(",")[0].rsplit(":", 1)
    builder = karrow.records.BatchBuilder()
    builder.append(None, b"v")
    data = {"name": "orders", "partition_data": [{"index": 0, "records": builder.build()}]}
    with RawConnection(host, int(port)) as connection:
        body = {"acks": 1, "timeout_ms": 1000, "topic_data": [data]}
        answer = connection.request("Produce", body, 10)
    (partition,) = answer.responses[0].partition_responses
    assert partition.error_code == errors.NotLeaderOrFollower.code
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (3, 1)
    assert {node.node_id for node in answer.node_endpoints} == {1, 2, 3}


def test_others_lead_while_a_node_is_dead(broker: karrow.Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        for partition in range(3):
            client.produce("orders", [b"before"], partition=partition)
        broker.kill_node(2)
        for partition in range(3):
            client.produce("orders", [b"after"], partition=partition)
        assert leaders(client) == {0: 1, 1: 3, 2: 3}
        described = client.metadata(["orders"]).topics["orders"].partitions[1]
        assert described.offline_replicas == (2,)
        broker.start_node(2)
        assert set(client.metadata(["orders"]).topics["orders"].partitions[1].in_sync_replicas) == {
            1,
            2,
            3,
        }
        assert len(client.fetch("orders", 1, offset=0).records) == 2


def test_a_partition_without_a_replica_alive_has_no_leader(broker: karrow.Broker) -> None:
    broker.create_topic("single")
    with karrow.Client(broker.bootstrap, api_timeout=0.5) as client:
        leader = leaders(client, "single")[0]
        broker.kill_node(leader)
        with pytest.raises(errors.KarrowError):
            client.produce("single", [b"1"], partition=0)
        broker.start_node(leader)
        client.produce("single", [b"1"], partition=0)


def test_too_few_replicas_in_sync_refuse_acks_of_all(broker: karrow.Broker) -> None:
    broker.create_topic("safe", 1, 2, config={"min.insync.replicas": "2"})
    with karrow.Client(broker.bootstrap, api_timeout=0.5) as client:
        leader = leaders(client, "safe")[0]
        broker.kill_node(leader % 3 + 1)
        with pytest.raises(errors.NotEnoughReplicas):
            client.produce("safe", [b"1"], partition=0, retries=0)
        client.produce("safe", [b"1"], partition=0, acks=1)


def test_a_truncated_log_diverges(broker: karrow.Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        for number in range(4):
            client.produce("orders", [b"%d" % number], partition=0)
        broker.truncate("orders", 0, 2)
        assert client.latest_offset("orders", 0) == 2
        body = {
            "replica_id": -1,
            "topics": [{"topic": "orders", "partitions": [{"partition": 0, "leader_epoch": 0}]}],
        }
        answer = client.request(
            "OffsetForLeaderEpoch", body, to=karrow.Node.leader("orders", 0), api_version=3
        )
        (found,) = answer.topics[0].partitions
        assert (found.leader_epoch, found.end_offset) == (0, 2)


def test_a_hidden_node_answers_but_is_not_shown(broker: karrow.Broker) -> None:
    broker.hide_from_metadata(3)
    with karrow.Client(broker.bootstrap) as client:
        assert sorted(client.metadata([]).brokers) == [1, 2]
        broker.hide_from_metadata(3, hidden=False)
        assert sorted(client.metadata([]).brokers) == [1, 2, 3]


def test_unknown_nodes_are_named(broker: karrow.Broker) -> None:
    with pytest.raises(errors.ConfigError, match="the ids are 1, 2, 3"):
        broker.kill_node(9)


def test_readers_at_the_wrong_node_are_told_so_in_every_version(broker: karrow.Broker) -> None:
    broker.create_topic("single", partitions=1, replication_factor=1)
    addresses = broker.bootstrap.split(",")
    with karrow.Client(broker.bootstrap) as client:
        wrong = next(id_ for id_ in (1, 2, 3) if id_ != leaders(client, "single")[0])
        topic_id = client.metadata(["single"]).topics["single"].topic_id
    host, port = addresses[wrong - 1].rsplit(":", 1)
    item = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    with RawConnection(host, int(port)) as connection:
        for version in range(4, connection.newest("Fetch") + 1):
            named = {"topic_id": topic_id} if version >= 13 else {"topic": "single"}
            topics = [{**named, "partitions": [item]}]
            body = {"max_wait_ms": 0, "max_bytes": 1000, "topics": topics}
            answer = connection.request("Fetch", body, version)
            (partition,) = answer.responses[0].partitions
            assert partition.error_code == errors.NotLeaderOrFollower.code
            assert bool(answer.node_endpoints) is (version >= 16)
            assert (partition.current_leader.leader_id > 0) is (version >= 16)
