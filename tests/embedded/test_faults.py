"""Trouble on demand, seen by a raw connection and by the client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import karrow
from karrow import errors
from tests.brokers import RawConnection


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(seed=1) as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


@pytest.fixture
def connection(broker: karrow.Broker) -> Iterator[RawConnection]:
    with connect(broker) as connection:
        yield connection


def connect(broker: karrow.Broker, node: int = 0, timeout: float = 5.0) -> RawConnection:
    host, port = broker.bootstrap.split(",")[node].rsplit(":", 1)
    return RawConnection(host, int(port), timeout=timeout)


def produce_body(*partitions: int, topic: str = "orders") -> dict[str, Any]:
    builder = karrow.records.BatchBuilder()
    builder.append(None, b"value", timestamp_ms=1)
    data = [{"index": index, "records": builder.build()} for index in partitions]
    return {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": topic, "partition_data": data}]}


def produce(connection: RawConnection, *partitions: int) -> dict[int, int]:
    """The error codes by partition."""
    answer = connection.request("Produce", produce_body(*partitions), 9)
    return {p.index: p.error_code for p in answer.responses[0].partition_responses}


def end(connection: RawConnection, partition: int) -> int:
    body = {
        "replica_id": -1,
        "topics": [
            {"name": "orders", "partitions": [{"partition_index": partition, "timestamp": -1}]}
        ],
    }
    offset: int = connection.request("ListOffsets", body, 7).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize(
    "error", ["NOT_ENOUGH_REPLICAS", 19, errors.NotEnoughReplicas, errors.NotEnoughReplicas("x")]
)
def test_errors_are_named_in_any_form(
    broker: karrow.Broker, connection: RawConnection, error: Any
) -> None:
    broker.fail("Produce", error)
    assert produce(connection, 0) == {0: 19}
    assert end(connection, 0) == 0, "a refused request is not acted on"
    assert produce(connection, 0) == {0: 0}, "one time unless told"


def test_a_fault_meets_as_many_requests_as_told(
    broker: karrow.Broker, connection: RawConnection
) -> None:
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    codes = [produce(connection, 0)[0] for _ in range(3)]
    assert codes == [6, 6, 0]
    assert fault.met == 2


def test_a_part_of_a_request_can_fail(broker: karrow.Broker, connection: RawConnection) -> None:
    broker.fail("Produce", "CORRUPT_MESSAGE", topic="orders", partition=1)
    assert produce(connection, 0, 1) == {0: 0, 1: 2}
    assert (end(connection, 0), end(connection, 1)) == (1, 0)


def test_a_fetch_fails_by_partition(broker: karrow.Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        client.produce("orders", [b"1"], partition=0)
        broker.fail("Fetch", "OFFSET_OUT_OF_RANGE", topic="orders", partition=0)
        with pytest.raises(errors.OffsetOutOfRange):
            client.fetch("orders", 0, offset=0)
        assert client.fetch("orders", 0, offset=0).records[0].value == b"1"


def test_metadata_fails_by_topic(broker: karrow.Broker, connection: RawConnection) -> None:
    broker.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="orders")
    body = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False}
    answer = connection.request("Metadata", body, 9)
    assert answer.topics[0].error_code == 5
    assert len(answer.brokers) == 1
    assert connection.request("Metadata", body, 9).topics[0].error_code == 0


def test_faults_that_could_never_meet_anything_are_refused(broker: karrow.Broker) -> None:
    with pytest.raises(errors.ConfigError, match="Heartbeat cannot fail for one topic"):
        broker.fail("Heartbeat", 27, topic="orders")
    with pytest.raises(errors.ConfigError, match="times=0"):
        broker.fail("Produce", 19, times=0)
    with pytest.raises(errors.ConfigError, match="NO_SUCH_ERROR"):
        broker.fail("Produce", "NO_SUCH_ERROR")
    with pytest.raises(errors.LocalProtocolError, match="Prodduce"):
        broker.fail("Prodduce", 19)


@pytest.mark.parametrize(("when", "stored"), [("before", 0), ("after", 1)])
def test_a_dropped_request_is_never_answered(broker: karrow.Broker, when: Any, stored: int) -> None:
    broker.drop("Produce", when=when)
    with connect(broker, timeout=0.3) as dropped, pytest.raises(TimeoutError):
        produce(dropped, 0)
    with connect(broker) as other:
        assert end(other, 0) == stored


@pytest.mark.parametrize(("when", "stored"), [("before", 0), ("after", 1)])
def test_a_connection_ends_instead_of_an_answer(
    broker: karrow.Broker, when: Any, stored: int
) -> None:
    broker.close("Produce", when=when)
    with connect(broker) as closed, pytest.raises(ConnectionError):
        produce(closed, 0)
    with connect(broker) as other:
        assert end(other, 0) == stored


def test_an_answer_comes_late(broker: karrow.Broker, connection: RawConnection) -> None:
    broker.delay("Produce", 0.2)
    start = time.monotonic()
    assert produce(connection, 0) == {0: 0}
    assert time.monotonic() - start >= 0.2


def test_a_delayed_request_holds_up_its_own_connection_only(broker: karrow.Broker) -> None:
    broker.delay("Produce", 5.0)
    with connect(broker) as slow, connect(broker) as other:
        slow.send("Produce", 9, produce_body(0))
        start = time.monotonic()
        while not any(request.api == "Produce" for request in broker.requests):
            time.sleep(0.01)
        assert produce(other, 1) == {1: 0}
        assert time.monotonic() - start < 2


def test_a_bit_of_the_records_is_wrong(broker: karrow.Broker) -> None:
    with karrow.Client(broker.bootstrap) as client:
        client.produce("orders", [b"1"], partition=0)
        broker.corrupt("Fetch")
        with pytest.raises(errors.CorruptRecordError):
            client.fetch("orders", 0, offset=0)
        assert client.fetch("orders", 0, offset=0).records[0].value == b"1"


@pytest.mark.parametrize("seed", range(20))
def test_damage_is_where_a_checksum_finds_it(seed: int) -> None:
    with karrow.Broker(seed=seed) as broker, karrow.Client(broker.bootstrap) as client:
        for number in range(5):
            client.produce("orders", [b"%d" % number], partition=0)
        broker.corrupt("Fetch")
        try:  # what stands in front of the damage is good
            found = [one.value for one in client.fetch("orders", 0, offset=0).records]
        except errors.CorruptRecordError:
            found = []
        assert len(found) < 5
        assert found == [b"%d" % number for number in range(len(found))]
        assert len(client.fetch("orders", 0, offset=0).records) == 5


def test_damage_follows_from_the_seed() -> None:
    def damaged(seed: int) -> bytes:
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        body = {
            "replica_id": -1,
            "max_bytes": 1000,
            "topics": [{"topic": "orders", "partitions": [partition]}],
        }
        with karrow.Broker(seed=seed) as broker, connect(broker) as connection:
            broker.create_topic("orders")
            assert produce(connection, 0) == {0: 0}
            broker.corrupt("Fetch")
            answer = connection.request("Fetch", body, 4)
            return bytes(answer.responses[0].partitions[0].records)

    assert damaged(7) == damaged(7)
    assert damaged(7) != damaged(8)


def test_anything_can_be_answered(broker: karrow.Broker, connection: RawConnection) -> None:
    broker.raw("Metadata", b"\x7f\xff\xff\xff")
    connection.send("Metadata", 9, {"topics": None})
    assert connection.socket.recv(100) == b"\x7f\xff\xff\xff"


def test_throttling_is_told_and_mutes_the_connection(broker: karrow.Broker) -> None:
    broker.throttle(1.0, "Metadata")
    with connect(broker) as throttled, connect(broker) as other:
        start = time.monotonic()
        assert throttled.request("Metadata", {"topics": None}, 9).throttle_time_ms == 1000
        assert time.monotonic() - start < 0.8, "the answer itself is not held back (KIP-219)"
        assert other.request("Metadata", {"topics": None}, 9).throttle_time_ms == 0
        assert time.monotonic() - start < 0.9
        throttled.request("Metadata", {"topics": None}, 9)
        assert time.monotonic() - start >= 1.0


def test_faults_can_be_cleared(broker: karrow.Broker, connection: RawConnection) -> None:
    broker.fail("Produce", 19, times=100)
    broker.clear_faults()
    assert produce(connection, 0) == {0: 0}


def test_requests_are_remembered(broker: karrow.Broker, connection: RawConnection) -> None:
    broker.clear_requests()
    produce(connection, 0, 1)
    (seen,) = broker.requests
    assert (seen.api, seen.version, seen.broker, seen.client_id) == (
        "Produce",
        9,
        1,
        "karrow-tests",
    )
    assert seen.partitions == (("orders", 0), ("orders", 1))
    assert abs(seen.timestamp_ms - time.time() * 1000) < 5000


def test_a_crashed_handler_answers_with_an_error(
    broker: karrow.Broker, connection: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setitem(karrow.broker.call.HANDLERS, "Produce", crash)
    assert produce(connection, 0) == {0: -1}
    assert end(connection, 0) == 0
