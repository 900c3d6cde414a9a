"""Says in one line what this machine lacks for `make setup`.

Runs under whatever Python the machine has, so it keeps to what Python 3.7 can read. What the build
cannot do without is an error; Java and Maven are only needed by some tests and tools, so their
absence is a note.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PYTHON = (3, 11)
JAVA = 17


def missing_python() -> list[str]:
    """What the interpreter itself lacks: its version, venv, or the headers the kernel needs."""
    if sys.version_info[:2] < PYTHON:
        found = ".".join(str(part) for part in sys.version_info[:3])
        return [f"Python {PYTHON[0]}.{PYTHON[1]} or newer (this is {found}; see PYTHON=)"]
    missing = []
    if importlib.util.find_spec("ensurepip") is None:
        missing.append("Python's venv and ensurepip modules (Debian: python3-venv)")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("Python's C headers (Debian: python3-dev)")
    return missing


def missing_compiler() -> list[str]:
    """The C compiler that setuptools would call."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(command):
        return []
    return [f"a C compiler ({command} not found; Debian: gcc, libc6-dev)"]


def java_version() -> int | None:
    """The major version of the `java` on the path, or None when there is no working one."""
    java = shutil.which("java")
    if java is None:
        return None
    # Java prints its version on stderr: `openjdk version "17.0.2"`, and "1.8.0" before Java 9.
    text = subprocess.run([java, "-version"], stderr=subprocess.PIPE, check=False).stderr.decode()
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def missing_java() -> list[str]:
    """What the tests against Kafka's own classes and brokers need."""
    missing = []
    version = java_version()
    if version is None or version < JAVA:
        found = "none found" if version is None else f"this is {version}"
        missing.append(f"Java {JAVA} or newer ({found})")
    if shutil.which("mvn") is None:
        missing.append("Maven (mvn not found)")
    return missing


def main() -> int:
    needed = missing_python() + missing_compiler()
    if needed:
        print("setup needs: " + "; ".join(needed), file=sys.stderr)
        return 1
    useful = " and ".join(missing_java())
    if useful:
        print(f"note: checks against Apache Kafka itself need {useful}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
