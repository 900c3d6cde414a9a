"""A transactional producer's states against brokers: what commits, what aborts, who is fenced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from karrow import errors
from karrow.aio.producing.transactions import State, Transactions
from karrow.errors import KarrowError
from karrow.types import GroupMetadata
from tests.contract.transactional import committed, ends, new_id
from tests.contract.writing import LIMIT, opened, run, sees
from tests.fix_any import AnyKafka


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
