"""Members of a group that come, go, dawdle and freeze while brokers fail, and what came of it.

A frozen member is a consumer on a loop that stands still: it sends nothing, and does not know. It
may be thawed when others have its partitions long since, or never.
"""

from __future__ import annotations

import asyncio
import functools
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from karrow.aio.consumer import AsyncConsumer
from karrow.errors import CommitFailed, KarrowError
from karrow.sync.client import Client
from karrow.sync.consumer import Consumer
from karrow.types import TopicPartition
from tests.chaos.reads import EVERYWHERE, ReadLog, Wrong, check_reads
from tests.chaos.workload import SETTLE_SECONDS, SHOWN, Plan, Writing, contents

# What members do of their own accord.
ORDERLY = ("come", "go", "dawdle", "nothing", "nothing")


class Member:
    """One consumer, and a thread that reads with it until it is told to stop."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, log: ReadLog, options: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.pause = 0.0
        self.consumer: AsyncConsumer | None = None
        self._topic = topic
        self._log = log
        self._stop = threading.Event()
        self._bootstrap = bootstrap
        self._manual = not options.get("auto_commit", True)
        self._options = {
            **options,
            "on_assigned": lambda parts: self._note("assigned", parts),
            "on_revoked": lambda parts: self._note("revoked", parts),
            "on_lost": lambda parts: self._note("lost", parts),
        }
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Join."""
        self._thread.start()

    def stop(self) -> None:
        """Leave, soon."""
        self._stop.set()

    def is_unaware(self, generation: int) -> None:
        """It may not hear of the end of what it has got up to a generation."""
        self._log.add("unaware", self.name, [EVERYWHERE], generation)

    def join(self) -> None:
        """Wait until it has left."""
        self._thread.join(SETTLE_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"{self.name} does not end")
        if self.error is not None:
            raise self.error

    def condition(self) -> object:
        """How it is doing, as far as can be told."""
        consumer = self.consumer
        if consumer is None:
            return "ended"
        engine = consumer.engine
        membership = consumer.membership
        state = None if membership is None else membership.state
        return str(consumer.health()), state, [str(one) for one in engine.positions.cursors()]

    def _note(self, what: Any, parts: Sequence[TopicPartition]) -> None:
        places = [(one.partition, -1) for one in parts]
        self._log.add(what, self.name, places, self._generation)

    @property
    def _generation(self) -> int:
        membership = None if self.consumer is None else self.consumer.membership
        return -1 if membership is None else membership.generation

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001 - for the test
            self.error = error

    def _read(self) -> None:
        consumer = Consumer(self._bootstrap, self._topic, **self._options)
        self.consumer = consumer.twin
        with consumer:
            while not self._stop.is_set():
                records = consumer.poll(0.1)
                self._log.add("read", self.name, [(one.partition, one.offset) for one in records])
                time.sleep(self.pause)
                if self._manual and records:
                    self._commit(consumer)

    def _commit(self, consumer: Consumer) -> None:
        try:
            offsets = {one: it.offset or 0 for one, it in consumer.consumed().items()}
            places = [(partition, offset) for (_, partition), offset in offsets.items()]
            self._log.add("committing", self.name, places)
            consumer.commit(offsets)
        except CommitFailed:
            return
        self._log.add("stored", self.name, places)


class FreezingMember(Member):
    """A member on a loop of its own, which can be stopped at any moment and go on later."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._thaw = threading.Event()
        self._thaw.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_frozen = False

    def freeze(self) -> None:
        """Stand still."""
        if self._loop is not None and not self.is_frozen:
            self.is_frozen = True
            self._thaw.clear()
            self._loop.call_soon_threadsafe(self._stand_still)

    def thaw(self) -> None:
        """Go on."""
        self.is_frozen = False
        self._thaw.set()

    def _stand_still(self) -> None:
        self.is_unaware(self._generation)
        self._thaw.wait()

    def _read(self) -> None:
        asyncio.run(self._read_on_loop())

    async def _read_on_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.consumer = AsyncConsumer(self._bootstrap, self._topic, **self._options)
        async with self.consumer as consumer:
            while not self._stop.is_set():
                records = await consumer.poll(0.1)
                self._log.add("read", self.name, [(one.partition, one.offset) for one in records])
                await asyncio.sleep(self.pause)
                if self._manual and records:
                    await self._commit_on_loop(consumer)

    async def _commit_on_loop(self, consumer: AsyncConsumer) -> None:
        try:
            offsets = {one: it.offset or 0 for one, it in consumer.consumed().items()}
            places = [(partition, offset) for (_, partition), offset in offsets.items()]
            self._log.add("committing", self.name, places)
            await consumer.commit(offsets)
        except CommitFailed:
            return
        self._log.add("stored", self.name, places)


@dataclass
class GroupReport:
    """What a run found."""

    seed: int
    reads: dict[str, int]
    writes: dict[str, int]
    done: list[str]
    wrong: list[Wrong] = field(default_factory=list)
    again: int = 0
    """How many records were handed out more than once, over all assignments.

    That may be where the commit of what came first was not confirmed; the checker finds the others.
    Where nothing fails and everybody leaves in good order there are none.
    """

    def __str__(self) -> str:
        counts = {name: self.done.count(name) for name in sorted(set(self.done))}
        lines = [f"seed {self.seed}: {self.reads}, {self.again} again; {self.writes}; {counts}"]
        return "\n".join([*lines, *map(str, self.wrong[:SHOWN])])


class Crew:
    """All members of a run; in an orderly one nobody stands still."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        log: ReadLog,
        members: Sequence[Mapping[str, Any]],
        *,
        orderly: bool = False,
    ) -> None:
        self._make = (bootstrap, topic, log)
        self._options = members
        self._made = 0
        self._acts = ORDERLY if orderly else (*ORDERLY, "freeze", "thaw")
        self.here: list[Member] = []
        self.gone: list[Member] = []

    def come(self) -> None:
        """One more; they take turns in their options, and every other one can freeze."""
        options = self._options[self._made % len(self._options)]
        kind = FreezingMember if self._made % 2 else Member
        member = kind(f"m{self._made}", *self._make, options)
        self._made += 1
        self.here.append(member)
        member.start()

    def go(self, chance: random.Random) -> None:
        """One leaves in good order."""
        awake = [one for one in self.here if not getattr(one, "is_frozen", False)]
        if len(awake) > 1:
            member = chance.choice(awake)
            self.here.remove(member)
            self.gone.append(member)
            member.stop()

    def act(self, chance: random.Random) -> str:
        """Somebody comes, goes, dawdles, freezes or thaws."""
        freezing = [one for one in self.here if isinstance(one, FreezingMember)]
        what = chance.choice(self._acts)
        if what == "come" and len(self.here) < 4:
            self.come()
        elif what == "go":
            self.go(chance)
        elif what == "dawdle":
            chance.choice(self.here).pause = chance.choice([0.0, 0.0, 0.05, 0.3])
        elif what == "freeze" and len(self.here) > 2 and freezing:
            chance.choice(freezing).freeze()
        elif what == "thaw":
            for one in freezing:
                one.thaw()
        return what

    def everybody(self) -> list[Member]:
        return [*self.here, *self.gone]

    def hurry(self) -> None:
        """Nobody dawdles or stands still any more."""
        for member in self.everybody():
            member.pause = 0.0
            if isinstance(member, FreezingMember):
                member.thaw()

    def are_unaware(self, generation: int) -> None:
        """The broker has dropped them all."""
        for member in self.everybody():
            member.is_unaware(generation)

    def raise_errors(self) -> None:
        """Raise what has ended a member."""
        for member in self.everybody():
            if member.error is not None:
                raise member.error

    def end(self) -> None:
        """All leave."""
        self.hurry()
        for member in self.everybody():
            member.stop()
        for member in self.everybody():
            member.join()


def run_group(
    bootstrap: str,
    topic: str,
    group: str,
    plan: Plan,
    members: Sequence[Mapping[str, Any]],
    *,
    orderly: bool = False,
) -> GroupReport:
    """Let writers write, members read, and faults come; then all must be read."""
    writing, log = Writing(topic, plan), ReadLog()
    options = [{"start": "earliest", "group": group, **one} for one in members]
    crew = Crew(bootstrap, topic, log, options, orderly=orderly)
    writers = []
    for number, chosen in enumerate(plan.writers):
        write = functools.partial(writing.run_blocking, bootstrap, f"p{number}", chosen)
        writers.append(threading.Thread(target=writing.guarded(write)))
    done: list[str] = []
    chance = random.Random(plan.seed)
    try:
        for _ in range(2):
            crew.come()
        for writer in writers:
            writer.start()
        end = time.monotonic() + plan.seconds
        while time.monotonic() < end and not writing.broken:
            crew.raise_errors()
            done.append(crew.act(chance))
            fault = chance.choice(plan.faults)
            found = fault.act(chance)
            if fault.name == "expire":
                assert isinstance(found, int)
                crew.are_unaware(found)
            done.append(fault.name)
            look(bootstrap, group, topic, log)
            time.sleep(chance.uniform(*plan.pauses))
    finally:
        writing.stop.set()
        plan.mend()
        writing.mended.set()
        crew.hurry()
        for writer in writers:
            writer.join(2 * SETTLE_SECONDS)
    for error in writing.broken:
        raise error
    writing.settle()
    held = contents(bootstrap, topic, plan.partitions)
    wanted = {(number, offset) for number, records in held.items() for offset, _ in records}
    try:
        wait_for(wanted, log, crew)
    finally:
        crew.end()
    look(bootstrap, group, topic, log)
    events = log.all()
    read = [(did.partition, did.offset) for did in events if did.what == "read"]
    report = GroupReport(plan.seed, log.counts(), writing.log.counts(), done)
    report.again = len(read) - len(set(read))
    report.wrong = check_reads(events, held, wanted)
    return report


def wait_for(wanted: set[tuple[int, int]], log: ReadLog, crew: Crew) -> None:
    """Until all was read; what is missing then is found by the checker."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not wanted <= log.read():
        crew.raise_errors()
        if time.monotonic() > deadline:
            for member in crew.here:
                print(member.name, member.condition())  # noqa: T201 - shown when the test fails
            return
        time.sleep(0.1)


def look(bootstrap: str, group: str, topic: str, log: ReadLog) -> None:
    """Note what the group has stored, if that can be had."""
    quick: dict[str, Any] = {"request_timeout": 1.0, "api_timeout": 1.0}
    try:
        with Client(bootstrap, **quick) as client:
            found = client.committed_offsets(group, [topic])
    except KarrowError:
        return
    seen = [(one.partition, it.offset) for one, it in found.items() if it.offset is not None]
    log.add("seen", "onlooker", seen)
