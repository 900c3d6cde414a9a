from collections.abc import Iterable

from karrow.records.typing import ArrowData, Bytes, Header

class BatchBuilder:
    def __init__(
        self,
        *,
        magic: int = 2,
        compression: str | None = None,
        level: int | None = None,
        max_bytes: int = 1_000_000,
    ) -> None: ...
    @property
    def magic(self) -> int: ...
    @property
    def compression(self) -> str | None: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def __len__(self) -> int: ...
    def append(
        self,
        key: Bytes | None,
        value: Bytes | None,
        *,
        timestamp_ms: int | None = None,
        headers: Iterable[Header] = (),
    ) -> int | None: ...
    def append_arrow(self, data: ArrowData, start: int = 0) -> int: ...
    def build(
        self,
        *,
        base_offset: int = 0,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        leader_epoch: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> bytes: ...
    def split(self, max_bytes: int) -> list[BatchBuilder]: ...
