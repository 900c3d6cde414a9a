"""A consumer that has data in hand while the log behind it goes, or is closed to it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from karrow.types import TopicPartition
from tests.embedded.consuming import GROUP, QUICK, TIMEOUT, TOPIC, fill, take

PLACE = TopicPartition(TOPIC, 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        yield broker


def test_retention_that_overtakes_a_slow_consumer_is_jumped_over(broker: Broker) -> None:
    """Row 24: the fetch ahead is out of range while data of an older one still waits."""
    fill(broker, range(200), partitions=1, batch_bytes=1, linger=0.0)
    with (
        karrow.Consumer(broker.bootstrap, TOPIC, partition_max_bytes=1000, **QUICK) as consumer,
        karrow.Admin(broker.bootstrap) as admin,
    ):
        found = take(consumer, 1, max_records=1)
        admin.delete_records({PLACE: 150})
        deadline = time.monotonic() + TIMEOUT
        while found[-1].offset < 199:
            assert time.monotonic() < deadline, (found[-1].offset, consumer.health())
            found += consumer.poll(0.1, max_records=1)
            time.sleep(0.01)  # so that answers come while there is data left
        offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    assert offsets[-50:] == list(range(150, 200))
    assert len(offsets) < 150


def test_what_was_iterated_over_is_committed_though_the_topic_is_closed(broker: Broker) -> None:
    fill(broker, range(50), partitions=1)
    with karrow.Consumer(
        broker.bootstrap, TOPIC, group=GROUP, auto_commit=False, **QUICK
    ) as consumer:
        records = iter(consumer)
        for _ in range(7):
            next(records)
        fault = broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=TOPIC)
        deadline = time.monotonic() + TIMEOUT
        while not fault.met:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(errors.TopicAuthorizationFailed):
            read_on(consumer)
        assert (consumer.position(PLACE) or 0) >= 7
        consumer.commit()
    with karrow.Client(broker.bootstrap) as client:
        assert (client.committed_offsets(GROUP)[PLACE].offset or 0) >= 7


def read_on(consumer: karrow.Consumer) -> None:
    """Until something is raised."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        consumer.poll(0.1, max_records=1)
