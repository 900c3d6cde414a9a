"""Transactions of producers from end to end: all of a block is seen, or nothing, whatever fails."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Literal

import pytest

import karrow
from karrow import errors
from karrow.broker.threaded import Broker
from karrow.types import GroupMetadata, TopicPartition
from tests.contract.transactional import committed, ends, new_id
from tests.fix_any import AnyKafka

LIMIT = 120.0
PARTITIONS = 3
# Every API that a transaction needs.
APIS = (
    "Produce",
    "EndTxn",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "FindCoordinator",
    "Metadata",
)
PASSING = {
    "Produce": ["NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS"],
    "Metadata": ["LEADER_NOT_AVAILABLE"],
}
PASSING_FOR_COORDINATORS = ["NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"]
Outcome = Literal["committed", "aborted", "unknown"]


class Undo(Exception):
    """What makes a block fail."""


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, LIMIT))


def options(**more: Any) -> Any:
    return {"transactional_id": new_id("tx"), "api_timeout": 20.0, **more}


def seen(kafka: AnyKafka, topic: str, partitions: int = 1) -> list[bytes]:
    """What readers of committed data see, once nothing is open any more."""
    found: list[bytes] = []
    deadline = time.monotonic() + LIMIT
    for partition in range(partitions):
        while len(set(ends(kafka, topic, partition))) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        found += [value or b"" for value in committed(kafka, topic, partition)]
    return found


@pytest.fixture(params=["4.3", "3.9"])
def embedded(request: pytest.FixtureRequest) -> Iterator[tuple[Broker, AnyKafka]]:
    """The embedded broker, with transactions of version 2 and then of version 1."""
    with Broker(version=request.param) as broker:
        yield broker, AnyKafka(request.param, broker)


def test_block_commits_or_aborts(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with karrow.Producer(any_kafka.bootstrap, **options()) as producer:
        with pytest.raises(errors.StateError, match="begin"):
            producer.send(topic, b"early")
        with producer.transaction():
            first = producer.send(topic, b"a")
        assert first.result(timeout=5).offset == 0
        with contextlib.suppress(Undo), producer.transaction():
            producer.send(topic, b"lost")
            raise Undo
        with producer.transaction():
            pass
        with producer.transaction():
            producer.send(topic, b"b")
        with pytest.raises(errors.StateError, match="begin"):
            producer.send(topic, b"late")
    assert seen(any_kafka, topic) == [b"a", b"b"]


def test_many_transactions_on_many_partitions(any_kafka: AnyKafka) -> None:
    topic, wanted = any_kafka.create_topic(partitions=PARTITIONS), []

    async def main() -> None:
        async with karrow.AsyncProducer(any_kafka.bootstrap, **options()) as producer:
            for number in range(20):
                await producer.begin_transaction()
                values = [b"%d-%d" % (number, index) for index in range(50)]
                for index, value in enumerate(values):
                    await producer.send(topic, value, partition=index % PARTITIONS)
                if number % 3 == 1:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    wanted.extend(values)

    run(main())
    assert sorted(seen(any_kafka, topic, PARTITIONS)) == sorted(wanted)


def test_offsets_go_with_the_records(any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(), new_id("g")
    with (
        karrow.Client(any_kafka.bootstrap) as client,
        karrow.Producer(any_kafka.bootstrap, **options()) as producer,
    ):
        with producer.transaction() as transaction:
            producer.send(topic, b"a")
            transaction.send_offsets(GroupMetadata(group), {(topic, 0): 3})
        with contextlib.suppress(Undo), producer.transaction() as transaction:
            transaction.send_offsets(GroupMetadata(group), {(topic, 0): 9})
            raise Undo
        stored = client.committed_offsets(group, [topic], stable=True)
        assert [one.offset for one in stored.values()] == [3]


def test_older_producer_is_fenced(any_kafka: AnyKafka) -> None:
    topic, shared = any_kafka.create_topic(), options()
    with (
        karrow.Producer(any_kafka.bootstrap, **shared) as old,
        karrow.Producer(any_kafka.bootstrap, **shared) as new,
    ):
        old.begin_transaction()
        old.send(topic, b"lost").result(timeout=20)
        with new.transaction():
            new.send(topic, b"a")
        with pytest.raises(errors.ProducerFenced, match="make a new producer"):
            old.commit_transaction()
        with pytest.raises(errors.ProducerFenced):
            old.send(topic, b"late")
        with new.transaction():
            new.send(topic, b"b")
    assert seen(any_kafka, topic) == [b"a", b"b"]


def test_transaction_that_took_too_long(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()
    with karrow.Producer(any_kafka.bootstrap, **options(transaction_timeout=0.5)) as producer:
        transaction = producer.transaction()
        transaction.__enter__()
        producer.send(topic, b"lost").result(timeout=20)
        time.sleep(0.6)
        assert seen(any_kafka, topic) == []
        with pytest.raises(errors.KarrowError, match="transaction_timeout"):
            transaction.__exit__(None, None, None)
        if any_kafka.number >= (4, 0):
            with producer.transaction():
                producer.send(topic, b"a")
            assert seen(any_kafka, topic) == [b"a"]
        else:
            with pytest.raises(errors.ProducerFenced):
                producer.begin_transaction()


@pytest.mark.parametrize("when", ["before", "after"])
def test_lost_answers_to_writes_make_no_second_copy(
    embedded: tuple[Broker, AnyKafka], when: Any
) -> None:
    broker, kafka = embedded
    topic = kafka.create_topic(partitions=PARTITIONS)
    with karrow.Producer(kafka.bootstrap, **options(request_timeout=0.5)) as producer:
        for number in range(5):
            broker.close("Produce", when=when, times=2)
            with producer.transaction():
                for index in range(6):
                    producer.send(topic, b"%d-%d" % (number, index), partition=index % PARTITIONS)
    found = seen(kafka, topic, PARTITIONS)
    assert sorted(found) == [b"%d-%d" % (n, i) for n in range(5) for i in range(6)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_write_that_was_given_up_is_aborted(embedded: tuple[Broker, AnyKafka], when: Any) -> None:
    """Several at once: each of them fails, and all of what was written is aborted."""
    broker, kafka = embedded
    topic = kafka.create_topic(partitions=PARTITIONS)
    limits = options(request_timeout=0.2, delivery_timeout=0.7, api_timeout=5.0)
    with karrow.Producer(kafka.bootstrap, **limits) as producer:
        with producer.transaction():
            producer.send(topic, b"a", partition=0)
        broker.drop("Produce", when=when, times=1000)
        with pytest.raises(errors.StateError, match="abort") as caught, producer.transaction():
            sent = [producer.send(topic, b"lost", partition=index) for index in range(PARTITIONS)]
        assert isinstance(caught.value.__cause__, errors.RequestTimeout)
        assert all(isinstance(one.exception(5), errors.KarrowError) for one in sent)
        broker.clear_faults()
        for value in (b"b", b"c"):
            with producer.transaction():
                producer.send(topic, value, partition=0)
    assert seen(kafka, topic, PARTITIONS) == [b"a", b"b", b"c"]


def test_leaders_move_while_transactions_are_open() -> None:
    with Broker(3) as broker:
        broker.create_topic("moving", PARTITIONS, 3)
        with karrow.Producer(broker.bootstrap, **options()) as producer:
            for number in range(6):
                with producer.transaction():
                    for index in range(PARTITIONS):
                        producer.send("moving", b"%d" % number, partition=index)
                        broker.move_leader("moving", index)
        with karrow.Client(broker.bootstrap) as client:
            for index in range(PARTITIONS):
                found = client.fetch("moving", index, 0, isolation="read_committed")
                assert [one.value for one in found.records] == [b"%d" % n for n in range(6)]


# ---- trouble by chance, with a checker


def check(outcomes: dict[bytes, Outcome], found: list[bytes]) -> None:
    """Compare what is known of transactions with what is seen of them."""
    for name, outcome in outcomes.items():
        allowed = {
            "committed": {PARTITIONS},
            "aborted": {0},
            "unknown": {0, PARTITIONS},
        }[outcome]
        assert found.count(name) in allowed, (name, outcome, found.count(name))


async def transact(
    producer: karrow.AsyncProducer, topic: str, name: bytes, group: str, *, commit: bool
) -> Outcome:
    """One transaction over all partitions, and what is known of it afterwards."""
    await persist(producer.begin_transaction)
    try:
        for index in range(PARTITIONS):
            await producer.send(topic, name, partition=index)
        offsets = {(topic, 0): int(name)}
        await producer.transactions.send_offsets(offsets, GroupMetadata(group))
        if commit:
            await producer.commit_transaction()
            return "committed"
    except errors.KarrowError as error:
        await persist(producer.abort_transaction)
        return "unknown" if error.indefinite else "aborted"
    await persist(producer.abort_transaction)
    return "aborted"


async def persist(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Ask again as long as there is hope."""
    while True:
        try:
            return await call()
        except errors.KarrowError as error:
            if not error.retriable:
                raise


def trouble(broker: Broker, chance: random.Random) -> None:
    api = chance.choice(APIS)
    times = chance.choice([1, 1, 2, 5])
    when: Any = chance.choice(["before", "after"])
    kind = chance.choice(["close", "drop", "fail", "delay"])
    if kind == "close":
        broker.close(api, when=when, times=times)
    elif kind == "drop":
        broker.drop(api, when=when, times=times)
    elif kind == "delay":
        broker.delay(api, chance.choice([0.01, 0.15]), when=when, times=times)
    elif api != "FindCoordinator":
        broker.fail(api, chance.choice(PASSING.get(api, PASSING_FOR_COORDINATORS)), times=times)


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 12))]
)
def test_whatever_fails_all_of_a_transaction_is_seen_or_nothing(
    embedded: tuple[Broker, AnyKafka], seed: int
) -> None:
    broker, kafka = embedded
    topic, group = kafka.create_topic(partitions=PARTITIONS), new_id("g")
    outcomes: dict[bytes, Outcome] = {}
    chance = random.Random(seed)
    limits = options(request_timeout=0.1, delivery_timeout=0.6, api_timeout=0.8)

    async def main() -> None:
        async with karrow.AsyncProducer(kafka.bootstrap, retry_backoff=0.01, **limits) as producer:
            await producer.init_transactions()
            for number in range(25):
                name = b"%d" % number
                for _ in range(chance.choice([0, 0, 1, 3])):
                    trouble(broker, chance)
                commit = chance.random() < 0.8
                outcomes[name] = await transact(producer, topic, name, group, commit=commit)
            broker.clear_faults()
            await persist(producer.begin_transaction)
            await producer.abort_transaction()

    run(main())
    found = seen(kafka, topic, PARTITIONS)
    check(outcomes, found)
    assert list(outcomes.values()).count("committed") > 5
    with karrow.Client(kafka.bootstrap) as client:
        stored = client.committed_offsets(group, [topic], stable=True)
    # No offsets without their records, none that came late.
    assert stored[TopicPartition(topic, 0)].offset == max(map(int, found))
