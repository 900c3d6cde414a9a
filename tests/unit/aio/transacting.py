"""Transactions without a broker: requests are kept, and tests say what comes of them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

import pytest

from karrow import errors, wire
from karrow.aio.calls.base import Reply, Request
from karrow.aio.producing.transactions import State, Transactions
from karrow.config import ProducerConfig
from karrow.errors import KarrowError
from karrow.net.connection import Peer
from karrow.net.versions import BrokerVersions
from karrow.types import GroupMetadata, Node

GROUP = GroupMetadata("g")
OFFSETS = {("t", 0): 5}
INIT, ADD, ADD_GROUP = "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn"
OFFSET, END = "TxnOffsetCommit", "EndTxn"
CALL_TIMEOUT = 10.0


class Link:
    """A connection that leads nowhere, to a broker with transactions of a version."""

    def __init__(self, version: int, **newest: int) -> None:
        ranges = {name: (one.versions[0], one.versions[-1]) for name, one in wire.apis().items()}
        ranges |= {name: (0, most) for name, most in newest.items()}
        self.peer = Peer("b1", 9092, 1)
        self.versions = BrokerVersions(ranges, {"transaction.version": version})


class Everywhere:
    """A cluster where every selector leads to the same broker."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.pool = self
        self.trouble = None

    async def connection(self, _: Node) -> Link:
        return self.link

    def learn(self, *_: object) -> None:
        pass


class Records:
    """A pipeline that notes what it is told."""

    def __init__(self) -> None:
        self.identities: list[tuple[int, int]] = []
        self.refusal: KarrowError | None = None
        self.discarded: list[KarrowError] = []
        self.wakes = 0
        self.woken = asyncio.Event()
        self.hold: asyncio.Event | None = None

    async def drained(self) -> None:
        if self.hold is not None:
            await self.hold.wait()

    def discard(self, error: KarrowError) -> None:
        self.discarded.append(error)

    def wake(self) -> None:
        self.wakes += 1
        self.woken.set()

    def take_identity(self, producer_id: int, epoch: int) -> None:
        self.identities.append((producer_id, epoch))

    def refuse(self, error: KarrowError | None) -> None:
        self.refusal = error

    def are_taken(self) -> bool:
        return self.refusal is None


class Scripted(Transactions):
    """Keeps what it would send; the test arms outcomes, what is not armed succeeds."""

    def __init__(self, version: int = 2, **newest: int) -> None:
        self.records = Records()
        config = ProducerConfig(
            bootstrap="b1:9092", transactional_id="tx", api_timeout=CALL_TIMEOUT
        )
        cluster: Any = Everywhere(Link(version, **newest))
        super().__init__(config, cluster, self.records)
        self.link = cluster.link
        self.armed: dict[str, list[str | KarrowError]] = defaultdict(list)
        self.sent: list[tuple[str, int, dict[str, Any]]] = []
        self.under_way = 0
        self.epoch = 0
        self.delay = 0.0

    async def _send(self, request: Request) -> Reply:
        self.under_way += 1
        assert self.under_way == 1  # one request at a time
        try:
            most = 5 if request.name == OFFSET and request.most is None else request.most
            version = self.link.versions.choose(request.name, most=most)
            body: Any = request.body(version, self.link)
            wire.encode(request.name, version, body)
            self.sent.append((request.name, version, body))
            await asyncio.sleep(self.delay)
            armed = self.armed[request.name]
            outcome = armed.pop(0) if armed else "NONE"
            if isinstance(outcome, KarrowError):
                raise outcome
            code = 0 if outcome == "NONE" else errors.for_name(outcome).code
            answer = self._answer(request.name, version, body, code)
            data = wire.encode(request.name, version, answer, kind="response")
            return Reply(wire.decode(request.name, version, data), version, self.link)
        finally:
            self.under_way -= 1

    def _answer(self, name: str, version: int, body: dict[str, Any], code: int) -> dict[str, Any]:
        if name == ADD:
            topics = [
                {
                    "name": topic["name"],
                    "results_by_partition": [
                        {"partition_index": one, "partition_error_code": code}
                        for one in topic["partitions"]
                    ],
                }
                for topic in body["v3_and_below_topics"]
            ]
            return {"results_by_topic_v3_and_below": topics}
        if name == OFFSET:
            parts = [{"partition_index": 0, "error_code": code}]
            return {"topics": [{"name": "t", "partitions": parts}]}
        identity: dict[str, Any] = {}
        if code == 0 and (name == INIT or (name == END and version >= 5)):
            identity = {"producer_id": 7, "producer_epoch": self.epoch}
            self.epoch += 1
        return {"error_code": code, **identity}

    @property
    def apis(self) -> list[str]:
        return [name for name, _, _ in self.sent]

    def stands(self, state: State) -> bool:
        return self.state is state

    async def begun(self) -> None:
        """In a transaction that has a partition."""
        await self.begin()
        if not self.may_send("t", 0):
            self.records.woken.clear()
            await self.records.woken.wait()
        self.sent.clear()


def indefinite() -> KarrowError:
    error = errors.RequestTimeout("no answer")
    error.indefinite = True
    return error


async def cancel_in(call: Coroutine[Any, Any, None], seconds: float) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, seconds)


both = pytest.mark.parametrize("version", [1, 2])
