from collections.abc import Iterator

class LegacyRecord:
    offset: int
    timestamp: int | None
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

class LegacyRecordBatch:
    def validate_crc(self) -> bool: ...
    def __iter__(self) -> Iterator[LegacyRecord]: ...

class LegacyRecordBatchBuilder:
    def __init__(self, magic: int, compression_type: int, batch_size: int) -> None: ...
    def append(
        self,
        offset: int,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]] | None = ...,
    ) -> object | None: ...
    def build(self) -> bytearray: ...
