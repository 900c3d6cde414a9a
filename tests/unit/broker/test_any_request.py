"""Whatever is asked, there is an answer that can be sent; no handler fails, and nothing is lost."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from typing import Any

import pytest
from filling import STYLES, fill

from karrow import records, wire
from karrow.broker import handlers as _handlers  # noqa: F401 - registers every handler
from karrow.broker.call import HANDLERS, Call, Ending
from karrow.broker.clock import ManualClock
from karrow.broker.cluster import Cluster, Endpoint
from karrow.broker.connection import Connection
from karrow.broker.dispatch import Dispatcher
from karrow.broker.releases import release
from karrow.broker.session import Session
from karrow.broker.store import MemoryStore
from karrow.wire.framing import Request, RequestHead, ServerFraming
from karrow.wire.structs import Struct
from karrow.wire.table import schema

# What a field of this name is likely to be, so that requests get past the first check.
LIKELY: dict[str, list[Any]] = {
    "name": ["orders", "gone"],
    "topic": ["orders", "gone"],
    "group_id": ["billing"],
    "transactional_id": ["tx", None],
    "partition": [0, 1, 9],
    "partition_index": [0, 1, 9],
    "index": [0, 1, 9],
    "session_epoch": [0, -1, 1],
    "session_timeout_ms": [10_000],
    "member_id": ["", "somebody"],
    "protocol_type": ["consumer"],
    "acks": [-1, 0, 1],
    "num_partitions": [1, -1, 3],
    "replication_factor": [1, -1],
    "count": [3, 5],
    "timestamp": [-1, -2, -3, 5],
}


class World:
    """A cluster with one node, without sockets."""

    def __init__(self, version: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.cluster = Cluster(
            clock=self.clock, store=MemoryStore(), seed=seed, release=release(version, HANDLERS)
        )
        self.cluster.nodes[1] = Endpoint(1, "127.0.0.1", 9092)
        self.cluster.recover()
        self.dispatch = Dispatcher(self.cluster)
        self.cluster.create_topic("orders", 2)
        self.framing = ServerFraming(self.cluster.release.supported)

    async def ask(self, api: str, version: int, body: Struct) -> None:
        """Send a request, give it some time, and encode what comes back."""
        session = Session(self.cluster.users, self.clock)
        outcome = self.dispatch(Call(self.cluster, 1, session, api, version, "me"), body)
        if inspect.isawaitable(outcome):
            task = asyncio.ensure_future(outcome)
            for _ in range(3):
                await asyncio.sleep(0)
                self.clock.advance(400)
            done, _ = await asyncio.wait((task,), timeout=0.01)
            task.cancel()
            if not done:
                return
            outcome = task.result()
        if outcome is None or isinstance(outcome, Ending):
            return
        request = Request(RequestHead(0, version, 1, None), wire.api(api), version, body)
        parts = self.framing.respond(request, outcome)
        assert sum(map(len, parts)) > 4

    def likely(self, body: Struct, version: int) -> None:
        """Make a random request a little more sensible."""
        for field in body.fields:
            if version not in field.versions:
                continue
            value = getattr(body, field.name)
            if isinstance(value, Struct):
                self.likely(value, version)
            elif field.array and field.is_struct:
                for item in value or ():
                    self.likely(item, version)
            elif field.type == "records":
                setattr(body, field.name, self.record_data())
            elif not field.array and field.name in LIKELY and self.rng.random() < 0.8:
                chosen = self.rng.choice(LIKELY[field.name])
                if chosen is not None or version in field.nullable:
                    setattr(body, field.name, chosen)

    def record_data(self) -> bytes:
        builder = records.BatchBuilder()
        for _ in range(self.rng.randint(1, 3)):
            builder.append(None, self.rng.randbytes(5), timestamp_ms=self.clock.time_ms())
        pid = self.rng.choice((-1, 0, 1))
        data = bytearray(
            builder.build(
                producer_id=pid,
                producer_epoch=0 if pid >= 0 else -1,
                base_sequence=self.rng.choice((0, 1, 7)) if pid >= 0 else -1,
                transactional=pid >= 0 and self.rng.random() < 0.3,
            )
        )
        if self.rng.random() < 0.2:
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        return bytes(data[: self.rng.choice((len(data), len(data), len(data), 30))])


@pytest.mark.parametrize("version", ["2.8", "3.9", "4.3"])
def test_every_request_has_an_answer(
    version: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("randomly_seed")

    async def main() -> None:
        world = World(version, seed)
        cases = [
            (api, number, style)
            for api, (first, last) in world.cluster.release.supported.items()
            for number in range(first, last + 1)
            for style in STYLES
            for _ in range(2)
        ]
        world.rng.shuffle(cases)
        for api, number, style in cases:
            body = fill(world.rng, schema(f"{api}Request"), number, style)
            world.likely(body, number)
            await world.ask(api, number, body)
            assert not [r for r in caplog.records if r.levelno >= logging.ERROR], (api, number)
            if "orders" not in world.cluster.topics:
                world.cluster.create_topic("orders", 2)
        world.cluster.close()

    caplog.set_level(logging.WARNING)
    asyncio.run(main())


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_aborted = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def feed(connection: Connection, data: bytes) -> None:
    view = memoryview(data)
    while view:
        room = connection.get_buffer(-1)
        count = min(len(room), len(view))
        room[:count] = view[:count]
        view = view[count:]
        connection.buffer_updated(count)


def test_any_bytes_are_answered_or_end_the_connection(
    caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("randomly_seed")

    def connect(world: World) -> tuple[Connection, Wire]:
        connection = Connection(
            world.cluster,
            1,
            framing=ServerFraming(world.cluster.release.supported, max_frame=1 << 16),
            session=Session(world.cluster.users, world.clock),
            dispatch=world.dispatch,
            on_lost=lambda _: None,
        )
        transport = Wire()
        connection.connection_made(transport)
        return connection, transport

    async def main() -> None:
        world = World("4.3", seed)
        for _ in range(1500):
            api = world.rng.choice(list(world.cluster.release.supported))
            first, last = world.cluster.release.supported[api]
            version = world.rng.randint(first, last)
            body = fill(world.rng, schema(f"{api}Request"), version, "random")
            world.likely(body, version)
            _, parts = wire.ClientFraming("me").send(api, version, body)
            data = bytearray(b"".join(parts))
            for _ in range(world.rng.randrange(4)):
                data[world.rng.randrange(4, len(data))] = world.rng.randrange(256)
            connection, transport = connect(world)
            feed(connection, bytes(data))
            await asyncio.sleep(0)
            connection.connection_lost(None)
            assert not [r for r in caplog.records if r.levelno >= logging.ERROR], (api, version)
            if "orders" not in world.cluster.topics:
                world.cluster.create_topic("orders", 2)
        connection, transport = connect(world)
        feed(connection, b"\x7f\xff\xff\xff")
        assert transport.is_aborted
        await asyncio.sleep(0)
        world.cluster.close()

    caplog.set_level(logging.WARNING)
    asyncio.run(main())
