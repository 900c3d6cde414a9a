"""One Spark session for all tests here. Those marked `gate` are in the gate, the others slow.

It is a local Spark, or with KARROW_TEST_SPARK=standalone that of a master and two workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.brokers import KafkaCluster
from tests.fix_kafka import brokers_needed
from tests.spark import sessions
from tests.spark.both import Both
from tests.spark.standalone import Standalone

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starting things in Spark takes seconds, so being in the gate is the exception."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("gate") is None:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A Spark with both connectors: a local one of two cores, unless the environment says more."""
    with ExitStack() as stack:
        place: dict[str, Any] = {}
        if os.environ.get("KARROW_TEST_SPARK") == "standalone":
            cluster = stack.enter_context(Standalone(tmp_path_factory.mktemp("cluster")))
            place = {"master": cluster.master, "settings": {"spark.executor.memory": "512m"}}
        with brokers_needed(request.config):
            made = sessions.session(tmp_path_factory.mktemp("spark"), **place)
        stack.callback(made.stop)
        yield made


@pytest.fixture
def both(spark: SparkSession, kafka: KafkaCluster, tmp_path: Path) -> Both:
    """The same program with both connectors on one broker."""
    if not sessions.connector():
        pytest.skip("Spark's own connector cannot be had for this Spark")
    return Both(spark, kafka.bootstrap(), tmp_path)
