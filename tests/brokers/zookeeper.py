"""One ZooKeeper for all the brokers that need one; each lives under a path of its own."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.brokers.artifacts import RELEASES, ZOOKEEPER, java
from tests.brokers.folders import new_folder, remove_folder
from tests.brokers.ports import PortReservation
from tests.brokers.process import JavaProcess

# Sessions end after a whole number of ticks, two at least.
TICK = 1.0
START_TIMEOUT = 30.0


class ZooKeeper:
    """A server without replicas; starting it twice does nothing."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._ports = PortReservation()
        self._process: JavaProcess | None = None
        self._starting = threading.Lock()
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    def path(self) -> str:
        """What a new cluster has as its ``zookeeper.connect``."""
        return f"127.0.0.1:{self.port}/{uuid.uuid4().hex}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self._starting:
            if self._process is None:
                self._start()

    def _start(self) -> None:
        self._folder = new_folder()
        self.port = self._ports.take()
        self._process = JavaProcess("ZooKeeper", self._folder / "zookeeper.log")
        config = self._folder / "zookeeper.properties"
        config.write_text(
            f"dataDir={self._folder}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"tickTime={int(TICK * 1000)}\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=ruok\n"
        )
        command = java(RELEASES[ZOOKEEPER].libraries(), "-Dzookeeper.forceSync=no")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._process.start([*command, main, str(config)])
        self._wait(self._process)

    def stop(self) -> None:
        """End it and forget everything in it."""
        if self._process is not None and self._folder is not None:
            self._process.kill()
            remove_folder(self._folder)
        self._process = self._folder = None
        self._ports.release()

    def _wait(self, process: JavaProcess) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_well():
            if not process.running or time.monotonic() > deadline:
                error = process.died()
                self.stop()
                raise error
            time.sleep(0.03)

    def _is_well(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False
