"""Rules of the house that no linter knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "src"
# Folders of our code beside the package.
BESIDE = ["tests", "tools", "bench", "examples"]
MAX_LINES = 700
GENERATED = {"karrow/wire/messages.json", "karrow/wire/messages.pyi", "karrow/errors/codes.py"}
SUFFIXES = {".json", ".py", ".pyi", ".pyx", ".pxd"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)


def handwritten() -> list[Path]:
    return [path for path in files(SOURCES) if str(path.relative_to(SOURCES)) not in GENERATED]


def test_no_file_outgrows_its_noun() -> None:
    beside = [path for name in BESIDE for path in files(ROOT / name)]
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in handwritten() + beside}
    assert {str(path): count for path, count in lines.items() if count > MAX_LINES} == {}


def test_no_module_is_a_drawer() -> None:
    drawers = {"util", "utils", "helper", "helpers", "misc", "common"}
    assert [path for path in handwritten() if path.stem.strip("_") in drawers] == []


@pytest.mark.parametrize("folder", ["src", "tools", "bench"])
def test_nothing_is_left_unfinished(folder: str) -> None:
    marks = [
        f"{path.relative_to(ROOT)}: {mark.group()}"
        for path in files(ROOT / folder)
        if (mark := UNFINISHED.search(path.read_text("utf-8")))
    ]
    assert marks == []


def test_file_map_is_complete() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = text.split("## File map", 1)[1].split("\n## ", 1)[0]
    mapped = set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))
    present = {
        str(path.relative_to(SOURCES))
        for path in files(SOURCES)
        # A kernel file's .pyi says nothing that its .pyx does not.
        if not (path.suffix == ".pyi" and path.with_suffix(".pyx").exists())
    }
    assert mapped == present
