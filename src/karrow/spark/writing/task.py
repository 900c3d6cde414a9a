"""A task: the rows of one partition of a DataFrame into Kafka, at least once.

Rules:
- Rows are handed to the producer as they come. It sends and encodes at once, and lets the task wait
  while its buffer is full, so that memory is bounded whatever the size of the partition.
- The task is done when every row is acknowledged. What fails ends it at once, and Spark decides
  whether it runs again: rows that were written then are written twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from karrow.aio.producing.bulk import BulkDelivery
    from karrow.sync.producer import Producer


def write_rows(producer: Producer, topic: str | None, batches: Iterable[pa.RecordBatch]) -> int:
    """Write all rows, and wait until the brokers have them: how many there were."""
    rows = 0
    under_way: deque[BulkDelivery] = deque()
    for batch in batches:
        under_way.append(producer.send_arrow(topic, batch))
        rows += batch.num_rows
        while under_way and under_way[0].done():
            under_way.popleft().result()
    for delivery in under_way:
        delivery.result()
    return rows
