"""Data of one partition on its way to the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow.records import RecordReader

if TYPE_CHECKING:
    from karrow.aio._fetch import FetchedPartition
    from karrow.aio.consuming.positions import Fetch
    from karrow.config import ConsumerConfig


class Chunk:
    """What one fetch brought of one partition: record data that is still to be decoded.

    ``epoch`` is that of the partition when it was asked for; ``next_offset`` is where the data
    ends; ``size`` is how much of the buffer it takes. ``is_stuck`` says that it ends where it was
    asked for: it is damaged, or cut off.
    """

    __slots__ = (
        "_aborted",
        "_config",
        "_data",
        "_from_offset",
        "_is_own",
        "_reader",
        "epoch",
        "is_stuck",
        "leader_epoch",
        "next_offset",
        "partition",
        "size",
    )

    def __init__(
        self,
        asked: Fetch,
        part: FetchedPartition,
        next_offset: int,
        aborted: list[tuple[int, int]] | None,
        config: ConsumerConfig,
    ) -> None:
        self.partition = asked.partition
        self.epoch = asked.epoch
        self.size = part.size
        self.next_offset = next_offset
        self.is_stuck = next_offset <= asked.offset
        self.leader_epoch = part.leader_epoch
        self._data = part.whole
        self._is_own = False
        self._from_offset = asked.offset
        self._aborted = aborted
        self._config = config
        self._reader: RecordReader | None = None

    @property
    def reader(self) -> RecordReader:
        """Decodes it, in the thread that asks; the same one every time."""
        if self._reader is None:
            topic, partition = self.partition
            self._reader = RecordReader(
                self._data,
                topic=topic,
                partition=partition,
                from_offset=self._from_offset,
                aborted=self._aborted,
                check_crc=self._config.check_crcs,
                max_decompressed_bytes=self._config.max_decompressed_bytes,
            )
        return self._reader

    @property
    def expanded_bytes(self) -> int:
        """What a reader that has begun with it holds without its compression."""
        return 0 if self._reader is None else self._reader.expanded_bytes

    def read_again(self, offset: int) -> None:
        """Have another reader, which begins at an offset; the old one may still be at work."""
        self._from_offset = offset
        self._reader = None

    def keep(self) -> None:
        """Have bytes of its own, to wait for long without the rest of the broker's answer."""
        if not self._is_own:
            self._data = memoryview(bytes(self._data))
            self._is_own = True
            if self._reader is not None:
                self.read_again(self._reader.next_offset)

    def __repr__(self) -> str:
        return f"<Chunk of {self.partition} from {self._from_offset} to {self.next_offset}>"
