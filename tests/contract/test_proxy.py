"""Each way the proxy misbehaves is what it says, against a real broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.brokers import KafkaCluster, RawConnection
from tests.proxy import ClusterProxy, Proxy

HOST = "127.0.0.1"


@pytest.fixture
def proxy(kafka: KafkaCluster) -> Iterator[Proxy]:
    with ClusterProxy(kafka) as proxies:
        yield proxies.node(1)


def connect(proxy: Proxy, timeout: float = 10.0) -> RawConnection:
    return RawConnection(*proxy.address, timeout=timeout)


def ask(connection: RawConnection) -> float:
    """Ask for the versions, and return how long it took."""
    start = time.monotonic()
    assert connection.request("ApiVersions", {}, 0).error_code == 0
    return time.monotonic() - start


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_answers_name_the_proxy_as_broker_in_every_version(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        for name in ("Metadata", "FindCoordinator", "DescribeCluster"):
            first, last = connection.api_versions()[name]
            for version in range(first, last + 1):
                body: dict[str, object] = {}
                if name == "FindCoordinator":
                    body = {"key": "g"} if version < 4 else {"coordinator_keys": ["g"]}
                answer = connection.request(name, body, version)
                text = repr(answer)
                assert str(proxy.target[1]) not in text
                if name != "FindCoordinator":
                    assert [broker.port for broker in answer.brokers] == [proxy.port]


def test_three_proxies_stand_for_three_brokers(kafka_three: KafkaCluster) -> None:
    with ClusterProxy(kafka_three) as proxies, connect(proxies.node(2)) as connection:
        brokers = connection.request("Metadata", {"topics": []}, 9).brokers
        found = {broker.node_id: broker.port for broker in brokers}
        assert found == {node: proxies.node(node).port for node in (1, 2, 3)}


def test_latency_is_added_each_way(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.latency(0.1)
        assert ask(connection) >= 0.2
        proxy.restore()
        assert ask(connection) < 0.2


def test_latency_does_not_add_up_for_requests_in_flight(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.latency(0.1)
        start = time.monotonic()
        for _ in range(10):
            connection.send("ApiVersions", 0, {})
        for _ in range(10):
            connection.receive()
        assert time.monotonic() - start < 1.0


def test_rate_limits_throughput(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        ask(connection)
        proxy.rate(2000)
        # The answer alone has more than 400 bytes.
        assert ask(connection) >= 0.2


def test_blackhole_delivers_later_or_never(proxy: Proxy) -> None:
    with connect(proxy, timeout=0.2) as connection:
        ask(connection)
        proxy.blackhole()
        with pytest.raises(TimeoutError):
            ask(connection)
        with connect(proxy, timeout=0.2) as other, pytest.raises(TimeoutError):
            ask(other)
        proxy.restore()
        connection.socket.settimeout(10.0)
        assert connection.receive().error_code == 0


def test_blackhole_hides_that_the_broker_has_closed() -> None:
    with (
        socket.create_server((HOST, 0)) as server,
        Proxy((HOST, server.getsockname()[1])) as proxy,
        connect(proxy, timeout=0.3) as connection,
    ):
        accepted, _ = server.accept()
        proxy.blackhole()
        accepted.close()
        with pytest.raises(TimeoutError):
            connection.socket.recv(1)
        proxy.restore()
        assert connection.socket.recv(1) == b""


def test_reset_ends_connections_and_new_ones_work(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        ask(connection)
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            connection.socket.recv(1)
    with connect(proxy) as connection:
        ask(connection)
    assert proxy.accepted == 2


def test_half_close_ends_one_way_only(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        ask(connection)
        proxy.half_close("down")
        assert connection.socket.recv(1) == b""
        before = len(proxy.seen)
        connection.send("ApiVersions", 0, {})
        wait_until(lambda: len(proxy.seen) > before)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_cut_ends_in_the_middle_of_a_frame(proxy: Proxy, direction: str) -> None:
    with connect(proxy) as connection:
        ask(connection)
        cut = proxy.cut_after(9, "up" if direction == "up" else "down", "close")
        connection.send("ApiVersions", 0, {})
        assert cut.done.wait(10.0)
        received = b""
        while data := connection.socket.recv(1024):
            received += data
        assert len(received) == (0 if direction == "up" else 9)


def test_stalled_cut_leaves_the_connection_open(proxy: Proxy) -> None:
    with connect(proxy, timeout=0.3) as connection:
        ask(connection)
        proxy.cut_after(9, "up", "stall")
        with pytest.raises(TimeoutError):
            ask(connection)


def test_held_request_reaches_the_broker_after_its_client_has_gone(
    kafka: KafkaCluster, proxy: Proxy
) -> None:
    held = proxy.hold("CreateTopics")
    name = f"late-{time.time_ns()}"
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    with connect(proxy) as connection:
        version = connection.newest("CreateTopics")
        connection.send("CreateTopics", version, {"topics": [topic], "timeout_ms": 10_000})
        held.wait()
    assert kafka.leader(name) == -1
    held.release()
    wait_until(lambda: kafka.leader(name) == 1)


def test_discarded_request_never_reaches_the_broker(proxy: Proxy) -> None:
    held = proxy.hold("Metadata")
    with connect(proxy) as connection:
        connection.send("Metadata", 1, {"topics": []})
        held.wait()
        held.discard()
        connection.send("ApiVersions", 0, {})
        with pytest.raises(Exception, match="came where"):
            connection.receive()


@pytest.mark.parametrize("then", ["reset", "stall"])
def test_dropped_answer_was_given_by_the_broker(
    kafka: KafkaCluster, proxy: Proxy, then: str
) -> None:
    lost = proxy.drop_answer("CreateTopics", "reset" if then == "reset" else "stall")
    name = f"done-{time.time_ns()}"
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    with connect(proxy, timeout=1.0) as connection:
        version = connection.newest("CreateTopics")
        connection.send("CreateTopics", version, {"topics": [topic], "timeout_ms": 10_000})
        with pytest.raises(ConnectionResetError if then == "reset" else TimeoutError):
            connection.receive()
        assert lost.happened
    wait_until(lambda: kafka.leader(name) == 1)


def test_refused_connections_and_back(proxy: Proxy) -> None:
    with connect(proxy) as connection:
        proxy.refuse()
        ask(connection)
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        proxy.restore()
        with connect(proxy) as other:
            ask(other)


def test_tls_goes_through_untouched(kafka: KafkaCluster) -> None:
    with (
        Proxy((HOST, kafka.ports["SSL"][0])) as proxy,
        RawConnection(*proxy.address, tls=kafka.tls.context()) as connection,
    ):
        ask(connection)
        assert proxy.connections == 1
