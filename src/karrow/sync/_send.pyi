from collections.abc import Iterable, Mapping

from karrow.aio._delivery import Delivery
from karrow.aio._send import Sending
from karrow.config.producer import Partitioner
from karrow.records.typing import Bytes, Header

class BlockingSend(Sending):
    def send(
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
