"""Sessions that end on demand, and coordinators that move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

import karrow
from karrow import errors
from tests.brokers import RawConnection


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(3) as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


def connect(broker: karrow.Broker, node: int) -> RawConnection:
    host, port = broker.bootstrap.split(",")[node - 1].rsplit(":", 1)
    return RawConnection(host, int(port))


def join(client: karrow.Client, group: str) -> karrow.JoinedGroup:
    protocol = client.default_protocol(topics=["orders"])
    return client.join_group(group, [protocol], session_timeout=30.0)


def test_members_expire_on_demand(broker: karrow.Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        joined = join(client, "billing")
        assert broker.expire_session(group="billing", member="somebody else") == 0
        assert broker.expire_session(group="billing") == 1
        with pytest.raises(errors.UnknownMemberId):
            client.heartbeat("billing", generation=joined.generation, member_id=joined.member_id)
        with pytest.raises(errors.GroupIdNotFound, match="never-heard-of"):
            broker.expire_session(group="never-heard-of")


def test_fetch_sessions_are_forgotten_on_demand(broker: karrow.Broker) -> None:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    body = {
        "replica_id": -1,
        "max_bytes": 1000,
        "session_epoch": 0,
        "topics": [{"topic": "orders", "partitions": [partition]}],
    }
    with connect(broker, 1) as connection:
        opened = connection.request("Fetch", body, 11)
        assert opened.session_id > 0
        following = {"replica_id": -1, "session_id": opened.session_id, "session_epoch": 1}
        assert connection.request("Fetch", following, 11).error_code == 0
        assert broker.expire_session(broker=2) == 0, "each node has its own"
        assert broker.expire_session(broker=1) == 1
        lost = connection.request("Fetch", {**following, "session_epoch": 2}, 11)
        assert lost.error_code == errors.FetchSessionIdNotFound.code


@pytest.mark.parametrize("kind", ["group", "transaction"])
def test_coordinators_move_on_demand(
    broker: karrow.Broker, kind: Literal["group", "transaction"]
) -> None:
    with karrow.Client(broker.bootstrap) as client:
        for node in (1, 2, 3):
            broker.move_coordinator("billing", node, transactional=kind == "transaction")
            found = client.find_coordinator("billing", kind).broker
            assert found is not None
            assert found.id == node


def test_a_client_follows_its_coordinator(broker: karrow.Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        broker.move_coordinator("billing", 1)
        client.commit_offsets("billing", {("orders", 0): 1})
        broker.move_coordinator("billing", 2)
        client.commit_offsets("billing", {("orders", 0): 2})
        found = client.committed_offsets("billing")[karrow.TopicPartition("orders", 0)]
        assert found.offset == 2
    with pytest.raises(errors.ConfigError, match="broker=9"):
        broker.move_coordinator("billing", 9)


def test_connections_end_but_nodes_go_on(broker: karrow.Broker) -> None:
    with connect(broker, 1) as first, connect(broker, 2) as second:
        first.api_versions()
        second.api_versions()
        broker.close_connections(1)
        with pytest.raises(ConnectionError):
            first.request("Metadata", {"topics": None}, 9)
        assert second.request("Metadata", {"topics": None}, 9).brokers
        with connect(broker, 1) as again:
            assert again.request("Metadata", {"topics": None}, 9).brokers


def test_a_reset_leaves_nothing_but_the_nodes(broker: karrow.Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        client.commit_offsets("billing", {("orders", 0): 1})
        broker.fail("Metadata", "UNKNOWN_SERVER_ERROR", times=100)
        broker.reset()
        assert broker.requests == []
        assert client.metadata().topics == {}
        assert client.list_groups() == []
        assert len(client.brokers()) == 3
