"""`make setup` names what the machine lacks, in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent.parent / "tools" / "preflight.py"


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """The only folder on the path; it holds a C compiler and nothing else."""
    add(tmp_path, "cc", "")
    return tmp_path


def add(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def preflight(folder: Path) -> tuple[int, list[str]]:
    environment = {"PATH": str(folder), "CC": "cc"}
    done = subprocess.run(
        [sys.executable, TOOL], env=environment, check=False, capture_output=True, text=True
    )
    return done.returncode, done.stderr.splitlines()


def test_complete_machine_is_silent(commands: Path) -> None:
    add(commands, "java", """echo 'openjdk version "21.0.1"' >&2""")
    add(commands, "mvn", "")
    assert preflight(commands) == (0, [])


def test_without_a_compiler_setup_cannot_go_on(commands: Path) -> None:
    (commands / "cc").unlink()
    status, lines = preflight(commands)
    assert status == 1
    assert lines == ["setup needs: a C compiler (cc not found; Debian: gcc, libc6-dev)"]


@pytest.mark.parametrize(
    ("version", "found"), [("1.8.0_392", "this is 8"), ("11.0.2", "this is 11")]
)
def test_old_java_and_no_maven_are_noted_together(commands: Path, version: str, found: str) -> None:
    add(commands, "java", f"""echo 'openjdk version "{version}"' >&2""")
    status, lines = preflight(commands)
    assert status == 0
    assert len(lines) == 1
    assert f"Java 17 or newer ({found}) and Maven" in lines[0]
