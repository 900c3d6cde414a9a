"""A transactional producer's states in trouble that only the embedded broker makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from karrow import errors
from karrow.aio.producing.transactions import State
from karrow.broker.threaded import Broker
from karrow.errors import KarrowError
from karrow.types import GroupMetadata
from tests.contract.transactional import new_id
from tests.contract.writing import IDENTITIES, opened, run, sees
from tests.fix_any import AnyKafka


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
