from __future__ import annotations

from pathlib import Path

import pytest

from karrow import records
from karrow.broker.disk import DiskShelf
from karrow.broker.log import Limits, Log, MemoryShelf, Shelf, stamp_append_time

FOREVER = Limits(segment_bytes=1 << 30, segment_ms=-1, retention_bytes=-1, retention_ms=-1)
SMALL = FOREVER._replace(segment_bytes=200)


def batch(count: int = 1, *, at: int = 1000, size: int = 10) -> bytearray:
    builder = records.BatchBuilder()
    for number in range(count):
        builder.append(None, bytes(size), timestamp_ms=at + number)
    return bytearray(builder.build())


def append(log: Log, data: bytearray, *, epoch: int = 0, limits: Limits = FOREVER) -> int:
    return log.append(data, records.batches(data)[0], epoch=epoch, limits=limits, now=5000)


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in records.RecordReader(data)]


def read(log: Log, offset: int, max_bytes: int = 1 << 20, *, whole: bool = True) -> list[int]:
    return offsets(log.read(offset, max_bytes, log.end_offset, whole=whole))


@pytest.fixture(params=["memory", "disk"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    return MemoryShelf() if request.param == "memory" else DiskShelf(tmp_path)


def test_offsets_go_on_from_batch_to_batch(shelf: Shelf) -> None:
    log = Log(shelf)
    assert [append(log, batch(3)), append(log, batch(2)), append(log, batch())] == [0, 3, 5]
    assert (log.start_offset, log.end_offset) == (0, 6)
    assert read(log, 0) == [0, 1, 2, 3, 4, 5]
    assert read(log, 4) == [3, 4, 5], "a read begins with the batch that holds the offset"
    assert read(log, 6) == []


def test_a_read_stops_at_the_limit_but_gives_one_batch_if_asked_to(shelf: Shelf) -> None:
    log = Log(shelf)
    size = len(batch(2))
    for _ in range(4):
        append(log, batch(2))
    assert read(log, 0, 2 * size) == [0, 1, 2, 3]
    assert read(log, 0, 2 * size - 1) == [0, 1]
    assert read(log, 0, 1) == [0, 1]
    assert read(log, 0, 1, whole=False) == []
    assert offsets(log.read(2, 1 << 20, 6, whole=True)) == [2, 3, 4, 5], "below `before` only"
    assert offsets(log.read(2, 1 << 20, 5, whole=True)) == [2, 3], "whole batches only"


def test_reads_cross_segments(shelf: Shelf) -> None:
    log = Log(shelf)
    for _ in range(6):
        append(log, batch(2), limits=SMALL)
    assert len(log.segment_starts(1 << 60)) > 2
    assert read(log, 1) == list(range(12))
    assert read(log, 5, 3 * len(batch(2))) == [4, 5, 6, 7, 8, 9]


def test_deleting_before_an_offset_drops_whole_segments_only(shelf: Shelf) -> None:
    log = Log(shelf)
    for _ in range(6):
        append(log, batch(2), limits=SMALL)
    before = log.size_bytes
    log.delete_before(5)
    assert log.start_offset == 5
    assert log.size_bytes < before
    assert read(log, 5) == list(range(4, 12))
    log.delete_before(3)
    assert log.start_offset == 5, "a start never goes back"
    log.delete_before(12)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (12, 12, 0)
    assert append(log, batch()) == 12


def test_cutting_forgets_the_end(shelf: Shelf) -> None:
    log = Log(shelf)
    append(log, batch(2), epoch=0)
    append(log, batch(2), epoch=3)
    append(log, batch(2), epoch=4)
    log.cut(3)
    assert log.end_offset == 2, "a batch goes as a whole"
    assert log.epochs == [(0, 0)]
    assert append(log, batch(), epoch=5) == 2
    assert log.epoch_end(0, 5) == (0, 2)
    assert log.epoch_end(4, 5) == (0, 2)
    assert log.epoch_end(5, 5) == (5, 3)


def test_epochs_end_where_the_next_begins(shelf: Shelf) -> None:
    log = Log(shelf)
    assert log.epoch_end(0, 0) == (0, 0)
    append(log, batch(), epoch=2)
    assert log.epoch_end(1, 2) == (1, 0)
    assert log.epoch_end(2, 2) == (2, 1)
    assert log.epoch_end(3, 2) == log.epoch_end(-1, 2) == (-1, -1)
    assert log.epoch_end(2, 4) == log.epoch_end(3, 4) == (2, 1)
    assert log.epoch_end(4, 4) == (4, 1), "an epoch that has not written ends where it began"
    assert (log.epoch_at_start(2), log.epoch_at_start(4)) == (2, 2)
    log.delete_before(1)
    assert (log.epoch_at_start(2), log.epoch_at_start(4)) == (2, 4)


def test_records_are_found_by_time(shelf: Shelf) -> None:
    log = Log(shelf)
    append(log, batch(3, at=1000))
    append(log, batch(3, at=3000))
    append(log, batch(3, at=2000))
    found = log.find_time(1001, log.end_offset)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (1, 1001)
    later = log.find_time(2500, log.end_offset)
    assert later is not None
    assert later.offset == 3
    assert log.find_time(9000, log.end_offset) is None
    assert log.find_time(2500, 3) is None, "below `before` only"
    newest = log.find_newest()
    assert newest is not None
    assert (newest.offset, newest.timestamp_ms) == (5, 3002)


def test_retention_by_age_may_take_everything(shelf: Shelf) -> None:
    log = Log(shelf)
    for at in (1000, 2000, 3000):
        append(log, batch(2, at=at), limits=SMALL._replace(segment_bytes=1))
    rules = FOREVER._replace(retention_ms=1500)
    log.retain(rules, 3600)
    assert log.start_offset == 4
    log.retain(rules, 99_000)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (6, 6, 0)


def test_retention_by_size_keeps_at_least_what_is_allowed(shelf: Shelf) -> None:
    log = Log(shelf)
    size = len(batch(2))
    for _ in range(5):
        append(log, batch(2), limits=SMALL._replace(segment_bytes=1))
    log.retain(FOREVER._replace(retention_bytes=2 * size), 5000)
    assert log.size_bytes == 2 * size
    assert log.start_offset == 6


def test_append_time_replaces_the_producers(shelf: Shelf) -> None:
    data = batch(2, at=7)
    stamp_append_time(data, 12_345)
    append(log := Log(shelf), data)
    found = list(records.RecordReader(log.read(0, 1 << 20, 2, whole=True)))
    assert [record.timestamp_ms for record in found] == [12_345, 12_345]
    assert [record.timestamp_type for record in found] == [1, 1]
