"""Producers against each other and against what the broker can take at all.

Every client sends the same records to the same broker, a topic of its own with four partitions,
with acks from all and idempotence where it has that. A run is timed from the first call until the
last record is acknowledged. The limit is batches that were encoded before, pushed down two sockets.
"""

from __future__ import annotations

import atexit
import functools
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from resource import RUSAGE_SELF, getrusage
from time import perf_counter
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pyarrow as pa
import uvloop

import karrow
from bench.model import OURS, Benchmark, Row, Samples
from karrow import records
from tests.brokers import NEWEST, KafkaCluster, RawConnection

CONFLUENT = "confluent-kafka"
WITH_CALLBACK = "its on_delivery"
AS_BATCH = "its produce_batch"
KAFKA_PYTHON = "kafka-python"
AIOKAFKA = "aiokafka"
LIMIT = "the limit"

BOOTSTRAP = "KARROW_BENCH_BOOTSTRAP"
PARTITIONS = 4
WARM_UP = "warm-up"
SOON_GONE = {"file.delete.delay.ms": "10"}
MANY = 4_000_000
FEW = 100_000  # for clients that need seconds for that
LATENCIES = 1_000
PLAIN = [bytes(range(100))] * 1000
# As a service would send them: alike, but not the same.
TEXT = [
    b'{"id":%08d,"user":"user-%05d","amount":%07.2f,"state":"%-9s","at":%d}'
    % (n * 7919 % 10**8, n * 31 % 99_991, n * 1.37 % 99_999, b"paid shipped"[n % 7 :], 10**9 + n)
    for n in range(1000)
]

# The work: how many records to send of these values, then wait until all are acknowledged.
Run = Callable[[int], object]


@contextmanager
def broker() -> Iterator[Mapping[str, str]]:
    """One real broker for the whole run."""
    with KafkaCluster() as cluster:
        place = {BOOTSTRAP: cluster.bootstrap()}
        os.environ.update(place)
        cluster.create_topic(WARM_UP, partitions=PARTITIONS, config=SOON_GONE)
        wait_for_leaders(WARM_UP)
        warm_up = limit(WARM_UP)
        for _ in range(3):  # until Java has compiled what answers
            warm_up(MANY)
        with karrow.Admin(bootstrap()) as admin:
            admin.delete_topic(WARM_UP)
        yield place


def bootstrap() -> str:
    return os.environ[BOOTSTRAP]


def new_topic() -> str:
    """A topic that is gone when the process is."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = karrow.Admin(bootstrap())
    admin.create_topic(topic, PARTITIONS, 1, SOON_GONE)
    atexit.register(admin.delete_topic, topic)
    wait_for_leaders(topic)
    return topic


def wait_for_leaders(topic: str) -> None:
    """Until every leader knows that it is one."""
    with karrow.Client(bootstrap()) as client:
        client.list_offsets({(topic, number): "latest" for number in range(PARTITIONS)})


def cpu_seconds() -> float:
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(run: Run, records_sent: int, clock: Callable[[], float] = perf_counter) -> Samples:
    """Seconds per record; the first call only warms up."""
    counts = iter((records_sent // 10,))

    def once() -> list[float]:
        count = next(counts, records_sent)
        start = clock()
        run(count)
        return [(clock() - start) / count]

    return once


# ---- karrow


def producer(compression: str | None) -> karrow.Producer:
    made = karrow.Producer(bootstrap(), compression=compression)  # type: ignore[arg-type]
    atexit.register(made.close)
    return made


def send(values: list[bytes], compression: str | None = None) -> Run:
    topic, ours = new_topic(), producer(compression)

    def run(count: int) -> None:
        put = ours.send
        for _ in range(count // 1000):
            for value in values:
                put(topic, value)
        ours.flush()

    return run


def send_with_callback(values: list[bytes]) -> Run:
    topic, ours = new_topic(), producer(None)
    called = [0]

    def count_one(_: karrow.Delivery) -> None:
        called[0] += 1

    def run(count: int) -> None:
        called[0] = 0
        put = ours.send
        for _ in range(count // 1000):
            for value in values:
                put(topic, value).add_done_callback(count_one)
        ours.flush()
        assert called[0] == count

    return run


def send_arrow() -> Run:
    topic, ours = new_topic(), producer(None)
    values = pa.array(PLAIN, pa.binary())
    table = pa.table({"value": pa.chunked_array([values] * (MANY // 1000)).combine_chunks()})

    def run(count: int) -> None:
        delivery = ours.send_arrow(topic, table.slice(0, count))
        assert delivery.result().records == count

    return run


def awaited_send(values: list[bytes]) -> Run:
    topic = new_topic()
    loop = uvloop.new_event_loop()
    ours = karrow.AsyncProducer(bootstrap())
    atexit.register(lambda: loop.run_until_complete(ours.close()))

    async def work(count: int) -> None:
        for _ in range(count // 1000):
            for value in values:
                await ours.send(topic, value)
        await ours.flush()

    return lambda count: loop.run_until_complete(work(count))


# ---- the peers


def confluent(compression: str | None = None) -> Any:
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap(),
        "enable.idempotence": True,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1 << 20,
        "linger.ms": 5,
    }
    if compression is not None:
        options["compression.type"] = compression
    return confluent_kafka.Producer(options)


def confluent_produce(values: list[bytes], compression: str | None = None) -> Run:
    topic, theirs = new_topic(), confluent(compression)

    def run(count: int) -> None:
        produce = theirs.produce
        for _ in range(count // 1000):
            for value in values:
                try:
                    produce(topic, value)
                except BufferError:
                    again(theirs, functools.partial(produce, topic, value))
        assert theirs.flush(60) == 0

    return run


def again(theirs: Any, produce: Callable[[], object]) -> None:
    """The queue is full: wait, and try until there is room."""
    while True:
        theirs.poll(0.01)
        try:
            produce()
        except BufferError:
            continue
        return


def confluent_callback(values: list[bytes]) -> Run:
    topic, theirs = new_topic(), confluent()
    called = [0]

    def count_one(error: object, _: object) -> None:
        assert error is None
        called[0] += 1

    def run(count: int) -> None:
        called[0] = 0
        produce = theirs.produce
        for _ in range(count // 1000):
            for value in values:
                try:
                    produce(topic, value, on_delivery=count_one)
                except BufferError:
                    offer = functools.partial(produce, topic, value, on_delivery=count_one)
                    again(theirs, offer)
            theirs.poll(0)
        assert theirs.flush(60) == 0
        assert called[0] == count

    return run


def confluent_batch() -> Run:
    """Lists of dicts, made before; what does not fit into the queue is offered again."""
    topic, theirs = new_topic(), confluent()
    chunk = [{"value": value} for value in PLAIN] * 10

    def run(count: int) -> None:
        left = count
        while left:
            queued = theirs.produce_batch(topic, chunk[:left])
            left -= queued
            if queued < len(chunk):
                theirs.poll(0.01)
        assert theirs.flush(60) == 0

    return run


def kafka_python(values: list[bytes]) -> Run:
    topic = new_topic()
    theirs: Any = kafka.KafkaProducer(
        bootstrap_servers=bootstrap(),
        acks="all",
        enable_idempotence=True,
        linger_ms=5,
        batch_size=1_000_000,
        max_request_size=4_000_000,
    )
    atexit.register(theirs.close)

    def run(count: int) -> None:
        for _ in range(count // 1000):
            for value in values:
                theirs.send(topic, value)
        theirs.flush()

    return run


def aiokafka_send(values: list[bytes]) -> Run:
    topic = new_topic()
    loop = uvloop.new_event_loop()

    async def started() -> Any:
        theirs = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap(),
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            max_batch_size=1_000_000,
            max_request_size=4_000_000,
        )
        await theirs.start()
        return theirs

    theirs = loop.run_until_complete(started())
    atexit.register(lambda: loop.run_until_complete(theirs.stop()))

    async def work(count: int) -> None:
        for _ in range(count // 1000):
            for value in values:
                await theirs.send(topic, value)
        await theirs.flush()

    return lambda count: loop.run_until_complete(work(count))


# ---- the limit

IN_FLIGHT = 5
SOCKETS = 2
PRODUCE = 9


def limit(topic: str | None = None) -> Run:
    """Ready-made batches of a million bytes, two partitions on each of two sockets."""
    topic = topic or new_topic()
    builder = records.BatchBuilder(max_bytes=1_000_000)
    while builder.append(None, PLAIN[0]) is not None:
        pass
    batch, per_batch = builder.build(), len(builder)
    host, port = bootstrap().rsplit(":", 1)
    links = [RawConnection(host, int(port), timeout=60.0) for _ in range(SOCKETS)]
    pool = ThreadPoolExecutor(SOCKETS)

    def push(link: RawConnection, number: int, requests: int) -> None:
        mine = range(number, PARTITIONS, SOCKETS)
        parts = [{"index": partition, "records": batch} for partition in mine]
        data = [{"name": topic, "partition_data": parts}]
        body = {"acks": -1, "timeout_ms": 30_000, "topic_data": data}
        for sent in range(requests):
            link.send("Produce", PRODUCE, body)
            if sent >= IN_FLIGHT:
                check(link)
        for _ in range(min(requests, IN_FLIGHT)):
            check(link)

    def run(count: int) -> None:
        requests = round(count / per_batch / PARTITIONS)
        pushes = [pool.submit(push, link, number, requests) for number, link in enumerate(links)]
        for done in pushes:
            done.result()

    return run


def check(link: RawConnection) -> None:
    for answer in link.receive().responses[0].partition_responses:
        assert answer.error_code == 0


# ---- one record


def latency(acknowledge: Callable[[], object]) -> Samples:
    def several() -> list[float]:
        taken = []
        for _ in range(LATENCIES):
            start = perf_counter()
            acknowledge()
            taken.append(perf_counter() - start)
        return taken

    return several


def our_latency() -> Samples:
    topic, ours = new_topic(), producer(None)
    return latency(lambda: ours.send(topic, PLAIN[0]).result())


def confluent_latency() -> Samples:
    """With linger.ms=0, which is the best it can do."""
    topic = new_topic()
    theirs: Any = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap(), "enable.idempotence": True, "linger.ms": 0}
    )

    def one() -> None:
        theirs.produce(topic, PLAIN[0])
        theirs.flush()

    return latency(one)


def our_awaited_latency() -> Samples:
    topic = new_topic()
    loop = uvloop.new_event_loop()
    ours = karrow.AsyncProducer(bootstrap())
    atexit.register(lambda: loop.run_until_complete(ours.close()))

    async def several() -> list[float]:
        taken = []
        for _ in range(LATENCIES):
            start = perf_counter()
            await (await ours.send(topic, PLAIN[0]))
            taken.append(perf_counter() - start)
        return taken

    return lambda: loop.run_until_complete(several())


# ---- the table


def row(
    group: str,
    case: str,
    runs: Mapping[str, tuple[Callable[[], Run], int]],
    wanted: Mapping[str, float],
    *,
    clock: Callable[[], float] = perf_counter,
    headline: bool = False,
) -> Row:
    def prepare(make: Callable[[], Run], count: int) -> Samples:
        return timed(make(), count, clock)

    return Row(
        group=group,
        case=case,
        units=1,
        libraries={
            library: functools.partial(prepare, make, count)
            for library, (make, count) in runs.items()
        },
        wanted=wanted,
        sampled=True,
        headline=headline,
    )


plain = functools.partial(send, PLAIN)
confluent_plain = functools.partial(confluent_produce, PLAIN)

ROWS = (
    row(
        "send",
        "100 bytes",
        {
            OURS: (plain, MANY),
            CONFLUENT: (confluent_plain, MANY),
            KAFKA_PYTHON: (functools.partial(kafka_python, PLAIN), FEW),
            LIMIT: (limit, MANY),
        },
        {CONFLUENT: 2.0},
        headline=True,
    ),
    row(
        "send",
        "with a callback each",
        {
            OURS: (functools.partial(send_with_callback, PLAIN), MANY),
            WITH_CALLBACK: (functools.partial(confluent_callback, PLAIN), MANY),
        },
        {},
    ),
    *(
        row(
            "send",
            codec,
            {
                OURS: (functools.partial(send, TEXT, codec), MANY),
                CONFLUENT: (functools.partial(confluent_produce, TEXT, codec), MANY),
            },
            {CONFLUENT: 2.0},
            headline=codec == "zstd",
        )
        for codec in ("lz4", "zstd")
    ),
    row(
        "send_arrow",
        "100 bytes",
        {OURS: (send_arrow, MANY), AS_BATCH: (confluent_batch, MANY), LIMIT: (limit, MANY)},
        {AS_BATCH: 4.0, LIMIT: 0.8},
        headline=True,
    ),
    row(
        "await send",
        "100 bytes",
        {
            OURS: (functools.partial(awaited_send, PLAIN), MANY),
            AIOKAFKA: (functools.partial(aiokafka_send, PLAIN), FEW),
        },
        {AIOKAFKA: 20.0},
        headline=True,
    ),
    row(
        "Client's CPU",
        "send",
        {OURS: (plain, MANY), CONFLUENT: (confluent_plain, MANY)},
        {CONFLUENT: 2.0},
        clock=cpu_seconds,
        headline=True,
    ),
    row(
        "Client's CPU",
        "send_arrow",
        {OURS: (send_arrow, MANY), AS_BATCH: (confluent_batch, MANY)},
        {},
        clock=cpu_seconds,
    ),
    Row(
        group="One record",
        case="until it is acknowledged",
        units=1,
        libraries={OURS: our_latency, CONFLUENT: confluent_latency},
        wanted={CONFLUENT: 0.91},
        sampled=True,
        headline=True,
    ),
    Row(
        group="One record",
        case="awaited",
        units=1,
        libraries={OURS: our_awaited_latency, CONFLUENT: confluent_latency},
        sampled=True,
    ),
)

BENCHMARK = Benchmark(
    name="produce",
    title="Producing",
    about=(
        f"Records of about 100 bytes into four partitions of one Kafka {NEWEST} on this machine, "
        "its log in memory, acks from all, idempotence on. The rate is records a second from the "
        "first call to the last acknowledgement; in the block about CPU, records in a second of "
        "the client's processor time; in the last block acknowledgements a second, one at a time, "
        "by the median. The limit is batches that were encoded before, pushed down two sockets. "
        "The loops are uvloop's."
    ),
    unit="records",
    peers=(CONFLUENT, WITH_CALLBACK, AS_BATCH, KAFKA_PYTHON, AIOKAFKA, LIMIT),
    rows=ROWS,
    packages=("confluent-kafka", "kafka-python", "aiokafka", "crc32c", "cramjam", "uvloop"),
    around=broker,
)
