"""The files that users are shown: they are read, and every key that is there is documented."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from karrow.spark.pipeline import define as defining
from karrow.spark.pipeline.table import Table

ROOT = Path(__file__).parents[4]
GUIDE = (ROOT / "docs" / "pipeline.md").read_text("utf-8")
EXAMPLE = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)[0]


def test_the_file_in_the_guide_is_read() -> None:
    found = defining.define(tomllib.loads(EXAMPLE), origin="guide", folder=ROOT)
    assert set(found.sources) == {"orders", "clicks"}
    assert {sink.kind for sink in found.sinks.values()} == {"topic", "parquet", "console"}
    assert [one.name for one in found.sinks["totals"].kafka] == [
        "kafka.security.protocol",
        "kafka.sasl.mechanism",
        "kafka.sasl.username",
        "kafka.sasl.password",
    ]


def test_the_file_of_the_demo_is_read() -> None:
    path = ROOT / "examples" / "orders.toml"
    found = defining.define(defining.read_file(path), origin=path.name, folder=ROOT)
    assert found.sinks["totals"].sink_id == "orders.totals"


def test_every_key_is_in_the_guide(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    take = Table.take

    def noting(table: Table, key: str) -> object:
        asked.add(key)
        return take(table, key)

    monkeypatch.setattr(Table, "take", noting)
    test_the_file_in_the_guide_is_read()
    documented = set(re.findall(r"`(\w+)`", GUIDE)) | {"sources", "steps", "sinks"}
    inner = {"column", "delay"}
    assert asked - inner <= documented
