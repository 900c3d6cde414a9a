"""What a process of Spark keeps until it ends: clients of tasks and of the sink."""

from __future__ import annotations

from karrow.spark import pool
from karrow.spark.writing import driver, producers


def close_all() -> None:
    """End all of it, as the end of a process would: a test has none of its own."""
    driver.kept.clear()
    for producer in producers.kept.values():
        producer.close(timeout=0)
    producers.kept.clear()
    pool.close()
