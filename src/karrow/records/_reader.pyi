from collections.abc import Iterable, Iterator, Sequence
from typing import final

from karrow.records._export import RecordColumns
from karrow.records._record import Record
from karrow.records.typing import Buffer

@final
class RecordReader(Iterator[Record]):
    partial_tail: bool
    def __init__(
        self,
        data: Buffer,
        *,
        topic: str | None = None,
        partition: int | None = None,
        from_offset: int | None = None,
        aborted: Iterable[tuple[int, int]] | None = None,
        check_crc: bool = True,
        max_decompressed_bytes: int = ...,
    ) -> None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def is_damaged(self) -> bool: ...
    @property
    def expanded_bytes(self) -> int: ...
    def read_arrow(
        self,
        *,
        columns: Sequence[str] | None = None,
        max_records: int | None = None,
        max_bytes: int | None = None,
        timestamp_unit: str = "ms",
    ) -> RecordColumns: ...
    def skip_damaged(self) -> bool: ...
    def expect_end(self) -> None: ...
    def __next__(self) -> Record: ...
