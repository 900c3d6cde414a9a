"""The consumer and its own process: forks, signals, long stops, threads."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from tests.embedded.consuming import (
    GROUP,
    QUICK,
    TIMEOUT,
    TOPIC,
    everything,
    fill,
    group_of,
    members_of,
    places,
    stored,
    take,
    until,
)

COUNT = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(heartbeat_interval=0.1) as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


def script(broker: Broker, source: str, *more: str) -> subprocess.Popen[str]:
    """A process of its own, with the broker's address as its first argument."""
    return started(["-c", source, broker.bootstrap, *more])


def started(arguments: list[str]) -> subprocess.Popen[str]:
    """A Python of its own, for which warnings are errors."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def said(process: subprocess.Popen[str], text: str | None = None) -> list[str]:
    """What a process printed; it must have ended by itself, well and soon."""
    try:
        out, complaints = process.communicate(text, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # also what it has started, which has its pipes too
        process.communicate()
        raise
    assert (process.returncode, complaints) == (0, "")
    return out.split("\n")[:-1]


# Row 39: forks.

FORK = """
import os, sys, karrow
from karrow.errors import StateError
consumer = karrow.Consumer(sys.argv[1], "topic", group="group", start="earliest", max_wait=0.05)
first = consumer.poll(10, max_records=1)
rest = iter(consumer)
second = next(rest)
child = os.fork()
if child == 0:
    for name, call in {
        "poll": lambda: consumer.poll(1.0),
        "next": lambda: next(rest),
        "batches": lambda: next(consumer.batches(timeout=1.0)),
        "commit": consumer.commit,
        "commit_nowait": consumer.commit_nowait,
        "committed": consumer.committed,
        "seek": lambda: consumer.seek(("topic", 0), 0),
        "pause": lambda: consumer.pause(("topic", 0)),
        "subscribe": lambda: consumer.subscribe("other"),
        "unsubscribe": consumer.unsubscribe,
        "lag": consumer.lag,
    }.items():
        try:
            call()
            print(name, "works", flush=True)
        except StateError as error:
            print(name, "fork" in str(error) or "another process" in str(error), flush=True)
    consumer.close()
    with karrow.Consumer(sys.argv[1], "topic", start="earliest") as own:
        print("own", len(own.poll(10, max_records=1)), flush=True)
    sys.exit(0)
print("status", os.waitpid(child, 0)[1])
found = [*first, second]
while len(found) < 40:
    found += consumer.poll(1.0)
print("parent", len({(one.partition, one.offset) for one in found}), len(found))
consumer.close()
"""


def test_forked_child_is_told_and_ends(broker: Broker) -> None:
    """Row 39: every use is a clear error, nothing hangs, the parent goes on."""
    fill(broker, range(COUNT))
    found = said(script(broker, FORK))
    told = [one.split() for one in found if one.split()[0] not in ("own", "status", "parent")]
    assert {name: answer for name, answer in told if answer != "True"} == {}
    assert len(told) == 11
    assert found[-3:] == ["own 1", "status 0", "parent 40 40"]
    assert stored(broker) == {0: COUNT, 1: COUNT}
    assert members_of(broker) == 0


EXIT = """
import os, sys, karrow
consumer = karrow.Consumer(sys.argv[1], "topic", group="group", start="earliest", max_wait=0.05)
consumer.poll(10, max_records=1)
child = os.fork()
if child == 0:
    sys.exit(0)
print("status", os.waitpid(child, 0)[1])
consumer.close()
"""


def test_forked_child_that_only_ends_takes_nothing_along(broker: Broker) -> None:
    """Row 39: it does not hang, and neither leaves the group nor commits for its parent."""
    fill(broker, range(COUNT))
    assert said(script(broker, EXIT)) == ["status 0"]
    assert sum(offset or 0 for offset in stored(broker).values()) == 1


WORKERS = """
import multiprocessing, sys, karrow
from karrow.errors import StateError

def rest(consumer, found):
    while len(found) < 40:
        found += consumer.poll(1.0)
    return sorted((one.partition, one.offset) for one in found)

def own(bootstrap, group):
    options = {"start": "earliest", "max_wait": 0.05, "group": group}
    with karrow.Consumer(bootstrap, "topic", **options) as consumer:
        return rest(consumer, [])

def inherited(call):
    try:
        return str(getattr(consumer, call)())
    except StateError as error:
        return str(error)

if __name__ == "__main__":
    bootstrap, method = sys.argv[1:]
    options = {"start": "earliest", "max_wait": 0.05, "group": "group"}
    consumer = karrow.Consumer(bootstrap, "topic", **options)
    found = consumer.poll(10, max_records=1)
    with multiprocessing.get_context(method).Pool(2) as pool:
        seen = pool.starmap(own, [(bootstrap, f"own-{number}") for number in range(4)])
        if method == "fork":
            print(*pool.map(inherited, ["poll", "__next__", "commit"]), sep="\\n")
        pool.close()
        pool.join()
    print([places == rest(consumer, found) for places in seen], len(found))
    consumer.close()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_multiprocessing_read(broker: Broker, method: str, tmp_path: Path) -> None:
    """Row 39: each with a consumer of its own; one from before the fork says so and is left."""
    fill(broker, range(COUNT))
    program = tmp_path / "program.py"  # which workers that are spawned import
    program.write_text(WORKERS, "utf-8")
    *told, last = said(started([str(program), broker.bootstrap, method]))
    assert last == f"{[True] * 4} 40"
    clear = "the consumer was made before a fork; make one in the child process"
    assert told == ([clear] * 3 if method == "fork" else [])
    groups = [GROUP, *(f"own-{number}" for number in range(4))]
    assert [stored(broker, one) for one in groups] == [{0: COUNT, 1: COUNT}] * 5


# Row 40: signals.

WAIT = """
import sys, time, karrow
from karrow.errors import StateError
consumer = karrow.Consumer(sys.argv[1], "topic", group="group", max_wait=0.05)
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
consumer.seek_all("earliest")
found = consumer.poll(10)
print("again", len(found) > 0, flush=True)
began = time.monotonic()
consumer.close()
print("closed", time.monotonic() - began < 5, flush=True)
"""
CALLS = {
    "poll": "consumer.poll(None)",
    "iterate": "next(iter(consumer))",
    "batches": "next(consumer.batches())",
}


@pytest.mark.parametrize("call", CALLS)
def test_interrupt_ends_a_call_that_waits(broker: Broker, call: str) -> None:
    """Row 40: Ctrl-C comes through at once, and the consumer can still be used."""
    fill(broker, range(5))
    process = script(broker, WAIT.format(call=CALLS[call]))
    assert line(process) == "ready"
    until(lambda: any(seen.api == "Fetch" for seen in broker.requests))
    time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert said(process) == ["interrupted", "again True", "closed True"]
    assert time.monotonic() - began < 5
    assert members_of(broker) == 0


TERMINATE = """
import signal, sys, time, karrow
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
options = {"group": "group", "start": "earliest", "max_wait": 0.05}
with karrow.Consumer(sys.argv[1], "topic", **options) as consumer:
    for record in consumer:
        print(record.partition, record.offset, flush=True)
        time.sleep(0.05)
"""


def test_terminated_process_commits_what_it_is_done_with_and_leaves(broker: Broker) -> None:
    """Row 40: a handler that exits is enough; the record in hand is not counted as done."""
    fill(broker, range(COUNT), 1)
    process = script(broker, TERMINATE)
    seen = [line(process) for _ in range(5)]
    process.terminate()
    seen += said(process)
    assert [tuple(map(int, one.split())) for one in seen] == everything(len(seen), 1)
    offset = stored(broker)[0] or 0
    assert len(seen) - 1 <= offset <= len(seen)
    assert members_of(broker) == 0


STUCK = """
import signal, sys, time, karrow
consumer = karrow.Consumer(sys.argv[1], "topic", group="group", start="earliest", max_wait=0.05)
consumer.poll(10)
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
try:
    consumer.close()
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(time.monotonic() - began, flush=True)
"""


@pytest.mark.slow
def test_closing_without_brokers_ends_in_time(broker: Broker) -> None:
    """Row 40: a commit and a farewell that nobody answers do not hold up the end for long."""
    fill(broker, range(COUNT))
    process = script(broker, STUCK)
    assert line(process) == "ready"
    broker.kill_node(1)
    (spent,) = said(process, "\n")
    assert float(spent) < 12


def test_signal_ends_a_close_at_once(broker: Broker) -> None:
    """Row 40: who cannot wait for the farewell need not."""
    fill(broker, range(COUNT))
    process = script(broker, STUCK)
    assert line(process) == "ready"
    for api in ("OffsetCommit", "LeaveGroup"):
        broker.drop(api, times=1000)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    until(lambda: any(seen.api == "OffsetCommit" for seen in broker.requests))
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    word, spent = said(process)
    assert word == "interrupted"
    assert 0.2 <= float(spent) < 3


LEFT = """
import sys, karrow
consumer = karrow.Consumer(sys.argv[1], "topic", group="group", start="earliest", max_wait=0.05)
print(len(consumer.poll(10)) > 0)
"""


def test_process_that_just_ends_does_not_hang(broker: Broker) -> None:
    """Row 40: a consumer that is open at the end of the interpreter leaves its group."""
    fill(broker, range(COUNT))
    command = [sys.executable, "-c", LEFT, broker.bootstrap]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
    assert done.stdout == "True\n"
    assert members_of(broker) == 0
    assert time.monotonic() - began < 8


# Row 11: a process that is stopped for longer than its session.

STOPPED = """
import os, sys, time, karrow
from karrow.errors import CommitFailed
way = sys.argv[2]
told = []
consumer = karrow.Consumer(
    sys.argv[1], "topic", group=f"group-{way}", start="earliest", max_wait=0.05, auto_commit=False,
    session_timeout=6.0, heartbeat_interval=0.3, max_poll_records=3, assignors="range",
    on_assigned=lambda _: told.append("assigned"), on_revoked=lambda _: told.append("revoked"),
    on_lost=lambda _: told.append("lost"),
)
def records():
    if way == "iterate":
        for record in consumer:
            yield [(record.partition, record.offset)]
    elif way == "batches":
        for batch in consumer.batches(max_records=3):
            yield [(row["partition"], row["offset"]) for row in batch.to_pylist()]
    else:
        while True:
            yield [(one.partition, one.offset) for one in consumer.poll(0.1)]
found = records()
held = []
while not held:
    held = next(found)
print("ready", flush=True)
sys.stdin.readline()  # stopped here; the clock goes on
print("awake", flush=True)
try:
    consumer.commit({("topic", partition): offset + 1 for partition, offset in held})
    print("stored", flush=True)
except CommitFailed:
    print("refused", flush=True)
consumer.pause()
seen = []
end = time.monotonic() + 2
while time.monotonic() < end and told[-1] != "assigned" or len(told) < 3:
    if way == "poll":
        seen += next(found)
    else:
        seen += [(one.partition, one.offset) for one in consumer.poll(0.05)]
print(" ".join(told), flush=True)
print(sorted(seen), flush=True)
consumer.close()
"""


def test_stopped_process_hands_out_and_commits_nothing_of_others(broker: Broker) -> None:
    """Row 11: SIGSTOP past the session; another member has everything when it goes on."""
    ways = ["poll", "iterate", "batches"]
    fill(broker, range(COUNT))
    processes = {way: script(broker, STOPPED, way) for way in ways}
    others: dict[str, karrow.Consumer] = {}
    try:
        for process in processes.values():
            assert line(process) == "ready"
        for process in processes.values():
            process.send_signal(signal.SIGSTOP)
        with contextlib.ExitStack() as stack:
            for way in ways:
                options = {**QUICK, "assignors": "range", "heartbeat_interval": 0.1}
                other = karrow.Consumer(broker.bootstrap, TOPIC, group=f"group-{way}", **options)
                others[way] = stack.enter_context(other)
            for other in others.values():
                assert places(take(other, 2 * COUNT)) == everything(COUNT)
                other.commit()
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.write("\n")  # so that it goes on in the moment in which it is woken
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
        for way, process in processes.items():
            found = said(process)
            # They were all read and committed by others, so nothing of it comes again.
            assert found == ["awake", "refused", "assigned lost assigned", "[]"], way
            assert stored(broker, f"group-{way}") == {0: COUNT, 1: COUNT}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


# Threads.


@pytest.mark.parametrize("kind", ["alone", "eager", "served"])
def test_any_thread_may_close(broker: Broker, kind: str) -> None:
    """Whoever polls hears of it, whoever closes is not held up; over and over."""
    fill(broker, range(COUNT))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for number in range(15):
            close_from_outside(broker, group_of(kind, number), 0.0 if number % 2 else 0.5)
    finally:
        sys.setswitchinterval(interval)


def close_from_outside(broker: Broker, options: dict[str, Any], timeout: float) -> None:
    heard: list[BaseException] = []
    began = threading.Event()

    def work() -> None:
        try:
            while True:
                if consumer.poll(timeout):
                    began.set()
        except BaseException as error:  # noqa: BLE001 - for the test
            heard.append(error)

    called: list[object] = []
    listeners: dict[str, Any] = {"on_revoked": called.append} if options else {}
    consumer = karrow.Consumer(broker.bootstrap, TOPIC, **QUICK, **options, **listeners)
    poller = threading.Thread(target=work, daemon=True)
    poller.start()
    assert began.wait(TIMEOUT)
    closer = threading.Thread(target=consumer.close, daemon=True)
    closer.start()
    closer.join(TIMEOUT)
    assert not closer.is_alive(), "close hangs"
    poller.join(TIMEOUT)
    assert not poller.is_alive(), "poll hangs"
    assert [type(error) for error in heard] == [errors.StateError], heard
    assert len(called) == (1 if options else 0)
