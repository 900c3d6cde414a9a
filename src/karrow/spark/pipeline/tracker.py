"""What a query has done, out of the progress that Spark tells of it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["OBSERVED", "Tracker"]

# The name of the metric that counts what goes into a sink; most sinks do not tell by themselves.
OBSERVED = "karrow"
# Rates are those of the last seconds, so that a batch now and then is a rate too.
WINDOW = 10.0


@dataclass(slots=True)
class Tracker:
    """The numbers of one query; ``None`` is what nobody has told."""

    name: str
    started: float
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    state_rows: int | None = None
    lag: int | None = None
    batch: int | None = None
    batch_seconds: float | None = None
    watermark: str | None = None
    _last: tuple[int, str] | None = None
    _recent: deque[tuple[float, int, int]] = field(default_factory=deque)

    def feed(self, reports: Sequence[Mapping[str, Any]], now: float) -> list[Mapping[str, Any]]:
        """Take in reports, the oldest first; gives those that were news."""
        news = [report for report in reports if self._is_news(report)]
        for report in news:
            self._add(report, now)
        return news

    def rates(self, now: float) -> tuple[float, float]:
        """Rows in and out per second, of late."""
        while self._recent and self._recent[0][0] < now - WINDOW:
            self._recent.popleft()
        seconds = max(min(WINDOW, now - self.started), 0.001)
        rows_in = sum(rows for _, rows, _ in self._recent)
        rows_out = sum(rows for _, _, rows in self._recent)
        return rows_in / seconds, rows_out / seconds

    def _is_news(self, report: Mapping[str, Any]) -> bool:
        """Spark repeats the number of a batch while it waits for data."""
        stamp = (int(report["batchId"]), str(report["timestamp"]))
        if self._last is not None and stamp <= self._last:
            return False
        self._last = stamp
        return True

    def _add(self, report: Mapping[str, Any], now: float) -> None:
        rows_in, rows_out = int(report["numInputRows"]), written(report)
        ran = "addBatch" in report["durationMs"]
        self.batches += ran
        self.rows_in += rows_in
        self.rows_out += rows_out
        self._recent.append((now, rows_in, rows_out))
        self.batch = int(report["batchId"])
        if ran:
            self.batch_seconds = report["durationMs"].get("triggerExecution", 0) / 1000
        operators = report["stateOperators"]
        if operators:
            self.state_rows = sum(int(one["numRowsTotal"]) for one in operators)
            self.late_rows += sum(int(one.get("numRowsDroppedByWatermark", 0)) for one in operators)
        self.watermark = report.get("eventTime", {}).get("watermark", self.watermark)
        behind = [lag for source in report["sources"] if (lag := lag_of(source)) is not None]
        self.lag = sum(behind) if behind else self.lag


def written(report: Mapping[str, Any]) -> int:
    """How many rows a batch gave to its sink."""
    observed = report.get("observedMetrics") or {}
    if OBSERVED in observed:
        return int(observed[OBSERVED]["rows"])
    return max(0, int((report.get("sink") or {}).get("numOutputRows") or 0))


def lag_of(source: Mapping[str, Any]) -> int | None:
    """How many offsets of a source were there after the end of the batch."""
    latest, end = _read(source.get("latestOffset")), _read(source.get("endOffset"))
    if not isinstance(latest, Mapping) or not isinstance(end, Mapping):
        return None
    ends = dict(_offsets(end))
    return sum(max(0, offset - ends.get(where, 0)) for where, offset in _offsets(latest))


def _read(offset: Any) -> Any:
    """An offset is JSON, or what was read of it."""
    return json.loads(offset) if isinstance(offset, str) else offset


def _offsets(
    offsets: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    for name, value in offsets.items():
        if isinstance(value, Mapping):
            yield from _offsets(value, (*path, name))
        elif isinstance(value, int):
            yield (*path, name), value
