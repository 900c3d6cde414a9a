"""From answers into the application's hands: three ways to read, one chunk in hand."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from karrow.aio._reading import AwaitedIteration
from karrow.aio.consuming import taking
from karrow.aio.consuming.positions import State
from karrow.errors import CorruptRecordError, StateError
from karrow.records import BatchBuilder, Record
from karrow.types import OffsetSpec
from tests.unit.aio.handing import A, B, Desk, values
from tests.unit.records.crafting import batch_of, control_batch, gzipped, record

Way = Callable[[Desk], Iterator[bytes | None]]


def one_by_one(desk: Desk) -> Iterator[bytes | None]:
    return (item.value for item in desk)


def as_lists(desk: Desk) -> Iterator[bytes | None]:
    while some := desk.taker.records(3):
        yield from values(some)


def as_columns(desk: Desk) -> Iterator[bytes | None]:
    while (rows := desk.taker.columns(["value"], 3, None)) is not None:
        assert 0 < len(rows) <= 3
        yield from pa.record_batch(rows)["value"].to_pylist()


WAYS = [one_by_one, as_lists, as_columns]
every_way = pytest.mark.parametrize("way", WAYS)


def numbered(low: int, high: int, **fields: Any) -> bytes:
    """A batch of values that are their offsets."""
    return bytes(batch_of(*(b"%d" % n for n in range(low, high)), base_offset=low, **fields))


def numbers(low: int, high: int) -> list[bytes]:
    return [b"%d" % n for n in range(low, high)]


# ---- everything, once, in order


@every_way
def test_all_that_was_fetched_comes_out(way: Way) -> None:
    desk = Desk(A, B)
    desk.feed(numbered(0, 5) + numbered(5, 10))
    desk.feed(numbered(0, 4), B)
    desk.feed(numbered(10, 12))
    assert list(way(desk)) == numbers(0, 10) + numbers(0, 4) + numbers(10, 12)
    assert (desk.position(), desk.position(B)) == (12, 4)
    assert (desk.consumed(), desk.consumed(B)) == (12, 4)
    assert desk.positions.buffered_bytes == 0


def test_ways_of_reading_go_on_where_the_last_one_was() -> None:
    desk = Desk()
    desk.feed(numbered(0, 10) + numbered(10, 20))
    found = [next(desk).value, next(desk).value]
    found += values(desk.taker.records(3))
    rows = desk.taker.columns(["value"], 2, None)
    found += pa.record_batch(rows)["value"].to_pylist()
    found.append(next(desk).value)
    found += values(desk.taker.records(100))
    assert found == numbers(0, 20)


@every_way
def test_records_in_front_of_what_was_asked_for_are_left_out(way: Way) -> None:
    desk = Desk(at=3)
    desk.feed(numbered(0, 6))
    assert list(way(desk)) == numbers(3, 6)


@every_way
def test_positions_pass_what_nobody_sees(way: Way) -> None:
    desk = Desk(isolation="read_committed")
    aborted = numbered(2, 4, attributes=0x10, producer_id=9)
    gap = bytes(batch_of(base_offset=6, last_delta=3, count=0, payload=b""))
    desk.feed(
        numbered(0, 2)
        + aborted
        + bytes(control_batch(4, 9, 0))
        + bytes(control_batch(5, 8, 1))
        + gap,
        aborted=[(9, 2)],
    )
    assert list(way(desk)) == numbers(0, 2)
    assert desk.position() == 10


def test_lists_end_where_they_are_full() -> None:
    desk = Desk(A, B)
    desk.feed(numbered(0, 4))
    desk.feed(numbered(0, 4), B)
    assert [len(desk.taker.records(5)) for _ in range(3)] == [5, 3, 0]


def test_columns_have_a_limit_of_their_own_when_compression_hides_their_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taking, "COLUMN_BYTES", 1000)
    desk = Desk()
    builder = BatchBuilder(compression="zstd")
    for _ in range(100):
        builder.append(None, bytes(100))
    desk.feed(builder.build())
    sizes = []
    while (rows := desk.taker.columns(None, None, None)) is not None:
        sizes.append(len(rows))
    assert sizes == [10] * 10


# ---- how far the application is


def test_the_record_in_hand_is_handed_out_but_not_done_with() -> None:
    desk = Desk()
    desk.feed(numbered(0, 5))
    for expected in range(5):
        assert next(desk).offset == expected
        assert (desk.consumed(), desk.position()) == (expected, expected + 1)
        assert (desk.consumed(), desk.position()) == (expected, expected + 1)


def test_asking_again_is_being_done_even_if_nothing_is_there() -> None:
    desk = Desk()
    desk.feed(numbered(0, 2))
    assert values(desk.taker.records(10)) == numbers(0, 2)
    assert (desk.consumed(), desk.position()) == (0, 2)
    assert desk.taker.records(10) == []
    assert desk.consumed() == 2


def test_iteration_after_a_list_is_done_with_the_list() -> None:
    desk = Desk()
    desk.feed(numbered(0, 5))
    desk.taker.records(3)
    assert next(desk).offset == 3
    assert (desk.consumed(), desk.position()) == (3, 4)


def test_a_list_after_iteration_is_done_with_what_was_iterated() -> None:
    desk = Desk()
    desk.feed(numbered(0, 5))
    next(desk)
    next(desk)
    desk.taker.records(2)
    assert (desk.consumed(), desk.position()) == (2, 4)


def test_positions_can_be_looked_at_while_another_thread_iterates() -> None:
    desk = Desk()
    count = 40_000
    for low in range(0, count, 500):
        desk.feed(numbered(low, low + 500))
    last = [-1]

    def iterate() -> None:
        for item in desk:
            assert item.offset == last[0] + 1
            last[0] = item.offset

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=iterate)
    try:
        thread.start()
        while thread.is_alive():
            before = last[0]
            with desk.engine.lock:
                desk.taker.settle()
                cursor = desk.positions[A]
                consumed, position = cursor.consumed, cursor.position
            after = last[0]
            assert consumed is not None
            assert position is not None
            # ``last`` is written a moment after the record came out.
            assert before <= consumed <= position <= after + 2
    finally:
        thread.join()
        sys.setswitchinterval(interval)
    assert (last[0], desk.consumed()) == (count - 1, count)


# ---- what comes between two records


def test_a_seek_wins_over_the_chunk_in_hand() -> None:
    desk = Desk()
    desk.feed(numbered(0, 10))
    next(desk)
    desk.positions.seek(A, 7)
    desk.engine.interrupt()
    assert list(desk) == []
    desk.feed(numbered(0, 10))
    assert next(desk).offset == 7


def test_a_paused_partition_lets_others_go_first_and_goes_on_where_it_was() -> None:
    desk = Desk(A, B)
    desk.feed(numbered(0, 4))
    desk.feed(numbered(0, 2), B)
    assert next(desk).partition == 0
    desk.engine.pause([A])
    assert [(item.partition, item.offset) for item in desk] == [(1, 0), (1, 1)]
    desk.positions.resume([A])
    assert values(desk.taker.records(10)) == numbers(1, 4)


def test_a_partition_that_is_taken_away_yields_nothing_more() -> None:
    desk = Desk(A, B)
    desk.feed(numbered(0, 4))
    desk.feed(numbered(0, 2), B)
    next(desk)
    desk.positions.remove([A])
    desk.engine.interrupt()
    assert {item.partition for item in desk} == {1}


@pytest.mark.parametrize("way", [as_lists, as_columns])
def test_what_may_not_be_handed_out_after_all_is_not_lost(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    desk.feed(numbered(0, 4))
    verdicts = iter([True, True, False])
    monkeypatch.setattr(desk.engine, "may_hand_out", lambda: next(verdicts, True))
    assert list(way(desk)) == numbers(0, 4)


def test_data_that_waits_for_long_lets_go_of_the_answer() -> None:
    desk = Desk(A, B)
    answer = bytearray(numbered(0, 4))
    desk.feed(answer)  # type: ignore[arg-type]
    next(desk)
    desk.engine.pause([A])
    assert list(desk) == []
    answer.clear()  # refused while anybody has a view of it
    desk.positions.resume([A])
    assert values(desk) == numbers(1, 4)


def test_a_full_buffer_drops_what_is_paused() -> None:
    desk = Desk(A, B, buffer_bytes=1024)
    big = bytes(batch_of(bytes(2000), b"second"))
    desk.feed(big)
    assert len(next(desk).value or b"") == 2000
    desk.engine.pause([A])
    assert list(desk) == []
    assert [one.partition for one in desk.engine.fetcher._fetchable()] == [B]
    assert desk.positions.buffered_bytes == 0
    desk.positions.resume([A])
    assert list(desk) == []
    assert desk.asked().offset == 1


def test_what_is_decompressed_counts_as_long_as_it_is_in_hand() -> None:
    desk = Desk(A, B, buffer_bytes=10_000)
    builder = BatchBuilder(compression="zstd")
    for _ in range(3):
        builder.append(None, bytes(10_000))
    desk.feed(builder.build())
    assert {one.partition for one in desk.engine.fetcher._fetchable()} == {A, B}
    next(desk)
    assert desk.engine.fetcher._fetchable() == []
    assert desk.engine.fetcher.waits_for_room
    assert len(list(desk)) == 2
    assert {one.partition for one in desk.engine.fetcher._fetchable()} == {A, B}


# ---- damage


def damaged(low: int, high: int) -> bytes:
    return bytes(batch_of(*(b"?" for _ in range(low, high)), base_offset=low, crc=1))


@every_way
def test_damage_is_told_once_after_what_is_in_front_of_it(way: Way) -> None:
    desk = Desk(A, B)
    desk.feed(numbered(0, 5) + damaged(5, 8) + numbered(8, 9))
    desk.feed(numbered(0, 2), B)
    found, error = until_damage(way, desk)
    assert found[:5] == numbers(0, 5)
    assert (error.offset, error.next_offset) == (5, 8)
    assert {"topic": "orders", "partition": 0, "offset": 5}.items() <= error.context.items()
    assert "orders" in str(error)
    assert found[5:] + list(way(desk)) == numbers(0, 2)
    assert (desk.position(), desk.position(B)) == (5, 2)
    assert desk.positions[A].state is State.STOPPED


def until_damage(way: Way, desk: Desk) -> tuple[list[bytes | None], CorruptRecordError]:
    found: list[bytes | None] = []
    try:
        for value in way(desk):
            found.append(value)  # noqa: PERF402 - what came before the error counts
    except CorruptRecordError as error:
        return found, error
    pytest.fail("nothing was raised")


def test_reading_goes_on_behind_damage() -> None:
    desk = Desk()
    desk.feed(damaged(0, 3) + numbered(3, 5))
    with pytest.raises(CorruptRecordError):
        desk.taker.records(10)
    assert desk.taker.damaged() == {A: OffsetSpec.at(3)}
    assert desk.taker.damaged() == {}
    desk.positions.seek(A, 3)
    desk.feed(damaged(0, 3) + numbered(3, 5))
    assert values(desk) == numbers(3, 5)


def test_damage_that_was_left_by_a_seek_is_not_skipped() -> None:
    desk = Desk()
    desk.feed(damaged(0, 3))
    with pytest.raises(CorruptRecordError):
        desk.taker.records(10)
    desk.positions.seek(A, 100)
    assert desk.taker.damaged() == {}


def test_a_partition_that_comes_during_a_call_is_left_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    desk.feed(numbered(0, 3))
    take_list = desk.taker.take_list

    def slow(most: int) -> list[Record]:
        taken = take_list(most)
        if B not in desk.positions:
            desk.positions.add([B])
            for asked in desk.positions.to_look_up():
                desk.positions.found_committed(asked, 0)
            desk.feed(numbered(0, 2), B)
        return taken

    monkeypatch.setattr(desk.taker, "take_list", slow)
    # What the application asked for before it had the partition could not be committed.
    assert {item.partition for item in desk.taker.records(100)} == {A.partition}
    assert desk.engine.asked_epoch < desk.positions[B].assignment
    assert {item.partition for item in desk.taker.records(100)} == {B.partition}
    assert desk.engine.asked_epoch >= desk.positions[B].assignment


def test_damage_in_another_partition_costs_no_record_that_was_found() -> None:
    desk = Desk(A, B)
    desk.feed(numbered(0, 2))
    desk.feed(damaged(0, 2), B)
    assert values(desk.taker.records(10)) == numbers(0, 2)
    with pytest.raises(CorruptRecordError):
        desk.taker.records(10)


def test_an_error_from_the_broker_costs_no_record_that_was_found() -> None:
    desk = Desk()
    desk.feed(numbered(0, 2))
    desk.engine.inbox.fail(StateError("broken"))
    assert values(desk.taker.records(10)) == numbers(0, 2)
    with pytest.raises(StateError):
        desk.taker.records(10)


@every_way
def test_a_batch_that_grows_beyond_the_limit_is_damage(way: Way) -> None:
    desk = Desk(max_decompressed_bytes=1024)
    bomb = bytes(batch_of(b"", payload=gzipped(record(0, bytes(100_000))), attributes=1))
    desk.feed(bomb)
    _, error = until_damage(way, desk)
    assert "1024" in str(error)
    assert desk.taker.damaged() == {A: OffsetSpec.at(1)}


CUT = b"\x7f\xff\xff\xf0"
STUCK = {
    "cut off": numbered(3, 6)[:-1],
    "only a part of a header": numbered(3, 6)[:9],
    "a length beyond the data": numbered(3, 6)[:8] + CUT + numbered(3, 6)[12:],
    "batches in front of the offset": numbered(0, 2) + numbered(2, 3),
    "batches that go back": numbered(3, 6) + numbered(0, 2),
}


@every_way
@pytest.mark.parametrize("data", list(STUCK.values()), ids=list(STUCK))
def test_data_that_leads_nowhere_is_told_once_and_not_asked_for_again(
    way: Way, data: bytes
) -> None:
    desk = Desk(A, B, at=3)
    desk.feed(data)
    assert [one.partition for one in desk.positions.to_fetch(0.0)] == [B]
    desk.feed(numbered(3, 5), B)
    assert desk.positions.buffered_bytes == len(data) + len(numbered(3, 5))
    found, error = until_damage(way, desk)
    assert found == []
    assert (error.offset, error.next_offset) == (3, None)
    assert {"topic": "orders", "partition": 0}.items() <= error.context.items()
    assert "seek" in (error.hint or "")
    assert desk.positions[A].state is State.STOPPED
    assert list(way(desk)) == numbers(3, 5)
    assert desk.positions.buffered_bytes == 0
    assert desk.taker.damaged() == {A: OffsetSpec.at(4)}
    desk.positions.seek(A, 4)
    desk.feed(numbered(3, 6))
    assert list(way(desk)) == numbers(4, 6)


@every_way
def test_data_that_leads_nowhere_costs_nothing_that_came_before(way: Way) -> None:
    desk = Desk()
    desk.feed(numbered(0, 4))
    desk.feed(numbered(4, 8)[:-1])
    assert desk.positions.to_fetch(0.0) == []
    found, error = until_damage(way, desk)
    assert found == numbers(0, 4)
    assert (error.offset, desk.position()) == (4, 4)
    assert len(desk.engine.inbox) == 0


def test_a_header_that_makes_no_sense_is_named_and_not_asked_for_again() -> None:
    desk = Desk()
    data = bytearray(numbered(0, 3))
    data[16] = 9  # the format
    desk.feed(bytes(data))
    assert desk.positions.to_fetch(0.0) == []
    with pytest.raises(CorruptRecordError, match="magic 9"):
        desk.taker.records(10)


def test_data_that_leads_nowhere_is_asked_for_again_when_it_was_dropped() -> None:
    desk = Desk()
    desk.feed(numbered(0, 3)[:-1])
    desk.positions.pause([A])
    assert desk.taker.records(10) == []
    desk.positions.drop_paused()
    desk.positions.resume([A])
    desk.feed(numbered(0, 3))
    assert values(desk.taker.records(10)) == numbers(0, 3)


# ---- beside the loop


class AsyncDesk(AwaitedIteration):
    """A desk on a loop, where batches of more than a few bytes are decoded in a thread."""

    def __init__(self, desk: Desk, inline_bytes: int = 100) -> None:
        self.taker = desk.taker
        self.taker.inline_bytes = inline_bytes
        self._iterate_over(self.taker)

    async def _more(self) -> None:
        if not await self.taker.refill_beside():
            raise StopAsyncIteration


def big(low: int, high: int) -> bytes:
    return bytes(batch_of(*(b"%0100d" % n for n in range(low, high)), base_offset=low))


@pytest.mark.parametrize("is_large", [True, False])
@pytest.mark.parametrize("way", ["iteration", "lists", "columns"])
def test_large_batches_are_decoded_beside_the_loop(way: str, *, is_large: bool) -> None:
    async def main() -> list[int]:
        desk = Desk()
        desk.feed(big(0, 5) + big(5, 10))
        aside = AsyncDesk(desk, 100 if is_large else 100_000)
        found: list[int] = []
        if way == "iteration":
            found += [item.offset async for item in aside]
        elif way == "lists":
            while some := await desk.taker.records_beside(100):
                found += [item.offset for item in some]
        else:
            while (rows := await desk.taker.columns_beside(["offset"], 3, None)) is not None:
                found += pa.record_batch(rows)["offset"].to_pylist()
        assert (desk.taker._threads is not None) is is_large
        desk.taker.close()
        return found

    assert asyncio.run(main()) == list(range(10))


def test_iteration_lets_other_tasks_run() -> None:
    async def main() -> int:
        desk = Desk()
        for low in range(0, 10_000, 1000):
            desk.feed(numbered(low, low + 1000))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        assert [item.offset async for item in AsyncDesk(desk, 1 << 30)] == list(range(10_000))
        other.cancel()
        return turns

    assert asyncio.run(main()) >= 9


def test_iteration_lets_other_tasks_run_while_work_on_each_record_takes_long() -> None:
    async def main() -> float:
        desk = Desk()
        desk.feed(numbered(0, 20))
        loop = asyncio.get_running_loop()
        longest, last = 0.0, loop.time()

        async def look() -> None:
            nonlocal longest, last
            while True:
                longest, last = max(longest, loop.time() - last), loop.time()
                await asyncio.sleep(0)

        other = asyncio.create_task(look())
        async for _ in AsyncDesk(desk, 1 << 30):
            time.sleep(0.03)  # noqa: ASYNC251 - this is what is looked at
        other.cancel()
        return longest

    assert asyncio.run(main()) < 0.3


def test_a_record_is_taken_when_it_is_awaited_and_not_before() -> None:
    async def main() -> list[int]:
        desk = Desk()
        desk.feed(numbered(0, 5))
        aside = AsyncDesk(desk, 1 << 30)
        found = [(await anext(aside)).offset]
        for _ in range(2):
            asking = asyncio.ensure_future(anext(aside))
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aside), 0)
        found.append((await asyncio.wait_for(anext(aside), 5)).offset)
        coming = anext(aside)
        found.append((await coming).offset)
        with pytest.raises(RuntimeError, match="awaited already"):
            await coming
        return found + [item.offset async for item in aside]

    assert asyncio.run(main()) == list(range(5))


@pytest.mark.parametrize("way", ["refill", "columns"])
def test_decoding_that_is_cancelled_has_not_happened(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> list[bytes | None]:
        desk = Desk()
        desk.feed(big(0, 5) + big(5, 10))
        desk.taker.records(2)
        desk.taker.records(3)
        taker = AsyncDesk(desk).taker
        gate = threading.Event()
        begin = taker._beside

        async def held(chunk: Any, work: Callable[[], Any]) -> Any:
            return await begin(chunk, lambda: (gate.wait(5), work())[1])

        monkeypatch.setattr(taker, "_beside", held)
        call = taker.refill_beside() if way == "refill" else taker.columns_beside(None, 2, None)
        task: asyncio.Task[Any] = asyncio.ensure_future(call)
        await asyncio.sleep(0.02)
        with pytest.raises(StateError, match="two tasks"):
            taker.records(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        monkeypatch.undo()
        found = values(taker.records(100))
        gate.set()
        taker.close()
        return found

    assert asyncio.run(main()) == [b"%0100d" % n for n in range(5, 10)]


def test_damage_is_found_beside_the_loop_too() -> None:
    async def main() -> None:
        desk = Desk()
        desk.feed(big(0, 5) + bytes(batch_of(bytes(1000), base_offset=5, crc=1)))
        aside = AsyncDesk(desk)
        assert [(await anext(aside)).offset for _ in range(5)] == list(range(5))
        with pytest.raises(CorruptRecordError):
            await anext(aside)
        desk.taker.close()

    asyncio.run(main())
