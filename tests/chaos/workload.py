"""Producers that go on writing while something breaks again and again, and what came of it.

One seed decides what every writer sends and which faults come in which order; how they meet is up
to the machine. After the run everything is mended, the producers are closed, and all partitions are
read and compared with what the producers were told.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import uvloop

import karrow
from karrow.aio._delivery import Delivery

# Here and not by their public names: those load modules on first use, and pytest, which rewrites
# the modules of its plugins, cannot do that in two threads at once on Python 3.11.
from karrow.aio.producer import AsyncProducer
from karrow.errors import KarrowError
from karrow.sync.client import Client
from karrow.sync.producer import Producer
from tests.chaos.checker import Contents, Finding, check
from tests.chaos.events import EventLog, Outcome, Payload

# How long mended brokers get to take what is left.
SETTLE_SECONDS = 60.0
SHOWN = 20


class Fault(NamedTuple):
    """A way to break something; it may last, until it is mended."""

    name: str
    act: Callable[[random.Random], object]


@dataclass(frozen=True)
class Plan:
    """What a run is like."""

    seed: int
    seconds: float
    partitions: int
    faults: Sequence[Fault]
    mend: Callable[[], object]
    """Undoes everything."""
    pauses: tuple[float, float] = (0.05, 0.4)
    """Between faults, from and to."""
    writers: Sequence[Mapping[str, Any]] = ({},)
    """The options of each producer; every other one is an AsyncProducer."""
    threads: int = 2
    """Writers that share a producer."""
    burst: int = 30
    """How many records a writer sends at most before it rests for a moment."""


@dataclass
class Report:
    """What a run found."""

    seed: int
    log: EventLog
    done: list[str]
    kinds: set[type[KarrowError]]
    """What records failed with."""
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        shown = [str(finding) for finding in self.findings[:SHOWN]]
        more = len(self.findings) - len(shown)
        counts = {name: self.done.count(name) for name in sorted(set(self.done))}
        lines = [
            f"seed {self.seed}: {self.log.counts()} in {self.seconds:.1f} s; faults {counts}",
            *shown,
            *([f"and {more} more"] if more > 0 else []),
        ]
        return "\n".join(lines)


class Writing:
    """All writers of a run, and what they hold."""

    def __init__(self, topic: str, plan: Plan) -> None:
        self.log = EventLog()
        self.held: list[tuple[Payload, Delivery]] = []
        self.stop = threading.Event()
        self.mended = threading.Event()
        self.broken: list[BaseException] = []
        self.kinds: set[type[KarrowError]] = set()
        self._topic = topic
        self._plan = plan

    def record(self, payload: Payload, chance: random.Random) -> dict[str, Any]:
        """A record that says who sent it: to a named partition, by key, or anywhere."""
        padding = b" " + b"x" * chance.choice([0, 10, 100, 1000])
        found: dict[str, Any] = {"topic": self._topic, "value": bytes(payload) + padding}
        how = chance.random()
        if how < 0.5:
            found["partition"] = chance.randrange(self._plan.partitions)
        elif how < 0.8:
            found["key"] = b"%d" % chance.randrange(8)
        return found

    def refused(self, payload: Payload, error: KarrowError) -> None:
        """Send itself has raised: the record was never taken."""
        self.kinds.add(type(error))
        self.log.settle(payload, Outcome("failed", error=repr(error)))

    def settle(self) -> None:
        """Take down what became of every record."""
        for payload, delivery in self.held:
            if not delivery.done():
                continue
            error = delivery.exception()
            if error is not None:
                kind = "indefinite" if error.indefinite else "failed"
                self.kinds.add(type(error))
                self.log.settle(payload, Outcome(kind, error=repr(error)))  # type: ignore[arg-type]
            else:
                where = delivery.result()
                self.log.settle(payload, Outcome("ok", where.partition, where.offset))

    def guarded(self, work: Callable[[], object]) -> Callable[[], None]:
        """Work for a thread; what it raises is kept."""

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - for the test
                self.broken.append(error)

        return run

    def block(self, producer: Producer, name: str) -> None:
        """Write without await until told to stop."""
        chance = random.Random(f"{self._plan.seed} {name}")
        number = 0
        while not self.stop.is_set():
            for _ in range(chance.randrange(self._plan.burst)):
                payload = Payload(name, number)
                number += 1
                self.log.send(payload)
                try:
                    self.held.append((payload, producer.send(**self.record(payload, chance))))
                except KarrowError as error:
                    self.refused(payload, error)
            self.stop.wait(chance.uniform(0.005, 0.05))

    async def await_all(self, producer: AsyncProducer, name: str) -> None:
        """Write on a loop until told to stop."""
        chance = random.Random(f"{self._plan.seed} {name}")
        number = 0
        while not self.stop.is_set():
            for _ in range(chance.randrange(self._plan.burst)):
                payload = Payload(name, number)
                number += 1
                self.log.send(payload)
                try:
                    delivery = await producer.send(**self.record(payload, chance))
                    self.held.append((payload, delivery))
                except KarrowError as error:
                    self.refused(payload, error)
            await asyncio.sleep(chance.uniform(0.005, 0.05))

    def run_blocking(self, bootstrap: str, name: str, options: Mapping[str, Any]) -> None:
        """One Producer and the threads that share it."""
        producer = Producer(bootstrap, **options)
        threads = [
            threading.Thread(target=self.guarded(lambda n=number: self.block(producer, n)))  # type: ignore[misc]
            for number in [f"{name}-{thread}" for thread in range(self._plan.threads)]
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.mended.wait()
        producer.close(SETTLE_SECONDS)
        expect_empty(producer.stats())

    def run_awaiting(self, bootstrap: str, name: str, options: Mapping[str, Any]) -> None:
        """One AsyncProducer and the tasks that share it."""

        async def main() -> None:
            producer = AsyncProducer(bootstrap, **options)
            tasks = range(self._plan.threads)
            await asyncio.gather(*[self.await_all(producer, f"{name}-{n}") for n in tasks])
            await asyncio.to_thread(self.mended.wait)
            await producer.close(SETTLE_SECONDS)
            expect_empty(producer.stats())

        factory = uvloop.new_event_loop if self._plan.seed % 2 else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())


def expect_empty(stats: karrow.ProducerStats) -> None:
    """The books of a closed producer are balanced."""
    assert (stats.buffered_records, stats.buffered_batches, stats.buffered_bytes) == (0, 0, 0)
    assert stats.records_sent == stats.records_written + stats.records_failed


def run(bootstrap: str, topic: str, plan: Plan, **rules: Any) -> Report:
    """Let the writers write and the faults come; ``rules`` are those of the checker."""
    began = time.monotonic()
    writing = Writing(topic, plan)
    threads = []
    for number, options in enumerate(plan.writers):
        work = writing.run_awaiting if number % 2 else writing.run_blocking
        name = f"p{number}"
        target = writing.guarded(lambda w=work, n=name, o=options: w(bootstrap, n, o))  # type: ignore[misc]
        threads.append(threading.Thread(target=target, name=name))
    for thread in threads:
        thread.start()
    done = []
    chance = random.Random(plan.seed)
    try:
        end = time.monotonic() + plan.seconds
        while time.monotonic() < end and not writing.broken:
            fault = chance.choice(plan.faults)
            fault.act(chance)
            done.append(fault.name)
            time.sleep(chance.uniform(*plan.pauses))
    finally:
        writing.stop.set()
        plan.mend()
        writing.mended.set()
        for thread in threads:
            thread.join(2 * SETTLE_SECONDS)
    for error in writing.broken:
        raise error
    writing.settle()
    report = Report(plan.seed, writing.log, done, writing.kinds, seconds=time.monotonic() - began)
    report.findings = check(writing.log, contents(bootstrap, topic, plan.partitions), **rules)
    return report


def contents(bootstrap: str, topic: str, partitions: int) -> Contents:
    """Everything that is in a topic."""
    with Client(bootstrap) as client:
        found = {
            number: client.fetch_all(topic, number, max_bytes=8 * 1024 * 1024).records
            for number in range(partitions)
        }
    return {
        number: [(record.offset, record.value or b"") for record in records]
        for number, records in found.items()
    }
