"""How brokers start and end, in threads and in loops, and what time does to them."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
import time
from pathlib import Path

import pytest

import karrow
from karrow import errors
from karrow.broker.embedded import BrokerOptions
from tests.brokers import RawConnection

FILES = Path("/proc/self/fd")


def test_it_is_up_in_a_tenth_of_a_second() -> None:
    with karrow.Broker():
        pass  # whatever is loaded once is loaded now
    took = []
    for _ in range(5):
        start = time.perf_counter()
        with karrow.Broker(3) as broker:
            took.append(time.perf_counter() - start)
            host, port = broker.bootstrap.split(",")[2].rsplit(":", 1)
            with RawConnection(host, int(port)) as connection:
                assert connection.api_versions()
    assert min(took) < 0.1


def test_it_ends_without_a_trace() -> None:
    threads, files = threading.active_count(), len(list(FILES.iterdir()))
    broker = karrow.Broker(2)
    broker.start()
    bootstrap = broker.bootstrap
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    open_connection = socket.create_connection((host, int(port)))
    broker.close()
    broker.close()
    assert open_connection.recv(1) == b""
    open_connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    assert threading.active_count() == threads
    assert len(list(FILES.iterdir())) == files


def test_it_can_be_started_again(tmp_path: Path) -> None:
    broker = karrow.Broker(data_dir=tmp_path)
    for count in (1, 2):
        with broker, karrow.Client(broker.bootstrap) as client:
            client.produce("t", [b"1"], partition=0)
            assert client.latest_offset("t", 0) == count


def test_what_is_not_running_says_so() -> None:
    broker = karrow.Broker()
    with pytest.raises(errors.StateError, match="not running"):
        _ = broker.bootstrap
    with pytest.raises(errors.StateError, match="not running"):
        broker.fail("Produce", 19)
    with broker, pytest.raises(errors.StateError, match="running already"):
        broker.start()


def test_bad_options_are_named() -> None:
    with pytest.raises(errors.ConfigError, match="brokers=0"):
        karrow.Broker(0)
    with pytest.raises(errors.ConfigError, match="default_partitions=0"):
        karrow.Broker(default_partitions=0)
    with pytest.raises(errors.ConfigError, match=r"version='9\.9'.*2\.8, 3\.9, 4\.3"):
        karrow.Broker(version="9.9")
    with pytest.raises(errors.ConfigError, match="sasl"):
        karrow.Broker(sasl={})


def test_a_port_in_use_leaves_nothing_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        threads = threading.active_count()
        broker = karrow.Broker(port=port)
        with pytest.raises(OSError, match="in use"):
            broker.start()
        assert threading.active_count() == threads


def test_both_brokers_have_the_same_options() -> None:
    parameters = list(inspect.signature(karrow.AsyncBroker).parameters)
    assert parameters == ["brokers", *BrokerOptions.__annotations__]


def test_both_brokers_have_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(karrow.Broker) == public(karrow.AsyncBroker)


def test_it_runs_inside_a_loop() -> None:
    async def main() -> bytes | None:
        async with (
            karrow.AsyncBroker(2) as broker,
            karrow.AsyncClient(broker.bootstrap) as client,
        ):
            await client.produce("t", [b"1"], partition=0)
            await broker.kill_node(2)
            await broker.start_node(2)
            return (await client.fetch("t", 0, 0)).records[0].value

    assert asyncio.run(main()) == b"1"


def test_topics_are_made_on_demand_unless_told() -> None:
    with (
        karrow.Broker(auto_create_topics=False) as broker,
        karrow.Client(broker.bootstrap) as client,
    ):
        found = client.metadata(["t"], create=True).topics["t"]
        assert isinstance(found.error, errors.UnknownTopicOrPartition)
    with (
        karrow.Broker(default_partitions=4) as broker,
        karrow.Client(broker.bootstrap) as client,
    ):
        assert len(client.metadata(["t"], create=True).topics["t"].partitions) == 4


def test_old_records_go_when_their_time_is_over() -> None:
    clock = karrow.ManualClock()
    with karrow.Broker(clock=clock) as broker, karrow.Client(broker.bootstrap) as client:
        broker.create_topic("t", config={"retention.ms": "60000"})
        client.produce("t", [(None, b"1")], partition=0)
        assert client.earliest_offset("t", 0) == 0
        clock.advance(400)
        assert client.earliest_offset("t", 0) == 1
        assert client.latest_offset("t", 0) == 1


def test_a_long_poll_ends_by_the_clock_of_the_broker() -> None:
    clock = karrow.ManualClock()
    with karrow.Broker(clock=clock) as broker:
        broker.create_topic("t")
        host, port = broker.bootstrap.rsplit(":", 1)
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        body = {
            "replica_id": -1,
            "max_wait_ms": 3_600_000,
            "min_bytes": 1,
            "max_bytes": 1000,
            "topics": [{"topic": "t", "partitions": [partition]}],
        }
        with RawConnection(host, int(port)) as connection:
            connection.send("Fetch", 4, body)
            while not broker.requests:
                time.sleep(0.01)
            clock.advance(3600)
            assert connection.receive().responses[0].partitions[0].records == b""


def test_a_seed_decides_every_id() -> None:
    def ids(seed: int | None) -> tuple[str, object]:
        with karrow.Broker(seed=seed) as broker, karrow.Client(broker.bootstrap) as client:
            broker.create_topic("t")
            return broker.cluster_id, client.metadata(["t"]).topics["t"].topic_id

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)
    assert ids(None) != ids(None)
