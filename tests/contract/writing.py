"""A transactional producer's states with a pipeline by hand: tests say when a batch is written."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import karrow
from karrow import errors
from karrow.aio.producing.transactions import State, Transactions
from karrow.config import ProducerConfig
from karrow.errors import KarrowError
from karrow.net.cluster import Cluster
from karrow.types import Node
from tests.contract.transactional import batch, committed, ends, new_id
from tests.fix_any import AnyKafka

LIMIT = 60.0
NEWEST_WITH_NAMES = 12
# What a broker says while the transaction before is about to be complete (M8).
PASSING = ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS", "COORDINATOR_LOAD_IN_PROGRESS")
IDENTITIES = (
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)


class Writer:
    """A pipeline by hand: a batch is written when the test says so, and then done."""

    def __init__(self, client: karrow.AsyncClient, transactional_id: str) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.identity = (-1, -1)
        self.identities: list[tuple[int, int]] = []
        self.sequences: Counter[tuple[str, int]] = Counter()
        self.refusal: KarrowError | None = None
        self.discarded: list[KarrowError] = []
        self.failed = asyncio.Event()
        self.woken = asyncio.Event()
        self.draining: Callable[[], Awaitable[None]] | None = None

    async def drained(self) -> None:
        if self.draining is not None:
            await self.draining()

    def discard(self, error: KarrowError) -> None:
        self.discarded.append(error)
        self.failed.set()

    def wake(self) -> None:
        self.woken.set()

    def take_identity(self, producer_id: int, epoch: int) -> None:
        self.identity = (producer_id, epoch)
        self.identities.append(self.identity)
        self.sequences.clear()

    def refuse(self, error: KarrowError | None) -> None:
        self.refusal = error

    def prepared(self, topic: str, partition: int, values: tuple[bytes, ...]) -> dict[str, Any]:
        """A request with the next batch of a partition."""
        sequence = self.sequences[topic, partition]
        self.sequences[topic, partition] += len(values)
        data = batch(*values, producer=self.identity, sequence=sequence, transactional=True)
        return {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [
                {"name": topic, "partition_data": [{"index": partition, "records": data}]}
            ],
        }

    async def send(
        self, topic: str, body: dict[str, Any], newest: int | None
    ) -> KarrowError | None:
        """Write until the answer is final."""
        partition = body["topic_data"][0]["partition_data"][0]["index"]
        to, version = Node.leader(topic, partition), await self.version(topic, newest)
        while True:
            answer = await self.client.request("Produce", body, to=to, api_version=version)
            code = answer.responses[0].partition_responses[0].error_code
            error = errors.error_for(code)
            if error is None or error.name not in PASSING:
                return error
            await asyncio.sleep(0.01)

    async def version(self, topic: str, newest: int | None) -> int:
        connection = await self.client._cluster.connection(Node.leader(topic, 0))
        most = NEWEST_WITH_NAMES if newest is None else min(newest, NEWEST_WITH_NAMES)
        return connection.versions.choose("Produce", most=most)


class Session:
    """Transactions and a writer for them."""

    def __init__(self, transactions: Transactions, writer: Writer) -> None:
        self.transactions = transactions
        self.writer = writer

    def stands(self, state: State) -> bool:
        return self.transactions.state is state

    async def write(self, topic: str, *values: bytes, partition: int = 0) -> KarrowError | None:
        """Write a batch as a sender does: when the partition takes part."""
        assert self.writer.refusal is None
        while not self.transactions.may_send(topic, partition):
            self.writer.woken.clear()
            await self.writer.woken.wait()
        body = self.writer.prepared(topic, partition, values)
        error = await self.writer.send(topic, body, self.transactions.newest_produce)
        if error is not None:
            self.transactions.batch_failed(error)
        return error

    async def transaction(self, topic: str, *values: bytes, commit: bool = True) -> None:
        await self.transactions.begin()
        assert await self.write(topic, *values) is None
        await (self.transactions.commit() if commit else self.transactions.abort())


@asynccontextmanager
async def opened(
    bootstrap: str, transactional_id: str | None = None, **options: Any
) -> AsyncIterator[Session]:
    name = transactional_id or new_id("tx")
    settings: dict[str, Any] = {"api_timeout": 20.0, "transaction_timeout": 30.0, **options}
    config = ProducerConfig(bootstrap=bootstrap, transactional_id=name, **settings)
    cluster = Cluster(config)
    async with karrow.AsyncClient(bootstrap, api_timeout=20.0) as client:
        writer = Writer(client, name)
        transactions = Transactions(config, cluster, writer)
        try:
            yield Session(transactions, writer)
        finally:
            await transactions.close()
            await cluster.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, LIMIT))


async def sees(kafka: AnyKafka, topic: str, *values: bytes, partition: int = 0) -> None:
    """Wait until nothing is open, then compare what readers of committed data see."""

    def is_settled() -> bool:
        stable, end = ends(kafka, topic, partition)
        return stable == end

    deadline = time.monotonic() + LIMIT
    while not await asyncio.to_thread(is_settled):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    assert await asyncio.to_thread(committed, kafka, topic, partition) == list(values)
