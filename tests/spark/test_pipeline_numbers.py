"""What is told of a pipeline that runs, where it is known beforehand what is true."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import karrow
from karrow.spark.pipeline.lines import Lines, Summary
from karrow.spark.pipeline.tracker import Tracker
from karrow.spark.pipeline.view import LiveView
from tests.spark.pipelines import Shop, order

# Longer than somebody takes to look, so that no two batches are told of at once.
PAUSE = 1.5
# One order of each batch takes its time.
SLOW = f"""
    SELECT * FROM orders
    WHERE if(id % 10 = 0, java_method('java.lang.Thread', 'sleep', {PAUSE * 1000:.0f}L), '')
        IS NOT NULL
"""
GROUPED = "SELECT customer, count(*) AS orders FROM slow GROUP BY customer, window(at, '1 day')"
LINE = re.compile(
    r"totals batch (\d): (\d+) rows in, (\d+) out, ([\d.]+) s, lag (\d+), (\d+) state rows"
)
ROW = re.compile(r"^totals +\d+ +\d+ +(\d+) +(\d+) +([\d.]+) s +(\d+) +(\d+)", re.MULTILINE)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with karrow.Broker() as broker:
        yield Shop(broker.bootstrap, tmp_path)


class Watching:
    """Has lines written, and the live view drawn whenever there is a new batch."""

    def __init__(self) -> None:
        self.lines, self.drawn = io.StringIO(), io.StringIO()
        self._lines = Lines(self.lines)
        self._view = LiveView("shop", Console(file=self.drawn, width=160))
        self._console = Console(file=self.drawn, width=160)

    def started(self, text: str) -> None:
        self._lines.started(text)

    def show(
        self, trackers: Sequence[Tracker], news: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> None:
        self._lines.show(trackers, news)
        if any("addBatch" in one["durationMs"] for reports in news.values() for one in reports):
            self._console.print(self._view.drawn(trackers, time.monotonic()))

    def ended(self, summary: Summary | None) -> None:
        self._lines.ended(summary)


def test_rows_lag_state_and_time_are_those_of_each_batch(shop: Shop, spark: SparkSession) -> None:
    customers = {
        0: "ann",
        1: "bob",
        2: "ann",
        10: "cid",
        11: "ann",
        12: "bob",
        20: "dan",
        21: "eve",
    }
    with karrow.Client(shop.bootstrap) as client:
        values = [order(number, customer) for number, customer in customers.items()]
        client.produce(shop.topic("orders"), values, partition=0)
    pipeline = shop.pipeline(
        sources__orders__options={"maxOffsetsPerTrigger": 3},
        sources__orders__dead_letter=None,
        steps__slow={"sql": SLOW},
        steps__totals=None,
        steps__grouped={"sql": GROUPED},
        sinks__totals__from="grouped",
        sinks__totals__mode="update",
        sinks__raw=None,
    )
    watching = Watching()
    summary = pipeline.run(spark, once=True, view=watching)

    told = LINE.findall(watching.lines.getvalue())
    assert [(batch, rows, out) for batch, rows, out, *_ in told] == [
        ("0", "3", "2"),
        ("1", "3", "3"),
        ("2", "2", "2"),
    ]
    lags, state = ["5", "2", "0"], ["2", "3", "5"]
    assert [lag for *_, lag, _ in told] == lags
    assert [rows for *_, rows in told] == state
    times = [float(took) for _, _, _, took, *_ in told]
    assert min(times) >= PAUSE
    assert sum(times) <= summary.seconds

    drawn = ROW.findall(watching.drawn.getvalue())
    assert [batch for _, batch, *_ in drawn] == ["0", "1", "2"]
    assert [lag for lag, *_ in drawn] == lags
    assert [rows for *_, rows, _ in drawn] == state
    assert [float(took) for _, _, took, *_ in drawn] == times
    assert [rows_in for *_, rows_in in drawn] == ["3", "6", "8"]
