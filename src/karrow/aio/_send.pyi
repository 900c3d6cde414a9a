from collections.abc import Iterable, Mapping

from karrow.aio._accumulator import Accumulator
from karrow.aio._delivery import Delivery
from karrow.config.producer import Partitioner
from karrow.records.typing import Bytes, Header

class Sending:
    accumulator: Accumulator
    def send_nowait(
        self,
        topic: str,
        value: Bytes | None = None,
        *,
        key: Bytes | None = None,
        headers: Iterable[Header] | Mapping[str, Bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> Delivery: ...

class AwaitedSend(Sending):
    async def send(
        self,
        topic: str,
        value: Bytes | None = None,
        *,
        key: Bytes | None = None,
        headers: Iterable[Header] | Mapping[str, Bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> Delivery: ...
