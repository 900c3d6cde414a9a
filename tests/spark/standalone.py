"""A standalone Spark cluster for tests: a master and two workers, each a process of its own.

with Standalone(folder) as cluster:
    session(master=cluster.master)
    cluster.executors()            # the processes that run tasks, to be killed
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pyspark

JARS = Path(pyspark.__file__).parent / "jars"
DEPLOY = "org.apache.spark.deploy"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
SCALA = "2.13"
# What Spark needs of a newer Java's inner parts.
OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
)
START_LIMIT = 120.0


class Standalone:
    """The processes of a cluster; everything they write goes into the folder."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 2) -> None:
        self._folder = folder
        self._workers, self._cores = workers, cores
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start all of them, and wait until the workers have found the master."""
        port = _free_port()
        self.master = f"spark://127.0.0.1:{port}"
        place = ["--host", "127.0.0.1", "--webui-port", str(_free_port())]
        log = self._run("master", f"{DEPLOY}.master.Master", *place, "--port", str(port))
        _wait_for(log, "I have been elected leader", 1)
        for number in range(self._workers):
            options = ["--cores", str(self._cores), "--memory", "1g"]
            work = ["--work-dir", str(self._folder / f"work-{number}")]
            place = ["--host", "127.0.0.1", "--webui-port", str(_free_port())]
            kind = f"{DEPLOY}.worker.Worker"
            self._run(f"worker-{number}", kind, *options, *work, *place, self.master)
        _wait_for(log, "Registering worker", self._workers)

    def close(self) -> None:
        """End all processes, and the executors that the workers have started."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def executors(self) -> list[int]:
        """The process ids of the executors, of all workers."""
        groups = {process.pid for process in self._processes}
        found = []
        for pid in running(EXECUTOR):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                if os.getpgid(pid) in groups:
                    found.append(pid)
        return found

    def _run(self, name: str, kind: str, *arguments: str) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        log = self._folder / f"{name}.log"
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
        command = ["java", *opened, "-Xmx512m", "-cp", f"{JARS}/*", kind, *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_HOME": str(JARS.parent),
                    "SPARK_SCALA_VERSION": SCALA,  # or it looks for a checkout that was built
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(self._folder / "local"),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return log


def running(name: str) -> list[int]:
    """The process ids of programs with this in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and name.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def parent(pid: int) -> int:
    """The process that has started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _wait_for(log: Path, text: str, times: int) -> None:
    deadline = time.monotonic() + START_LIMIT
    while len(re.findall(text, log.read_text(errors="replace"))) < times:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{log.stem}: {text!r} did not come\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
