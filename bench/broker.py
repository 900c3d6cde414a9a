"""The embedded broker beside a real one: bytes in and out, and how soon it is there.

Both get the same requests from the same client in the same order. The real broker's log lies where
the tests' brokers have theirs, in memory if there is room; the embedded one is a process of its own
and keeps records in memory.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import socket
import subprocess
import sys
import tracemalloc
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, sleep
from typing import Any

import confluent_kafka

import karrow
from bench.model import OURS, Benchmark, Job, Row, Samples
from karrow import records, wire
from tests.brokers import NEWEST, KafkaCluster, RawConnection

REAL = "Kafka"
BOOTSTRAPS = {OURS: "KARROW_BENCH_EMBEDDED", REAL: "KARROW_BENCH_REAL"}
VALUE = bytes(range(100))
PER_BATCH = 9_000
BATCHES = 20
RECORDS = PER_BATCH * BATCHES
SIZE = RECORDS * len(VALUE)
IN_FLIGHT = 5
PRODUCE, FETCH = 9, 11
WARM_UP = 2.0
TOPICS = 2_000


@contextmanager
def brokers() -> Iterator[Mapping[str, str]]:
    """A real broker and an embedded one, each in its own process, for the whole run."""
    command = [sys.executable, "-m", "karrow", "broker", "--port", "0"]
    with KafkaCluster() as cluster:
        embedded = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert embedded.stdout is not None
            place = embedded.stdout.readline().strip().removeprefix("listening on ")
            found = {BOOTSTRAPS[OURS]: place, BOOTSTRAPS[REAL]: cluster.bootstrap()}
            for broker in BOOTSTRAPS:  # until Java has compiled what answers
                child = [sys.executable, "-m", "bench.child", "broker"]
                for index in range(len(DATA_ROWS)):
                    subprocess.run(
                        [*child, str(index), broker, str(WARM_UP)],
                        env={**os.environ, **found},
                        stdout=subprocess.DEVNULL,
                        check=True,
                    )
            yield found
        finally:
            embedded.terminate()
            embedded.communicate()


def bootstrap(broker: str) -> str:
    return os.environ[BOOTSTRAPS[broker]]


def new_topic(broker: str) -> str:
    """A topic of one partition that is gone when the process is."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = karrow.Admin(bootstrap(broker))
    admin.create_topic(topic, partitions=1, replication_factor=1)
    atexit.register(admin.delete_topic, topic)
    return topic


def connection(broker: str) -> RawConnection:
    host, port = bootstrap(broker).rsplit(":", 1)
    return RawConnection(host, int(port), timeout=60.0)


def batch() -> bytes:
    builder = records.BatchBuilder(max_bytes=1 << 21)
    for _ in range(PER_BATCH):
        builder.append(None, VALUE)
    return builder.build()


def raw_produce(broker: str) -> Job:
    """The same requests from a bare socket, five at a time."""
    link = connection(broker)
    body = {
        "acks": -1,
        "timeout_ms": 30_000,
        "topic_data": [
            {"name": new_topic(broker), "partition_data": [{"index": 0, "records": batch()}]}
        ],
    }

    def job() -> None:
        for number in range(BATCHES):
            link.send("Produce", PRODUCE, body)
            if number >= IN_FLIGHT:
                link.receive()
        for _ in range(IN_FLIGHT):
            (answer,) = link.receive().responses[0].partition_responses
            assert answer.error_code == 0

    return job


def raw_fetch(broker: str) -> Job:
    """Fetches of up to 4 MiB on a bare socket; the answers are read and left as they are."""
    topic = filled(broker)
    link = connection(broker)
    room = bytearray(1 << 24)
    batch_size = len(batch())

    def job() -> None:
        offset = 0
        while offset < RECORDS:
            body = fetch_body(topic, offset)
            _, parts = wire.ClientFraming("bench").send("Fetch", FETCH, body)
            link.socket.sendall(b"".join(parts))
            offset += read_frame(link.socket, room) // batch_size * PER_BATCH

    return job


def fetch_body(topic: str, offset: int) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 22}
    return {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 22,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }


def read_frame(link: socket.socket, room: bytearray) -> int:
    view = memoryview(room)
    have = 0
    while have < 4 or have < 4 + int.from_bytes(room[:4], "big"):
        have += link.recv_into(view[have:])
    return have


def filled(broker: str) -> str:
    """A topic with as many records as one job handles."""
    topic = new_topic(broker)
    with karrow.Client(bootstrap(broker)) as client:
        topic_data = {"name": topic, "partition_data": [{"index": 0, "records": batch()}]}
        body = {"acks": -1, "timeout_ms": 30_000, "topic_data": [topic_data]}
        for _ in range(BATCHES):
            client.request("Produce", body, to=karrow.Node.leader(topic, 0), api_version=PRODUCE)
    return topic


def confluent_produce(broker: str) -> Job:
    topic = new_topic(broker)
    producer: Any = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap(broker),
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2 * RECORDS,
        }
    )

    def job() -> None:
        produce = producer.produce
        for _ in range(RECORDS):
            produce(topic, VALUE)
        assert producer.flush(60) == 0

    return job


def confluent_consume(broker: str) -> Job:
    topic = filled(broker)
    consumer: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap(broker),
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 1 << 22,
            # Else the client itself pauses: at the end for half a second, with a full queue for 1.
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 2 * RECORDS,
        }
    )
    atexit.register(consumer.close)

    def job() -> None:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        left = RECORDS
        while left > 0:
            left -= len(consumer.consume(10_000, 10.0))

    return job


def start_embedded() -> Samples:
    def several() -> list[float]:
        times = []
        for _ in range(5):
            start = perf_counter()
            with karrow.Broker() as broker:
                wait_until_it_answers(broker.bootstrap)
                times.append(perf_counter() - start)
        return times

    return several


def start_real() -> Samples:
    def several() -> list[float]:
        start = perf_counter()
        with KafkaCluster() as cluster:
            wait_until_it_answers(cluster.bootstrap())
            return [perf_counter() - start]

    return several


def idle_topics() -> Samples:
    """Bytes that a topic of one partition takes when nothing is in it."""

    def once() -> list[float]:
        with karrow.Broker() as broker:
            gc.collect()
            tracemalloc.start()
            for number in range(TOPICS):
                broker.create_topic(f"topic-{number}")
            gc.collect()
            used, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        return [used / TOPICS]

    return once


def wait_until_it_answers(place: str) -> None:
    host, port = place.rsplit(":", 1)
    while True:
        try:
            with RawConnection(host, int(port)) as link:
                assert link.api_versions()
                return
        except OSError:
            sleep(0.01)


def row(group: str, case: str, job: Callable[[str], Job]) -> Row:
    return Row(
        group=group,
        case=case,
        units=SIZE,
        libraries={broker: functools.partial(job, broker) for broker in BOOTSTRAPS},
        wanted={REAL: 0.5},
        headline=True,
    )


DATA_ROWS = (
    row("Produce", "confluent-kafka", confluent_produce),
    row("Produce", "bare socket, 5 in flight", raw_produce),
    row("Fetch", "confluent-kafka", confluent_consume),
    row("Fetch", "bare socket, 4 MiB", raw_fetch),
)
ROWS = (
    *DATA_ROWS,
    Row(
        group="Start",
        case="until it answers",
        units=1,
        libraries={OURS: start_embedded, REAL: start_real},
        sampled=True,
        headline=True,
    ),
    Row(
        group="Memory",
        case="idle topics in a MiB",
        units=1 << 20,
        libraries={OURS: idle_topics},
        sampled=True,
    ),
)

BENCHMARK = Benchmark(
    name="broker",
    title="The embedded broker",
    about=(
        f"The embedded broker against Kafka {NEWEST}, both on this machine, one node and one "
        f"partition each, with acks from all. Values of {len(VALUE)} bytes, batches of "
        f"{PER_BATCH:,} records, not compressed. The rate is bytes of values a second; in the "
        "block about starts it is starts a second, from nothing to the first answer."
    ),
    unit="bytes",
    peers=(REAL,),
    rows=ROWS,
    packages=("confluent-kafka", "crc32c"),
    around=brokers,
)
