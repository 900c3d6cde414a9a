"""The lag of streams, out of the progress that Spark reports."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from karrow import events
from karrow.spark.listening import Lag, LagListener
from karrow.types import TopicPartition

QUERY = str(UUID(int=1))
RUN = str(UUID(int=2))


def source(end: Any, latest: Any, rows: int = 5) -> dict[str, Any]:
    return {
        "description": "source",
        "startOffset": "{}",
        "endOffset": None if end is None else json.dumps(end),
        "latestOffset": None if latest is None else json.dumps(latest),
        "numInputRows": rows,
        "inputRowsPerSecond": 12.5,
        "processedRowsPerSecond": float("inf"),
    }


def progress(*sources: dict[str, Any], name: str | None = "billing") -> QueryProgressEvent:
    said = {
        "id": QUERY,
        "runId": RUN,
        "name": name,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 7,
        "batchDuration": 10,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "sink", "numOutputRows": -1, "metrics": {}},
        "numInputRows": 5,
        "inputRowsPerSecond": 12.5,
        "processedRowsPerSecond": 1.0,
        "observedMetrics": {},
        "metrics": {},
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson(said))


def test_lag_is_told_for_every_source_of_kafka() -> None:
    told: list[Lag] = []
    heard: list[events.Event] = []
    listener = LagListener(told.append)
    ours = source(
        {"orders": {"0": 5, "1": 9}, "@ids": {"orders": "x"}},
        {"orders": {"0": 15, "1": 9, "2": 4}},
    )
    files = source({"logOffset": 3}, None)
    with events.subscribe(heard.append, "stream"):
        listener.onQueryProgress(progress(files, ours))
    (lag,) = told
    assert lag.behind == {
        TopicPartition("orders", 0): 10,
        TopicPartition("orders", 1): 0,
        TopicPartition("orders", 2): 4,
    }
    assert (lag.query, lag.batch, lag.source, lag.rows, lag.lag) == ("billing", 7, 1, 5, 14)
    assert (lag.input_rate, lag.processed_rate) == (12.5, 0.0)
    assert listener.lags == {(QUERY, 1): lag}
    (event,) = heard
    assert event.measurements == {
        "lag": 14,
        "rows": 5,
        "input_rate": 12.5,
        "processed_rate": 0.0,
    }
    assert event.fields["query"] == "billing"


def test_queries_without_a_name_go_by_their_id() -> None:
    listener = LagListener()
    offsets = {"orders": {"0": 5}}
    listener.onQueryProgress(progress(source(offsets, offsets), name=None))
    assert [lag.query for lag in listener.lags.values()] == [QUERY]
    listener.onQueryTerminated(QueryTerminatedEvent(UUID(QUERY), UUID(RUN), None, None))
    assert listener.lags == {}


def test_sources_that_say_nothing_are_passed_over() -> None:
    listener = LagListener()
    listener.onQueryProgress(progress(source(None, None), source({"a": 1}, {"a": 2})))
    assert listener.lags == {}
