"""What readers of committed data see of a topic, by confluent-kafka."""

from __future__ import annotations

import time
import uuid

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

# Many things at once on a small machine take their time.
LIMIT = 900.0


def read_committed(bootstrap: str, topic: str) -> list[Message]:
    """All of it that there is."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in left])
        found: list[Message] = []
        deadline = time.monotonic() + LIMIT
        while left:
            assert time.monotonic() < deadline, f"{topic} {left} does not end"
            for message in consumer.consume(1000, timeout=1.0):
                if message.error() is None:
                    found.append(message)
                else:
                    left.discard(message.partition())
        return found
    finally:
        consumer.close()
