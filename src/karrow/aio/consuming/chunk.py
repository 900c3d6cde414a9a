"""Data of one partition on its way to the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karrow.records import RecordReader

if TYPE_CHECKING:
    from karrow.config import ConsumerConfig
    from karrow.types import TopicPartition


class Chunk:
    """What one fetch brought of one partition: record data that is still to be decoded.

    ``epoch`` is that of the partition when it was asked for; ``next_offset`` is where the data ends.
    """

    __slots__ = (
        "_aborted",
        "_config",
        "_data",
        "_from_offset",
        "_reader",
        "epoch",
        "leader_epoch",
        "next_offset",
        "partition",
        "size",
    )

    def __init__(
        self,
        partition: TopicPartition,
        epoch: int,
        data: memoryview,
        *,
        from_offset: int,
        next_offset: int,
        leader_epoch: int | None,
        aborted: list[tuple[int, int]] | None,
        config: ConsumerConfig,
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.size = len(data)
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self._data: memoryview | None = data
        self._from_offset = from_offset
        self._aborted = aborted
        self._config = config
        self._reader: RecordReader | None = None

    @property
    def reader(self) -> RecordReader:
        """Decodes it, in the thread that asks; the same one every time."""
        if self._reader is None:
            topic, partition = self.partition
            assert self._data is not None  # noqa: S101 - it is given away below, once
            self._reader = RecordReader(
                self._data,
                topic=topic,
                partition=partition,
                from_offset=self._from_offset,
                aborted=self._aborted,
                check_crc=self._config.check_crcs,
                max_decompressed_bytes=self._config.max_decompressed_bytes,
            )
            self._data = None
        return self._reader

    def __repr__(self) -> str:
        return f"<Chunk of {self.partition} from {self._from_offset} to {self.next_offset}>"
