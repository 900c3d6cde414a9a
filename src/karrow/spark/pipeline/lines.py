"""Numbers of pipelines in words: lines for logs, cells for tables, the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from karrow.spark.pipeline.tracker import written

if TYPE_CHECKING:
    from karrow.spark.pipeline.tracker import Tracker

__all__ = ["Lines", "QueryTotals", "Summary", "batch_line"]

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class QueryTotals:
    """What one query did in a run."""

    name: str
    batches: int
    rows_in: int
    rows_out: int
    late_rows: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did: its queries, how long it took, and why it ended."""

    name: str
    seconds: float
    ended: str
    queries: tuple[QueryTotals, ...]

    def __str__(self) -> str:
        head = f"{self.name}: {self.ended} after {seconds(self.seconds)}"
        return "\n".join([head, *(f"  {self._line(query)}" for query in self.queries)])

    def _line(self, query: QueryTotals) -> str:
        rate = query.rows_in / max(self.seconds, 0.001)
        late = f", {query.late_rows:,} too late" if query.late_rows else ""
        return (
            f"{query.name}: {query.rows_in:,} rows in ({rate:,.0f}/s), {query.rows_out:,} out, "
            f"{query.batches:,} batches{late}"
        )


class Lines:
    """A line for every batch that had rows, for logs and pipes."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out or sys.stdout

    def started(self, text: str) -> None:
        """Say what begins."""
        self._say(text)

    def show(
        self, trackers: Sequence[Tracker], news: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> None:
        """Say what is new."""
        by_name = {tracker.name: tracker for tracker in trackers}
        for name, reports in news.items():
            for report in reports:
                if "addBatch" in report["durationMs"]:
                    self._say(batch_line(by_name[name], report))

    def ended(self, summary: Summary | None) -> None:
        """Say what was done."""
        for line in str(summary or "failed").splitlines():
            self._say(line)

    def _say(self, text: str) -> None:
        stamp = time.strftime("%H:%M:%S")
        print(stamp, text, file=self._out, flush=True)


def batch_line(tracker: Tracker, report: Mapping[str, Any]) -> str:
    """One batch of one query."""
    took = report["durationMs"].get("triggerExecution", 0) / 1000
    parts = [
        f"{report['numInputRows']:,} rows in",
        f"{written(report):,} out",
        f"{seconds(took)}",
        f"lag {amount(tracker.lag)}",
    ]
    if tracker.state_rows is not None:
        parts.append(f"{tracker.state_rows:,} state rows")
    return f"{tracker.name} batch {report['batchId']}: {', '.join(parts)}"


def amount(number: float | None) -> str:
    """A number of rows."""
    return NOTHING if number is None else f"{number:,.0f}"


def seconds(number: float | None) -> str:
    """A time, as exactly as it matters."""
    if number is None:
        return NOTHING
    if number < 60:
        return f"{number:.1f} s"
    minutes, rest = divmod(round(number), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
