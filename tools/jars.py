"""Kafka's own jars, fetched once by Maven into ``$KARROW_CACHE`` (default: ``.cache/`` here).

The tools read Kafka's message definitions and error codes out of them; the oracle tests run
Kafka's own serializers, other tests whole brokers.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]

# The last release that speaks every version back to 0, and the newest one.
OLD_KAFKA = "3.9.2"
NEW_KAFKA = "4.4.0"

# What Kafka's `*DataJsonConverter` classes need beside kafka-clients itself.
JSON_ARTIFACTS = (
    "com.fasterxml.jackson.core:jackson-annotations:2.17.2",
    "com.fasterxml.jackson.core:jackson-core:2.17.2",
    "com.fasterxml.jackson.core:jackson-databind:2.17.2",
    "org.slf4j:slf4j-api:1.7.36",
)


POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>karrow</groupId><artifactId>libraries</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = """\
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""


class JarError(RuntimeError):
    """A jar or the program that fetches or runs it is missing; the message is one line."""


def cache() -> Path:
    """The folder the jars are kept in."""
    return Path(os.environ.get("KARROW_CACHE") or ROOT / ".cache") / "jars"


def program(name: str) -> str:
    """The full path of ``java`` or ``mvn``."""
    path = shutil.which(name)
    if path is None:
        package = {"java": "Java 17 or newer", "mvn": "Maven"}.get(name, name)
        raise JarError(f"{name} not found: install {package}")
    return path


def jar(artifact: str) -> Path:
    """The path of ``group:name:version``, fetched when the cache lacks it."""
    _, name, version = artifact.split(":")
    path = cache() / f"{name}-{version}.jar"
    if not path.exists():
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                _fetch(artifact, path)
    return path


def kafka_clients(version: str) -> Path:
    """The kafka-clients jar of a release."""
    return jar(f"org.apache.kafka:kafka-clients:{version}")


def json_class_path(version: str) -> str:
    """The class path on which a release's JSON converters run."""
    return os.pathsep.join(
        str(path) for path in (kafka_clients(version), *map(jar, JSON_ARTIFACTS))
    )


def libraries(name: str, artifacts: Sequence[str]) -> list[Path]:
    """The jars of some artifacts and of all they depend on, in a folder of their own."""
    dependencies = "\n".join(DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
    pom = POM.format(dependencies=dependencies)
    folder = cache() / f"{name}-{hashlib.sha256(pom.encode()).hexdigest()[:8]}"
    if not folder.exists():
        with locked(folder.with_name(f"{folder.name}.lock")):
            if not folder.exists():
                _fetch_all(name, pom, folder)
    return sorted(folder.glob("*.jar"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes out as long as the block lasts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(artifact: str, path: Path) -> None:
    """Fetch beside the final place and rename, so that nobody ever sees half a jar."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        options = [f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        _maven(artifact, "dependency:copy", *options)
        fetched = Path(folder, path.name)
        if not fetched.exists():
            raise JarError(f"mvn did not copy {artifact}")
        fetched.replace(path)


def _fetch_all(name: str, pom: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        Path(place, "pom.xml").write_text(pom, "utf-8")
        fetched = Path(place, "jars")
        options = ["-f", str(Path(place, "pom.xml")), f"-DoutputDirectory={fetched}"]
        _maven(name, "dependency:copy-dependencies", *options)
        if not fetched.exists():
            raise JarError(f"mvn copied nothing for {name}")
        fetched.replace(folder)


def _maven(what: str, goal: str, *options: str) -> None:
    command = [program("mvn"), "-q", "-B", "-Dstyle.color=never", goal, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stdout + done.stderr).strip().splitlines()[:1]
        raise JarError(f"mvn could not fetch {what}: {' '.join(reason)}")
