"""A pipeline in words."""

from __future__ import annotations

from pathlib import Path

from karrow.spark.pipeline.define import define
from karrow.spark.pipeline.plan import Plan

WORDS = """\
pipeline shop (o.toml)
  checkpoint  /data/state
  trigger     5 seconds
  spark.sql.shuffle.partitions = 2
sources
  orders
    reads topics a, b at h:1 as json, from earliest
    watermark at, 10 seconds
    bad rows go to topic bad, exactly-once as shop.orders.dead-letter
    kafka.sasl.jaas.config = ***
    maxOffsetsPerTrigger = 10
    gives at TIMESTAMP
  rest
    reads topics like x.* at h:1 as json, from latest
    bad rows stop it
    kafka.sasl.jaas.config = ***
    gives n INT
steps
  totals
    selects SELECT at FROM orders
    gives at TIMESTAMP
  rich
    calls m:f with orders, rest
    watermark at, 1 hour
    gives at TIMESTAMP
sinks
  out
    writes totals to topic t at h:1 as json
    exactly-once as mine, update, key at
    kafka.sasl.jaas.config = ***
    kafka.client.id = env:CLIENT
  files
    writes rich to Parquet files in s3a://b/x by at
    exactly-once, append
    trigger 1 minute
  look
    prints totals, complete"""


def test_everything_is_told_but_secrets() -> None:
    values = {
        "name": "shop",
        "bootstrap": "h:1",
        "checkpoint": "state",
        "trigger": "5 seconds",
        "delivery": "exactly-once",
        "spark": {"spark.sql.shuffle.partitions": 2},
        "kafka": {"sasl.jaas.config": "hunter2"},
        "sources": {
            "orders": {
                "topic": ["a", "b"],
                "schema": "at TIMESTAMP",
                "watermark": {"column": "at", "delay": "10 seconds"},
                "dead_letter": "bad",
                "options": {"maxOffsetsPerTrigger": 10},
            },
            "rest": {"pattern": "x.*", "schema": "n INT", "start": "latest"},
        },
        "steps": {
            "totals": {"sql": "SELECT at\n  FROM orders"},
            "rich": {
                "function": "m:f",
                "inputs": ["orders", "rest"],
                "watermark": {"column": "at", "delay": "1 hour"},
            },
        },
        "sinks": {
            "out": {
                "from": "totals",
                "kind": "topic",
                "topic": "t",
                "key": "at",
                "mode": "update",
                "sink_id": "mine",
                "kafka": {"client.id": "env:CLIENT"},
            },
            "files": {
                "from": "rich",
                "kind": "parquet",
                "path": "s3a://b/x",
                "partition_by": "at",
                "trigger": "1 minute",
            },
            "look": {"from": "totals", "kind": "console", "mode": "complete"},
        },
    }
    definition = define(values, origin="o.toml", folder=Path("/data"))
    at = "at TIMESTAMP"
    schemas = {"orders": at, "rest": "n INT", "totals": at, "rich": at}
    assert str(Plan(definition, schemas)) == WORDS
