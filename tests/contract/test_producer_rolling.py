"""All brokers are restarted one after the other, twice, while producers write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import karrow
from karrow.aio._delivery import Delivery
from tests.brokers import KafkaCluster
from tests.brokers.node import KafkaNode
from tests.chaos.checker import check
from tests.chaos.events import EventLog, Outcome, Payload
from tests.chaos.workload import contents

PARTITIONS = 6
ROUNDS = 2
STOPS: dict[str, Callable[[KafkaNode], None]] = {
    "stopped": KafkaNode.stop,
    "killed": KafkaNode.kill,
}
CHOSEN: dict[str, Any] = {"request_timeout": 5.0, "connect_timeout": 2.0}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", list(STOPS))
def test_rolling_restart_reaches_no_caller(kafka_three: KafkaCluster, how: str) -> None:
    """Row 33: no error within the delivery time, nothing lost, doubled or out of order."""
    topic = kafka_three.create_topic(partitions=PARTITIONS, config={"min.insync.replicas": "2"})
    log = EventLog()
    held: list[tuple[Payload, Delivery]] = []
    stop = threading.Event()

    def write(producer: karrow.Producer, name: str) -> None:
        number = 0
        while not stop.is_set():
            payload = Payload(name, number)
            log.send(payload)
            delivery = producer.send(topic, bytes(payload), partition=number % PARTITIONS)
            held.append((payload, delivery))
            number += 1
            time.sleep(0.001)

    with karrow.Producer(kafka_three.bootstrap(), **CHOSEN) as producer:
        threads = [
            threading.Thread(target=write, args=(producer, f"writer-{number}"))
            for number in range(2)
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(ROUNDS):
                for node in kafka_three.nodes:
                    STOPS[how](node)
                    kafka_three.heal()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        producer.flush(120.0)
    for payload, delivery in held:
        assert delivery.exception(0) is None
        where = delivery.result(0)
        log.settle(payload, Outcome("ok", where.partition, where.offset))
    assert len(log) > 1000
    assert check(log, contents(kafka_three.bootstrap(), topic, PARTITIONS)) == []
