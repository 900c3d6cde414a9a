"""The producer and its own process: forks, signals, cancellation, and how much it may hold."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from tests.proxy import HOST, Proxy

TOPIC = "topic"
TIMEOUT = 20.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


def values(broker: Broker, partition: int = 0) -> list[bytes]:
    with karrow.Client(broker.bootstrap) as client:
        return [record.value or b"" for record in client.fetch_all(TOPIC, partition).records]


def script(broker: Broker, source: str) -> subprocess.Popen[str]:
    """A process of its own, with the broker's address as its argument."""
    command = [sys.executable, "-W", "error", "-c", source, broker.bootstrap]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def said(process: subprocess.Popen[str]) -> list[str]:
    """What a process printed; it must have ended by itself, well and soon."""
    try:
        out, complaints = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert (process.returncode, complaints) == (0, "")
    return out.split("\n")[:-1]


# Forks.

FORK = """
import os, sys, karrow
from karrow.errors import StateError
producer = karrow.Producer(sys.argv[1], linger=60.0)
producer.partitions_for("topic")
sent = producer.send("topic", b"parent", partition=0)
child = os.fork()
if child == 0:
    for name, call in {
        "send": lambda: producer.send("topic", b"child"),
        "send_nowait": lambda: producer.send_nowait("topic", b"child"),
        "flush": producer.flush,
        "result": sent.result,
        "exception": sent.exception,
        "partitions_for": lambda: producer.partitions_for("topic"),
        "purge": producer.purge,
    }.items():
        try:
            print(name, call(), flush=True)
        except StateError as error:
            print(name, "another process" in str(error), flush=True)
    producer.close()
    with karrow.Producer(sys.argv[1]) as own:
        print("own", own.send("topic", b"own", partition=1).result(10).offset, flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
print("status", status)
print("parent", sent.result(10).offset)
producer.close()
"""


def test_forked_child_is_told_and_ends(broker: Broker) -> None:
    """Row 39: every use is a clear error, nothing hangs, the parent goes on."""
    found = said(script(broker, FORK))
    calls = ["send", "send_nowait", "flush", "result", "exception", "partitions_for", "purge"]
    assert found == [*(f"{name} True" for name in calls), "own 0", "status 0", "parent 0"]
    assert (values(broker, 0), values(broker, 1)) == ([b"parent"], [b"own"])


EXIT = """
import os, sys, karrow
producer = karrow.Producer(sys.argv[1], linger=60.0, callbacks="thread")
producer.partitions_for("topic")
producer.send("topic", b"parent", partition=0)
child = os.fork()
if child == 0:
    sys.exit(0)
print("status", os.waitpid(child, 0)[1])
"""


def test_forked_child_that_only_ends_takes_nothing_along(broker: Broker) -> None:
    """Row 39: it neither hangs at its end nor sends what its parent has."""
    assert said(script(broker, EXIT)) == ["status 0"]
    assert values(broker) == [b"parent"]


RESTART = """
import os, sys, karrow
producer = karrow.Producer(sys.argv[1], linger=60.0, after_fork="restart", callbacks="thread")
producer.partitions_for("topic")
producer.send("topic", b"parent", partition=0)
child = os.fork()
if child == 0:
    done = []
    delivery = producer.send("topic", b"child", partition=1)
    delivery.add_done_callback(done.append)
    print("child", delivery.result(10).offset, flush=True)
    producer.close()
    print("called", len(done), flush=True)
    sys.exit(0)
print("status", os.waitpid(child, 0)[1])
producer.close()
"""


def test_forked_child_may_begin_anew(broker: Broker) -> None:
    """Row 39: by option it has an empty producer of its own."""
    assert said(script(broker, RESTART)) == ["child 0", "called 1", "status 0"]
    assert (values(broker, 0), values(broker, 1)) == ([b"parent"], [b"child"])


UNFLUSHED = """
import os, sys, karrow
producer = karrow.Producer(sys.argv[1], linger=60.0, after_fork="restart")
producer.partitions_for("topic")
child = os.fork()
producer.send("topic", b"parent" if child else b"child", partition=1 if child == 0 else 0)
if child:
    print("status", os.waitpid(child, 0)[1])
"""


def test_forked_child_that_began_anew_flushes_at_its_end(broker: Broker) -> None:
    """Row 39: records that nobody flushed get a little time there too."""
    assert said(script(broker, UNFLUSHED)) == ["status 0"]
    assert (values(broker, 0), values(broker, 1)) == ([b"parent"], [b"child"])


POOL = """
import multiprocessing, sys, karrow
producer = karrow.Producer(sys.argv[1], after_fork="restart")
producer.send("topic", b"parent", partition=0).result(10)

def work(number):
    offset = producer.send("topic", b"child", partition=1).result(10).offset
    producer.flush()
    return offset is not None

with multiprocessing.get_context("fork").Pool(2) as pool:
    print(all(pool.map(work, range(20))))
    pool.close()
    pool.join()
print(producer.send("topic", b"parent", partition=0).result(10).offset)
producer.close()
"""


def test_workers_of_multiprocessing_send(broker: Broker) -> None:
    """Row 39: a pool of forked workers, each with its own."""
    assert said(script(broker, POOL)) == ["True", "1"]
    assert values(broker, 1) == [b"child"] * 20


# Signals.

INTERRUPT = """
import sys, time, karrow
producer = karrow.Producer(
    sys.argv[1], buffer_bytes=5000, linger=0.0, batch_bytes=1, delivery_timeout=60.0
)
producer.partitions_for("topic")
sent = [producer.send("topic", b"x" * 4000, partition=0)]
print("ready", flush=True)
began = time.monotonic()
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
print("again", producer.send_nowait("topic", b"small", partition=1).result(10).offset, flush=True)
producer.close(0.1)
"""
CALLS = {
    "send": "producer.send('topic', b'x' * 4000, partition=0)",
    "flush": "producer.flush()",
    "result": "sent[0].result()",
    "poll": "producer.poll(None)",
    "close": "producer.close()",
}


@pytest.mark.parametrize("call", ["send", "flush", "result", "poll"])
def test_interrupt_ends_a_call_that_waits(broker: Broker, call: str) -> None:
    """Row 40: Ctrl-C comes through at once, and the producer can still be used."""
    broker.drop("Produce", partition=0, times=1000)
    process = script(broker, INTERRUPT.format(call=CALLS[call]))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    wait_until(lambda: any(seen.api == "Produce" for seen in broker.requests))
    time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert said(process) == ["interrupted", "again 0"]
    assert time.monotonic() - began < 5


TERMINATE = """
import signal, sys, karrow
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
producer = karrow.Producer(sys.argv[1], linger=60.0)
for number in range(100):
    producer.send("topic", b"%d" % number, partition=0)
print("ready", flush=True)
signal.pause()
"""


def test_terminated_process_flushes(broker: Broker) -> None:
    """Row 40: a handler that exits is enough."""
    process = script(broker, TERMINATE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert said(process) == []
    assert values(broker) == [b"%d" % number for number in range(100)]


GONE = """
import sys, time, karrow
producer = karrow.Producer(sys.argv[1], linger=60.0, exit_timeout=0.5)
producer.send("topic", b"first", partition=0).result(10)
producer.send("topic", b"lost", partition=0)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_end_of_the_interpreter_does_not_wait_for_ever(broker: Broker) -> None:
    """Row 40: the brokers are gone; ``exit_timeout`` bounds the wait."""
    command = [sys.executable, "-c", GONE, broker.bootstrap]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    broker.kill_node(1)
    began = time.monotonic()
    process.communicate("\n", timeout=TIMEOUT)
    assert process.returncode == 0
    assert time.monotonic() - began < 5


# Cancellation.


async def cancel_at(chance: random.Random, work: Any) -> None:
    """Begin something and give up at any moment."""
    task = asyncio.ensure_future(work)
    for _ in range(chance.randrange(4)):
        await asyncio.sleep(0)
    if chance.random() < 0.5:
        await asyncio.sleep(chance.uniform(0, 0.004))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def wait(delivery: Any) -> karrow.RecordMetadata:
    """A coroutine, as gather and tasks want one."""
    found: karrow.RecordMetadata = await delivery
    return found


@pytest.mark.parametrize("seed", range(3))
def test_cancellation_anywhere_leaves_the_producer_usable(seed: int) -> None:
    """Row 40: send, flush and deliveries are given up at random; what was taken arrives once."""
    chance = random.Random(seed)

    async def main(broker: Broker) -> None:
        taken: list[bytes] = []
        producer = karrow.AsyncProducer(broker.bootstrap, buffer_bytes=20_000, linger=0.002)

        async def send(number: int) -> None:
            value = b"%d " % number + b"x" * chance.choice([10, 3000])
            delivery = await producer.send(TOPIC, value, partition=0)
            taken.append(value)
            await wait(delivery)

        for number in range(150):
            if chance.random() < 0.1:
                broker.delay("Produce", 0.01)
            work = producer.flush() if chance.random() < 0.2 else send(number)
            await cancel_at(chance, work)
        await asyncio.wait_for(producer.flush(), TIMEOUT)
        last = await producer.send(TOPIC, b"last", partition=0)
        assert (await asyncio.wait_for(wait(last), TIMEOUT)).offset is not None
        await producer.close()
        with_client = await asyncio.to_thread(values, broker)
        assert set(taken) <= set(with_client)
        assert len(set(with_client)) == len(with_client)
        numbers = [int(value.split()[0]) for value in with_client[:-1]]
        assert numbers == sorted(numbers)

    with Broker() as broker:
        broker.create_topic(TOPIC, 1)
        asyncio.run(main(broker))


@pytest.mark.parametrize("seed", range(5))
def test_cancelled_first_send_and_close(broker: Broker, seed: int) -> None:
    """Row 40: while the topic is looked up, an id is asked for, or everything is closed."""
    chance = random.Random(seed)

    async def main() -> None:
        for _ in range(10):
            producer = karrow.AsyncProducer(broker.bootstrap)
            await cancel_at(chance, producer.send(TOPIC, b"maybe", partition=0))
            delivery = await producer.send(TOPIC, b"sent", partition=1)
            await asyncio.wait_for(wait(delivery), TIMEOUT)
            await cancel_at(chance, producer.close())
            await asyncio.wait_for(producer.close(), TIMEOUT)
            with pytest.raises(errors.StateError, match="closed"):
                await producer.send(TOPIC, b"late", partition=1)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.sleep(0.05)
        assert [task for task in left if not task.done()] == []

    asyncio.run(main())
    assert values(broker, 1) == [b"sent"] * 10


# Clocks.


def test_no_timer_reads_the_clock_on_the_wall() -> None:
    """Row 36: a clock that is set neither expires records nor keeps them."""
    folder = Path(karrow.__file__).parent
    rooms = [folder / "aio", folder / "net", folder / "sync"]
    sources = [path for room in rooms for path in room.rglob("*.py*") if path.suffix != ".pyc"]
    texts = {path.name: path.read_text("utf-8") for path in sources}
    assert {"sender.py", "_batch.pyx", "connection.py"} <= set(texts)
    wall = ["time.time(", "CLOCK_REALTIME", "datetime.now", "utcnow"]
    assert [name for name, text in texts.items() if any(word in text for word in wall)] == []


# More than the broker takes.


def memory() -> int:
    """The process's memory now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def wait_until(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def slow(broker: Broker) -> Iterator[Proxy]:
    """The way to the broker, which lets through two megabytes in a second."""
    host, port = broker.bootstrap.rsplit(":", 1)
    with Proxy((HOST, int(port))) as proxy:
        proxy.map_addresses({(host, int(port)): proxy.address})
        proxy.rate(2_000_000)
        yield proxy


def test_producer_that_is_too_fast_is_held_back(slow: Proxy) -> None:
    """Row 42: send waits for room, and what is held stays within the buffer."""
    limit = 4 * 1024 * 1024
    with karrow.Producer(slow.bootstrap, buffer_bytes=limit, batch_bytes=100_000) as producer:
        producer.send(TOPIC, b"first").result(TIMEOUT)
        before, most, value = memory(), 0, bytes(10_000)
        began = time.monotonic()
        for _ in range(1000):
            producer.send(TOPIC, value)
            most = max(most, producer.stats().buffered_bytes)
        assert time.monotonic() - began > 1
        assert most <= limit
        assert memory() - before < 6 * limit
        slow.rate(None)
        producer.flush(TIMEOUT)
        assert producer.stats().records_written == 1001


def test_awaiting_producer_that_is_too_fast_is_held_back(slow: Proxy) -> None:
    """Row 42: the same on a loop, which stays free meanwhile."""
    limit = 1024 * 1024

    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        counting = asyncio.create_task(count())
        async with karrow.AsyncProducer(slow.bootstrap, buffer_bytes=limit) as producer:
            began = time.monotonic()
            for _ in range(40):
                await producer.send(TOPIC, bytes(100_000))
                assert producer.stats().buffered_bytes <= limit
            assert time.monotonic() - began > 0.8
            assert turns > 20
            slow.rate(None)
        counting.cancel()

    asyncio.run(main())


def test_records_that_fill_most_of_the_buffer_take_turns(slow: Proxy) -> None:
    """Row 42: each has room only when nothing else is there."""

    async def main() -> None:
        async with karrow.AsyncProducer(slow.bootstrap, buffer_bytes=100_000) as producer:
            sent = [await producer.send(TOPIC, bytes(60_000), partition=0) for _ in range(6)]
            found = [(await wait(one)).offset for one in sent]
            assert found == list(range(6))

    asyncio.run(asyncio.wait_for(main(), TIMEOUT))


def test_record_larger_than_the_buffer_is_taken_when_it_is_empty(slow: Proxy) -> None:
    """Row 42: a small buffer is no reason to refuse a record for ever."""
    with karrow.Producer(slow.bootstrap, buffer_bytes=10_000) as producer:
        sent = [producer.send(TOPIC, bytes(50_000), partition=0) for _ in range(3)]
        assert [one.result(TIMEOUT).offset for one in sent] == [0, 1, 2]


def fill(producer: karrow.Producer) -> None:
    while True:
        producer.send_nowait(TOPIC, bytes(50_000))


def test_full_buffer_is_an_error_without_waiting(slow: Proxy) -> None:
    """Row 42: send_nowait says so, and so does send after max_block."""
    chosen: dict[str, Any] = {"buffer_bytes": 200_000, "max_block": 0.3, "linger": 0.0}
    with karrow.Producer(slow.bootstrap, **chosen) as producer:
        producer.send(TOPIC, b"first").result(TIMEOUT)
        slow.rate(1000)
        began = time.monotonic()
        with pytest.raises(errors.BufferFull):
            fill(producer)
        assert time.monotonic() - began < 1
        began = time.monotonic()
        with pytest.raises(errors.BufferFull):
            producer.send(TOPIC, bytes(50_000))
        assert 0.25 < time.monotonic() - began < 2
        slow.rate(None)
        slow.reset()
        producer.flush(TIMEOUT)
        assert producer.send(TOPIC, bytes(50_000)).result(TIMEOUT).offset is not None


def test_max_block_bounds_a_send_among_many(broker: Broker) -> None:
    """Row 42: also when others take the room that was waited for."""
    broker.delay("Produce", 0.2, times=1000)
    chosen: dict[str, Any] = {"buffer_bytes": 10_000, "max_block": 0.4, "batch_bytes": 2000}
    longest = [0.0] * 6
    with karrow.Producer(broker.bootstrap, **chosen) as producer:
        producer.partitions_for(TOPIC)

        def work(mine: int) -> None:
            for _ in range(6):
                began = time.monotonic()
                with contextlib.suppress(errors.BufferFull):
                    producer.send(TOPIC, bytes(1500), partition=0)
                longest[mine] = max(longest[mine], time.monotonic() - began)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        broker.clear_faults()
    assert max(longest) < 0.8


def test_closing_wakes_those_who_wait_for_room(broker: Broker) -> None:
    """Row 42: nobody waits for room in a producer that has ended."""
    broker.drop("Produce", times=1000)
    producer = karrow.Producer(broker.bootstrap, buffer_bytes=2000, linger=0.0)
    producer.partitions_for(TOPIC)
    producer.send(TOPIC, bytes(1900), partition=0)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            producer.send(TOPIC, bytes(1900), partition=0)
        except errors.StateError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: producer.accumulator.is_blocked)
    producer.close(0.1)
    thread.join(TIMEOUT)
    assert [str(error) for error in raised] == ["the producer is closed"]
