"""The guard in conftest: a stale kernel must not be tested."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from tests import kernel

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose extension `a` cimports `_cursor`, which itself cimports `_layout`."""
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "a.pyx").write_text("from pkg._cursor cimport Cursor\n")
    (folder / "b.pyx").write_text("cimport pkg._other\n")
    (folder / "_cursor.pxd").write_text("from pkg cimport (\n    _layout,\n)\n")
    (folder / "_layout.pxd").write_text("")
    (folder / "_other.pxd").write_text("")
    for name in ("a", "b"):
        (folder / f"{name}{SUFFIX}").write_bytes(b"")
    for path in folder.iterdir():
        os.utime(path, (1_000, 1_000))
    return tmp_path


def test_nothing_is_outdated_after_a_build(package: Path) -> None:
    assert kernel.outdated(package, package) == []


def test_missing_extension_is_outdated(package: Path) -> None:
    (package / "pkg" / f"a{SUFFIX}").unlink()
    assert kernel.outdated(package, package) == ["pkg/a.pyx"]


@pytest.mark.parametrize(
    ("touched", "outdated"),
    [
        ("a.pyx", ["pkg/a.pyx"]),
        ("_cursor.pxd", ["pkg/a.pyx"]),
        ("_layout.pxd", ["pkg/a.pyx"]),
        ("_other.pxd", ["pkg/b.pyx"]),
    ],
)
def test_change_outdates_the_extensions_made_of_it(
    package: Path, touched: str, outdated: list[str]
) -> None:
    os.utime(package / "pkg" / touched, (2_000, 2_000))
    assert kernel.outdated(package, package) == outdated
