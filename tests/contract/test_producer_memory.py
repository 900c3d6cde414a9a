"""The producer's memory: bounded by its buffer, however many records pass."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.brokers import KafkaCluster

MEBIBYTE = 1 << 20
RECORDS = 10_000_000
BUFFER = 32 * MEBIBYTE

# In a process of its own: what other tests have left behind would hide it.
SCRIPT = """
import json, sys
import karrow

bootstrap, topic, records, buffer = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


value = bytes(100)
seen, most = [], 0
with karrow.Producer(bootstrap, buffer_bytes=buffer) as producer:
    for tenth in range(10):
        for _ in range(records // 10):
            producer.send(topic, value)
        most = max(most, producer.stats().buffered_bytes)
        seen.append(resident())
    producer.flush()
    written = producer.stats().records_written
print(json.dumps({"resident": seen, "written": written, "most": most}))
"""


@pytest.mark.slow
def test_ten_million_records_through_a_small_buffer(kafka: KafkaCluster) -> None:
    """Row 42: the broker is slower than the producer, whose memory stays flat."""
    topic = kafka.create_topic(partitions=4)
    arguments = [kafka.bootstrap(), topic, str(RECORDS), str(BUFFER)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], check=True, capture_output=True, timeout=250
    )
    found = json.loads(done.stdout)
    assert found["written"] == RECORDS
    assert found["most"] <= BUFFER
    after_a_tenth, *later = found["resident"]
    assert max(later) - after_a_tenth < 8 * MEBIBYTE
    assert max(found["resident"]) < 160 * MEBIBYTE
