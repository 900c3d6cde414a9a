"""A transactional producer's states against brokers: what commits, what aborts, who is fenced."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import karrow
from karrow import errors
from karrow.aio.producing.transactions import State, Transactions
from karrow.broker.threaded import Broker
from karrow.config import ProducerConfig
from karrow.errors import KarrowError
from karrow.net.cluster import Cluster
from karrow.types import GroupMetadata, Node
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


# ---- what brokers agree on


def test_commit_is_visible_and_abort_is_not(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()

    async def main() -> None:
        async with opened(any_kafka.bootstrap) as one:
            assert isinstance(one.writer.refusal, errors.StateError)
            await one.transaction(topic, b"a", b"b")
            await one.transaction(topic, b"lost", commit=False)
            await one.transaction(topic, b"c")
            assert one.stands(State.READY)
            await sees(any_kafka, topic, b"a", b"b", b"c")

    run(main())


def test_version_of_transactions_is_the_clusters(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()

    async def main() -> None:
        async with opened(any_kafka.bootstrap) as one:
            await one.transaction(topic, b"a")
            await one.transaction(topic, b"b")
            epochs = [epoch for _, epoch in one.writer.identities]
            if any_kafka.number >= (4, 0):
                assert (epochs, one.transactions.newest_produce) == ([0, 1, 2], None)
            else:
                assert (epochs, one.transactions.newest_produce) == ([0], 11)

    run(main())


def test_partitions_take_part_together(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic(partitions=3)

    async def main() -> None:
        async with opened(any_kafka.bootstrap) as one:
            for commit in (False, True):
                await one.transactions.begin()
                values = [b"%d" % partition for partition in range(3)]
                written = await asyncio.gather(
                    *(one.write(topic, values[index], partition=index) for index in range(3))
                )
                assert written == [None, None, None]
                await (one.transactions.commit() if commit else one.transactions.abort())
            for partition in range(3):
                await sees(any_kafka, topic, b"%d" % partition, partition=partition)

    run(main())


def test_empty_transactions_ask_nothing(any_kafka: AnyKafka) -> None:
    async def main() -> None:
        async with opened(any_kafka.bootstrap) as one:
            for _ in range(3):
                await one.transactions.begin()
                await one.transactions.commit()
                await one.transactions.begin()
                await one.transactions.abort()
            assert len(one.writer.identities) == 1

    run(main())


def test_offsets_are_stored_with_the_commit(any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(partitions=2), new_id("g")

    async def main() -> None:
        async with opened(any_kafka.bootstrap) as one:
            stored = one.writer.client.committed_offsets

            async def transact(offset: int, *, commit: bool) -> None:
                await one.transactions.begin()
                await one.write(topic, b"%d" % offset)
                await one.transactions.send_offsets(
                    {(topic, 0): offset, (topic, 1): (offset + 1, "note")}, GroupMetadata(group)
                )
                await (one.transactions.commit() if commit else one.transactions.abort())

            await transact(5, commit=True)
            await transact(9, commit=False)
            found = await stored(group, [topic], stable=True)
            assert {key[1]: (one.offset, one.metadata) for key, one in found.items()} == {
                0: (5, ""),
                1: (6, "note"),
            }
            # A transaction may be nothing but offsets.
            await one.transactions.begin()
            await one.transactions.send_offsets({(topic, 0): 7}, GroupMetadata(group))
            await one.transactions.commit()
            assert (await stored(group, [topic], stable=True))[topic, 0].offset == 7  # type: ignore[index]
            await sees(any_kafka, topic, b"5")

    run(main())


def test_offsets_of_a_member_that_was_replaced_are_refused(any_kafka: AnyKafka) -> None:
    topic, group = any_kafka.create_topic(), new_id("g")

    async def main() -> None:
        async with opened(any_kafka.bootstrap) as one:
            await one.writer.client.commit_offsets(group, {(topic, 0): 1})
            await one.transactions.begin()
            await one.write(topic, b"lost")
            stranger = GroupMetadata(group, 3, "somebody")
            with pytest.raises((errors.UnknownMemberId, errors.IllegalGeneration)) as caught:
                await one.transactions.send_offsets({(topic, 0): 7}, stranger)
            assert caught.value.hint == "abort the transaction"
            assert one.stands(State.ABORTABLE_ERROR)
            assert one.writer.refusal is one.transactions.error is caught.value
            with pytest.raises(errors.StateError, match="abort the transaction") as late:
                await one.transactions.commit()
            assert late.value.__cause__ is caught.value
            await one.transactions.abort()
            await one.transaction(topic, b"a")
            await sees(any_kafka, topic, b"a")
            found = await one.writer.client.committed_offsets(group, [topic], stable=True)
            assert [stored.offset for stored in found.values()] == [1]

    run(main())


def test_newer_producer_fences_the_older(any_kafka: AnyKafka) -> None:
    topic, name = any_kafka.create_topic(), new_id("tx")

    async def main() -> None:
        async with (
            opened(any_kafka.bootstrap, name) as old,
            opened(any_kafka.bootstrap, name) as new,
        ):
            await old.transactions.begin()
            await old.write(topic, b"lost")
            await new.transaction(topic, b"a")
            with pytest.raises(errors.ProducerFenced, match="make a new producer"):
                await old.transactions.commit()
            assert old.stands(State.FATAL_ERROR)
            for call in (old.transactions.begin, old.transactions.commit, old.transactions.abort):
                with pytest.raises(errors.ProducerFenced):
                    await call()
            await new.transaction(topic, b"b")
            await sees(any_kafka, topic, b"a", b"b")

    run(main())


def test_write_of_a_fenced_producer_is_abortable_until_the_coordinator_says_more(
    any_kafka: AnyKafka,
) -> None:
    topic, name = any_kafka.create_topic(), new_id("tx")

    async def main() -> None:
        async with (
            opened(any_kafka.bootstrap, name) as old,
            opened(any_kafka.bootstrap, name) as new,
        ):
            await old.transactions.begin()
            await old.write(topic, b"lost")
            await new.transaction(topic, b"a")
            error = await old.write(topic, b"late")
            assert isinstance(error, errors.InvalidProducerEpoch)
            assert old.stands(State.ABORTABLE_ERROR)
            with pytest.raises(errors.ProducerFenced):
                await old.transactions.abort()
            assert old.stands(State.FATAL_ERROR)
            await sees(any_kafka, topic, b"a")

    run(main())


@pytest.mark.parametrize("doubt", ["failed", "indefinite", "unresolved"])
def test_late_batch_finds_no_transaction_after_an_abort(any_kafka: AnyKafka, doubt: str) -> None:
    """What was sent before the abort and comes after it must not join what follows."""
    topic = any_kafka.create_topic()

    async def main() -> None:
        async with opened(any_kafka.bootstrap) as one:
            await one.transaction(topic, b"a")
            await one.transactions.begin()
            await one.write(topic, b"lost")
            late = one.writer.prepared(topic, 0, (b"late",))
            newest = one.transactions.newest_produce
            tell(one.transactions, doubt)
            await one.transactions.abort()
            await one.transactions.begin()
            # Where nothing is in doubt version 1 may leave it to the next batch to raise the epoch.
            first = b"b" if doubt == "failed" else None
            if first is not None:
                assert await one.write(topic, first) is None
            error = await one.writer.send(topic, late, newest)
            # Version 2 answers before it writes the marker: it may still be aborted with the rest.
            is_before_marker = error is None and newest is None
            assert is_before_marker or isinstance(error, errors.InvalidProducerEpoch)
            if first is None:
                assert await one.write(topic, b"b") is None
            await one.transactions.commit()
            await sees(any_kafka, topic, b"a", b"b")

    run(main())


def tell(transactions: Transactions, doubt: str) -> None:
    if doubt == "failed":
        transactions.batch_failed(errors.TopicAuthorizationFailed())
    elif doubt == "indefinite":
        error = errors.RequestTimeout("no answer")
        error.indefinite = True
        transactions.batch_failed(error)
    elif doubt == "unresolved":
        transactions.unresolved()


def test_fence_does_not_take_the_id_from_a_newer_producer(any_kafka: AnyKafka) -> None:
    topic, name = any_kafka.create_topic(), new_id("tx")

    async def main() -> None:
        async with (
            opened(any_kafka.bootstrap, name) as old,
            opened(any_kafka.bootstrap, name) as new,
        ):
            await old.transactions.begin()
            await old.write(topic, b"lost")
            old.transactions.unresolved()
            await new.transactions.begin()
            await new.write(topic, b"a")
            with pytest.raises(errors.ProducerFenced):
                await old.transactions.abort()
            await new.transactions.commit()
            await sees(any_kafka, topic, b"a")

    run(main())


def test_transaction_that_took_too_long(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()

    async def main() -> None:
        async with opened(any_kafka.bootstrap, transaction_timeout=0.5) as one:
            await one.transactions.begin()
            await one.write(topic, b"lost")
            await asyncio.sleep(0.6)
            await sees(any_kafka, topic)
            if any_kafka.number >= (4, 0):
                with pytest.raises(KarrowError, match=r"longer than transaction_timeout=0\.5"):
                    await one.transactions.commit()
                assert one.stands(State.ABORTABLE_ERROR)
                await one.transactions.abort()
                await one.transaction(topic, b"a")
                await sees(any_kafka, topic, b"a")
            else:
                with pytest.raises(errors.ProducerFenced, match=r"than transaction_timeout=0\.5"):
                    await one.transactions.commit()
                assert one.stands(State.FATAL_ERROR)

    run(main())


@pytest.mark.since("4.0")
def test_write_after_the_time_was_up_can_be_aborted(any_kafka: AnyKafka) -> None:
    topic = any_kafka.create_topic()

    async def main() -> None:
        async with opened(any_kafka.bootstrap, transaction_timeout=0.5) as one:
            await one.transactions.begin()
            await one.write(topic, b"lost")
            await asyncio.sleep(0.6)
            await sees(any_kafka, topic)
            error = await one.write(topic, b"late")
            assert error is not None
            assert "longer than transaction_timeout=0.5" in str(error)
            await one.transactions.abort()
            await one.transaction(topic, b"a")
            await sees(any_kafka, topic, b"a")

    run(main())


def test_timeout_that_the_broker_does_not_allow(any_kafka: AnyKafka) -> None:
    async def main() -> None:
        async with opened(any_kafka.bootstrap, transaction_timeout=3600) as one:
            with pytest.raises(
                errors.InvalidTransactionTimeout, match=r"transaction\.max\.timeout"
            ):
                await one.transactions.init()
            assert one.stands(State.FATAL_ERROR)

    run(main())


@pytest.mark.parametrize("pause", [0, 1, 3, 10])
def test_cancelled_commit_can_be_followed_by_anything(any_kafka: AnyKafka, pause: int) -> None:
    """After so many turns of the loop: while it drains, before it is sent, under way."""
    topic = any_kafka.create_topic()

    async def main() -> None:
        async with opened(any_kafka.bootstrap) as one:
            seen = []
            for after in ("abort", "commit", "begin"):
                value = after.encode()
                await one.transactions.begin()
                await one.write(topic, value)
                if await cancelled(one.transactions.commit(), pause):
                    if after == "begin" and one.stands(State.IN_TRANSACTION):
                        await one.transactions.abort()
                    elif after == "begin":
                        await one.transactions.begin()
                        await one.transactions.abort()
                    else:
                        await getattr(one.transactions, after)()
                if after == "commit":
                    seen.append(value)
                await one.transaction(topic, b"next")
                seen.append(b"next")
            found = await asyncio.to_thread(values_of, any_kafka, topic)
            unknown = {b"abort", b"begin"}
            assert [value for value in found if value not in unknown] == seen

    run(main())


async def cancelled(call: Coroutine[Any, Any, None], turns: int) -> bool:
    """Whether a call was cancelled before it was done."""
    task = asyncio.create_task(call)
    for _ in range(turns + 1):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


def values_of(kafka: AnyKafka, topic: str) -> list[bytes | None]:
    deadline = time.monotonic() + LIMIT
    while len(set(ends(kafka, topic))) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return committed(kafka, topic)


# ---- trouble that only the embedded broker makes


@pytest.fixture(params=["4.3", "3.9"])
def embedded(request: pytest.FixtureRequest) -> Iterator[AnyKafka]:
    """The embedded broker, with transactions of version 2 and then of version 1."""
    with Broker(version=request.param) as broker:
        yield AnyKafka(request.param, broker)


def broker_of(embedded: AnyKafka) -> Broker:
    assert isinstance(embedded.broker, Broker)
    return embedded.broker


QUICK: Any = {"api_timeout": 1.5, "request_timeout": 0.3}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["drop", "close"])
@pytest.mark.parametrize("commit", [True, False])
def test_lost_answer_to_the_end_is_asked_for_again(
    embedded: AnyKafka, how: str, when: Any, commit: bool
) -> None:
    topic, broker = embedded.create_topic(), broker_of(embedded)

    async def main() -> None:
        async with opened(embedded.bootstrap, **{**QUICK, "api_timeout": 5.0}) as one:
            await one.transactions.begin()
            await one.write(topic, b"a")
            trouble = broker.drop if how == "drop" else broker.close
            trouble("EndTxn", when=when)
            await (one.transactions.commit() if commit else one.transactions.abort())
            # The answer that came says nothing of the request that may still be on its way.
            assert len(set(one.writer.identities)) == 2
            await one.transaction(topic, b"b")
            await sees(embedded, topic, *([b"a", b"b"] if commit else [b"b"]))

    run(main())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("after", ["commit", "abort", "begin"])
def test_commit_without_an_answer_is_unknown(embedded: AnyKafka, when: Any, after: str) -> None:
    topic, broker = embedded.create_topic(), broker_of(embedded)

    async def main() -> None:
        async with opened(embedded.bootstrap, **QUICK) as one:
            await one.transactions.begin()
            await one.write(topic, b"a")
            broker.close("EndTxn", when=when, times=1000)
            with pytest.raises(errors.RequestTimeout, match="is unknown") as caught:
                await one.transactions.commit()
            assert caught.value.indefinite
            assert isinstance(one.writer.refusal, errors.StateError)
            broker.clear_faults()
            if after != "begin":
                await getattr(one.transactions, after)()
            await one.transaction(topic, b"b")
            done = after == "commit" or when == "after"
            await sees(embedded, topic, *([b"a", b"b"] if done else [b"b"]))

    run(main())


def test_abort_without_an_answer_can_be_repeated(embedded: AnyKafka) -> None:
    topic, broker = embedded.create_topic(), broker_of(embedded)

    async def main() -> None:
        async with opened(embedded.bootstrap, **QUICK) as one:
            await one.transactions.begin()
            await one.write(topic, b"a")
            broker.close("EndTxn", times=1000)
            with pytest.raises(KarrowError, match="abort again"):
                await one.transactions.abort()
            broker.clear_faults()
            await one.transactions.abort()
            await one.transaction(topic, b"b")
            await sees(embedded, topic, b"b")

    run(main())


@pytest.mark.parametrize(
    "error", ["CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"]
)
def test_passing_errors_of_coordinators_are_waited_for(embedded: AnyKafka, error: str) -> None:
    topic, group, broker = embedded.create_topic(), new_id("g"), broker_of(embedded)

    async def main() -> None:
        async with opened(embedded.bootstrap) as one:
            for api in IDENTITIES:
                broker.fail(api, error, times=2)
            await one.transactions.begin()
            await one.write(topic, b"a")
            await one.transactions.send_offsets({(topic, 0): 3}, GroupMetadata(group))
            await one.transactions.commit()
            await sees(embedded, topic, b"a")

    run(main())


def test_coordinator_moves() -> None:
    with Broker(3) as broker:
        name, group, topic = new_id("tx"), new_id("g"), "moved"
        broker.create_topic(topic, 1)

        async def main() -> None:
            async with opened(broker.bootstrap, name) as one:
                for node in (1, 2, 3):
                    broker.move_coordinator(name, node, transactional=True)
                    await one.transactions.begin()
                    await one.write(topic, b"%d" % node)
                    broker.move_coordinator(group, node)
                    await one.transactions.send_offsets({(topic, 0): node}, GroupMetadata(group))
                    broker.move_coordinator(name, node % 3 + 1, transactional=True)
                    await one.transactions.commit()
                fetched = await one.writer.client.fetch(topic, 0, 0, isolation="read_committed")
                assert [record.value for record in fetched.records] == [b"1", b"2", b"3"]

        run(main())


@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "AddOffsetsToTxn"])
def test_version_1_without_an_answer_to_what_is_added_is_abortable(api: str) -> None:
    with Broker(version="3.9") as broker:
        kafka, group = AnyKafka("3.9", broker), new_id("g")
        topic = kafka.create_topic()

        async def main() -> None:
            async with opened(kafka.bootstrap, **QUICK) as one:
                await one.transactions.begin()
                broker.close(api, when="after", times=1000)
                if api == "AddPartitionsToTxn":
                    assert not one.transactions.may_send(topic, 0)
                    await one.writer.failed.wait()
                else:
                    with pytest.raises(errors.NetworkError):
                        await one.transactions.send_offsets({(topic, 0): 1}, GroupMetadata(group))
                assert one.stands(State.ABORTABLE_ERROR)
                broker.clear_faults()
                await one.transactions.abort()
                assert len(one.writer.identities) == 2
                await one.transaction(topic, b"a")
                await sees(kafka, topic, b"a")

        run(main())


def test_version_1_adds_what_is_noted_in_one_request() -> None:
    with Broker(version="3.9") as broker:
        kafka = AnyKafka("3.9", broker)
        topic = kafka.create_topic(partitions=5)

        async def main() -> None:
            async with opened(kafka.bootstrap) as one:
                await one.transactions.begin()
                early = [one.transactions.may_send(topic, index) for index in range(5)]
                assert not any(early)
                await one.writer.woken.wait()
                assert all(one.transactions.may_send(topic, index) for index in range(5))
                await one.transactions.commit()

        run(main())
        assert [seen.api for seen in broker.requests if seen.api == "AddPartitionsToTxn"] == [
            "AddPartitionsToTxn"
        ]


@pytest.mark.parametrize("error", ["TOPIC_AUTHORIZATION_FAILED", "TRANSACTION_ABORTABLE"])
def test_version_1_partition_that_is_refused_can_be_aborted(error: str) -> None:
    with Broker(version="3.9") as broker:
        kafka = AnyKafka("3.9", broker)
        topic = kafka.create_topic()

        async def main() -> None:
            async with opened(kafka.bootstrap) as one:
                await one.transactions.begin()
                broker.fail("AddPartitionsToTxn", error)
                assert not one.transactions.may_send(topic, 0)
                await one.writer.failed.wait()
                assert one.writer.discarded == [one.transactions.error]
                await one.transactions.abort()
                await one.transaction(topic, b"a")
                await sees(kafka, topic, b"a")

        run(main())


def test_epochs_run_out(embedded: AnyKafka) -> None:
    """The producer id changes with the end, or with the next identity (KAFKA-20310)."""
    topic, broker, name = embedded.create_topic(), broker_of(embedded), new_id("tx")

    async def main() -> None:
        async with opened(embedded.bootstrap, name) as one:
            await one.transactions.init()
            known = broker._inner._cluster.transactions.find(name)
            assert known is not None
            known.epoch = 32765
            one.transactions._take(type(one.transactions._identity)(known.producer_id, 32765))
            for value in (b"a", b"b", b"c"):
                await one.transactions.begin()
                await one.write(topic, value)
                if embedded.number < (4, 0):
                    one.transactions.unresolved()
                    await one.transactions.abort()
                else:
                    await one.transactions.commit()
            assert len({producer_id for producer_id, _ in one.writer.identities}) == 2
            await one.transaction(topic, b"d")
            last = [b"d"] if embedded.number < (4, 0) else [b"a", b"b", b"c", b"d"]
            await sees(embedded, topic, *last)

    run(main())
