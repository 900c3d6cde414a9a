"""A transaction across processes when answers are lost, owners die, and time runs out.

Spark is not needed for that: an owner that is left alone is a driver that died.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pytest

import karrow
from karrow import errors
from karrow.aio.client import AsyncClient
from karrow.aio.producing.part import AsyncPartProducer
from karrow.config import ProducerConfig
from karrow.spark.exactly.ledger import Entry, new_ledger
from karrow.spark.exactly.part import PartProducer
from karrow.spark.exactly.transaction import BlockingTransaction, SharedTransaction
from tests.brokers import KafkaCluster
from tests.contract.transactional import new_id
from tests.fix_admin import eventually
from tests.proxy import ClusterProxy

LIMIT = 120.0
VERSIONS = ["4.3.1", "3.9.2"]
BOTH = pytest.mark.parametrize("kafka_version", VERSIONS, indirect=True)
EVERYWHERE = pytest.mark.kafka(every_release=True)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await main()

    asyncio.run(limited())


class Sink:
    """A sink by its name, and what readers see of its topic."""

    def __init__(self, kafka: KafkaCluster, kind: str = "group") -> None:
        self.kafka, self.kind = kafka, kind
        self.id, self.topic = new_id("sink"), kafka.create_topic()

    def config(self, bootstrap: str, **more: Any) -> ProducerConfig:
        return ProducerConfig(
            bootstrap=bootstrap,
            transactional_id=f"karrow.sink.{self.id}",
            linger=0,
            retry_backoff=0.02,
            **more,
        )

    @asynccontextmanager
    async def owner(
        self, bootstrap: str | None = None, **more: Any
    ) -> AsyncIterator[SharedTransaction]:
        servers = bootstrap or self.kafka.bootstrap()
        ledger = new_ledger(self.kind, self.id, self.topic, None)
        async with AsyncClient(servers, retry_backoff=0.02) as client:
            yield SharedTransaction(client, self.config(servers, **more), ledger)

    async def write(self, of: SharedTransaction, *values: bytes) -> None:
        config = self.config(self.kafka.bootstrap())
        async with AsyncPartProducer(config=config, who=of.who, version=of.version) as part:
            for value in values:
                await (await part.send(self.topic, value))

    async def commit(self, of: SharedTransaction, batch: int) -> None:
        await self.write(of, b"%d" % batch)
        await of.store(Entry("q", batch, 1))
        await of.end()

    async def seen(self) -> list[bytes]:
        async with AsyncClient(self.kafka.bootstrap()) as client:
            found = await client.fetch_all(self.topic, 0, isolation="read_committed")
            return [bytes(record.value or b"") for record in found.records]


@EVERYWHERE
@BOTH
@pytest.mark.parametrize("kind", ["group", "topic"])
def test_lost_answer_to_the_commit_is_asked_for_again(
    kafka_version: KafkaCluster, kind: str
) -> None:
    sink = Sink(kafka_version, kind)

    async def main() -> None:
        with ClusterProxy(kafka_version) as proxy:
            async with sink.owner(proxy.bootstrap) as owner:
                await owner.open()
                for batch in range(3):
                    proxy.nodes[0].drop_answer("EndTxn")
                    await sink.commit(owner, batch)
        assert await sink.seen() == [b"0", b"1", b"2"]

    run(main)


@EVERYWHERE
@BOTH
@pytest.mark.parametrize(
    "api", ["InitProducerId", "TxnOffsetCommit", "AddOffsetsToTxn", "OffsetFetch", "EndTxn"]
)
def test_any_answer_may_be_lost(kafka_version: KafkaCluster, api: str) -> None:
    sink = Sink(kafka_version)

    async def main() -> None:
        with ClusterProxy(kafka_version) as proxy:
            async with sink.owner(proxy.bootstrap) as owner:
                proxy.nodes[0].drop_answer(api)
                await owner.open()
                await sink.commit(owner, 0)
                proxy.nodes[0].drop_answer(api)
                await sink.write(owner, b"lost")
                assert await owner.fence() == Entry("q", 0, 1)
                await sink.commit(owner, 1)
        assert await sink.seen() == [b"0", b"1"]

    run(main)


@EVERYWHERE
@BOTH
def test_owner_dies_with_its_commit_under_way_and_the_commit_happens(
    kafka_version: KafkaCluster,
) -> None:
    sink = Sink(kafka_version)

    async def main() -> None:
        with ClusterProxy(kafka_version) as proxy:
            async with sink.owner(proxy.bootstrap) as owner:
                await owner.open()
                await sink.write(owner, b"0")
                await owner.store(Entry("q", 0, 1))
                lost = proxy.nodes[0].drop_answer("EndTxn", "stall")
                ending = asyncio.create_task(owner.end())
                await asyncio.to_thread(lost.wait)
                ending.cancel()
                async with sink.owner() as successor:
                    assert await successor.open() == Entry("q", 0, 1)
                    await sink.commit(successor, 1)
        assert await sink.seen() == [b"0", b"1"]

    run(main)


@EVERYWHERE
@BOTH
def test_commit_that_comes_after_its_owner_was_replaced_does_not_happen(
    kafka_version: KafkaCluster,
) -> None:
    sink = Sink(kafka_version)

    async def main() -> None:
        with ClusterProxy(kafka_version) as proxy:
            async with sink.owner(proxy.bootstrap) as owner:
                await owner.open()
                await sink.write(owner, b"old")
                await owner.store(Entry("q", 0, 1))
                late = proxy.nodes[0].hold("EndTxn")
                ending = asyncio.create_task(owner.end())
                await asyncio.to_thread(late.wait)
                ending.cancel()
                async with sink.owner() as successor:
                    assert await successor.open() is None
                    await sink.write(successor, b"0")
                    late.release()
                    await asyncio.sleep(0.3)
                    await successor.store(Entry("q", 0, 1))
                    await successor.end()
                    assert await successor.fence() == Entry("q", 0, 1)
        assert await sink.seen() == [b"0"]

    run(main)


@EVERYWHERE
@BOTH
def test_two_owners_that_do_not_know_of_each_other(kafka_version: KafkaCluster) -> None:
    """Each step of the old one after each step of the new one: it never gets through."""
    sink = Sink(kafka_version)

    async def main() -> None:
        async with sink.owner() as old, sink.owner() as new:
            await old.open()
            await sink.commit(old, 0)
            assert await new.open() == Entry("q", 0, 1)
            with pytest.raises((errors.InvalidProducerEpoch, errors.ProducerFenced)):
                await sink.write(old, b"zombie")
            await sink.write(new, b"1")
            with pytest.raises((errors.InvalidProducerEpoch, errors.ProducerFenced)):
                await old.store(Entry("q", 1, 1))
            with pytest.raises(errors.ProducerFenced):
                await old.fence()
            await new.store(Entry("q", 1, 1))
            with pytest.raises((errors.InvalidProducerEpoch, errors.ProducerFenced)):
                await old.end()
            await new.end()
            with pytest.raises(errors.ProducerFenced):
                await old.fence()
            await sink.commit(new, 2)
        assert await sink.seen() == [b"0", b"1", b"2"]

    run(main)


@EVERYWHERE
@BOTH
def test_transaction_that_times_out(kafka_version: KafkaCluster) -> None:
    sink = Sink(kafka_version)

    async def main() -> None:
        async with sink.owner(transaction_timeout=1.0) as owner:
            await owner.open()
            await sink.write(owner, b"lost")
            await owner.store(Entry("q", 0, 1))
            await asyncio.sleep(3.0)
            with pytest.raises(errors.KarrowError):
                await owner.end()
            if owner.version == 1:
                # Whoever was timed out looks like whoever was replaced.
                with pytest.raises(errors.ProducerFenced, match="restart"):
                    await owner.fence()
                assert await owner.open() is None
            else:
                assert await owner.fence() is None
            await sink.commit(owner, 0)
        assert await sink.seen() == [b"0"]

    run(main)


@pytest.mark.slow
@BOTH
def test_topic_that_is_made_anew_between_two_writers(kafka_version: KafkaCluster) -> None:
    """Each partition is whole for its writer, and the rows of the first one are gone."""
    sink = Sink(kafka_version)
    topic = kafka_version.create_topic(partitions=2)
    config = sink.config(kafka_version.bootstrap())
    transaction = BlockingTransaction(config, new_ledger("group", sink.id, sink.topic, None))

    def write(partition: int) -> None:
        place = pa.array([partition], pa.int32())
        rows = pa.record_batch({"value": pa.array([b"%d" % partition]), "partition": place})
        who, version = transaction.who, transaction.version
        with PartProducer(config=config, who=who, version=version) as part:
            part.write(topic, [rows])

    assert transaction.open() is None
    transaction.partitions([topic])
    write(0)
    with karrow.Admin(kafka_version.bootstrap()) as admin:
        admin.delete_topics([topic])
        eventually(lambda: topic not in admin.list_topics())
    kafka_version.create_topic(topic, partitions=2)
    write(1)
    with pytest.raises(errors.StateError, match="made anew within the batch"):
        transaction.store(Entry("q", 0, 2))
    assert transaction.fence() is None
    transaction.partitions([topic])
    for partition in range(2):
        write(partition)
    transaction.store(Entry("q", 0, 2))
    transaction.end()
    assert transaction.fence() == Entry("q", 0, 2)
    with karrow.Client(kafka_version.bootstrap()) as client:
        for partition in range(2):
            found = client.fetch_all(topic, partition, isolation="read_committed")
            assert [bytes(one.value or b"") for one in found.records] == [b"%d" % partition]
