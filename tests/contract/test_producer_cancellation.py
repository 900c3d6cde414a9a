"""Row 40: a producer's calls are cancelled at every await, and only the call is over by that.

The embedded broker sees every cut there is, with and without trouble of its own; a real one some.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import karrow
from karrow import errors
from karrow.aio._delivery import Delivery
from karrow.broker.threaded import Broker
from karrow.types import GroupMetadata, TopicPartition
from tests.contract.cutting import WAYS, Cut
from tests.contract.transactional import new_id
from tests.fix_any import AnyKafka

LIMIT = 120.0
# How long anything may take after a cut.
SOON = 10.0
PARTITIONS = 2
# Every so many cuts on a real broker, and where a broker makes trouble: that takes its time.
SOME = 2
FEW = 7
RECORDS = 8
TRANSACTIONS = 2


@dataclass
class Run:
    """What a producer did until it was cut off."""

    kafka: AnyKafka
    topic: str
    cut: Cut
    name: str = field(default_factory=lambda: new_id("run"))
    sent: dict[bytes, Delivery] = field(default_factory=dict)
    bulk: set[bytes] = field(default_factory=set)
    committed: set[int] = field(default_factory=set)
    begun: int = -1
    is_committing: bool = False
    is_closing: bool = False

    def value(self, what: object) -> bytes:
        """Unlike all others; a few of them fill the buffer."""
        return f"{self.name}/{what}".encode().ljust(300, b".")

    def producer(self, **options: Any) -> karrow.AsyncProducer:
        return karrow.AsyncProducer(
            self.kafka.bootstrap,
            buffer_bytes=1024,
            linger=0.0,
            api_timeout=SOON,
            retry_backoff=0.005,
            retry_backoff_max=0.01,
            reconnect_backoff=0.005,
            reconnect_backoff_max=0.01,
            **options,
        )

    async def send(self, producer: karrow.AsyncProducer, what: object, partition: int = 0) -> None:
        value = self.value(what)
        self.sent[value] = await producer.send(self.topic, value, partition=partition)

    async def commit(self, producer: karrow.AsyncProducer) -> None:
        self.is_committing = True
        await producer.commit_transaction()
        self.is_committing = False
        self.committed.add(self.begun)

    async def close(self, producer: karrow.AsyncProducer) -> None:
        self.is_closing = True
        await producer.close()


def cuts(stride: int) -> Iterator[Cut]:
    """Further and further, until one is not made."""
    for number, way in enumerate(WAYS):
        for place in itertools.count(number % stride, stride):
            cut = Cut(place, way)
            yield cut
            if not cut.is_made:
                break


def at_every_await(
    kafka: AnyKafka,
    topic: str,
    work: Callable[[Run], Coroutine[Any, Any, None]],
    *,
    stride: int = 1,
    trouble: Callable[[Broker, str], None] | None = None,
) -> list[Run]:
    """Do some work with each cut, and see that nothing is left of it."""
    done: list[Run] = []
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        before = asyncio.all_tasks()
        for cut in cuts(stride):
            done.append(Run(kafka, topic, cut))
            if trouble is not None and isinstance(kafka.broker, Broker):
                kafka.broker.clear_faults()
                trouble(kafka.broker, done[-1].name)
            await asyncio.wait_for(work(done[-1]), LIMIT)
            assert asyncio.all_tasks() == before

    asyncio.run(main())
    assert complaints == []
    assert sum(run.cut.is_made for run in done) > len(WAYS)
    return done


def values(kafka: AnyKafka, topic: str) -> list[bytes]:
    """What readers of committed data see, once nothing is open any more."""
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT
    with karrow.Client(kafka.bootstrap) as client:
        for partition in range(PARTITIONS):
            end = client.latest_offset(topic, partition)
            while client.latest_offset(topic, partition, isolation="read_committed") < end:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            said = client.fetch_all(topic, partition, isolation="read_committed").records
            found += [record.value or b"" for record in said]
    return found


@pytest.fixture(params=["4.3", "3.9"])
def embedded(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """The embedded broker, with transactions of version 2 and then of version 1."""
    with Broker(version=request.param) as broker:
        yield AnyKafka(request.param, broker)


# Without transactions.


async def write(run: Run, producer: karrow.AsyncProducer) -> None:
    """Calls that wait for a topic, for room, for outcomes, and for the end."""
    for number in range(RECORDS):
        await run.send(producer, number, number % PARTITIONS)
    await producer.flush()
    await run.send(producer, "awaited")
    await run.sent[run.value("awaited")]
    rows = [run.value(f"row {number}") for number in range(RECORDS)]
    run.bulk.update(rows)
    await (await producer.send_arrow(run.topic, pa.table({"value": rows})))
    assert await producer.partitions_for(run.topic) == PARTITIONS
    await run.close(producer)


async def write_until_cut(run: Run) -> None:
    producer = run.producer()
    await run.cut.run(write(run, producer))
    async with asyncio.timeout(SOON):
        if not run.is_closing:
            await run.send(producer, "after")
            await producer.flush()
        await producer.close()
        for delivery in run.sent.values():
            assert delivery.done()
            assert (await delivery).offset is not None


def check_written(kafka: AnyKafka, topic: str, done: list[Run]) -> None:
    """What was taken is written once, in order; what was not is not there."""
    found = values(kafka, topic)
    assert len(set(found)) == len(found)
    for run in done:
        own = [value for value in found if value.startswith(f"{run.name}/".encode())]
        assert {value for value in own if value not in run.bulk} == set(run.sent)
        if not run.cut.is_made:
            assert set(own) == {*run.sent, *run.bulk}
        for partition in range(PARTITIONS):
            line = [run.value(number) for number in range(partition, RECORDS, PARTITIONS)]
            assert [value for value in own if value in line] == [v for v in line if v in run.sent]


def test_producer_outlives_a_cancelled_call(newest_kafka: AnyKafka) -> None:
    topic = newest_kafka.create_topic(partitions=PARTITIONS)
    stride = 1 if newest_kafka.is_embedded else SOME
    done = at_every_await(newest_kafka, topic, write_until_cut, stride=stride)
    check_written(newest_kafka, topic, done)


def lose_answers(broker: Broker, _: str) -> None:
    """Connections break after requests were acted on, and before."""
    broker.fail("Metadata", "LEADER_NOT_AVAILABLE")
    broker.close("InitProducerId", when="after")
    broker.close("Produce", when="after", times=2)
    broker.close("Metadata")


@pytest.mark.parametrize("stride", [FEW, pytest.param(1, marks=pytest.mark.slow)])
def test_producer_in_trouble_outlives_a_cancelled_call(embedded: AnyKafka, stride: int) -> None:
    topic = embedded.create_topic(partitions=PARTITIONS)
    done = at_every_await(embedded, topic, write_until_cut, stride=stride, trouble=lose_answers)
    check_written(embedded, topic, done)


# With transactions.


async def transact(run: Run, producer: karrow.AsyncProducer) -> None:
    """Call by call."""
    await producer.init_transactions()
    for number in range(TRANSACTIONS):
        run.begun = number
        await producer.begin_transaction()
        for partition in range(PARTITIONS):
            await run.send(producer, f"{number} {partition}", partition)
        await producer.transactions.send_offsets(*offsets(run, number))
        await run.commit(producer)
    await run.close(producer)


async def transact_in_blocks(run: Run, producer: karrow.AsyncProducer) -> None:
    """The same as blocks of code."""
    for number in range(TRANSACTIONS):
        run.begun = number
        async with producer.transaction() as transaction:
            for partition in range(PARTITIONS):
                await run.send(producer, f"{number} {partition}", partition)
            await producer.flush()
            wanted, group = offsets(run, number)
            await transaction.send_offsets(group, wanted)
            run.is_committing = True
        run.is_committing = False
        run.committed.add(number)
    await run.close(producer)


def offsets(run: Run, number: int) -> tuple[dict[tuple[str, int], int], GroupMetadata]:
    return {(run.topic, 0): number + 1}, GroupMetadata(run.name)


async def go_on(run: Run, producer: karrow.AsyncProducer) -> None:
    """Open the next transaction, whatever the last one came to; each way has its turn."""
    refused = contextlib.suppress(errors.StateError)
    turn = (run.cut.place + WAYS.index(run.cut.way)) % 3
    if turn == 0 and run.is_committing:
        with refused:
            await run.commit(producer)
    elif turn == 1:
        with refused:
            await producer.begin_transaction()
            return
    with refused:
        await producer.abort_transaction()
    await producer.begin_transaction()


def until_cut(
    work: Callable[[Run, karrow.AsyncProducer], Coroutine[Any, Any, None]],
) -> Callable[[Run], Coroutine[Any, Any, None]]:
    async def cut_off(run: Run) -> None:
        producer = run.producer(transactional_id=run.name)
        await run.cut.run(work(run, producer))
        async with asyncio.timeout(SOON):
            if not run.is_closing:
                await go_on(run, producer)
                await run.send(producer, "after")
                await producer.commit_transaction()
            await producer.close()
            assert all(delivery.done() for delivery in run.sent.values())

    return cut_off


def check_transactions(kafka: AnyKafka, topic: str, done: list[Run]) -> None:
    """All of a transaction is there, or nothing; what was committed is, and one more may be."""
    found = values(kafka, topic)
    assert len(set(found)) == len(found)
    with karrow.Client(kafka.bootstrap) as client:
        for run in done:
            seen = set()
            for number in range(TRANSACTIONS):
                parts = [run.value(f"{number} {partition}") for partition in range(PARTITIONS)]
                there = [part in found for part in parts]
                assert all(there) or not any(there)
                if all(there):
                    seen.add(number)
            assert run.committed <= seen <= {*run.committed, run.begun}
            assert (run.value("after") in found) is not run.is_closing
            stored = client.committed_offsets(run.name, [topic], stable=True)
            position = stored.get(TopicPartition(topic, 0))
            assert (position and position.offset) == (max(seen) + 1 if seen else None)


@pytest.mark.parametrize("work", [transact, transact_in_blocks])
def test_transactions_outlive_a_cancelled_call(newest_kafka: AnyKafka, work: Any) -> None:
    """Whatever a cancelled call has left, the next transaction begins."""
    topic = newest_kafka.create_topic(partitions=PARTITIONS)
    stride = 1 if newest_kafka.is_embedded else SOME
    done = at_every_await(newest_kafka, topic, until_cut(work), stride=stride)
    check_transactions(newest_kafka, topic, done)


@pytest.mark.parametrize("work", [transact, transact_in_blocks])
def test_transactions_of_version_1_outlive_a_cancelled_call(work: Any) -> None:
    with Broker(version="3.9") as broker:
        kafka = AnyKafka("3.9", broker)
        topic = kafka.create_topic(partitions=PARTITIONS)
        check_transactions(kafka, topic, at_every_await(kafka, topic, until_cut(work)))


def lose_answers_of_coordinators(broker: Broker, name: str) -> None:
    """The same for what transactions ask, besides errors that pass."""
    lose_answers(broker, name)
    broker.close("FindCoordinator", when="after")
    broker.fail("InitProducerId", "CONCURRENT_TRANSACTIONS")
    for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"):
        broker.fail(api, "NOT_COORDINATOR")
        broker.close(api, when="after")


def be_slow(broker: Broker, name: str) -> None:
    """What a cancelled call has asked comes to pass after the next one has begun."""
    broker.move_coordinator(name, 1, transactional=True)
    broker.move_coordinator(name, 2)
    broker.delay("TxnOffsetCommit", 0.03)
    broker.delay("EndTxn", 0.02)
    broker.delay("Produce", 0.06)


@pytest.mark.parametrize("version", ["4.3", "3.9"])
def test_transactions_of_slow_brokers_outlive_a_cancelled_call(version: str) -> None:
    with Broker(version=version, brokers=2) as broker:
        kafka, topic = AnyKafka(version, broker), "topic"
        with karrow.Client(kafka.bootstrap) as client:
            client.create_topic(topic, PARTITIONS)
        done = at_every_await(kafka, topic, until_cut(transact), trouble=be_slow)
        check_transactions(kafka, topic, done)


@pytest.mark.parametrize("stride", [FEW, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("work", [transact, transact_in_blocks])
def test_transactions_in_trouble_outlive_a_cancelled_call(
    embedded: AnyKafka, work: Any, stride: int
) -> None:
    topic, trouble = embedded.create_topic(partitions=PARTITIONS), lose_answers_of_coordinators
    done = at_every_await(embedded, topic, until_cut(work), stride=stride, trouble=trouble)
    check_transactions(embedded, topic, done)
