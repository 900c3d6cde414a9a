from collections.abc import Mapping

from karrow.aio._batch import Batch

class Written:
    @property
    def partitions(self) -> Mapping[tuple[bytes, int], tuple[int, int, int]]: ...
    @property
    def throttle_time_ms(self) -> int: ...

def encode_head(
    version: int, transactional_id: str | None, acks: int, timeout_ms: int
) -> bytes: ...
def encode_batches(
    version: int, head: bytes, topics: list[tuple[bytes, list[Batch]]]
) -> tuple[list[bytes | memoryview], list[int]]: ...
def decode_written(frame: memoryview, begin: int, version: int) -> Written | None: ...
