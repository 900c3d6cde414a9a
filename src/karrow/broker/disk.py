"""A data directory: tables in a journal, record data in segment files.

Rules:
- The journal is a line per change: the checksum of the rest, then JSON. A line is written whole
  before the change is answered, so it survives the end of the process. A torn or damaged line, and
  what follows it, is dropped at the next start.
- At the start, and when most of its lines are out of date, the journal is written anew with the
  rows that are left, beside the old one, and put in its place at once.
- A partition's folder has a file for each segment, named by its first offset. Only the end of the
  newest one can be torn: it is cut after the last batch whose checksum is right.
- One process at a time: the directory is locked while it is open.
- The journal has what SCRAM keeps of passwords, so only its owner may read it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crc32c

from karrow.broker.log import ATTRIBUTES_AT, Shelf
from karrow.broker.segment import FileMedia, Segment, write_all
from karrow.errors import ConfigError, StateError

if TYPE_CHECKING:
    from karrow.records import BatchInfo

_log = logging.getLogger(__name__)

JOURNAL = "journal"
TOPICS = "topics"
LOCK = "lock"
START = "start-offset"
SUFFIX = ".log"
# Lines since the journal was last written anew, before it is worth the while to do it again.
MANY = 10_000


class DiskStore:
    """The store of a broker with a data directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"data_dir={str(folder)!r} cannot be made: {error}") from None
        self._lock = _locked(folder / LOCK)
        self._lines = 0
        self._tables = _replayed(folder / JOURNAL)
        self._journal = self._rewrite()
        self._remove_orphans()

    def load(self, table: str) -> dict[str, Any]:
        return dict(self._tables.get(table, {}))

    def put(self, table: str, key: str, value: Any) -> None:
        write_all(self._journal, _line(table, key, value))
        self._lines += 1
        _set(self._tables, table, key, value)
        if self._lines > MANY and self._lines > 4 * sum(map(len, self._tables.values())):
            os.close(self._journal)
            self._journal = self._rewrite()

    def clear(self, keep: Collection[str]) -> None:
        self._tables = {table: rows for table, rows in self._tables.items() if table in keep}
        os.close(self._journal)
        self._journal = self._rewrite()

    def shelf(self, topic_id: str, partition: int) -> Shelf:
        return DiskShelf(self._folder / TOPICS / topic_id / str(partition))

    def close(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
            os.close(self._lock)
            self._journal = self._lock = -1

    def _rewrite(self) -> int:
        new = self._folder / f"{JOURNAL}.new"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        for table, rows in self._tables.items():
            for key, value in rows.items():
                write_all(file, _line(table, key, value))
        self._lines = 0
        os.fsync(file)
        new.replace(self._folder / JOURNAL)
        return file

    def _remove_orphans(self) -> None:
        """Remove record data of topics that the journal lacks: their deletion was under way."""
        known = self._tables.get(TOPICS, {})
        topics = self._folder / TOPICS
        for folder in topics.iterdir() if topics.exists() else ():
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)


class DiskShelf:
    """The segments of one partition, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def create(self, base_offset: int, created_ms: int) -> Segment:
        return Segment(base_offset, FileMedia(self._path(base_offset)), created_ms)

    def found(self) -> list[Segment]:
        segments: list[Segment] = []
        paths = sorted(self._folder.glob(f"*{SUFFIX}"))
        for path in paths:
            size = path.stat().st_size
            segment = Segment(int(path.stem), FileMedia(path), path.stat().st_mtime_ns // 1_000_000)
            if not segment.recover(size, has_right_checksum):
                _log.warning(
                    "%s was torn: its last %d bytes are dropped", path, size - segment.size
                )
            segments.append(segment)
        return segments

    def keep_start(self, offset: int) -> None:
        path = self._folder / START
        new = path.with_suffix(".new")
        new.write_text(str(offset))
        new.replace(path)

    def kept_start(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return int((self._folder / START).read_text())
        return 0

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._folder.parent.rmdir()  # the topic's, once the last partition is gone

    def _path(self, base_offset: int) -> Path:
        return self._folder / f"{base_offset:020d}{SUFFIX}"


def has_right_checksum(batch: bytes, info: BatchInfo) -> bool:
    """Whether a batch found on disk is the one that was written."""
    return info.magic == 2 and crc32c.crc32c(memoryview(batch)[ATTRIBUTES_AT:]) == info.crc


def _locked(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise StateError(
            f"the data directory {str(path.parent)!r} is in use by another broker"
        ) from None
    return file


def _replayed(path: Path) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    for table, key, value in _rows(path):
        _set(tables, table, key, value)
    return tables


def _set(tables: dict[str, dict[str, Any]], table: str, key: str, value: Any) -> None:
    rows = tables.setdefault(table, {})
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


def _rows(path: Path) -> Iterator[tuple[str, str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            checksum, _, rest = line.partition(b" ")
            if not line.endswith(b"\n") or checksum != _checksum(rest[:-1]):
                _log.warning("line %d of %s was torn: it and what follows is dropped", number, path)
                return
            table, key, value = json.loads(rest)
            yield table, key, value


def _line(table: str, key: str, value: Any) -> bytes:
    rest = json.dumps([table, key, value], separators=(",", ":")).encode()
    return _checksum(rest) + b" " + rest + b"\n"


def _checksum(data: bytes) -> bytes:
    return b"%08x" % zlib.crc32(data)
