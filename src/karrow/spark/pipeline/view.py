"""The live view of a pipeline in a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from karrow.spark.pipeline.lines import amount, seconds

if TYPE_CHECKING:
    from karrow.spark.pipeline.lines import Summary
    from karrow.spark.pipeline.tracker import Tracker

__all__ = ["LiveView"]


class LiveView:
    """A table of queries that is drawn again as numbers change."""

    def __init__(self, name: str, console: Console | None = None) -> None:
        self._name = name
        self._console = console or Console()
        self._start = time.monotonic()
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)

    def started(self, text: str) -> None:
        """Say what begins, and begin to draw."""
        self._console.print(Text(text, style="dim"))
        self._live.start()

    def show(
        self,
        trackers: Sequence[Tracker],
        news: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> None:
        """Draw."""
        self._live.update(self.drawn(trackers, time.monotonic()))

    def drawn(self, trackers: Sequence[Tracker], now: float) -> Group:
        """What is seen at a time."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("query", style="cyan")
        for column in ("rows/s in", "rows/s out", "lag", "batch", "took", "state rows", "rows in"):
            table.add_column(column, justify="right")
        for tracker in trackers:
            rate_in, rate_out = tracker.rates(now)
            table.add_row(
                tracker.name,
                amount(rate_in),
                amount(rate_out),
                amount(tracker.lag),
                amount(tracker.batch),
                seconds(tracker.batch_seconds),
                amount(tracker.state_rows),
                amount(tracker.rows_in),
            )
        head = Text.assemble(
            (self._name, "bold"), f"  {seconds(now - self._start)}  ", ("Ctrl-C stops", "dim")
        )
        return Group(head, table)

    def ended(self, summary: Summary | None) -> None:
        """Put the summary where the view was."""
        self._live.stop()
        if summary is None:
            return
        table = Table(title=f"{summary.name}: {summary.ended}", title_justify="left")
        table.add_column("query", style="cyan")
        for column in ("rows in", "rows out", "batches", "too late", "rows/s in"):
            table.add_column(column, justify="right")
        for query in summary.queries:
            rate = query.rows_in / max(summary.seconds, 0.001)
            numbers = (query.rows_in, query.rows_out, query.batches, query.late_rows, rate)
            table.add_row(query.name, *map(amount, numbers))
        self._console.print(table)
        self._console.print(Text(f"in {seconds(summary.seconds)}", style="dim"))
