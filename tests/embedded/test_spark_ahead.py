"""One fetch ahead: while Spark is busy with a batch, the answer to the next fetch is on its way."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import pyarrow as pa
import pytest

import karrow
from karrow.spark import pool
from tests.embedded.sourcing import batch, numbers, put

COUNT = 60
PATIENCE = 10.0
# A fetch brings one batch of records, and a task has so many of them.
EACH = 10


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(seed=1, auto_create_topics=False) as broker:
        broker.create_topic("orders", partitions=1)
        with karrow.Client(broker.bootstrap) as client:
            for first in range(0, COUNT, EACH):
                put(client, first, first + EACH)
        yield broker
        pool.close()


def reading(broker: karrow.Broker) -> Generator[pa.RecordBatch]:
    """What Spark asks for the batches of a task, and leaves alone while it is busy with one."""
    reader = batch(broker.bootstrap, subscribe="orders", kafka_max_partition_fetch_bytes=1)
    (part,) = reader.partitions()
    broker.clear_requests()
    found = reader.read(part)
    assert isinstance(found, Generator)
    return found


def fetches(broker: karrow.Broker, wanted: int) -> int:
    """How many fetches the broker has seen, once they are so many or nothing more comes."""
    deadline = time.monotonic() + PATIENCE
    while (seen := sum(one.api == "Fetch" for one in broker.requests)) < wanted:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return seen


def test_the_next_fetch_is_sent_before_rows_are_given(broker: karrow.Broker) -> None:
    """The broker has it while nobody asks for more; and no third one before those are used up."""
    rows = reading(broker)
    for number in range(1, COUNT // EACH):
        assert next(rows).column("value").to_pylist() == numbers((number - 1) * EACH, number * EACH)
        assert fetches(broker, number + 1) == number + 1
    assert next(rows).column("value").to_pylist() == numbers(COUNT - EACH, COUNT)
    assert next(rows, None) is None
    assert fetches(broker, 0) == COUNT // EACH, "nothing is fetched that is behind the range"
