"""A producer of small batches at three embedded brokers, for tests of what they do to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import karrow
from karrow.aio._delivery import Delivery
from karrow.broker.threaded import Broker
from karrow.records import batches
from karrow.sync.loop import run

TOPIC = "topic"
TIMEOUT = 15.0
SLOWLY: dict[str, Any] = {"retry_backoff": 0.5, "retry_backoff_max": 0.5}
QUICK: dict[str, Any] = {"retry_backoff": 0.02, "retry_backoff_max": 0.1}


def producer_for(broker: Broker, **options: Any) -> karrow.Producer:
    """A producer of one record per batch, unless told otherwise; it has sent one record."""
    producer = karrow.Producer(
        broker.bootstrap, **{"batch_bytes": 1, "linger": 0.0, **QUICK, **options}
    )
    producer.send(TOPIC, b"first", partition=0).result(TIMEOUT)
    broker.clear_requests()
    return producer


def send_many(producer: karrow.Producer, *values: bytes) -> list[Delivery]:
    return [producer.send(TOPIC, value, partition=0) for value in values]


def offsets(deliveries: list[Delivery]) -> list[int | None]:
    return [one.result(TIMEOUT).offset for one in deliveries]


def values(broker: Broker, partition: int = 0) -> list[bytes]:
    with karrow.Client(broker.bootstrap) as client:
        return [record.value or b"" for record in client.fetch_all(TOPIC, partition).records]


def produced(broker: Broker) -> list[int]:
    """The nodes that got Produce requests, in order."""
    return [seen.broker for seen in broker.requests if seen.api == "Produce"]


def wait_until(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def on_loop(work: Callable[[], object]) -> None:
    """Do something where the producer's sender runs."""

    async def main() -> None:
        work()

    run(main(), "AsyncProducer")


def epochs(broker: Broker, partition: int = 0) -> list[int]:
    return [info.producer_epoch for info in infos(broker, partition)]


def infos(broker: Broker, partition: int = 0) -> list[Any]:
    with karrow.Client(broker.bootstrap) as client:
        body = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 10_000_000,
            "topics": [
                {
                    "topic": TOPIC,
                    "partitions": [
                        {
                            "partition": partition,
                            "fetch_offset": 0,
                            "partition_max_bytes": 10_000_000,
                        }
                    ],
                }
            ],
        }
        to = karrow.Node.leader(TOPIC, partition)
        answer = client.request("Fetch", body, to=to, api_version=11)
        return list(batches(answer.responses[0].partitions[0].records))
