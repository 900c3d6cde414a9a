"""Kafka's own command line tools, run from their Maven artifacts."""

from __future__ import annotations

import subprocess

import jars

from tests.brokers import NEWEST, RELEASES
from tests.brokers.artifacts import java

TIMEOUT = 120.0
TOOLS = "org.apache.kafka.tools."
COMMANDS = {
    "api-versions": TOOLS + "BrokerApiVersionsCommand",
    "cluster": TOOLS + "ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": TOOLS + "consumer.ConsoleConsumer",
    "console-producer": TOOLS + "ConsoleProducer",
    "consumer-groups": TOOLS + "consumer.group.ConsumerGroupCommand",
    "consumer-performance": TOOLS + "ConsumerPerformance",
    "delete-records": TOOLS + "DeleteRecordsCommand",
    "get-offsets": TOOLS + "GetOffsetShell",
    "groups": TOOLS + "GroupsCommand",
    "log-dirs": TOOLS + "LogDirsCommand",
    "producer-performance": TOOLS + "ProducerPerformance",
    "topics": TOOLS + "TopicCommand",
    "transactions": TOOLS + "TransactionsCommand",
    "verifiable-producer": TOOLS + "VerifiableProducer",
}


class ToolError(Exception):
    """A tool said that it failed."""


def class_path() -> list[str]:
    """The jars of the newest release's tools, and of its core, where one of them is."""
    release = RELEASES[NEWEST]
    core = f"org.apache.kafka:kafka_{release.scala}:{release.version}"
    tools = f"org.apache.kafka:kafka-tools:{release.version}"
    return [
        *java(
            jars.libraries(f"kafka-tools-{release.version}", (tools, core, *release.extra)),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        )
    ]


def run(tool: str, *options: str, typed: str = "") -> str:
    """What a tool prints, given what is typed into it."""
    command = [*class_path(), COMMANDS[tool], *options]
    done = subprocess.run(
        command, input=typed, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        raise ToolError(f"{tool} {' '.join(options)}: {done.stdout}{done.stderr}")
    return done.stdout
