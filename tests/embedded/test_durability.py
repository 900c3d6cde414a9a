"""A broker with a data directory, killed again and again: what it acknowledged is there."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import pytest

import karrow
from karrow.errors import KarrowError

ORDERS = karrow.ConfigResource.topic("orders")


class Process:
    """``karrow broker`` on a port of its own, in a process that can be killed."""

    def __init__(self, data_dir: Path, *options: str) -> None:
        command = [sys.executable, "-m", "karrow", "broker", "--port", "0"]
        self.process = subprocess.Popen(
            [*command, "--data-dir", str(data_dir), *options], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.bootstrap = self.process.stdout.readline().strip().removeprefix("listening on ")
        assert self.bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize(
    "rounds", [3, pytest.param(25, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_nothing_acknowledged_is_lost(
    tmp_path: Path, rounds: int, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(request.config.getoption("randomly_seed"))
    acknowledged: dict[int, bytes] = {}
    sent = 0
    for _ in range(rounds):
        with Process(tmp_path) as broker, karrow.Client(broker.bootstrap, api_timeout=5) as client:
            client.metadata(["t"], create=True)  # connected, so that there is time to write
            threading.Timer(rng.uniform(0.05, 0.5), broker.process.kill).start()
            with contextlib.suppress(KarrowError):
                while True:
                    values = [b"%d " % (sent + n) + bytes(rng.randrange(5000)) for n in range(9)]
                    sent += len(values)
                    written = client.produce("t", values, partition=0, retries=0)
                    for value, metadata in zip(values, written, strict=True):
                        assert metadata.offset is not None
                        assert metadata.offset not in acknowledged
                        acknowledged[metadata.offset] = value
    assert acknowledged
    with Process(tmp_path) as broker, karrow.Client(broker.bootstrap) as client:
        found = client.fetch_all("t", 0).records
    values_by_offset = {record.offset: record.value for record in found}
    assert list(values_by_offset) == list(range(len(found))), "no gap, nothing twice"
    for offset, value in acknowledged.items():
        assert values_by_offset[offset] == value


def test_everything_else_survives_too(tmp_path: Path) -> None:
    init: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 1}
    with (
        Process(tmp_path, "--topic", "orders:3") as broker,
        karrow.Client(broker.bootstrap) as client,
    ):
        admin = karrow.Admin(client)
        admin.alter_config(ORDERS, {"retention.ms": "60000"})
        client.commit_offsets("billing", {("orders", 1): 7})
        client.produce("orders", [b"1", b"2"], partition=1)
        admin.delete_records({("orders", 1): 1})
        before = client.metadata(["orders"])
        producer_id = client.request("InitProducerId", init).producer_id
    with (
        Process(tmp_path, "--topic", "orders:3") as broker,
        karrow.Client(broker.bootstrap) as client,
    ):
        admin = karrow.Admin(client)
        after = client.metadata(["orders"])
        assert after.cluster_id == before.cluster_id
        topic = after.topics["orders"]
        assert topic.topic_id == before.topics["orders"].topic_id
        assert len(topic.partitions) == 3
        assert topic.partitions[0].leader_epoch == 1, "a new leader epoch after a restart"
        assert admin.describe_config(ORDERS)["retention.ms"].value == "60000"
        committed = client.committed_offsets("billing")[karrow.TopicPartition("orders", 1)]
        assert committed.offset == 7
        assert client.earliest_offset("orders", 1) == 1
        assert client.request("InitProducerId", init).producer_id > producer_id
        admin.create_topic("new")
        assert client.metadata(["new"]).topics["new"].topic_id != topic.topic_id


def test_an_orderly_end(tmp_path: Path) -> None:
    with Process(tmp_path) as broker:
        start = time.monotonic()
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(10) == 0
        assert time.monotonic() - start < 5
