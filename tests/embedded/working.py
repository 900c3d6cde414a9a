"""What tests of workers share: records in, notes of what handlers did, waiting for it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import karrow
from karrow.broker.threaded import Broker

TOPIC = "orders"
GROUP = "billing"
TIMEOUT = 20.0


def until(condition: Callable[[], Any], what: str = "it did not happen") -> Any:
    """Wait for something to become true; what it was then."""
    deadline = time.monotonic() + TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.005)
    return found


def put(broker: Broker, values: Iterable[object], partition: int = 0, topic: str = TOPIC) -> None:
    """Store values, each in a batch of its own call."""
    with karrow.Producer(broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, str(value), partition=partition)


def committed(broker: Broker, group: str = GROUP) -> dict[tuple[str, int], int | None]:
    """What a group has stored."""
    with karrow.Client(broker.bootstrap) as client:
        found = client.committed_offsets(group)
    return {(one.topic, one.partition): stored.offset for one, stored in found.items()}


class Notes:
    """What handlers did, in order; one for each test, handed to them by the group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.entries: list[tuple[Any, ...]] = []

    def add(self, *entry: Any) -> None:
        with self._lock:
            self.entries.append(entry)

    def of(self, kind: str) -> list[Any]:
        """What was noted of one kind; the thing itself where there is only one."""
        found = [entry[1:] for entry in list(self.entries) if entry[0] == kind]
        return [entry[0] if len(entry) == 1 else entry for entry in found]

    def values(self) -> list[int]:
        return [value for _, value in self.of("record")]

    def counted(self) -> Counter[int]:
        return Counter(self.values())


class Noting(karrow.Handler):
    """Notes everything; tests override what they are about."""

    notes: Notes

    def setup(self, topic: str, partition: int, *, notes: Notes, **more: Any) -> Any:
        self.notes = notes
        notes.add("setup", partition)

    def note(self, records: Sequence[karrow.Record]) -> None:
        for record in records:
            self.notes.add("record", record.partition, int(record.value or b"-1"))

    def handle_records(self, records: Sequence[karrow.Record]) -> Any:
        self.note(records)
        return karrow.Commit.ASYNC

    def teardown(self) -> Any:
        self.notes.add("teardown", self.partition)


class AsyncNoting(Noting):
    """The same with async callbacks."""

    async def setup(self, topic: str, partition: int, *, notes: Notes, **more: Any) -> Any:
        self.notes = notes
        notes.add("setup", partition)

    async def handle_records(self, records: Sequence[karrow.Record]) -> Any:
        self.note(records)
        return karrow.Commit.ASYNC

    async def teardown(self) -> Any:
        self.notes.add("teardown", self.partition)


class Talking(Noting):
    """Answers."""

    def handle_call(self, message: Any) -> Any:
        if isinstance(message, Exception):
            raise message
        return message * 2

    def handle_cast(self, message: Any) -> Any:
        self.notes.add("cast", message)
        if isinstance(message, Exception):
            raise message

    def handle_info(self, message: Any) -> Any:
        self.notes.add("info", message)


class AsyncTalking(AsyncNoting):
    """The same with async."""

    async def handle_call(self, message: Any) -> Any:
        return Talking.handle_call(self, message)  # type: ignore[arg-type]

    async def handle_cast(self, message: Any) -> Any:
        Talking.handle_cast(self, message)  # type: ignore[arg-type]

    async def handle_info(self, message: Any) -> Any:
        self.notes.add("info", message)


class Once(Noting):
    """Raises when it sees a value for the first time."""

    def handle_records(self, records: Sequence[karrow.Record]) -> Any:
        seen = self.notes.counted()
        self.note(records)
        if any(record.value == b"5" for record in records) and not seen[5]:
            raise ValueError("five")
        return karrow.Commit.ASYNC


class AsyncOnce(AsyncNoting):
    """The same with async."""

    async def handle_records(self, records: Sequence[karrow.Record]) -> Any:
        return Once.handle_records(self, records)  # type: ignore[arg-type]


def group_of(
    broker: Broker, handler: type[karrow.Handler], notes: Notes, **options: Any
) -> karrow.WorkerGroup:
    """A group on the topic from its beginning, with what is given besides."""
    arguments = {"notes": notes, **options.pop("arguments", {})}
    if "partitions" not in options:
        options.setdefault("topics", [TOPIC])
    # A worker that goes back waits for the fetch under way.
    quick = {"group": GROUP, "start": "earliest", "max_wait": 0.05}
    given = {**quick, "arguments": arguments, **options}
    return karrow.WorkerGroup(handler, broker.bootstrap, **given)
