"""What is told of running queries: numbers of Spark's progress, lines, the view, the summary."""

from __future__ import annotations

import io
import pickle
from typing import Any

from rich.console import Console

from karrow.spark import PipelineFailed
from karrow.spark.pipeline.lines import Lines, QueryTotals, Summary, batch_line, seconds
from karrow.spark.pipeline.running import told
from karrow.spark.pipeline.tracker import Tracker
from karrow.spark.pipeline.view import LiveView


def report(batch: int = 0, rows: int = 100, out: int | None = 20, **more: Any) -> dict[str, Any]:
    """A progress as Spark tells it."""
    return {
        "batchId": batch,
        "timestamp": f"2026-11-16T10:00:{batch:02}.000Z",
        "numInputRows": rows,
        "durationMs": {"addBatch": 900, "triggerExecution": 1500},
        "eventTime": {"watermark": "2026-11-16T09:59:00.000Z"},
        "stateOperators": [{"numRowsTotal": 7, "numRowsDroppedByWatermark": 2}],
        "sources": [
            {
                "endOffset": '{"orders": {"0": 60, "1": 40}, "@ids": {"orders": "x"}}',
                "latestOffset": {"orders": {"0": 90, "1": 45, "2": 5}},
            }
        ],
        "sink": {"numOutputRows": -1},
        "observedMetrics": {} if out is None else {"karrow": {"rows": out}},
        **more,
    }


def test_numbers_add_up_and_are_counted_once() -> None:
    tracker = Tracker("totals", started=0.0)
    assert len(tracker.feed([report(0), report(1)], 2.0)) == 2
    assert tracker.feed([report(0), report(1)], 3.0) == []
    assert tracker.feed([report(1), report(2, rows=50)], 4.0) == [report(2, rows=50)]
    assert (tracker.batches, tracker.rows_in, tracker.rows_out) == (3, 250, 60)
    assert tracker.lag == 30 + 5 + 5
    assert tracker.state_rows == 7
    assert tracker.late_rows == 6
    assert tracker.batch_seconds == 1.5


def test_waiting_is_no_batch() -> None:
    tracker = Tracker("totals", started=0.0)
    tracker.feed([report(3)], 1.0)
    idle = report(4, rows=0, out=None, durationMs={"triggerExecution": 3})
    tracker.feed([idle], 11.0)
    assert (tracker.batches, tracker.rows_out) == (1, 20)
    assert tracker.batch_seconds == 1.5


def test_rates_are_those_of_the_last_seconds() -> None:
    tracker = Tracker("totals", started=0.0)
    tracker.feed([report(0)], 2.0)
    assert tracker.rates(4.0) == (25.0, 5.0)
    assert tracker.rates(12.0) == (10.0, 2.0)
    assert tracker.rates(12.1) == (0.0, 0.0)


def test_a_sink_that_counts_is_believed() -> None:
    tracker = Tracker("totals", started=0.0)
    tracker.feed([report(0, out=None, sink={"numOutputRows": 9})], 1.0)
    assert tracker.rows_out == 9


def test_a_source_that_tells_nothing_has_no_lag() -> None:
    tracker = Tracker("totals", started=0.0)
    tracker.feed([report(0, sources=[{"endOffset": None, "latestOffset": None}])], 1.0)
    assert tracker.lag is None


def test_a_batch_is_a_line() -> None:
    tracker = Tracker("totals", started=0.0)
    tracker.feed([report(4, rows=12_345)], 1.0)
    line = "totals batch 4: 12,345 rows in, 20 out, 1.5 s, lag 40, 7 state rows"
    assert batch_line(tracker, report(4, rows=12_345)) == line


SUMMARY = Summary("orders", 10.0, "finished", (QueryTotals("totals", 3, 250, 60, 6),))


def test_lines_tell_batches_and_the_summary() -> None:
    out = io.StringIO()
    lines, tracker = Lines(out), Tracker("totals", started=0.0)
    lines.started("orders: totals")
    lines.show([tracker], {"totals": tracker.feed([report(0)], 1.0)})
    lines.show([tracker], {"totals": [report(1, durationMs={})]})
    lines.ended(SUMMARY)
    told = [line.partition(" ")[2] for line in out.getvalue().splitlines()]
    assert told == [
        "orders: totals",
        "totals batch 0: 100 rows in, 20 out, 1.5 s, lag 40, 7 state rows",
        "orders: finished after 10.0 s",
        "  totals: 250 rows in (25/s), 60 out, 3 batches, 6 too late",
    ]


def test_the_view_shows_every_number() -> None:
    console = Console(file=io.StringIO(), width=120)
    view, tracker = LiveView("orders", console), Tracker("totals", started=0.0)
    tracker.feed([report(4, rows=50_000)], 2.0)
    console.print(view.drawn([tracker, Tracker("raw", 0.0)], 5.0))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    head, columns, totals, raw = (line.split() for line in text.splitlines())
    assert head[0] == "orders"
    assert columns[:3] == ["query", "rows/s", "in"]
    assert totals == ["totals", "10,000", "4", "40", "4", "1.5", "s", "7", "50,000"]
    assert raw == ["raw", "0", "0", "-", "-", "-", "-", "0"]


def test_the_view_ends_with_the_summary() -> None:
    console = Console(file=io.StringIO(), width=100)
    view = LiveView("orders", console)
    view.started("orders: totals")
    view.ended(SUMMARY)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "orders: finished" in text
    assert "totals" in text
    assert "in 10.0 s" in text


def test_times_are_as_exact_as_it_matters() -> None:
    assert [seconds(n) for n in (None, 0.04, 59.9, 61, 7300)] == [
        "-",
        "0.0 s",
        "59.9 s",
        "1 min 1 s",
        "2 h 1 min",
    ]


def test_a_failure_travels() -> None:
    error = pickle.loads(pickle.dumps(PipelineFailed("it failed", query="totals", hint="look")))
    assert (str(error), error.query) == ("it failed; look", "totals")


def test_of_a_failure_the_line_that_matters_is_told() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON] Failed when
org.apache.spark.SparkException: Job aborted
Traceback (most recent call last):
  File "x.py", line 3, in f
karrow.errors.ConfigError: there is no topic 'x'; create it
\tat org.apache.spark.api.python.BasePythonRunner
Caused by: java.lang.Exception: y
"""
    assert told(text) == "karrow.errors.ConfigError: there is no topic 'x'; create it"
    assert told("[STREAM_FAILED] Query\nmore") == "[STREAM_FAILED] Query"
    assert told("") == "it has failed"
