"""Each micro-batch exactly once in Kafka: its rows and a note of it in one transaction."""

from __future__ import annotations

from karrow.spark.exactly.sink import exactly_once as exactly_once

__all__ = ["exactly_once"]
