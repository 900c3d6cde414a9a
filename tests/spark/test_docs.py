"""What the documentation shows of Spark runs as it stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import karrow

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python spark\n(.*?)^```", re.MULTILINE | re.DOTALL)
COUNT = 10


def blocks(name: str) -> list[str]:
    """The examples of a page."""
    found = BLOCK.findall((ROOT / name).read_text("utf-8"))
    assert found, f"{name} shows nothing of Spark"
    return found


def run(name: str, spark: SparkSession, bootstrap: str, folder: Path) -> dict[str, Any]:
    """Run a page's examples, one after the other, as one program."""
    known: dict[str, Any] = {"spark": spark, "folder": str(folder)}
    try:
        for block in blocks(name):
            exec(block.replace("localhost:9092", bootstrap), known)
    finally:
        for query in spark.streams.active:
            query.stop()
    return known


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A broker with a few orders."""
    with karrow.Broker() as broker, karrow.Client(broker.bootstrap) as client:
        client.create_topic("orders", partitions=2)
        client.create_topic("totals", partitions=2)
        client.produce("orders", [(b"ann", b"1")] * COUNT, partition=0)
        yield broker.bootstrap


@pytest.mark.gate
def test_the_front_page(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    run("README.md", spark, bootstrap, tmp_path)
    totals = karrow.read_arrow(bootstrap, "totals", isolation="read_committed")
    rows = zip(totals["key"].to_pylist(), totals["value"].to_pylist(), strict=True)
    assert list(rows) == [(b"ann", b"%d" % COUNT)]
    with karrow.Client(bootstrap) as client:
        stored = client.committed_offsets("totals", ["orders"])
    assert stored[karrow.TopicPartition("orders", 0)].offset == COUNT


def test_reading(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    known = run("docs/spark.md", spark, bootstrap, tmp_path)
    assert known["orders"].count() == COUNT
    assert spark.read.parquet(str(tmp_path / "orders")).count() == COUNT
    spark.streams.removeListener(known["listener"])


def test_exactly_once(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    run("docs/exactly-once.md", spark, bootstrap, tmp_path)
    totals = karrow.read_arrow(bootstrap, "totals", isolation="read_committed")
    assert totals.num_rows == COUNT
