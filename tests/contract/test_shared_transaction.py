"""A transaction across processes: parts write, the owner commits, the ledger tells."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pyarrow as pa
import pytest

import karrow
from karrow import errors
from karrow.aio.client import AsyncClient
from karrow.aio.producing.part import AsyncPartProducer
from karrow.config import ProducerConfig
from karrow.spark.exactly.ledger import Entry, Ledger, new_ledger
from karrow.spark.exactly.part import PartProducer
from karrow.spark.exactly.transaction import BlockingTransaction, SharedTransaction
from karrow.types import SendSummary
from tests.contract.transactional import new_id, settled
from tests.fix_any import AnyKafka

LIMIT = 60.0
# How it shows that a topic is another one: by its id, by its offsets, or the broker sees a gap.
SEEN_SO = (errors.UnknownTopicOrPartition, errors.StateError, errors.OutOfOrderSequenceNumber)
KINDS = pytest.mark.parametrize("kind", ["group", "topic"])


def settings(kafka: AnyKafka, sink: str) -> ProducerConfig:
    return ProducerConfig(
        bootstrap=kafka.bootstrap, transactional_id=f"karrow.sink.{sink}", linger=0
    )


@asynccontextmanager
async def owner(
    kafka: AnyKafka, sink: str, topic: str, kind: str = "group"
) -> AsyncIterator[SharedTransaction]:
    ledger: Ledger = new_ledger(kind, sink, topic, None)
    async with asyncio.timeout(LIMIT), AsyncClient(kafka.bootstrap) as client:
        yield SharedTransaction(client, settings(kafka, sink), ledger)


async def write(
    kafka: AnyKafka, of: SharedTransaction, sink: str, topic: str, partition: int, *values: bytes
) -> SendSummary:
    """What a task does, with a client of its own."""
    rows = pa.table(
        {"value": list(values), "partition": pa.array([partition] * len(values), pa.int32())}
    )
    async with AsyncPartProducer(
        config=settings(kafka, sink), who=of.who, version=of.version
    ) as part:
        done = await (await part.send_arrow(topic, rows))
        assert part.last_sequence(topic, partition) == len(values) - 1
        return done


@KINDS
def test_batches_of_several_writers_commit_with_their_entry(any_kafka: AnyKafka, kind: str) -> None:
    sink, topic = new_id("sink"), any_kafka.create_topic(partitions=3)

    async def main() -> None:
        async with owner(any_kafka, sink, topic, kind) as transaction:
            assert await transaction.open() is None
            for batch in range(3):
                await asyncio.gather(
                    *(
                        write(any_kafka, transaction, sink, topic, part, b"%d" % batch)
                        for part in range(3)
                    )
                )
                await transaction.store(Entry("q", batch, 3))
                await transaction.end()
        async with owner(any_kafka, sink, topic, kind) as transaction:
            assert await transaction.open() == Entry("q", 2, 3)

    asyncio.run(main())
    assert [settled(any_kafka, topic, part) for part in range(3)] == [[b"0", b"1", b"2"]] * 3


@KINDS
def test_fence_aborts_rows_and_entry_and_goes_on(any_kafka: AnyKafka, kind: str) -> None:
    sink, topic = new_id("sink"), any_kafka.create_topic()

    async def main() -> None:
        async with owner(any_kafka, sink, topic, kind) as transaction:
            await transaction.open()
            await write(any_kafka, transaction, sink, topic, 0, b"lost")
            await transaction.store(Entry("q", 0, 1))
            assert await transaction.fence() is None
            await write(any_kafka, transaction, sink, topic, 0, b"a", b"b")
            await transaction.store(Entry("q", 0, 2))
            await transaction.end()
            assert await transaction.fence() == Entry("q", 0, 2)

    asyncio.run(main())
    assert settled(any_kafka, topic) == [b"a", b"b"]


def test_part_whose_topic_is_made_anew_fails(any_kafka: AnyKafka) -> None:
    """Rows that were acknowledged are gone: the batch must not be committed without them."""
    sink, topic = new_id("sink"), any_kafka.create_topic()
    config = settings(any_kafka, sink)
    transaction = BlockingTransaction(config, new_ledger("topic", sink, topic, None))
    transaction.open()
    rows = [pa.record_batch({"value": pa.array([b"a", b"b"])})]
    who, version = transaction.who, transaction.version
    with (
        PartProducer(config=config, who=who, version=version) as part,
        karrow.Admin(any_kafka.bootstrap) as admin,
    ):
        part.write(topic, rows)
        admin.delete_topics([topic])
        wait_for_new(admin, topic)
        with pytest.raises(SEEN_SO):
            part.write(topic, rows)


def wait_for_new(admin: karrow.Admin, topic: str) -> None:
    """Make a topic whose name is still taken for a moment."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            admin.create_topic(topic, 1, 1)
        except errors.TopicAlreadyExists:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def test_writer_of_a_fenced_attempt_is_refused(any_kafka: AnyKafka) -> None:
    sink, topic = new_id("sink"), any_kafka.create_topic()

    async def main() -> None:
        async with owner(any_kafka, sink, topic) as transaction:
            await transaction.open()
            config = settings(any_kafka, sink)
            async with AsyncPartProducer(
                config=config, who=transaction.who, version=transaction.version
            ) as zombie:
                await (await zombie.send(topic, b"lost"))
                await transaction.fence()
                with pytest.raises((errors.InvalidProducerEpoch, errors.ProducerFenced)):
                    await (await zombie.send(topic, b"late"))
                with pytest.raises((errors.InvalidProducerEpoch, errors.ProducerFenced)):
                    await zombie.send(topic, b"later")
            await write(any_kafka, transaction, sink, topic, 0, b"a")
            await transaction.store(Entry("q", 0, 1))
            await transaction.end()

    asyncio.run(main())
    assert settled(any_kafka, topic) == [b"a"]


def test_replaced_owner_can_neither_end_nor_fence_nor_disturb(any_kafka: AnyKafka) -> None:
    sink, topic = new_id("sink"), any_kafka.create_topic()

    async def main() -> None:
        async with (
            owner(any_kafka, sink, topic) as old,
            owner(any_kafka, sink, topic) as new,
        ):
            await old.open()
            await write(any_kafka, old, sink, topic, 0, b"old")
            await old.store(Entry("q", 0, 1))
            assert await new.open() is None
            await write(any_kafka, new, sink, topic, 0, b"new")
            with pytest.raises((errors.InvalidProducerEpoch, errors.ProducerFenced)):
                await old.end()
            # It asks first who has the transaction open, so the new one's goes on.
            with pytest.raises(errors.ProducerFenced, match="another"):
                await old.fence()
            await new.store(Entry("q", 0, 1))
            await new.end()

    asyncio.run(main())
    assert settled(any_kafka, topic) == [b"new"]


def test_timeout_that_the_broker_does_not_allow_is_refused_by_name(any_kafka: AnyKafka) -> None:
    sink, topic = new_id("sink"), any_kafka.create_topic()

    async def main() -> None:
        config = settings(any_kafka, sink).replace(transaction_timeout=86400.0)
        async with AsyncClient(any_kafka.bootstrap) as client:
            transaction = SharedTransaction(client, config, new_ledger("group", sink, topic, None))
            with pytest.raises(errors.ConfigError, match="transaction_timeout=86400 s"):
                await transaction.open()

    asyncio.run(main())


def test_ledger_of_another_program_is_refused(any_kafka: AnyKafka) -> None:
    sink, topic = new_id("sink"), any_kafka.create_topic()

    async def main() -> None:
        async with owner(any_kafka, sink, topic) as transaction:
            await transaction.client.commit_offsets(
                transaction.ledger.name, {(topic, 0): (3, "ours")}
            )
            with pytest.raises(errors.StateError, match="no entry of a ledger"):
                await transaction.open()

    asyncio.run(main())
