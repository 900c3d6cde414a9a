"""The pytest plugin, in runs of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import karrow

TESTS = """
import asyncio
import pytest
import karrow

def test_round_trip(kafka):
    kafka.produce("orders", [b"1", (b"key", "2"), None])
    assert kafka.values("orders") == [b"1", b"2", None]
    assert [record.key for record in kafka.records("orders")] == [None, b"key", None]

def test_nothing_is_left_of_another_test(kafka):
    assert kafka.values("orders") == []
    assert kafka.admin.list_topics() == []

def test_waiting_for_records(kafka):
    kafka.produce("orders", [b"1"])
    assert kafka.values("orders", count=1) == [b"1"]
    with pytest.raises(pytest.fail.Exception, match="has 1 of 2 records"):
        kafka.values("orders", count=2, timeout=0.1)

@pytest.mark.kafka_embedded
def test_faults_end_with_their_test(kafka):
    kafka.broker.fail("Produce", "INVALID_RECORD", times=100)
    with pytest.raises(karrow.errors.InvalidRecord):
        kafka.produce("orders", [b"1"])

@pytest.mark.kafka_options(brokers=3, default_partitions=2)
def test_own_broker(kafka):
    assert len(kafka.client.brokers()) == 3
    kafka.produce("orders", [b"1"], partition=1)

@pytest.mark.kafka_real
def test_real_only(kafka):
    assert kafka.client.brokers()

def test_the_broker_of_the_run(kafka_broker, kafka):
    assert kafka.bootstrap == kafka_broker.bootstrap

@pytest.mark.asyncio
async def test_inside_a_loop(kafka):
    kafka.produce("orders", [b"1"])
    async with karrow.AsyncClient(kafka.bootstrap) as client:
        assert (await client.fetch("orders", 0, 0)).records[0].value == b"1"
"""


def run(folder: Path, *options: str, bootstrap: str = "") -> str:
    (folder / "test_billing.py").write_text(TESTS)
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "."]
    environment = {**os.environ, "KARROW_TEST_BOOTSTRAP": bootstrap}
    if not bootstrap:
        del environment["KARROW_TEST_BOOTSTRAP"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["plain", "xdist"])
def test_fixtures_serve_every_test(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert "7 passed, 1 skipped" in run(tmp_path, *options)


def test_the_same_tests_run_elsewhere(tmp_path: Path) -> None:
    with karrow.Broker() as elsewhere:
        elsewhere.create_topic("was-there-before")
        said = run(tmp_path, "-k", "not nothing_is_left", bootstrap=elsewhere.bootstrap)
        assert "4 passed, 3 skipped" in said
        with karrow.Admin(elsewhere.bootstrap) as admin:
            assert list(admin.list_topics()) == ["was-there-before"]
