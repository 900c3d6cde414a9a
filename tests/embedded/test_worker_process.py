"""Workers and their process: signals, its end, forks."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

import karrow
from karrow import EndReason, Stop
from karrow.broker.threaded import Broker
from karrow.errors import GroupEnded
from tests.embedded.working import GROUP, TIMEOUT, TOPIC, Notes, Noting, committed, put, until

HEAD = """
import os, signal, sys, threading, time
import karrow

class Printing(karrow.Handler):
    def handle_records(self, records):
        for record in records:
            print("got", record.value.decode(), flush=True)
        self.wait()

    def wait(self):
        pass

    def teardown(self):
        if self.partition == 0:
            print("teardown", flush=True)

class Slow(Printing):
    def wait(self):
        time.sleep(1.0)
        print("done", flush=True)

class Hanging(Printing):
    def wait(self):
        time.sleep(600)

def run(handler, **options):
    return karrow.run_group(
        handler, sys.argv[1], group="billing", topics=["orders"], start="earliest", **options
    )
"""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


def script(broker: Broker, source: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", HEAD + source, broker.bootstrap]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def read_until(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    for said in process.stdout:
        if said.strip() == line:
            return
    assert process.stderr is not None
    raise AssertionError(process.stderr.read())


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    try:
        out, complaints = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out.split("\n")[:-1], complaints


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_in_order(broker: Broker, number: signal.Signals) -> None:
    """Row 40: what runs is finished and committed, and the group is left."""
    put(broker, [1])
    process = script(broker, 'print("ended", run(Slow).reason)')
    read_until(process, "got 1")
    process.send_signal(number)
    assert ended(process) == (0, ["done", "teardown", "ended stopped"], "")
    assert committed(broker)[TOPIC, 0] == 1
    with karrow.Admin(broker.bootstrap) as admin:
        assert admin.describe_group(GROUP).members == ()


def test_callback_that_hangs_is_left_behind(broker: Broker) -> None:
    put(broker, [1])
    process = script(broker, 'print("ended", run(Hanging, shutdown=0.1).reason)')
    read_until(process, "got 1")
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert ended(process) == (0, ["ended stopped"], "")
    assert time.monotonic() - began < 5
    assert (TOPIC, 0) not in committed(broker)


# Python ends by the signal after an interrupt, unless something was evaluated at exit.
@pytest.mark.parametrize(("number", "codes"), [(signal.SIGINT, (-2, 1)), (signal.SIGTERM, (-15,))])
def test_second_signal_ends_at_once(
    broker: Broker, number: signal.Signals, codes: tuple[int, ...]
) -> None:
    """Row 40: it does what it would have done without the group."""
    put(broker, [1])
    process = script(broker, "run(Hanging, shutdown=600)")
    read_until(process, "got 1")
    process.send_signal(number)
    time.sleep(0.3)
    process.send_signal(number)
    began = time.monotonic()
    returned, said, complaints = ended(process)
    assert returned in codes
    assert said == []
    assert ("KeyboardInterrupt" in complaints) == (number is signal.SIGINT)
    assert time.monotonic() - began < 5


def test_signals_are_as_before_afterwards(broker: Broker) -> None:
    source = """
def ours(*_): print("ours", flush=True)
signal.signal(signal.SIGTERM, ours)
class Last(karrow.Handler):
    def handle_records(self, records): return karrow.Stop("enough")
print(run(Last))
os.kill(os.getpid(), signal.SIGTERM)
"""
    put(broker, [1])
    code, said, complaints = ended(script(broker, source))
    assert (code, complaints) == (0, "")
    assert said[1:] == ["ours"]
    assert "enough" in said[0]


def test_crash_loop_is_the_exit_of_a_program(broker: Broker) -> None:
    source = """
class Broken(karrow.Handler):
    def handle_records(self, records): raise ValueError("broken")
run(Broken, max_restarts=0)
"""
    put(broker, [1])
    code, _, complaints = ended(script(broker, source))
    assert code == 1
    last = complaints.strip().split("\n")[-1]
    where = "handle_records of orders-0 at offset 0"
    assert last == (
        f"karrow.errors.tree.GroupEnded: the workers have ended: crash_loop ({where}: broken)"
    )
    assert "ValueError: broken" in complaints


@pytest.mark.parametrize("keeps", [True, False])
def test_program_that_forgets_to_stop_commits(broker: Broker, keeps: bool) -> None:
    """Whether it still has the group or only its workers go on."""
    source = """
import gc
got = threading.Event()
class Last(Printing):
    def wait(self): got.set()
group = karrow.WorkerGroup(
    Last, sys.argv[1], group="billing", topics=["orders"], start="earliest", commit_interval=60
)
group.start()
LEAVE
gc.collect()
assert got.wait(20)
"""
    put(broker, [1])
    source = source.replace("LEAVE", "pass" if keeps else "del group")
    assert ended(script(broker, source)) == (0, ["got 1", "teardown"], "")
    assert committed(broker)[TOPIC, 0] == 1


def test_forked_child_is_told_and_ends(broker: Broker) -> None:
    """Row 39: every use is a clear error, nothing hangs, the parent goes on, a new one works."""
    source = """
group = karrow.WorkerGroup(Printing, sys.argv[1], group="billing", topics=["orders"])
group.start()
while not group.active: time.sleep(0.01)
child = os.fork()
if child == 0:
    calls = {
        "stop": group.stop,
        "wait": group.wait,
        "workers": lambda: group.workers,
        "call": lambda: group.call(("orders", 0), 1),
        "health": group.health,
        "start": group.start,
    }
    for name, call in calls.items():
        try:
            print(name, call(), flush=True)
        except karrow.errors.StateError as error:
            print(name, "another process" in str(error), flush=True)
    with karrow.WorkerGroup(
        Printing, sys.argv[1], group="other", topics=["orders"], start="earliest"
    ) as own:
        while not own.active: time.sleep(0.01)
        print("own", own.group_name, flush=True)
    sys.exit(0)
print("status", os.waitpid(child, 0)[1], flush=True)
print("parent", group.active, group.stop().reason)
"""
    code, said, complaints = ended(script(broker, source))
    assert (code, complaints) == (0, "")
    calls = ["stop", "wait", "workers", "call", "health", "start"]
    theirs = ["own other", "teardown", "status 0"]
    assert said == [*(f"{name} True" for name in calls), *theirs, "teardown", "parent True stopped"]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_group_that_begins_in_a_forked_child(broker: Broker, kind: str) -> None:
    source = f"""
class Last(karrow.Handler):
    {kind} handle_records(self, records):
        print("got", [record.value for record in records], flush=True)
        return karrow.Stop("enough", commit=karrow.Commit.SYNC)

with karrow.Client(sys.argv[1]) as client:
    client.metadata()
child = os.fork()
if child == 0:
    print(run(Last).reason, flush=True)
    sys.exit(0)
print("status", os.waitpid(child, 0)[1])
"""
    put(broker, [1])
    code, said, complaints = ended(script(broker, source))
    assert (code, said, complaints) == (0, ["got [b'1']", "handler", "status 0"], "")
    assert committed(broker)[TOPIC, 0] == 1


class Ending(Noting):
    """Ends the group with the first record."""

    def handle_records(self, records: Sequence[karrow.Record]) -> Stop:
        return Stop(threading.current_thread().name)


def test_run_group_outside_of_the_main_thread(broker: Broker) -> None:
    put(broker, [1])
    before = signal.getsignal(signal.SIGTERM)
    found: list[karrow.Ending] = []

    def run() -> None:
        found.append(
            karrow.run_group(
                Ending,
                broker.bootstrap,
                group=GROUP,
                topics=[TOPIC],
                start="earliest",
                arguments={"notes": Notes()},
            )
        )
        assert signal.getsignal(signal.SIGTERM) is before

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(TIMEOUT)
    assert [ending.reason for ending in found] == [EndReason.HANDLER]


def test_run_group_raises_what_nobody_wanted(broker: Broker) -> None:
    class Refusing(Noting):
        def setup(self, *_: object, **__: object) -> Stop:
            return Stop("no")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(GroupEnded, match=r"refused \(no\)"):
        karrow.run_group(Refusing, broker.bootstrap, group=GROUP, topics=[TOPIC])
    until(lambda: signal.getsignal(signal.SIGINT) is before)
