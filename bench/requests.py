"""The round trip of one request: karrow on both loops and blocking, the peers, and a bare socket.

A job makes some round trips and returns the seconds that each took. Asynchronous ones are timed
inside their loop, where a program awaits them; starting and stopping a loop costs more than a
request.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import uvloop
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest
from confluent_kafka.admin import AdminClient

import karrow
from bench.model import OURS, Benchmark, Row, Samples
from karrow import wire
from tests.brokers import NEWEST, KafkaCluster

AIOKAFKA = "aiokafka"
CONFLUENT = "confluent-kafka"
SOCKET = "blocking socket"

BOOTSTRAP = "KARROW_BENCH_BOOTSTRAP"
TOPIC = "requests"
BODY = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
AT_ONCE = 100
WARM_UP = 5.0
# A bare socket's time, times 1.5.
WANTED = 0.67

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.SelectorEventLoop,
}
NewLoop = Callable[[], asyncio.AbstractEventLoop]
# What to time, and how to end.
Call = Callable[[], Coroutine[Any, Any, object]]
Prepared = tuple[Call, Call]


@contextmanager
def broker() -> Iterator[Mapping[str, str]]:
    """One real broker for the whole run, with one topic."""
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        end = perf_counter() + WARM_UP
        with cluster.connect() as connection:
            while perf_counter() < end:  # until Java has compiled what answers
                connection.request("Metadata", BODY)
        yield {BOOTSTRAP: cluster.bootstrap()}


def blocking(call: Callable[[], object]) -> Samples:
    def several() -> list[float]:
        times = []
        for _ in range(AT_ONCE):
            start = perf_counter()
            call()
            times.append(perf_counter() - start)
        return times

    return several


def awaited(new_loop: NewLoop, prepare: Callable[[], Coroutine[Any, Any, Prepared]]) -> Samples:
    loop = new_loop()

    async def several() -> list[float]:
        times = []
        for _ in range(AT_ONCE):
            start = perf_counter()
            await call()
            times.append(perf_counter() - start)
        return times

    call, close = loop.run_until_complete(prepare())
    atexit.register(lambda: loop.run_until_complete(close()))
    return lambda: loop.run_until_complete(several())


# ---- the same request, its answer as an object with attributes


def karrow_async(new_loop: NewLoop) -> Samples:
    async def prepare() -> Prepared:
        client = karrow.AsyncClient(os.environ[BOOTSTRAP])
        return lambda: client.request("Metadata", BODY), client.close

    return awaited(new_loop, prepare)


def karrow_sync() -> Samples:
    client = karrow.Client(os.environ[BOOTSTRAP])
    return blocking(lambda: client.request("Metadata", BODY))


def aiokafka_client(new_loop: NewLoop) -> Samples:
    async def prepare() -> Prepared:
        client = AIOKafkaClient(bootstrap_servers=os.environ[BOOTSTRAP])
        await client.bootstrap()
        node = client.get_random_node()
        return lambda: client.send(node, MetadataRequest([TOPIC], False)), client.close

    return awaited(new_loop, prepare)


def confluent_topics() -> Samples:
    client: Any = AdminClient({"bootstrap.servers": os.environ[BOOTSTRAP]})
    return blocking(lambda: client.list_topics(TOPIC))


def bare_socket() -> Samples:
    """The bytes that karrow sends; the answer is read and left as it is."""
    host, port = os.environ[BOOTSTRAP].split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    version = wire.api("Metadata").newest_stable or 0
    _, parts = wire.ClientFraming("karrow").send("Metadata", version, BODY)
    request = b"".join(parts)
    room = bytearray(65536)
    view = memoryview(room)

    def call() -> None:
        connection.sendall(request)
        have = 0
        while have < 4 or have < 4 + int.from_bytes(room[:4], "big"):
            have += connection.recv_into(view[have:])

    return blocking(call)


# ---- what each library has for it


def karrow_async_metadata(new_loop: NewLoop) -> Samples:
    async def prepare() -> Prepared:
        client = karrow.AsyncClient(os.environ[BOOTSTRAP])
        return lambda: client.metadata([TOPIC]), client.close

    return awaited(new_loop, prepare)


def karrow_sync_metadata() -> Samples:
    client = karrow.Client(os.environ[BOOTSTRAP])
    return blocking(lambda: client.metadata([TOPIC]))


def aiokafka_admin(new_loop: NewLoop) -> Samples:
    async def prepare() -> Prepared:
        client = AIOKafkaAdminClient(bootstrap_servers=os.environ[BOOTSTRAP])
        await client.start()
        return lambda: client.describe_topics([TOPIC]), client.close

    return awaited(new_loop, prepare)


def rows() -> Iterator[Row]:
    blocking_peers = {CONFLUENT: confluent_topics, SOCKET: bare_socket}
    for group, ours, ours_blocking, theirs in (
        ("A Metadata request", karrow_async, karrow_sync, aiokafka_client),
        ("Metadata of a topic", karrow_async_metadata, karrow_sync_metadata, aiokafka_admin),
    ):
        for name, new_loop in LOOPS.items():
            is_yardstick = name == "uvloop" and ours is karrow_async
            yield Row(
                group=group,
                case=f"AsyncClient, {name}",
                units=1,
                libraries={
                    OURS: functools.partial(ours, new_loop),
                    AIOKAFKA: functools.partial(theirs, new_loop),
                    **blocking_peers,
                },
                wanted={SOCKET: WANTED} if is_yardstick else {},
                sampled=True,
            )
        yield Row(
            group=group,
            case="Client",
            units=1,
            libraries={OURS: ours_blocking, **blocking_peers},
            sampled=True,
        )


BENCHMARK = Benchmark(
    name="requests",
    title="Round trips",
    about=(
        "One request at a time to one broker on the same machine, for the metadata of one topic "
        f"with three partitions (Kafka {NEWEST}). A rate is one over the median round trip: "
        "5 k requests/s are 200 microseconds. In the first block karrow and aiokafka send a "
        "request that the caller made and return its answer; in the second each does what it has "
        "for a topic's metadata. In both, confluent-kafka lists a topic, which is the nearest it "
        "has, and the socket sends the bytes that karrow sends and reads the answer without "
        "looking into it; aiokafka runs on the same loop as karrow beside it. What is wanted is "
        "at most 1.5 times the socket's time, for the request on uvloop."
    ),
    unit="requests",
    peers=(AIOKAFKA, CONFLUENT, SOCKET),
    rows=tuple(rows()),
    packages=("uvloop",),
    around=broker,
)
