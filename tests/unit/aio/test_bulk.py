"""The outcome of Arrow data: batches that settle one by one, fail, and are divided."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from karrow import BulkDelivery, SendSummary, TopicPartition, errors
from karrow.aio._accumulator import Accumulator
from karrow.aio._batch import Batch
from tests.unit.aio.taking import accumulator, take


def sent(target: Accumulator, rows: int = 100) -> tuple[BulkDelivery, list[Batch]]:
    """Rows in several batches, all closed."""
    parts = take(target, pa.table({"value": [b"." * 20] * rows})).parts
    for partition in list(target.listed):
        target.close_batch(partition)
    return BulkDelivery(target, parts), [batch for batch, _, _ in parts]


def small() -> Accumulator:
    return accumulator({"t": 1}, batch_bytes=1000)


def test_it_is_done_with_its_last_batch() -> None:
    delivery, batches = sent(small())
    assert len(batches) > 3
    offset = 7
    for batch in batches:
        assert not delivery.done()
        batch.succeed(offset)
        offset += batch.count
    assert delivery.done()
    assert delivery.result() == SendSummary(100, {TopicPartition("t", 0): (100, 7)})
    assert delivery.exception() is None
    assert repr(delivery) == "<BulkDelivery of 100 rows, written>"


def test_no_rows_are_done_at_once() -> None:
    delivery = BulkDelivery(small(), [])
    assert delivery.done()
    assert delivery.result(timeout=0) == SendSummary(0, {})


def test_the_broker_may_not_say_where() -> None:
    delivery, batches = sent(small())
    for batch in batches:
        batch.succeed(None)
    assert delivery.result() == SendSummary(100, {TopicPartition("t", 0): (100, None)})


def test_the_first_error_is_raised_and_the_rest_is_told() -> None:
    delivery, batches = sent(small())
    for number, batch in enumerate(batches):
        if number in (1, 2):
            batch.fail(errors.RequestTimeout(f"batch {number}"))
        else:
            batch.succeed(number * 1000)
    written = 100 - batches[1].count - batches[2].count
    with pytest.raises(errors.RequestTimeout, match="batch 1") as caught:
        delivery.result()
    assert caught.value.__notes__ == [f"{written} of 100 rows were written"]
    assert isinstance(delivery.exception(), errors.RequestTimeout)
    assert delivery.summary() == SendSummary(written, {TopicPartition("t", 0): (written, 0)})
    assert repr(delivery) == "<BulkDelivery of 100 rows, failed>"


def test_waiting_ends_in_time() -> None:
    delivery, batches = sent(small())
    with pytest.raises(errors.RequestTimeout, match="still on their way"):
        delivery.result(timeout=0.01)
    assert all(batch.is_urgent for batch in batches)


def test_divided_batches_are_followed() -> None:
    target = small()
    delivery, batches = sent(target)
    called: list[object] = []
    delivery.add_done_callback(called.append)
    first, second = batches[0].divide()
    for part in (first, second):
        target.adopt(part)
    for batch in batches[1:]:
        batch.succeed(1000)
    half, quarter = second.divide()
    for part in (half, quarter):
        target.adopt(part)
    second_offset = first.count
    half.succeed(second_offset)
    first.succeed(0)
    assert not delivery.done()
    quarter.fail(errors.RequestTimeout("the last quarter"))
    assert delivery.done()
    target.run_callbacks()
    assert called == [delivery]
    written = 100 - quarter.count
    assert delivery.summary() == SendSummary(written, {TopicPartition("t", 0): (written, 0)})
    with pytest.raises(errors.RequestTimeout, match="quarter"):
        delivery.result()


def test_rows_inside_a_divided_batch_are_found() -> None:
    target = accumulator({"t": 1})
    take(target, pa.table({"value": [b"other"] * 6}))
    delivery, [batch] = sent(target, rows=4)
    first, second = batch.divide()
    for part in (first, second):
        target.adopt(part)
    first.succeed(100)
    second.succeed(200)
    assert delivery.result().partitions == {TopicPartition("t", 0): (4, 201)}
    assert delivery.summary().records == 4


def test_callbacks_run_once_after_the_last_batch() -> None:
    target = small()
    delivery, batches = sent(target)
    called: list[BulkDelivery] = []
    delivery.add_done_callback(called.append)
    for batch in reversed(batches):
        assert target.run_callbacks() == 0
        delivery.add_done_callback(called.append)
        batch.succeed(0)
    assert target.run_callbacks() == len(batches) + 1
    delivery.add_done_callback(called.append)
    assert target.run_callbacks() == 1
    assert called == [delivery] * (len(batches) + 2)


def test_it_is_awaited() -> None:
    target = small()
    delivery, batches = sent(target)

    async def main() -> SendSummary:
        loop = asyncio.get_running_loop()
        for turn, batch in enumerate(batches):
            loop.call_later(0.001 * turn, batch.succeed, turn)
        return await delivery

    assert asyncio.run(main()).records == 100
