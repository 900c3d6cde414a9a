from __future__ import annotations

from pathlib import Path

import pytest

from karrow import records
from karrow.broker.disk import JOURNAL, MANY, DiskShelf, DiskStore
from karrow.broker.log import Limits, Log
from karrow.errors import StateError

LIMITS = Limits(1 << 30, -1, -1, -1)


def filled(folder: Path, batches: int = 3) -> list[bytes]:
    """A log of several batches of two records on disk, and what they are."""
    log = Log(DiskShelf(folder))
    written = []
    for number in range(batches):
        builder = records.BatchBuilder()
        builder.append(b"k", b"v%d" % number, timestamp_ms=number)
        builder.append(None, b"w", timestamp_ms=number)
        data = bytearray(builder.build())
        log.append(data, records.batches(data)[0], epoch=number, limits=LIMITS, now=0)
        written.append(bytes(data))
    log.close()
    return written


def only_file(folder: Path) -> Path:
    (found,) = folder.glob("*.log")
    return found


def test_a_log_is_found_again(tmp_path: Path) -> None:
    written = filled(tmp_path)
    log = Log(DiskShelf(tmp_path))
    assert (log.start_offset, log.end_offset) == (0, 6)
    assert log.epochs == [(0, 0), (1, 2), (2, 4)]
    assert log.read(0, 1 << 20, 6, whole=True) == b"".join(written)


@pytest.mark.parametrize("cut", [1, 20, 70])
def test_a_torn_tail_is_cut_after_the_last_whole_batch(tmp_path: Path, cut: int) -> None:
    written = filled(tmp_path)
    file = only_file(tmp_path)
    file.write_bytes(file.read_bytes()[:-cut])
    log = Log(DiskShelf(tmp_path))
    assert log.end_offset == 4
    assert file.read_bytes() == b"".join(written[:2])
    log.close()
    assert filled_again(tmp_path) == 4, "what comes next goes on there"


def filled_again(folder: Path) -> int:
    log = Log(DiskShelf(folder))
    builder = records.BatchBuilder()
    builder.append(None, b"new")
    data = bytearray(builder.build())
    return log.append(data, records.batches(data)[0], epoch=9, limits=LIMITS, now=0)


def test_damage_is_found_by_its_checksum(tmp_path: Path) -> None:
    filled(tmp_path)
    file = only_file(tmp_path)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert Log(DiskShelf(tmp_path)).end_offset == 4


def test_garbage_after_the_last_batch_is_cut(tmp_path: Path) -> None:
    written = filled(tmp_path)
    file = only_file(tmp_path)
    with file.open("ab") as end:
        end.write(b"\xff" * 100)
    assert Log(DiskShelf(tmp_path)).end_offset == 6
    assert file.read_bytes() == b"".join(written)


def test_the_start_is_kept(tmp_path: Path) -> None:
    filled(tmp_path)
    Log(DiskShelf(tmp_path)).delete_before(3)
    assert Log(DiskShelf(tmp_path)).start_offset == 3


def test_tables_are_found_again(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.put("offsets", "a", {"offset": 1})
    store.put("offsets", "a", {"offset": 2})
    store.put("offsets", "b", {"offset": 3})
    store.put("offsets", "b", None)
    store.put("users", "a", "é")
    store.close()
    again = DiskStore(tmp_path)
    assert again.load("offsets") == {"a": {"offset": 2}}
    assert again.load("users") == {"a": "é"}
    assert again.load("never") == {}
    again.close()


def test_a_torn_line_and_what_follows_is_dropped(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    for key in "abc":
        store.put("t", key, 1)
    store.close()
    journal = tmp_path / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[1][:-3] + b"\n" + lines[2])
    again = DiskStore(tmp_path)
    assert again.load("t") == {"a": 1}
    again.close()


def test_the_journal_does_not_grow_with_every_change(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    for number in range(MANY + 100):
        store.put("t", "key", number)
    assert (tmp_path / JOURNAL).stat().st_size < 10_000
    store.close()
    again = DiskStore(tmp_path)
    assert again.load("t") == {"key": MANY + 99}
    again.close()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    with pytest.raises(StateError, match="in use"):
        DiskStore(tmp_path)
    store.close()
    DiskStore(tmp_path).close()


def test_record_data_of_unknown_topics_is_removed(tmp_path: Path) -> None:
    filled(tmp_path / "topics" / "gone" / "0")
    DiskStore(tmp_path).close()
    assert not (tmp_path / "topics" / "gone").exists()


def test_nobody_else_reads_the_journal(tmp_path: Path) -> None:
    DiskStore(tmp_path).close()
    assert (tmp_path / JOURNAL).stat().st_mode & 0o777 == 0o600
