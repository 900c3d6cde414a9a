"""How far streams are behind, told after each batch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from karrow import events
from karrow.errors import StateError
from karrow.spark.reading.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
        StreamingQueryProgress,
    )

    from karrow.types import TopicPartition

__all__ = ["Lag", "LagListener"]


@dataclass(frozen=True, slots=True)
class Lag:
    """Where one source of a query is after a batch.

    ``behind`` has the offsets that each partition has and the query has not read; ``lag`` is their
    sum. Rates are rows per second, of what came in and of what the query could take.
    """

    query: str
    query_id: str
    batch: int
    source: int
    rows: int
    input_rate: float
    processed_rate: float
    behind: Mapping[TopicPartition, int]

    @property
    def lag(self) -> int:
        """How many offsets are unread."""
        return sum(self.behind.values())


class LagListener(StreamingQueryListener):
    """Tells the lag and the rates of every stream that reads Kafka, as events ``stream.progress``.

    ``tell`` is called with each ``Lag`` as well; ``lags`` has the newest of each query and source.
    Queries of Spark's own Kafka source are told of, too.

    Example::

        spark.streams.addListener(karrow.spark.LagListener(print))
    """

    def __init__(self, tell: Callable[[Lag], object] | None = None) -> None:
        self.lags: dict[tuple[str, int], Lag] = {}
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done."""
        for lag in _lags(event.progress):
            self.lags[lag.query_id, lag.source] = lag
            events.emit(
                "stream.progress",
                {
                    "lag": lag.lag,
                    "rows": lag.rows,
                    "input_rate": lag.input_rate,
                    "processed_rate": lag.processed_rate,
                },
                query=lag.query,
                query_id=lag.query_id,
                batch=lag.batch,
                source=lag.source,
                behind=lag.behind,
            )
            if self._tell is not None:
                self._tell(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing came."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The query's lags are history."""
        self.lags = {key: lag for key, lag in self.lags.items() if key[0] != str(event.id)}


def _lags(progress: StreamingQueryProgress) -> Iterator[Lag]:
    for number, source in enumerate(progress.sources):
        behind = _behind(source)
        if behind is not None:
            yield Lag(
                progress.name or str(progress.id),
                str(progress.id),
                progress.batchId,
                number,
                source.numInputRows,
                _rate(source.inputRowsPerSecond),
                _rate(source.processedRowsPerSecond),
                behind,
            )


def _behind(source: SourceProgress) -> dict[TopicPartition, int] | None:
    """What is unread of each partition; None where the source is none of Kafka's."""
    try:
        end = Offsets.from_json(json.loads(source.endOffset or "null"))
        latest = Offsets.from_json(json.loads(source.latestOffset or "null"))
    except (StateError, ValueError):
        return None
    return {one: max(offset - end.offsets.get(one, 0), 0) for one, offset in latest.offsets.items()}


def _rate(rate: float) -> float:
    return rate if math.isfinite(rate) else 0.0
