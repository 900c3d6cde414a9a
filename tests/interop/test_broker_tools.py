"""Kafka's own command line tools, and kcat, on the embedded broker."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import karrow
from karrow.broker.threaded import Broker
from tests.fix_kafka import brokers_needed
from tests.interop import java_tools
from tests.interop.java_tools import ToolError

pytestmark = pytest.mark.java

VERSIONS = ["4.3", "3.9", "2.8"]
TOPIC, GROUP = "orders", "group"
Tool = Callable[..., str]


@pytest.fixture(params=VERSIONS)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(version=request.param) as broker:
        yield broker


@pytest.fixture
def tool(request: pytest.FixtureRequest, broker: Broker) -> Tool:
    """Runs one of the tools on the broker."""
    with brokers_needed(request.config):
        java_tools.class_path()

    def run(name: str, *options: str, typed: str = "") -> str:
        where = ("--bootstrap-server", broker.bootstrap)
        return java_tools.run(name, *where, *options, typed=typed)

    return run


@pytest.fixture
def client(broker: Broker) -> Iterator[karrow.Client]:
    with karrow.Client(broker.bootstrap) as client:
        yield client


def rows(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("broker", [VERSIONS[0]], indirect=True)
def test_round_trip(tool: Tool, client: karrow.Client) -> None:
    tool("topics", "--create", "--topic", TOPIC, "--partitions", "1")
    tool("console-producer", "--topic", TOPIC, typed="one\ntwo\n")
    assert [record.value for record in client.fetch_all(TOPIC, 0).records] == [b"one", b"two"]
    reading = ("--topic", TOPIC, "--from-beginning", "--max-messages", "2", "--group", GROUP)
    assert tool("console-consumer", *reading).splitlines() == ["one", "two"]
    assert [one.offset for one in client.committed_offsets(GROUP).values()] == [2]


@pytest.mark.slow
def test_topics(tool: Tool) -> None:
    config = ("--config", "retention.ms=60000")
    tool("topics", "--create", "--topic", TOPIC, "--partitions", "2", *config)
    with pytest.raises(ToolError, match="already exists"):
        tool("topics", "--create", "--topic", TOPIC)
    described = tool("topics", "--describe", "--topic", TOPIC)
    assert re.search(
        r"PartitionCount:\s*2\s+ReplicationFactor:\s*1\s+Configs:.*retention.ms=60000", described
    )
    assert re.search(r"Partition: 1\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described)
    tool("topics", "--alter", "--topic", TOPIC, "--partitions", "3")
    assert "PartitionCount: 3" in tool("topics", "--describe", "--topic", TOPIC)
    assert tool("topics", "--list").split() == [TOPIC]
    tool("topics", "--delete", "--topic", TOPIC)
    assert tool("topics", "--list").split() == []


@pytest.mark.slow
def test_groups(tool: Tool, client: karrow.Client) -> None:
    client.create_topic(TOPIC, 1)
    client.produce(TOPIC, [b"x"] * 5, partition=0)
    client.commit_offsets(GROUP, {(TOPIC, 0): 2})
    assert tool("consumer-groups", "--list").split() == [GROUP]
    found = rows(tool("consumer-groups", "--describe", "--group", GROUP))
    assert found[-1][:6] == [GROUP, TOPIC, "0", "2", "5", "3"]
    state = tool("consumer-groups", "--describe", "--group", GROUP, "--state")
    assert "Empty" in state
    reset = ("--reset-offsets", "--to-earliest", "--topic", TOPIC, "--execute", "--group", GROUP)
    tool("consumer-groups", *reset)
    assert [one.offset for one in client.committed_offsets(GROUP).values()] == [0]
    offsets = ("--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    assert "Successful" in tool("consumer-groups", *offsets)
    client.commit_offsets(GROUP, {(TOPIC, 0): 2})
    assert "successful" in tool("consumer-groups", "--delete", "--group", GROUP)
    assert tool("consumer-groups", "--list").split() == []


@pytest.mark.slow
def test_consumer_protocol(client: karrow.Client, broker: Broker, tool: Tool) -> None:
    if client.api_versions().get("ConsumerGroupHeartbeat", (0, 0))[1] < 1:
        pytest.skip("this release has no KIP-848, or it is switched off")
    client.create_topic(TOPIC, 1)
    client.produce(TOPIC, [b"one", b"two"], partition=0)
    reading = ("--topic", TOPIC, "--max-messages", "2", "--group", GROUP)
    properties = ("group.protocol=consumer", "auto.offset.reset=earliest")
    options = [part for one in properties for part in ("--command-property", one)]
    assert tool("console-consumer", *reading, *options).splitlines() == ["one", "two"]
    assert client.describe_group(GROUP).type == "consumer"
    assert [one.offset for one in client.committed_offsets(GROUP).values()] == [2]


@pytest.mark.slow
def test_offsets_and_records(tool: Tool, client: karrow.Client, tmp_path: Path) -> None:
    client.create_topic(TOPIC, 2)
    client.produce(TOPIC, [b"x"] * 5, partition=0)
    assert tool("get-offsets", "--topic", TOPIC).split() == [f"{TOPIC}:0:5", f"{TOPIC}:1:0"]
    doomed = {"partitions": [{"topic": TOPIC, "partition": 0, "offset": 3}], "version": 1}
    file = tmp_path / "records.json"
    file.write_text(json.dumps(doomed))
    assert "low_watermark: 3" in tool("delete-records", "--offset-json-file", str(file))
    earliest = tool("get-offsets", "--topic", TOPIC, "--time", "earliest")
    assert earliest.split() == [f"{TOPIC}:0:3", f"{TOPIC}:1:0"]


@pytest.mark.slow
def test_configurations(tool: Tool, client: karrow.Client) -> None:
    client.create_topic(TOPIC, 1)
    owner = ("--entity-type", "topics", "--entity-name", TOPIC)
    tool("configs", "--alter", *owner, "--add-config", "retention.ms=1234,cleanup.policy=[compact]")
    described = tool("configs", "--describe", *owner)
    assert "retention.ms=1234" in described
    assert "cleanup.policy=compact" in described
    tool("configs", "--alter", *owner, "--delete-config", "retention.ms")
    assert "retention.ms" not in tool("configs", "--describe", *owner)
    with pytest.raises(ToolError, match=r"(?i)unknown topic config"):
        tool("configs", "--alter", *owner, "--add-config", "no.such=1")
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "message.max.bytes" in tool("configs", "--describe", *broker, "--all")


@pytest.mark.slow
def test_cluster(tool: Tool, broker: Broker, client: karrow.Client) -> None:
    where = ("--bootstrap-server", broker.bootstrap)
    assert broker.cluster_id in java_tools.run("cluster", "cluster-id", *where)
    told = tool("api-versions")
    assert "id: 1" in told
    assert "Produce(0)" in told
    client.create_topic(TOPIC, 1)
    client.produce(TOPIC, [b"x"], partition=0)
    sizes = json.loads(tool("log-dirs", "--describe", "--topic-list", TOPIC).splitlines()[-1])
    (folder,) = sizes["brokers"][0]["logDirs"]
    assert folder["partitions"][0]["size"] > 0


@pytest.mark.slow
def test_transactions(tool: Tool, client: karrow.Client) -> None:
    if "ListTransactions" not in client.api_versions():
        pytest.skip("this release cannot list transactions")
    client.request("InitProducerId", {"transactional_id": "tx", "transaction_timeout_ms": 60_000})
    assert "tx" in [row[0] for row in rows(tool("transactions", "list"))]
    described = rows(tool("transactions", "describe", "--transactional-id", "tx"))
    assert "Empty" in described[-1]


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_performance_tools(tool: Tool, client: karrow.Client, codec: str) -> None:
    client.create_topic(TOPIC, 1)
    load = ("--topic", TOPIC, "--num-records", "2000", "--record-size", "100")
    speed = ("--throughput", "-1", "--command-property", f"compression.type={codec}")
    assert "2000 records sent" in tool("producer-performance", *load, *speed)
    assert client.latest_offset(TOPIC, 0) == 2000
    tool("consumer-performance", "--topic", TOPIC, "--num-records", "2000", "--hide-header")


@pytest.mark.slow
def test_secured(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    with brokers_needed(request.config), Broker(sasl={"root": "root-secret"}) as broker:
        file = tmp_path / "client.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={module} username="root" password="root-secret";\n'
        )
        where = ("--bootstrap-server", broker.bootstrap, "--command-config", str(file))
        java_tools.run("topics", *where, "--create", "--topic", TOPIC)
        users = ("--entity-type", "users", "--entity-name", "eve")
        added = ("--alter", "--add-config", "SCRAM-SHA-256=[password=pw]")
        java_tools.run("configs", *where, *users, *added)
        with karrow.Admin(broker.bootstrap, sasl=karrow.Scram("root", "root-secret")) as admin:
            assert len(admin.describe_scram_user("eve").credentials) == 1


@pytest.mark.parametrize("broker", [VERSIONS[0]], indirect=True)
def test_kcat(broker: Broker) -> None:
    kcat = shutil.which("kcat") or shutil.which("kafkacat")
    if kcat is None:
        pytest.skip("kcat is not installed")
    where = [kcat, "-q", "-b", broker.bootstrap, "-t", TOPIC]
    environment = {**os.environ, "LC_ALL": "C"}
    broker.create_topic(TOPIC, 1)
    subprocess.run([*where, "-P"], input=b"one\ntwo\n", check=True, timeout=60, env=environment)
    done = subprocess.run(
        [*where, "-C", "-e", "-o", "beginning"],
        capture_output=True,
        check=True,
        timeout=60,
        env=environment,
    )
    assert done.stdout == b"one\ntwo\n"
