"""A range of a topic as one table, on every kind of broker."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.config.fetch import Isolation
from tests.brokers import KafkaCluster
from tests.contract.test_consumer import TIMEOUT, everything, fill, filled
from tests.fix_any import AnyKafka
from tests.proxy import ClusterProxy


def rows(table: Any) -> list[tuple[int, int]]:
    return list(
        zip(*(table.column(name).to_pylist() for name in ("partition", "offset")), strict=True)
    )


def test_a_whole_topic_is_one_table_in_order(every_kafka: AnyKafka) -> None:
    topic = filled(every_kafka, 50, 3)
    seen: list[tuple[int, int]] = []
    table = karrow.read_arrow(
        every_kafka.bootstrap, topic, progress=lambda done, total: seen.append((done, total))
    )
    assert rows(table) == everything(50, 3)
    assert table.column("value").to_pylist() == [b"%d-%d" % place for place in everything(50, 3)]
    assert seen[0] == (0, 150)
    assert seen[-1] == (150, 150)
    assert seen == sorted(seen)


def test_both_ends_may_be_any_place(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 10, 2)

    def read(**span: Any) -> list[tuple[int, int]]:
        return rows(karrow.read_arrow(any_kafka.bootstrap, topic, **span))

    assert read(start=8) == [(0, 8), (0, 9), (1, 8), (1, 9)]
    assert read(end=1) == [(0, 0), (1, 0)]
    assert read(start=3, end=5, partitions=[1]) == [(1, 3), (1, 4)]
    assert read(start={0: 9, 1: 10}) == [(0, 9)]
    assert read(start="-1h", end="latest") == everything(10)
    assert read(start="latest") == []
    assert read(start=5, end=2) == []
    assert read(start=3, end=1_000_000, partitions=[0]) == [(0, n) for n in range(3, 10)]
    assert read(start=1_000_000) == []


def test_columns_are_chosen_and_an_empty_range_has_them_too(any_kafka: AnyKafka) -> None:
    topic = filled(any_kafka, 2, 1)
    table = karrow.read_arrow(any_kafka.bootstrap, topic, columns=["value"])
    assert table.to_pydict() == {"value": [b"0-0", b"0-1"]}
    empty = karrow.read_arrow(any_kafka.bootstrap, topic, columns=["value"], start="latest")
    assert empty.schema == table.schema
    assert empty.num_rows == 0


def test_transactions_are_read_as_the_isolation_says(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with karrow.Producer(any_kafka.bootstrap, transactional_id=f"tx-{topic}") as producer:
        with producer.transaction():
            producer.send(topic, b"kept")
        producer.begin_transaction()
        producer.send(topic, b"gone").result(20)
        producer.abort_transaction()
    # Behind the last record there is only the marker of the abort.
    expected: dict[Isolation, list[bytes]] = {
        "read_committed": [b"kept"],
        "read_uncommitted": [b"kept", b"gone"],
    }
    for isolation, values in expected.items():
        table = karrow.read_arrow(any_kafka.bootstrap, topic, isolation=isolation)
        assert table.column("value").to_pylist() == values


def test_what_cannot_be_read_is_an_error(newest_kafka: AnyKafka) -> None:
    topic = filled(newest_kafka, 5, 1)
    bootstrap = newest_kafka.bootstrap
    with karrow.Admin(bootstrap) as admin:
        admin.delete_records({(topic, 0): 3})
    with pytest.raises(errors.OffsetOutOfRange, match="offset 0"):
        karrow.read_arrow(bootstrap, topic, start=0)
    with pytest.raises(errors.UnknownTopicOrPartition):
        karrow.read_arrow(bootstrap, topic, partitions=[4], api_timeout=1.0, request_timeout=1.0)
    with pytest.raises(errors.ConfigError, match="group"):
        karrow.read_arrow(bootstrap, topic, group="g")  # type: ignore[call-arg]
    with pytest.raises(errors.ConfigError, match="partition 0"):
        karrow.read_arrow(bootstrap, topic, start={7: 1})
    fill(newest_kafka, topic, [5], 1)
    assert rows(karrow.read_arrow(bootstrap, topic)) == [(0, 3), (0, 4), (0, 5)]


def test_without_progress_it_gives_up() -> None:
    with karrow.Broker() as broker:
        broker.create_topic("stuck", 1)
        with karrow.Producer(broker.bootstrap) as producer:
            producer.send("stuck", b"1")
        broker.delay("Fetch", 60.0, times=1000)
        with pytest.raises(errors.RequestTimeout, match="nothing came"):
            karrow.read_arrow(
                broker.bootstrap, "stuck", request_timeout=0.5, api_timeout=1.0, max_wait=0.1
            )


def test_all_brokers_are_read_at_once() -> None:
    """Each of three takes a while to answer; together they take no longer."""
    with karrow.Broker(brokers=3) as broker:
        broker.create_topic("wide", 3)
        with karrow.Producer(broker.bootstrap) as producer:
            for number in range(60):
                producer.send("wide", b"%d" % number, partition=number % 3)
        for number in range(3):
            broker.move_leader("wide", number, number + 1)
            broker.delay("Fetch", 1.0, topic="wide", partition=number)
        began = time.monotonic()
        table = karrow.read_arrow(broker.bootstrap, "wide")
        assert time.monotonic() - began < 2.5
        assert rows(table) == everything(20, 3)
        assert {one.broker for one in broker.requests if one.api == "Fetch"} == {1, 2, 3}


@pytest.mark.slow
def test_all_real_brokers_are_asked_before_one_has_answered(kafka_three: KafkaCluster) -> None:
    topic = kafka_three.create_topic(partitions=6)
    leaders = {kafka_three.leader(topic, number) for number in range(6)}
    assert leaders == {1, 2, 3}
    with karrow.Producer(kafka_three.bootstrap()) as producer:
        for number in range(60):
            producer.send(topic, b"%d" % number, partition=number % 6)
    with ClusterProxy(kafka_three) as proxy, ThreadPoolExecutor(1) as threads:
        held = [proxy.node(leader).hold("Fetch") for leader in leaders]
        reading = threads.submit(karrow.read_arrow, proxy.bootstrap, topic)
        try:
            for step in held:
                step.wait()
            assert not reading.done()
        finally:
            for step in held:
                step.release()
        assert rows(reading.result(TIMEOUT)) == everything(10, 6)


def test_damaged_data_is_raised_with_its_place() -> None:
    with karrow.Broker(brokers=3) as broker:
        broker.create_topic("hurt", 3)
        with karrow.Client(broker.bootstrap) as client:
            # In one batch: the offset and the length in front of a second one have no checksum.
            for number in range(3):
                client.produce("hurt", [b"1", b"2"] * 3, partition=number)
        broker.corrupt("Fetch", topic="hurt", partition=1)
        with pytest.raises(errors.CorruptRecordError) as caught:
            karrow.read_arrow(broker.bootstrap, "hurt")
        assert {"topic": "hurt", "partition": 1}.items() <= caught.value.context.items()
        assert caught.value.offset == 0
        assert rows(karrow.read_arrow(broker.bootstrap, "hurt")) == everything(6, 3)
