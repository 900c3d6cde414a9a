"""What users install: the sdist builds the kernel, the wheel holds what runs and no more."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "src"
BUILD_FILES = ["LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"]

pytestmark = pytest.mark.slow


def names(*suffixes: str) -> set[str]:
    found = (path for path in SOURCES.rglob("*") if path.suffix in suffixes)
    return {str(path.relative_to(SOURCES)) for path in found}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a tree in which nothing has been compiled yet."""
    tree = tmp_path_factory.mktemp("tree")
    built = shutil.ignore_patterns("*.so", "*.c", "*.egg-info", "__pycache__")
    shutil.copytree(SOURCES, tree / "src", ignore=built)
    for name in BUILD_FILES:
        shutil.copy(ROOT / name, tree)
    target = tmp_path_factory.mktemp("sdist")
    program = f"from setuptools import build_meta; build_meta.build_sdist({str(target)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=tree, check=True, capture_output=True)
    return next(target.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-w", target, sdist], check=True, capture_output=True)
    return next(target.glob("*.whl"))


def test_sdist_holds_the_sources_and_nothing_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/src/" in name}
    held = {name.removeprefix("src/") for name in inside if "egg-info" not in name}
    wanted = names(".py", ".pyx", ".pxd", ".pyi", ".json", ".typed")
    assert wanted <= held
    assert not [name for name in held if name.endswith((".c", ".so"))]


def test_wheel_holds_what_runs_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    compiled = {name.removesuffix(".pyx") + suffix for name in names(".pyx")}
    assert held == names(".py", ".pyi", ".json", ".typed") | compiled


def test_installed_kernel_works_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import karrow.records, pyspark_karrow\n"
        f"assert karrow.__file__.startswith({str(tmp_path)!r})\n"
        "assert list(karrow.records.RecordReader(b'')) == []"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
