from collections.abc import Iterable

from karrow.types import TopicPartition

FIRST_BY_HAND: int
LAST_BY_HAND: int

class FetchedPartition:
    def __init__(
        self,
        partition_index: int,
        records: memoryview | bytes | None,
        *,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        preferred_read_replica: int,
        aborted_transactions: list[tuple[int, int]] | None,
    ) -> None: ...
    @property
    def partition_index(self) -> int: ...
    @property
    def preferred_read_replica(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def last_stable(self) -> int | None: ...
    @property
    def log_start(self) -> int | None: ...
    @property
    def aborted_transactions(self) -> list[tuple[int, int]] | None: ...
    @property
    def whole(self) -> memoryview: ...
    @property
    def next_offset(self) -> int | None: ...
    @property
    def leader_epoch(self) -> int | None: ...

class Fetched:
    @property
    def throttle_time_ms(self) -> int: ...
    @property
    def session_id(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def topics(self) -> list[tuple[str, list[FetchedPartition]]]: ...

class FetchCodec:
    def __init__(
        self,
        version: int,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: int,
        isolation_level: int,
        rack: str,
    ) -> None: ...
    @property
    def version(self) -> int: ...
    @property
    def names(self) -> dict[str, bytes]: ...
    def add(self, topic: str, name: bytes) -> None: ...
    def encode(
        self,
        session_id: int,
        session_epoch: int,
        asked: dict[TopicPartition, tuple[int, int]],
        forgotten: Iterable[TopicPartition],
    ) -> bytes: ...
    def decode(self, frame: memoryview, begin: int, version: int) -> Fetched | None: ...
