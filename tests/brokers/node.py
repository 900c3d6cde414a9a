"""One broker of a cluster, which can be killed, paused and brought back."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.brokers import artifacts, users
from tests.brokers.connection import RawConnection
from tests.brokers.process import JavaProcess
from tests.brokers.properties import HOST, ZOOKEEPER_SESSION, Place, write_properties
from tests.brokers.zookeeper import TICK

START_TIMEOUT = 90.0
POLL = 0.03


class KafkaNode:
    """A broker on fixed ports with data that outlives its process."""

    def __init__(self, release: artifacts.Release, place: Place, jvm: Sequence[str]) -> None:
        self.id = place.node_id
        self.ports = place.ports
        self._release = release
        self._place = place
        self._jvm = jvm
        self._properties = place.folder / "server.properties"
        self._process = JavaProcess(
            f"Kafka {release.version} node {self.id}", place.folder / "server.log"
        )
        self.paused = False
        self._wanted = False
        self._killed_at = -ZOOKEEPER_SESSION - 2 * TICK
        self._archive: Path | None = None

    @property
    def running(self) -> bool:
        """Whether the process is alive, be it paused."""
        return self._process.running

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def prepare(self, properties: dict[str, str], cluster_id: str, checkpoint: Path | None) -> None:
        """Write what the broker reads at its first start."""
        data = self._place.folder / "data"
        data.mkdir(parents=True)
        write_properties(self._properties, properties)
        (self._place.folder / "log4j.properties").write_text(artifacts.LOG4J)
        jaas = f"KafkaServer {{\n  {users.plain_module()}\n}};\n"
        (self._place.folder / "jaas.conf").write_text(jaas)
        if checkpoint is not None:
            shutil.copyfile(checkpoint, data / "bootstrap.checkpoint")
            meta = {"version": "1", "cluster.id": cluster_id, "node.id": str(self.id)}
            write_properties(data / "meta.properties", meta | {"directory.id": new_id()})

    def start(self, *, wait: bool = True) -> None:
        """Start it, again on the same ports and data."""
        if self._release.zookeeper:
            # ZooKeeper takes the dead broker for alive until its session ends.
            expected = self._killed_at + ZOOKEEPER_SESSION + 2 * TICK
            time.sleep(max(0.0, expected - time.monotonic()))
        self._wanted = True
        self._process.start(self._command())
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the broker is in the cluster and serves what it leads.

        Raises with the tail of its log when it ends instead.
        """
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_ready():
            if not self.running:
                raise self._process.died()
            if time.monotonic() > deadline:
                raise self._process.died(f"was not ready after {START_TIMEOUT:g} s")
            time.sleep(POLL)

    def kill(self) -> None:
        """kill -9."""
        self._wanted = False
        self._process.kill()
        self._killed_at = time.monotonic()
        self.paused = False

    def stop(self) -> None:
        """An orderly shutdown, which hands over leadership first."""
        self.paused = self._wanted = False
        self._process.stop()
        self._keep_archive()

    def raise_if_crashed(self) -> None:
        """Raise with the tail of the log if the broker ended though nobody ended it."""
        if self._wanted and not self.running:
            raise self._process.died()

    def pause(self) -> None:
        """SIGSTOP: the port stays open, the kernel accepts connections, nobody answers."""
        self.paused = True
        self._process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.paused = False
        self._process.resume()

    def logs(self) -> str:
        """Everything the broker has written."""
        return self._process.log.read_text("utf-8", "replace")

    def connect(self, listener: str = "PLAINTEXT", timeout: float = 10.0) -> RawConnection:
        """A connection without TLS or login."""
        return RawConnection(HOST, self.ports[listener], timeout=timeout)

    def _command(self) -> list[str]:
        libraries = self._release.libraries()
        folder = self._place.folder
        options = [
            f"-Dlog4j.configuration=file:{folder}/log4j.properties",
            f"-Djava.security.auth.login.config={folder}/jaas.conf",
            "-Dzookeeper.sasl.client=false",
        ]
        archive = artifacts.class_archive(libraries)
        if archive.exists():
            options.append(f"-XX:SharedArchiveFile={archive}")
        else:
            self._archive = archive.with_name(f"{archive.name}.{os.getpid()}.{self.id}")
            options.append(f"-XX:ArchiveClassesAtExit={self._archive}")
        command = artifacts.java(libraries, *options, jvm=self._jvm)
        return [*command, "kafka.Kafka", str(self._properties)]

    def _keep_archive(self) -> None:
        """Java writes its classes down at an orderly end; the next start needs half the time."""
        if self._archive is not None and self._archive.exists():
            self._archive.replace(artifacts.class_archive(self._release.libraries()))
        self._archive = None

    def _is_ready(self) -> bool:
        try:
            with self.connect(timeout=2.0) as connection:
                # Version 1 is the oldest with a controller, and every release has it.
                metadata = connection.request("Metadata", {"topics": None}, 1)
                members = {broker.node_id for broker in metadata.brokers}
                if self.id not in members or metadata.controller_id not in members:
                    return False
                return self._knows_its_data(metadata) and all(
                    self._serves(connection, topic) for topic in metadata.topics
                )
        except OSError:
            return False

    def _knows_its_data(self, metadata: Any) -> bool:
        """Whether an old broker, which hears of brokers before topics, has heard of its own."""
        if not self._release.zookeeper:
            return True
        folders = {path.name for path in self._place.folder.glob("data/*-*") if path.is_dir()}
        stored = {name for name in folders if not name.endswith("-delete")}
        return stored <= {
            f"{topic.name}-{part.partition_index}"
            for topic in metadata.topics
            for part in topic.partitions
        }

    def _serves(self, connection: RawConnection, topic: Any) -> bool:
        """Whether the broker leads what only it can lead, and knows that it does."""
        alone = [part for part in topic.partitions if part.replica_nodes == [self.id]]
        if any(part.leader_id != self.id for part in alone):
            return False
        led = [part.partition_index for part in topic.partitions if part.leader_id == self.id]
        return serves(connection, topic.name, led)


def serves(connection: RawConnection, topic: str, partitions: Sequence[int]) -> bool:
    """Whether the broker at the other end acts as leader: it hears of it after others may have."""
    latest = [{"partition_index": index, "timestamp": -1} for index in partitions]
    body = {"replica_id": -1, "topics": [{"name": topic, "partitions": latest}]}
    answer = connection.request("ListOffsets", body, 1)
    return all(part.error_code == 0 for found in answer.topics for part in found.partitions)


def new_id() -> str:
    """A random id in Kafka's spelling, which must not begin with a dash."""
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
