from karrow.records.typing import ArrowData

def encode(
    data: ArrowData,
    *,
    magic: int = 2,
    compression: str | None = None,
    level: int | None = None,
    base_offset: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes: ...
