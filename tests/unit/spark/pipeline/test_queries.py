"""Where a sink's rows go, as options of a query; the gate in front of transactions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from karrow.errors import ConfigError, StateError
from karrow.spark.pipeline.define import define
from karrow.spark.pipeline.graph import Graph
from karrow.spark.pipeline.queries import Gate, flows

MISSING = object()


class Rows:
    """As much of a DataFrame as queries ask before they start."""

    def __init__(self, **settings: str) -> None:
        self.sparkSession = self.conf = self
        self._settings = settings

    def get(self, name: str, default: str) -> str:
        return self._settings.get(name.rpartition(".")[2], default)


def made(
    rows: Rows, kafka: dict[str, str] | None = None, every: str | None = None, **sink: Any
) -> Any:
    """The queries of a pipeline with one sink; ``every`` is its own trigger."""
    out = {"from": "orders", "kind": "topic", "topic": "t", **sink}
    values = {
        "name": "shop",
        "bootstrap": "h:1",
        "checkpoint": "/state",
        "kafka": kafka or {"client.id": "me"},
        "sources": {"orders": {"topic": "o", "schema": "n INT", "dead_letter": "bad"}},
        "sinks": {"out": {key: value for key, value in out.items() if value is not MISSING}},
        **({} if every is None else {"trigger": every}),
    }
    definition = define(values, origin="o.toml", folder=Path("/data"))
    frames: Any = {"out": rows}, {"orders": rows}
    return flows(definition, lambda _: Graph({}, *frames))


def test_queries_have_folders_of_their_own() -> None:
    out, letters = made(Rows())
    assert (out.name, out.checkpoint) == ("out", "/state/out")
    assert (letters.name, letters.checkpoint) == (
        "orders.dead-letter",
        "/state/orders.dead-letter",
    )


def test_a_trigger_of_a_sink_goes_before_that_of_the_pipeline() -> None:
    out, letters = made(Rows(), every="5 seconds", trigger="1 minute")
    assert (out.trigger, letters.trigger) == ("1 minute", "5 seconds")
    assert [flow.trigger for flow in made(Rows(), every="5 seconds")] == ["5 seconds"] * 2
    assert [flow.trigger for flow in made(Rows(), trigger="1 minute")] == ["1 minute", None]


def test_at_least_once_is_the_plain_sink() -> None:
    out, letters = made(Rows())
    assert (out.format, out.gate) == ("karrow", None)
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.client.id": "me"}
    assert out.options == options
    assert letters.gate is not None, "a bad row is there once, whatever the sinks promise"


def test_exactly_once_is_a_function_for_each_batch() -> None:
    out, _ = made(Rows(), delivery="exactly-once", options={"retries": 2, "ledger": "topic"})
    assert out.gate is not None
    assert out.open is not None, "it is taken over before it has rows"


def test_where_barriers_cannot_be_the_driver_writes() -> None:
    dynamic = Rows(enabled="true")
    out, letters = made(dynamic, delivery="exactly-once", options={"ledger": "topic"})
    assert (out.format, out.gate, out.open) == ("karrow", None, None)
    assert out.options == {
        "kafka.bootstrap.servers": "h:1",
        "topic": "t",
        "delivery": "exactly-once",
        "sinkId": "shop.out",
        "kafka.client.id": "me",
        "ledger": "topic",
    }
    assert letters.options["sinkId"] == "shop.orders.dead-letter"


@pytest.mark.parametrize(
    ("sink", "key"), [({"tasks": 3}, "tasks"), ({"options": {"retries": 0}}, "options retries")]
)
def test_what_only_tasks_have_is_refused_where_the_driver_writes(
    sink: dict[str, Any], key: str
) -> None:
    message = rf"\[sinks.out\] {key} is of no use where the driver writes.*dynamicAllocation"
    with pytest.raises(ConfigError, match=message):
        made(Rows(enabled="true"), delivery="exactly-once", **sink)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": "often"}, r"\[sinks.out\] options retries has to be a whole number"),
        ({"ledger": "paper"}, r"\[sinks.out\] ledger"),
        ({"sinkId": "x"}, "sinkId is no option of exactly-once"),
    ],
)
def test_what_is_wrong_has_its_place(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(Rows(), delivery="exactly-once", options=options)


LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "env:SHOP_USER",
    "sasl.password": "env:SHOP_PASSWORD",
}


def test_what_is_not_set_here_is_not_needed_to_check_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHOP_USER", raising=False)
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    assert made(Rows(), LOGIN, delivery="exactly-once") == []
    monkeypatch.setenv("SHOP_USER", "me")
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    out, letters = made(Rows(), LOGIN, delivery="exactly-once")
    assert out.gate is not None
    assert letters.gate is not None


def test_options_of_files_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, Any] = {
        "kind": "parquet",
        "path": "x",
        "topic": MISSING,
        "options": {"a": "env:SHOP_A"},
    }
    monkeypatch.delenv("SHOP_A", raising=False)
    assert [flow.name for flow in made(Rows(), **files)] == ["orders.dead-letter"]
    monkeypatch.setenv("SHOP_A", "b")
    assert made(Rows(), **files)[0].options == {"a": "b", "path": "/data/x"}


def test_update_mode_is_refused_where_the_driver_writes() -> None:
    with pytest.raises(ConfigError, match=r"\[sinks.out\] mode cannot be 'update'") as caught:
        made(Rows(enabled="true"), delivery="exactly-once", mode="update")
    assert "spark.dynamicAllocation.enabled is off" in str(caught.value)
    out, _ = made(Rows(), delivery="exactly-once", mode="update")
    assert out.mode == "update"


def test_a_closed_gate_lets_the_last_batch_end_and_no_other_in() -> None:
    inside, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def write(_rows: Any, batch: int) -> None:
        inside.set()
        go_on.wait(10)
        seen.append(batch)

    gate, rows = Gate(write), Rows()
    batch: Any = threading.Thread(target=gate, args=(rows, 1))
    batch.start()
    inside.wait(10)
    gate.close(timeout=0.01)
    assert seen == [], "time was up"
    go_on.set()
    gate.close(timeout=10)
    assert seen == [1]
    with pytest.raises(StateError, match="stops"):
        gate(rows, 2)  # type: ignore[arg-type]
    batch.join()
