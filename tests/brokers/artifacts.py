"""What a broker of each release is started from: class path, JVM options, formatted metadata."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jars

from tests.brokers import users

# These releases bring no logger of their own; this one writes to stderr and starts fastest.
SIMPLE_LOGGER = "org.slf4j:slf4j-simple:1.7.36"
# Part of Java until 10.
JAXB = "javax.xml.bind:jaxb-api:2.3.1"

LOG4J = """\
log4j.rootLogger=INFO, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %m (%c)%n
"""


@dataclass(frozen=True)
class Release:
    """A release of Apache Kafka and what is special about running it on a current Java."""

    version: str
    scala: str = "2.13"
    extra: tuple[str, ...] = (SIMPLE_LOGGER,)
    zookeeper: bool = True

    @property
    def number(self) -> tuple[int, ...]:
        """The version, comparable."""
        return tuple(int(part) for part in self.version.split("."))

    def libraries(self) -> list[Path]:
        """The jars of the broker."""
        broker = f"org.apache.kafka:kafka_{self.scala}:{self.version}"
        return jars.libraries(f"kafka-{self.version}", (broker, *self.extra))


RELEASES = {
    release.version: release
    for release in (
        Release("4.3.1", zookeeper=False),
        Release("3.9.2", zookeeper=False),
        Release("2.8.2"),
        Release("1.1.1", scala="2.12"),
        Release("0.11.0.3", scala="2.12", extra=(JAXB,)),
        Release("0.10.2.2", scala="2.12", extra=(JAXB,)),
    )
}
NEWEST, *OLDER = RELEASES
# ZooKeeper's own old releases do not run on a current Java; this one serves every broker.
ZOOKEEPER = "2.8.2"

# Start-up is all that counts: no optimising compiler, the simplest collector, a small heap.
JVM = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xmx320m",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)


def java(libraries: Sequence[Path], *options: str, jvm: Sequence[str] = JVM) -> list[str]:
    """The command that runs Java on a class path; the main class is yet to follow."""
    return [jars.program("java"), *jvm, *options, "-cp", os.pathsep.join(map(str, libraries))]


def class_archive(libraries: Sequence[Path]) -> Path:
    """Where the classes of a broker are kept in the form Java loads fastest; it may not exist.

    Java ignores an archive that does not fit its version and class path exactly, so both are part
    of the name.
    """
    parts = [str(Path(jars.program("java")).resolve().stat().st_mtime_ns)]
    parts += [f"{path} {path.stat().st_mtime_ns}" for path in libraries]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return jars.cache() / f"classes-{digest}.jsa"


def bootstrap_checkpoint(release: Release, features: Mapping[str, int]) -> Path:
    """The metadata a KRaft cluster begins with: feature levels and the SCRAM users."""
    options: list[str] = []
    for mechanism in users.SCRAM:
        for name, password in users.PASSWORDS.items():
            options += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
    for name, level in sorted(features.items()):
        options += ["--feature", f"{name}={level}"]
    digest = hashlib.sha256("\n".join(options).encode()).hexdigest()[:8]
    path = jars.cache() / f"kafka-{release.version}-{digest}.checkpoint"
    if not path.exists():
        with jars.locked(path.with_suffix(".lock")):
            if not path.exists():
                _format(release, options, path)
    return path


def _format(release: Release, options: list[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        properties = Path(place, "server.properties")
        properties.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            "controller.quorum.voters=1@127.0.0.1:1\ncontroller.listener.names=C\n"
            "listeners=PLAINTEXT://127.0.0.1:2,C://127.0.0.1:1\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,C:PLAINTEXT\n"
            f"log.dirs={place}/data\n"
        )
        command = [*java(release.libraries()), "kafka.tools.StorageTool", "format"]
        command += ["-t", "AAAAAAAAQACqqqqqqqqqqg", "-c", str(properties), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"formatting {release.version} failed: {done.stdout}{done.stderr}")
        shutil.move(Path(place, "data", "bootstrap.checkpoint"), path)
