"""A pipeline that runs: its queries started, watched and stopped together.

Rules:
- Queries are one thing to their user: when one fails, all are stopped, and the error names its
  sink.
- Stopping is safe at any time, since every query goes on from its checkpoint; it waits for
  transactions, so that readers of committed data need not.
- A query starts a process of Python for its source, and Spark gives up on one that has not answered
  within ten seconds. On a machine that is busy the query is started again, which is as safe as any
  restart: one query at a time, or they would keep each other from it.
- A sink that writes exactly once is taken over with the start of its query, which may have no rows
  for weeks: so its ledger is kept alive. A query that is to end by itself does not need that.
- Spark tells of a failure when the query has ended, and of its last batch a moment later.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from karrow.errors import KarrowError
from karrow.spark.pipeline.lines import QueryTotals, Summary
from karrow.spark.pipeline.tracker import Tracker

if TYPE_CHECKING:
    from contextlib import ExitStack

    from pyspark.sql.streaming.query import StreamingQuery

    from karrow.spark.pipeline.queries import Flow
    from karrow.spark.pipeline.signals import StopWish

__all__ = ["PipelineFailed", "Running", "View"]

# How long a batch inside a transaction may take to finish when the pipeline is stopped.
GRACE = 20.0
LOOK_EVERY = 0.25

News = Mapping[str, Sequence[Mapping[str, Any]]]


class PipelineFailed(KarrowError):
    """A query of a pipeline has failed; ``query`` names it, ``__cause__`` is Spark's own error."""

    __module__ = "karrow.spark"

    def __init__(self, message: str = "", *, query: str = "", **details: Any) -> None:
        super().__init__(message, **details)
        self.query = query


class View(Protocol):
    """Who is shown what happens."""

    def started(self, text: str) -> None:
        """What begins."""

    def show(self, trackers: Sequence[Tracker], news: News) -> None:
        """What is new."""

    def ended(self, summary: Summary | None) -> None:
        """What was done; None if it has failed."""


class Running:
    """The queries of a pipeline, from their start to their end."""

    def __init__(
        self, name: str, flows: Sequence[Flow], spark: ExitStack, *, once: bool = False
    ) -> None:
        self.name = name
        self._flows = flows
        self._spark = spark
        self._began = time.monotonic()
        self._once = once
        self._ended: Summary | None = None
        self._attempts: Counter[str] = Counter()
        self._is_over = False
        self._to_start: list[str] = []
        self._started_last: StreamingQuery | None = None
        self._queries: dict[str, StreamingQuery] = {}
        self._trackers = {flow.name: Tracker(flow.name, self._began) for flow in flows}
        try:
            for flow in flows:
                self._start(flow)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def queries(self) -> Mapping[str, StreamingQuery]:
        """Spark's own handles, by the names of sinks; dead letters are ``SOURCE.dead-letter``."""
        return self._queries

    @property
    def trackers(self) -> list[Tracker]:
        """The numbers of each query."""
        return list(self._trackers.values())

    @property
    def active(self) -> bool:
        """Whether any query ran when it was last looked at."""
        return not self._is_over

    def look(self) -> News:
        """Take in what Spark tells; raises PipelineFailed if a query has failed."""
        if self._ended is not None:
            return {}
        ended = {name: query for name, query in self._queries.items() if not query.isActive}
        news = self._news()
        self._is_over = len(ended) == len(self._queries)
        for name, query in ended.items():
            error = None if name in self._to_start else query.exception()
            if error is not None:
                self._ended_with(name, error)
        if self._to_start:
            self._is_over = False
            self._start_next()
        return news

    def wait(self, timeout: float | None = None) -> bool:
        """Until all queries have ended by themselves; False when time is up before that."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self.look()
            if not self.active or (until is not None and time.monotonic() >= until):
                return not self.active
            time.sleep(LOOK_EVERY)

    def watch(self, view: View | None, wish: StopWish) -> Summary:
        """Show what happens until all queries have ended, or somebody wishes them to; then stop."""
        summary = None
        if view is not None:
            view.started(f"{self.name}: {', '.join(self._queries)}")
        try:
            while self.active and not wish.wait(LOOK_EVERY):
                self._show(view)
            summary = self.stop()
        finally:
            if view is not None:
                view.ended(summary)
        return summary

    def _show(self, view: View | None) -> None:
        news = self.look()
        if view is not None:
            view.show(self.trackers, news)

    def stop(self, grace: float = GRACE) -> Summary:
        """End all queries, and the Spark that was started for them.

        A batch that is inside a transaction may finish it, for ``grace`` seconds.
        """
        if self._ended is not None:
            return self._ended
        how = "stopped" if self.active else "finished"
        try:
            deadline = time.monotonic() + grace
            for flow in self._flows:
                if flow.gate is not None:
                    flow.gate.close(max(0.0, deadline - time.monotonic()))
            for query in self._queries.values():
                query.stop()
            self._news()
        finally:
            # Also when somebody has no patience: what is left ends with Spark.
            self._ended = self._summary(how)
            self._is_over = True
            self._spark.close()
        return self._ended

    def _ended_with(self, name: str, error: Exception) -> None:
        """A query has failed: it is begun again if it had no chance, else all are stopped."""
        self._attempts[name] += 1
        if _NO_CHANCE in str(error) and self._attempts[name] < _STARTS:
            self._to_start.append(name)
            return
        self.stop()
        where = next(flow.where for flow in self._flows if flow.name == name)
        raise PipelineFailed(f"{where} {told(str(error))}", query=name) from error

    def _start_next(self) -> None:
        """Start one more query, unless the one before is still about it."""
        last = self._started_last
        if last is None or not last.isActive or not _is_beginning(last):
            name = self._to_start.pop(0)
            flow = next(flow for flow in self._flows if flow.name == name)
            self._started_last = self._start(flow)

    def _start(self, flow: Flow) -> StreamingQuery:
        query = self._queries[flow.name] = flow.start(once=self._once)
        if flow.open is not None and not self._once:
            try:
                flow.open(query)
            except KarrowError as error:
                self.stop()
                raise PipelineFailed(f"{flow.where} {error}", query=flow.name) from error
        return query

    def _news(self) -> News:
        now = time.monotonic()
        return {
            name: self._trackers[name].feed(query.recentProgress, now)
            for name, query in self._queries.items()
        }

    def _summary(self, how: str) -> Summary:
        queries = tuple(
            QueryTotals(one.name, one.batches, one.rows_in, one.rows_out, one.late_rows)
            for one in self.trackers
        )
        return Summary(self.name, time.monotonic() - self._began, how, queries)


_BEGINNING = ("Initializing", "Getting offsets")
_NO_CHANCE = "Python worker failed to connect back"
# How often a query is started that ends so, altogether.
_STARTS = 20
_RAISED = ("Error", "Exception", "Failed", "Ended")
_FOREIGN = ("org.apache.", "java.", "pyspark.", "py4j.", "Caused by")


def _is_beginning(query: StreamingQuery) -> bool:
    return str(query.status["message"]).startswith(_BEGINNING)


def told(text: str) -> str:
    """The line that matters of an error that came through Spark: the last that Python raised."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if line.partition(":")[0].endswith(_RAISED)]
    found = next((line for line in reversed(raised) if not line.startswith(_FOREIGN)), None)
    return found or (lines[0] if lines else "it has failed")
