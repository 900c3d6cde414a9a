"""Ranges divided among tasks, and limits shared among partitions."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karrow.spark.reading.limits import Delay, shared_bytes, shared_offsets, unread
from karrow.spark.reading.ranges import Division, Range, late
from karrow.spark.reading.settings import Limits
from karrow.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def ranges(*sizes: int) -> list[Range]:
    return [Range("t", number, 100, 100 + size) for number, size in enumerate(sizes)]


def cuts(division: Division, *sizes: int) -> list[tuple[int, int]]:
    return [(one.partition, one.size) for one in division.divided(ranges(*sizes), {})]


# What Spark's own connector makes of the same numbers.
@pytest.mark.parametrize(
    ("division", "sizes", "expected"),
    [
        (Division(), (5, 0, 3), [(0, 5), (2, 3)]),
        (Division(min_partitions=2), (5, 3, 4), [(0, 5), (1, 3), (2, 4)]),
        (Division(min_partitions=4), (300, 10), [(0, 100), (0, 100), (0, 100), (1, 10)]),
        (Division(min_partitions=3), (1, 1), [(0, 1), (1, 1)]),
        (Division(min_partitions=5), (100,), [(0, 20)] * 5),
        (Division(min_partitions=3), (100,), [(0, 33), (0, 33), (0, 34)]),
        (Division(max_records=50), (100, 49), [(0, 50), (0, 50), (1, 49)]),
        (Division(max_records=50), (101,), [(0, 33), (0, 34), (0, 34)]),
        (
            Division(min_partitions=6, max_records=60),
            (100, 20),
            [*[(0, 16), (0, 17), (0, 17)] * 2, (1, 20)],
        ),
    ],
)
def test_divisions(
    division: Division, sizes: tuple[int, ...], expected: list[tuple[int, int]]
) -> None:
    assert cuts(division, *sizes) == expected


def test_division_by_bytes() -> None:
    division = Division(max_bytes=1000)
    sizes = {A: 100.0, B: 0.0, C: 5000.0}
    found = division.divided(ranges(30, 30, 3), sizes)
    assert [(one.partition, one.size) for one in found] == [
        *[(0, 10)] * 3,
        (1, 30),
        *[(2, 1)] * 3,
    ]


@given(
    st.lists(st.integers(0, 10_000), min_size=1, max_size=5),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 5000),
    st.none() | st.integers(1, 5000),
)
def test_divisions_lose_and_double_nothing(
    sizes: list[int], parts: int | None, records: int | None, size: int | None
) -> None:
    whole = ranges(*sizes)
    bytes_per_offset = {one.where: 10.0 for one in whole}
    found = Division(parts, records, size).divided(whole, bytes_per_offset)
    for one in whole:
        position = one.start
        for part in (part for part in found if part.where == one.where):
            assert part.start == position
            assert part.size > 0
            position = part.end
        assert position == one.end
    if records is not None:
        assert all(part.size <= records for part in found)


def test_outer_ends_stay_open() -> None:
    parts = Division(min_partitions=3).divided(ranges(90), {})
    found = late(parts, {A: (-2, -1)})
    assert [(one.start, one.end) for one in found] == [(-2, 130), (130, 160), (160, -1)]
    assert late(parts, {A: (100, 190)}) == parts


def test_ranges_are_pickled() -> None:
    one = Range("t", 1, 2, 3, "id")
    assert pickle.loads(pickle.dumps(one)) == one


# ---- limits


def test_limits_are_shared_by_what_is_unread() -> None:
    begins, ends = {A: 0, B: 10}, {A: 90, B: 20}
    assert shared_offsets(20, begins, ends) == {A: 18, B: 12}
    assert shared_offsets(1000, begins, ends) == ends
    assert shared_offsets(1, begins, ends) == {A: 1, B: 11}
    assert shared_offsets(5, begins, begins) == begins
    assert unread(begins, ends) == {A: 90, B: 10}


def test_limits_of_bytes() -> None:
    begins, ends = {A: 0, B: 0}, {A: 100, B: 100}
    assert shared_bytes(10_000, begins, ends, {A: 1000.0, B: 10.0}) == {A: 9, B: 9}
    assert shared_bytes(1 << 30, begins, ends, {A: 1000.0, B: 10.0}) == ends
    # Of a partition whose size nobody knows, everything is taken.
    assert shared_bytes(10_000, begins, ends, {A: 1000.0, B: 0.0}) == {A: 10, B: 100}


def test_a_delay() -> None:
    now = [100.0]
    delay = Delay(Limits(min_offsets=10, max_delay=30.0), clock=lambda: now[0])
    few, many = ({A: 0}, {A: 5}), ({A: 0}, {A: 15})
    assert delay.holds_back(*few) is False  # the first does not wait
    assert delay.holds_back(*few) is True
    assert delay.holds_back(*many) is False
    now[0] += 29
    assert delay.holds_back(*few) is True
    now[0] += 1
    assert delay.holds_back(*few) is False
    assert delay.holds_back(*few) is True
    assert Delay(Limits()).holds_back(*few) is False
