"""A small shop for tests of pipelines: its topics, its orders, and what becomes of them."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow.parquet as pq

import karrow
from karrow.spark import Pipeline
from tests.spark.committed import read_committed

SCHEMA = "id BIGINT NOT NULL, customer STRING NOT NULL, cents BIGINT, at TIMESTAMP NOT NULL"
BEGIN = 1_788_220_800
MINUTE = 60
TOTALS = """
    SELECT customer, window.start AS start, count(*) AS orders, sum(cents) AS cents
    FROM orders GROUP BY customer, window(at, '1 minute')
"""


def order(number: int, customer: str = "ann", minute: float = 0, cents: int = 100) -> bytes:
    at = datetime.fromtimestamp(BEGIN + minute * MINUTE, UTC).isoformat()
    return json.dumps({"id": number, "customer": customer, "cents": cents, "at": at}).encode()


@dataclass
class Shop:
    """Topics of its own at some broker, and a folder."""

    bootstrap: str
    folder: Path
    name: str = field(default_factory=lambda: f"shop-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        with karrow.Client(self.bootstrap) as client:
            for topic, partitions in (("orders", 2), ("totals", 2), ("bad", 1)):
                client.create_topic(f"{self.name}.{topic}", partitions, 1)

    def send(self, *values: bytes | None, key: str | None = None) -> None:
        with karrow.Producer(self.bootstrap) as producer:
            for number, value in enumerate(values):
                producer.send(self.topic("orders"), value, key=key, partition=number % 2)

    def topic(self, name: str) -> str:
        return f"{self.name}.{name}"

    def values(self, **changes: Any) -> dict[str, Any]:
        """The whole shop; a change names a table and key with `__`, and None removes."""
        found: dict[str, Any] = {
            "name": self.name,
            "bootstrap": self.bootstrap,
            "checkpoint": "checkpoint",
            "delivery": "exactly-once",
            "sources": {
                "orders": {
                    "topic": self.topic("orders"),
                    "schema": SCHEMA,
                    "watermark": {"column": "at", "delay": "10 seconds"},
                    "dead_letter": self.topic("bad"),
                }
            },
            "steps": {"totals": {"sql": TOTALS}},
            "sinks": {
                "totals": {
                    "from": "totals",
                    "kind": "topic",
                    "topic": self.topic("totals"),
                    "key": "customer",
                },
                "raw": {"from": "orders", "kind": "parquet", "path": "raw"},
            },
        }
        for path, value in copy.deepcopy(changes).items():
            *tables, key = path.split("__")
            inner = found
            for table in tables:
                inner = inner.setdefault(table, {})
            if value is None:
                inner.pop(key, None)
            else:
                inner[key] = value
        return found

    def pipeline(self, **changes: Any) -> Pipeline:
        return Pipeline.from_dict(self.values(**changes), folder=self.folder)

    def file(self, values: Mapping[str, Any]) -> Path:
        """The shop as a file."""
        path = self.folder / "shop.toml"
        path.write_text("".join(_toml(values)), "utf-8")
        return path

    # ---- what came of it

    def totals(self) -> list[tuple[str, int, int, int]]:
        """Customer, minute, orders, cents."""
        found = []
        for message in read_committed(self.bootstrap, self.topic("totals")):
            row = json.loads(message.value() or b"")
            start = datetime.fromisoformat(row["start"]).timestamp()
            minute = int(start - BEGIN) // MINUTE
            found.append((row["customer"], minute, row["orders"], row["cents"]))
        return sorted(found)

    def bad(self) -> list[confluent_kafka.Message]:
        return read_committed(self.bootstrap, self.topic("bad"))

    def raw(self) -> list[int]:
        """The ids in the files that Spark says are there."""
        named = {
            Path(json.loads(line)["path"]).name
            for log in (self.folder / "raw" / "_spark_metadata").glob("[0-9]*")
            for line in log.read_text("utf-8").splitlines()[1:]
        }
        files = [file for file in (self.folder / "raw").rglob("*.parquet") if file.name in named]
        return sorted(one for file in files for one in pq.read_table(file)["id"].to_pylist())


def _toml(values: Mapping[str, Any], path: str = "") -> list[str]:
    """Just enough of a writer for tables of plain values."""
    plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    lines = [f"[{path}]\n"] if path else []
    lines += [f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in plain.items()]
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += _toml(value, f"{path}.{json.dumps(name)}".lstrip("."))
    return lines
