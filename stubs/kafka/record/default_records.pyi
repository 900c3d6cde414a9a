from collections.abc import Iterator

class DefaultRecord:
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

class DefaultRecordBatch:
    base_offset: int
    is_transactional: bool
    next_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    compression_type: int
    def validate_crc(self) -> bool: ...
    def __iter__(self) -> Iterator[DefaultRecord]: ...

class DefaultRecordBatchBuilder:
    def __init__(
        self,
        magic: int,
        compression_type: int,
        is_transactional: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        batch_size: int,
    ) -> None: ...
    def append(
        self,
        offset: int,
        timestamp: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> object | None: ...
    def build(self) -> bytearray: ...
