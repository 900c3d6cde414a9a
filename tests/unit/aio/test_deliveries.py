"""Deliveries: the outcome of a batch, for each of its records."""

from __future__ import annotations

import asyncio
import threading

import pytest

from karrow.aio._batch import Batch
from karrow.aio._delivery import Delivery
from karrow.errors import InvalidRecord, KarrowError, NotLeaderOrFollower, ProduceError
from karrow.types import RecordMetadata
from tests.unit.aio.accumulating import Sending, new_accumulator


def sent(count: int = 4) -> tuple[list[Delivery], Batch]:
    """Deliveries of one batch, which is closed."""
    accumulator = new_accumulator({"t": 1})
    sending = Sending(accumulator)
    deliveries = [sending.send("t", b"%d" % n, timestamp_ms=100 + n) for n in range(count)]
    where = accumulator.add_topic("t", 1).partitions[0]
    accumulator.close_batch(where)
    return deliveries, where.queue[0]


def test_offset_is_the_batch_and_the_index() -> None:
    deliveries, batch = sent()
    batch.succeed(40, None, 7)
    assert [one.result() for one in deliveries] == [
        RecordMetadata("t", 0, 40 + n, 100 + n, 7) for n in range(4)
    ]
    assert deliveries[0].exception() is None
    assert deliveries[0].done()


def test_time_of_the_append_goes_before_the_record_s_own() -> None:
    deliveries, batch = sent(1)
    batch.succeed(0, 5555)
    assert deliveries[0].result().timestamp_ms == 5555


def test_offset_may_be_unknown() -> None:
    deliveries, batch = sent(1)
    batch.succeed(None)
    assert deliveries[0].result().offset is None


def test_error_is_each_caller_s_own() -> None:
    deliveries, batch = sent(2)
    error = NotLeaderOrFollower(topic="t")
    error.__cause__ = ValueError("why")
    batch.fail(error)
    with pytest.raises(NotLeaderOrFollower) as caught:
        deliveries[0].result()
    assert caught.value is not error
    assert caught.value.__cause__ is error.__cause__
    assert isinstance(deliveries[1].exception(), NotLeaderOrFollower)


def test_record_can_have_an_error_of_its_own() -> None:
    deliveries, batch = sent(3)
    batch.fail(ProduceError("another record"), {1: InvalidRecord("no key")})
    assert [type(one.exception()) for one in deliveries] == [
        ProduceError,
        InvalidRecord,
        ProduceError,
    ]


def test_first_outcome_counts() -> None:
    deliveries, batch = sent(1)
    batch.succeed(1)
    batch.fail(KarrowError("too late"))
    batch.succeed(2)
    assert deliveries[0].result().offset == 1


def test_divided_batch_keeps_its_deliveries() -> None:
    deliveries, batch = sent(5)
    called: list[Delivery] = []
    for delivery in deliveries:
        delivery.add_done_callback(called.append)
    first, second = batch.divide()
    assert (first.count, second.count) == (2, 3)
    assert not any(delivery.done() for delivery in deliveries)
    third, fourth = second.divide()
    first.succeed(10)
    third.fail(KarrowError("too large"))
    fourth.succeed(12)
    assert [delivery.exception() is None for delivery in deliveries] == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert [delivery.result().offset for delivery in deliveries[3:]] == [12, 13]
    assert batch.owner.run_callbacks() == 0  # ``result`` has run them
    assert called == deliveries


def test_who_waits_for_a_batch_that_is_divided_waits_for_its_part() -> None:
    deliveries, batch = sent(2)
    results: list[int | None] = []
    thread = threading.Thread(target=lambda: results.append(deliveries[1].result(10).offset))
    thread.start()
    while not batch.is_urgent:
        pass
    first, second = batch.divide()
    first.succeed(1)
    second.succeed(2)
    thread.join(10)
    assert results == [2]


def test_timeout_leaves_the_record_on_its_way() -> None:
    deliveries, batch = sent(1)
    with pytest.raises(TimeoutError, match="still on its way"):
        deliveries[0].result(timeout=0)
    batch.succeed(3)
    assert deliveries[0].result(timeout=0).offset == 3


def test_callbacks_run_when_somebody_comes_by() -> None:
    deliveries, batch = sent(2)
    called: list[Delivery] = []
    deliveries[0].add_done_callback(called.append)
    batch.succeed(0)
    assert called == []
    deliveries[1].add_done_callback(called.append)  # it is done already
    assert deliveries[0].result().offset == 0
    assert called == deliveries


def test_callback_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    deliveries, batch = sent(1)
    called: list[Delivery] = []

    def fail(_: Delivery) -> None:
        raise ValueError("boom")

    deliveries[0].add_done_callback(fail)
    deliveries[0].add_done_callback(called.append)
    batch.succeed(0)
    assert batch.owner.run_callbacks() == 2
    assert called == deliveries
    assert "boom" in caplog.text


def test_awaited_from_another_loop() -> None:
    deliveries, batch = sent(1)

    async def wait() -> int | None:
        return (await deliveries[0]).offset

    timer = threading.Timer(0.05, lambda: batch.succeed(9))
    timer.start()
    assert asyncio.run(asyncio.wait_for(wait(), 5)) == 9


def test_repr_says_where_and_how() -> None:
    deliveries, batch = sent(1)
    assert repr(deliveries[0]) == "<Delivery to t-0, on its way>"
    batch.succeed(0)
    assert repr(deliveries[0]) == "<Delivery to t-0, written>"
