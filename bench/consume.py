"""Consumers against each other and against what the broker can give at all.

Every client reads the same topics of the same broker, from the beginning, and looks at every value.
A run is timed from the call that goes back to the beginning until the last record is there. The
limit is answers to fetches read into one piece of memory, with a look at their batch headers.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pyarrow as pa
import uvloop

import karrow
from bench.broker import read_frame
from bench.model import OURS, Benchmark, Row, Samples
from bench.produce import BOOTSTRAP, PLAIN, TEXT, bootstrap, cpu_seconds, timed, wait_for_leaders
from karrow import records, wire
from karrow.records._header import run_of
from tests.brokers import NEWEST, KafkaCluster, RawConnection

CONFLUENT = "confluent-kafka"
AS_LIST = "its consume(10000)"
KAFKA_PYTHON = "kafka-python"
AIOKAFKA = "aiokafka"
LIMIT = "the limit"
MEMORY_LIMIT = "300 MiB"

PARTITIONS = 4
MANY = 4_000_000
FEW = 100_000  # for clients that need seconds for that
LIST = 10_000
MANY_MORE = 10_000_000
LATENCIES = 1_000
MEBIBYTE = 1 << 20
FETCH_BYTES = 4 * MEBIBYTE
CODECS = ("lz4", "zstd")
TOPICS: dict[str | None, str] = {None: "plain", **{codec: codec for codec in CODECS}}
LATENT = "latent"

# The work: read so many records from the beginning on.
Run = Callable[[int], object]
# By library: what prepares the work, from the topic's codec, and how many records it is given.
Runs = Mapping[str, tuple[Callable[[str | None], Run], int]]


@contextmanager
def broker() -> Iterator[Mapping[str, str]]:
    """One real broker with full topics for the whole run."""
    with KafkaCluster() as cluster:
        place = {BOOTSTRAP: cluster.bootstrap()}
        os.environ.update(place)
        for codec, topic in TOPICS.items():
            cluster.create_topic(topic, partitions=PARTITIONS)
            wait_for_leaders(topic)
            fill(topic, codec)
        cluster.create_topic(LATENT, partitions=1)
        warm_up = limit()
        for _ in range(3):  # until Java has compiled what answers
            warm_up(MANY)
        yield place


def fill(topic: str, codec: str | None) -> None:
    values = pa.array(PLAIN if codec is None else TEXT, pa.binary())
    rows = 250_000
    numbers = pa.array([n * PARTITIONS // rows for n in range(rows)], pa.int32())
    table = pa.table(
        {"value": pa.concat_arrays([values] * (rows // len(values))), "partition": numbers}
    )
    with karrow.Producer(bootstrap(), compression=codec) as ours:  # type: ignore[arg-type]
        for _ in range(MANY // rows):
            ours.send_arrow(topic, table).result()


def partitions(codec: str | None) -> list[tuple[str, int]]:
    return [(TOPICS[codec], number) for number in range(PARTITIONS)]


# ---- karrow


def consumer(codec: str | None) -> karrow.Consumer:
    made = karrow.Consumer(bootstrap())
    made.assign(partitions(codec))
    atexit.register(made.close)
    return made


def go_back(ours: karrow.Consumer, codec: str | None) -> None:
    for partition in partitions(codec):
        ours.seek(partition, 0)


def iterate(codec: str | None = None) -> Run:
    ours = consumer(codec)

    def run(count: int) -> None:
        go_back(ours, codec)
        left = count
        for record in ours:
            record.value  # noqa: B018 - looking at it is the work
            left -= 1
            if not left:
                break

    return run


def poll(codec: str | None = None) -> Run:
    ours = consumer(codec)

    def run(count: int) -> None:
        go_back(ours, codec)
        left = count
        while left > 0:
            found = ours.poll(max_records=LIST)
            for record in found:
                record.value  # noqa: B018
            left -= len(found)

    return run


def batches(codec: str | None = None) -> Run:
    ours = consumer(codec)

    def run(count: int) -> None:
        go_back(ours, codec)
        left = count
        for batch in ours.batches():
            left -= batch.num_rows
            if left <= 0:
                break

    return run


def awaited(codec: str | None = None) -> Run:
    loop = uvloop.new_event_loop()
    ours = karrow.AsyncConsumer(bootstrap())
    loop.run_until_complete(ours.assign(partitions(codec)))
    atexit.register(lambda: loop.run_until_complete(ours.close()))

    async def work(count: int) -> None:
        for partition in partitions(codec):
            ours.seek(partition, 0)
        left = count
        async for record in ours:
            record.value  # noqa: B018
            left -= 1
            if not left:
                break

    return lambda count: loop.run_until_complete(work(count))


# ---- the peers


def confluent(**options: Any) -> Any:
    theirs = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap(),
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": FETCH_BYTES,
            # Else it pauses by itself for a second whenever its queue is full.
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
            **options,
        }
    )
    atexit.register(theirs.close)
    return theirs


def from_the_beginning(theirs: Any, codec: str | None) -> None:
    theirs.assign([confluent_kafka.TopicPartition(*one, 0) for one in partitions(codec)])


def confluent_poll(codec: str | None = None) -> Run:
    theirs = confluent()

    def run(count: int) -> None:
        from_the_beginning(theirs, codec)
        left = count
        take = theirs.poll
        while left:
            message = take(1.0)
            if message is not None:
                message.value()
                left -= 1

    return run


def confluent_consume(codec: str | None = None) -> Run:
    theirs = confluent()

    def run(count: int) -> None:
        from_the_beginning(theirs, codec)
        left = count
        while left > 0:
            messages = theirs.consume(LIST, 1.0)
            for message in messages:
                message.value()
            left -= len(messages)

    return run


def kafka_python(codec: str | None = None) -> Run:
    theirs: Any = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap(),
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
        max_poll_records=LIST,
    )
    mine = [kafka.TopicPartition(*one) for one in partitions(codec)]
    theirs.assign(mine)
    atexit.register(theirs.close)

    def run(count: int) -> None:
        for partition in mine:
            theirs.seek(partition, 0)
        left = count
        for record in theirs:
            record.value  # noqa: B018
            left -= 1
            if not left:
                break

    return run


def aiokafka_iterate(codec: str | None = None) -> Run:
    loop = uvloop.new_event_loop()
    mine = [aiokafka.TopicPartition(*one) for one in partitions(codec)]

    async def started() -> Any:
        theirs: Any = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap(),
            enable_auto_commit=False,
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        theirs.assign(mine)
        await theirs.start()
        return theirs

    theirs = loop.run_until_complete(started())
    atexit.register(lambda: loop.run_until_complete(theirs.stop()))

    async def work(count: int) -> None:
        for partition in mine:
            theirs.seek(partition, 0)
        left = count
        async for record in theirs:
            record.value  # noqa: B018
            left -= 1
            if not left:
                break

    return lambda count: loop.run_until_complete(work(count))


# ---- the limit

FETCH, PRODUCE = 11, 9


def limit() -> Run:
    """All partitions in every fetch, on one bare socket; the next leaves when headers are read."""
    host, port = bootstrap().rsplit(":", 1)
    link = RawConnection(host, int(port), timeout=60.0)
    room = bytearray(32 * MEBIBYTE)

    def run(count: int) -> None:
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        while sum(offsets.values()) < count:
            framing = wire.ClientFraming("bench")
            _, parts = framing.send("Fetch", FETCH, fetch_body(offsets))
            link.socket.sendall(b"".join(parts))
            frame = memoryview(room)[4 : read_frame(link.socket, room)]
            answer = framing.receive(frame).message
            for part in answer.responses[0].partitions:
                after, _, _ = run_of(part.records) if part.records else (None, 0, 0)
                offsets[part.partition_index] = after or offsets[part.partition_index]

    return run


def fetch_body(offsets: Mapping[int, int]) -> dict[str, Any]:
    asked = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
        for number, offset in offsets.items()
        if offset < MANY // PARTITIONS
    ]
    return {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": PARTITIONS * FETCH_BYTES,
        "topics": [{"topic": TOPICS[None], "partitions": asked}],
    }


# ---- one record


def latency(take: Callable[[], object]) -> Samples:
    """From a record that leaves a bare socket to the client that reads it."""
    host, port = bootstrap().rsplit(":", 1)
    link = RawConnection(host, int(port), timeout=60.0)
    builder = records.BatchBuilder()
    builder.append(None, PLAIN[0])
    parts = [{"index": 0, "records": builder.build()}]
    data = [{"name": LATENT, "partition_data": parts}]
    body = {"acks": 1, "timeout_ms": 30_000, "topic_data": data}

    def several() -> list[float]:
        taken = []
        for _ in range(LATENCIES):
            start = perf_counter()
            link.send("Produce", PRODUCE, body)
            take()
            taken.append(perf_counter() - start)
            link.receive()
        return taken

    return several


def our_latency() -> Samples:
    ours = karrow.Consumer(bootstrap())
    ours.assign({(LATENT, 0): "latest"})
    atexit.register(ours.close)
    ours.poll(0.5)
    return latency(lambda: next(ours))


def confluent_latency() -> Samples:
    theirs = confluent()
    end = confluent_kafka.OFFSET_END
    theirs.assign([confluent_kafka.TopicPartition(LATENT, 0, end)])
    theirs.poll(1.0)
    return latency(lambda: theirs.poll(5.0))


# ---- memory


def resident() -> Samples:
    """The most that the process has taken for ten million records, one by one and as batches."""
    turns = [iterate(), batches("zstd")]

    def once() -> list[float]:
        for left in range(MANY_MORE, 0, -MANY):
            turns[0](min(left, MANY))
            turns[1](min(left, MANY))
        return [peak()]

    return once


def peak() -> float:
    """The most bytes that this process has had in memory at once."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(size) * 1024


def allowed() -> Samples:
    return lambda: [300 * MEBIBYTE]


# ---- the table


def row(
    group: str,
    runs: Runs,
    wanted: Mapping[str, float],
    *,
    codec: str | None = None,
    case: str | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Row:
    def prepare(make: Callable[[str | None], Run], count: int) -> Samples:
        return timed(make(codec), count, clock)

    return Row(
        group=group,
        case=case or codec or "100 bytes",
        units=1,
        libraries={
            library: functools.partial(prepare, make, count)
            for library, (make, count) in runs.items()
        },
        # Decompression takes the same time for everybody.
        wanted={
            peer: ratio if codec is None else 0.8 * ratio
            for peer, ratio in wanted.items()
            if peer in runs
        },
        sampled=True,
        headline=case is None and codec != "lz4",
    )


def bare(_: str | None) -> Run:
    return limit()


ITERATION: Runs = {OURS: (iterate, MANY), CONFLUENT: (confluent_poll, MANY)}
# Who is compared with without compression alone, by the clock and by what it costs.
ITERATION_AND_MORE: Runs = {**ITERATION, KAFKA_PYTHON: (kafka_python, FEW), LIMIT: (bare, MANY)}
LISTS: Runs = {OURS: (poll, MANY), AS_LIST: (confluent_consume, MANY)}
COLUMNS: Runs = {OURS: (batches, MANY), AS_LIST: (confluent_consume, MANY)}
COLUMNS_AND_LIMIT: Runs = {**COLUMNS, LIMIT: (bare, MANY)}
AWAITED: Runs = {OURS: (awaited, MANY), AIOKAFKA: (aiokafka_iterate, FEW)}

ROWS = (
    row("for record in consumer", ITERATION_AND_MORE, {CONFLUENT: 5.0}),
    *(row("for record in consumer", ITERATION, {CONFLUENT: 5.0}, codec=one) for one in CODECS),
    row("poll(max_records=10000)", LISTS, {AS_LIST: 3.0}),
    *(row("poll(max_records=10000)", LISTS, {AS_LIST: 3.0}, codec=one) for one in CODECS),
    row("batches", COLUMNS_AND_LIMIT, {AS_LIST: 10.0, LIMIT: 0.65}),
    *(row("batches", COLUMNS, {AS_LIST: 10.0}, codec=one) for one in CODECS),
    row("async for", AWAITED, {AIOKAFKA: 5.0}),
    *(row("async for", AWAITED, {AIOKAFKA: 5.0}, codec=one) for one in CODECS),
    row("Client's CPU", ITERATION_AND_MORE, {}, case="for record in consumer", clock=cpu_seconds),
    row("Client's CPU", LISTS, {}, case="poll(max_records=10000)", clock=cpu_seconds),
    row("Client's CPU", COLUMNS_AND_LIMIT, {}, case="batches", clock=cpu_seconds),
    row("Client's CPU", AWAITED, {}, case="async for", clock=cpu_seconds),
    Row(
        group="One record",
        case="until it is read",
        units=1,
        libraries={OURS: our_latency, CONFLUENT: confluent_latency},
        wanted={CONFLUENT: 0.83},
        sampled=True,
        headline=True,
    ),
    Row(
        group="Memory",
        case="consumers in a GiB",
        units=1 << 30,
        libraries={OURS: resident, MEMORY_LIMIT: allowed},
        wanted={MEMORY_LIMIT: 1.0},
        sampled=True,
    ),
)

BENCHMARK = Benchmark(
    name="consume",
    title="Consuming",
    about=(
        f"Records of about 100 bytes out of four partitions of one Kafka {NEWEST} on this machine, "
        "its log in memory, every value looked at but those in Arrow batches. The rate is records "
        "a second from the beginning to the last of four million (of a hundred thousand with "
        "kafka-python and aiokafka, which need seconds for those); in the block about CPU, records "
        "in a second of the client's processor time; in the block about one record, records a "
        "second from a bare socket through the broker into the client, one at a time, by the "
        "median. The limit is the same fetches on a bare socket, read and left as they are. Memory "
        "is the most that the process has had at any time, over ten million records one by one and "
        "as many in batches. The loops are uvloop's."
    ),
    unit="records",
    peers=(CONFLUENT, AS_LIST, KAFKA_PYTHON, AIOKAFKA, LIMIT, MEMORY_LIMIT),
    rows=ROWS,
    packages=("confluent-kafka", "kafka-python", "aiokafka", "crc32c", "cramjam", "uvloop"),
    around=broker,
)
