"""Consumers of a real broker that are quick, slow, or let partitions rest: flat memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from contextlib import ExitStack
from statistics import median

import pytest

import karrow
from tests.brokers import KafkaCluster

MEBIBYTE = 1 << 20
PARTITIONS = 4
RECORDS = 50_000  # in each partition, so that no buffer holds them all
SECONDS = 60.0
BUFFER = 16 * MEBIBYTE
AT_ONCE = 2 * MEBIBYTE  # of a partition in an answer
# What allocators may keep, for whom a full buffer is never in the same place twice. The slow one
# reads half a million records between the times that are compared, so that it is less than a leaked
# object for each; with the others it is a byte.
SLACK = BUFFER
WAYS = ("quick", "slow", "resting")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# In a process of its own: what the broker's side and other tests have would hide it.
SCRIPT = """
import json, sys, time
import karrow

bootstrap, topic, way, seconds, buffer, at_once = sys.argv[1:]
seconds, buffer, at_once = float(seconds), int(buffer), int(at_once)


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


sizes, count, most, halves = [], 0, 0, 0
options = {"start": "earliest", "auto_commit_interval": 0.2, "heartbeat_interval": 0.2}
options |= {"buffer_bytes": buffer, "partition_max_bytes": at_once}
with karrow.Consumer(bootstrap, topic, group=f"soak-{way}", **options) as consumer:
    began = looked_at = time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        found = consumer.poll(0.2)
        count += len(found)
        if not found and consumer.assignment:
            consumer.seek_all("earliest")
        if way == "slow":
            time.sleep(0.02)
        if now - looked_at > 0.5:
            looked_at = now
            sizes.append(resident())
            most = max(most, consumer.twin.engine.positions.buffered_bytes)
            if way == "resting":  # the halves take turns: what one has is dropped and comes again
                halves += 1
                consumer.resume(*consumer.assignment)
                consumer.pause(*consumer.assignment[halves % 2::2])
print(json.dumps({"sizes": sizes, "count": count, "most": most}))
"""


def test_memory_of_consumers_is_flat_whatever_their_pace(kafka: KafkaCluster) -> None:
    topic = kafka.create_topic(partitions=PARTITIONS)
    chance = random.Random(0)
    with karrow.Producer(kafka.bootstrap(), compression="lz4") as producer:
        for _ in range(RECORDS):
            for partition in range(PARTITIONS):
                # Half of it is the same everywhere, for the codec.
                producer.send(topic, bytes(250) + chance.randbytes(250), partition=partition)
    arguments = [sys.executable, "-c", SCRIPT, kafka.bootstrap(), topic]
    limits = [str(SECONDS), str(BUFFER), str(AT_ONCE)]
    with ExitStack() as stack:
        readers: dict[str, subprocess.Popen[bytes]] = {}
        for way in WAYS:
            command = [*arguments, way, *limits]
            readers[way] = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(readers[way].kill)  # of one that has ended this is nothing
        found = {way: json.loads(reader.communicate()[0]) for way, reader in readers.items()}
    for way, report in found.items():
        # The first quarter, in which allocators get most of what they keep, does not count.
        sizes = report["sizes"][len(report["sizes"]) // 4 :]
        half = len(sizes) // 2
        # Buffers come and go by some mebibytes; what leaks only comes.
        early, late = median(sizes[:half]), median(sizes[half:])
        print(f"{way}: {report['count']} read, {early} -> {late}, {report['most']}")  # noqa: T201
        assert half >= SECONDS / 4
        assert late - early < SLACK
        assert max(sizes) < 160 * MEBIBYTE
        # The last fetch was sent when the buffer was not full.
        assert report["most"] < BUFFER + PARTITIONS * AT_ONCE
    # It was as slow as was meant, so that what had come waited for it all the time.
    assert found["slow"]["most"] >= BUFFER / 2
    assert found["slow"]["count"] < found["quick"]["count"] / 4
    assert min(report["count"] for report in found.values()) > RECORDS
