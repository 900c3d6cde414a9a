"""Queries started together: who takes a sink over, and what its failure does."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from karrow.errors import ConfigError, StateError
from karrow.spark.pipeline.queries import Flow, Gate
from karrow.spark.pipeline.running import PipelineFailed, Running


class Query:
    """As much of a streaming query as is asked for."""

    def __init__(self) -> None:
        self.isActive = True
        self.recentProgress: list[Any] = []
        self.is_stopped = False
        self.status = {"message": "Processing new data"}
        self.error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def fail(self, text: str) -> None:
        self.isActive, self.error = False, RuntimeError(text)

    def stop(self) -> None:
        self.is_stopped = True


class Sink(Flow):
    """A flow whose query is not Spark's."""

    __slots__ = ()

    def start(self, *, once: bool) -> Any:
        self.rows.started.append(query := Query())  # type: ignore[operator]
        return query


class Rows:
    """Notes what happens to the sink."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.started: list[Any] = []
        self.opened: list[Any] = []

    def open(self, query: Any) -> None:
        self.opened.append(query)
        if self.error is not None:
            raise self.error


def flow(rows: Rows, *, exactly_once: bool = True) -> Flow:
    kind: dict[str, Any] = {}
    if exactly_once:
        kind = {"gate": Gate(lambda *_: None), "open": rows.open}
    given: Any = rows
    return Sink(
        name=f"sink{id(rows)}",
        where="o.toml: [sinks.out]",
        rows=given,
        mode="append",
        trigger=None,
        checkpoint=None,
        format="foreachBatch",
        options={},
        **kind,
    )


def test_sinks_are_taken_over_when_their_queries_are_started() -> None:
    rows, plain = Rows(), Rows()
    with Running("shop", [flow(rows), flow(plain, exactly_once=False)], ExitStack()):
        assert rows.opened == rows.started
        assert (len(plain.started), plain.opened) == (1, [])


def test_what_ends_by_itself_takes_over_with_its_first_batch() -> None:
    rows = Rows()
    with Running("shop", [flow(rows)], ExitStack(), once=True):
        assert (len(rows.started), rows.opened) == (1, [])


@pytest.mark.parametrize("error", [StateError("it belongs to another"), ConfigError("no")])
def test_a_sink_that_cannot_be_had_stops_all(error: Exception) -> None:
    first, second, third = Rows(), Rows(error), Rows()
    with pytest.raises(PipelineFailed, match=rf"^o.toml: \[sinks.out\] {error}") as caught:
        Running("shop", [flow(first), flow(second), flow(third)], ExitStack())
    assert caught.value.__cause__ is error
    assert caught.value.query == f"sink{id(second)}"
    assert [one.is_stopped for one in (*first.started, *second.started)] == [True, True]
    assert third.started == []


@pytest.mark.parametrize(
    ("text", "starts"),
    [("Python worker failed to connect back", 20), ("else", 1)],
)
def test_what_may_pass_is_started_again_a_few_times(text: str, starts: int) -> None:
    rows = Rows()
    with Running("shop", [flow(rows, exactly_once=False)], ExitStack()) as running:
        for count in range(1, starts):
            rows.started[-1].fail(f"org.apache.spark.SparkException: {text}\nat more")
            running.look()
            assert len(rows.started) == count + 1
        rows.started[-1].fail(text)
        with pytest.raises(PipelineFailed, match=text):
            running.look()
