"""Logs that are not as one expects them: the same rows from both connectors all the same."""

from __future__ import annotations

import itertools
import time

import karrow
from karrow import records
from tests.brokers import KafkaCluster
from tests.spark.both import OURS, THEIRS, Both, in_json, in_order, same, with_task
from tests.spark.filled import filled, moment, new_topic, put

PATIENCE = 60.0
KEYS = 5


def test_records_without_a_time(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka)
    builder = records.BatchBuilder()
    for stamp in (None, moment(0), None, 0):
        builder.append(None, b"value", timestamp_ms=stamp)
    parts = [{"index": 0, "records": builder.build()}]
    body = {"acks": -1, "timeout_ms": 10_000}
    with kafka.connect() as connection:
        data = [{"name": topic, "partition_data": parts}]
        connection.request("Produce", {**body, "topic_data": data}, 9)
    rows = both.read(subscribe=topic)
    assert len({row.timestamp for row in rows}) == 3


def test_records_larger_than_a_fetch(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(kafka, config={"max.message.bytes": str(8 << 20)})
    put(both.bootstrap, topic, 0, range(3))
    with karrow.Producer(both.bootstrap, max_request_bytes=8 << 20) as producer:
        for size in (3 << 20, 10, 2 << 20):
            producer.send(topic, b"x" * size, partition=0)
    options = {"kafka.max.partition.fetch.bytes": "100000", "kafka.fetch.max.bytes": "100000"}
    assert len(both.read(subscribe=topic)) == 6
    assert len(both.read(subscribe=topic, **options)) == 6


def test_what_compaction_has_left(both: Both, kafka: KafkaCluster) -> None:
    topic = new_topic(
        kafka,
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        },
    )
    with karrow.Admin(both.bootstrap) as admin:
        every_broker = karrow.ConfigResource.broker()
        admin.alter_config(every_broker, {"log.cleaner.backoff.ms": "100"})
        compacted(both.bootstrap, topic)
        admin.alter_config(every_broker, {"log.cleaner.backoff.ms": None})
    offsets = [row.offset for row in both.read(subscribe=topic)]
    assert len(offsets) < offsets[-1]
    gap = next(one + 1 for one, other in itertools.pairwise(offsets) if other > one + 1)
    for start, end in ((gap, gap + 1), (0, gap), (gap, offsets[-1]), (0, gap + 1)):
        both.read(
            subscribe=topic,
            startingOffsets=in_json(topic, {0: start}),
            endingOffsets=in_json(topic, {0: end}),
        )
    both.read(subscribe=topic, minPartitions=7)
    both.drain(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)


def compacted(bootstrap: str, topic: str) -> None:
    """Records with few keys, but for the first, until the broker has removed some."""
    deadline = time.monotonic() + PATIENCE
    with karrow.Producer(bootstrap) as producer, karrow.Client(bootstrap) as client:
        producer.send(topic, b"first", key=b"first", partition=0)
        count = 1
        while True:
            for _ in range(20):
                producer.send(topic, b"%d" % count, key=b"%d" % (count % KEYS), partition=0)
                count += 1
            producer.flush()
            if len(client.fetch(topic, 0, "earliest").records) < count:
                return
            assert time.monotonic() < deadline
            time.sleep(0.3)


def test_filters_that_karrow_takes_over(both: Both, kafka: KafkaCluster) -> None:
    topics = filled(kafka)
    enabled = "spark.sql.python.filterPushdown.enabled"
    both.spark.conf.set(enabled, "true")
    try:
        for wanted in (
            "partition = 1 and offset >= 7 and offset < 9",
            "offset in (3, 4) or partition = 2",
            "timestamp >= '2023-11-14 22:14:00' and partition <= 1",
            "partition > 5",
            "offset > 1000",
            "topic = 'other' and partition = 1",
        ):
            theirs = both.frame(THEIRS, subscribe=topics.orders)
            ours = both.frame(OURS, subscribe=topics.orders, pushdown="true")
            found = [in_order(with_task(one.where(wanted)).collect()) for one in (theirs, ours)]
            same(*found)
    finally:
        both.spark.conf.unset(enabled)
