"""Is the compiled kernel the one the sources describe?"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_CIMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+cimport[ \t]+(\([^)]*\)|[^#\n]+)|cimport[ \t]+([\w.]+))",
    re.MULTILINE,
)
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def outdated(sources: Path, built: Path) -> list[str]:
    """Extensions that are missing or older than a .pyx or .pxd they are made of.

    ``sources`` and ``built`` are the folders that hold the top-level package: src/ for both in an
    editable install, another folder for a kernel built with sanitizers.
    """
    return [
        str(source.relative_to(sources))
        for source in sorted(sources.rglob("*.pyx"))
        if _is_outdated(source, sources, built)
    ]


def extensions(built: Path) -> list[Path]:
    """The compiled modules below a folder."""
    return sorted(built.rglob(f"*{_SUFFIX}"))


def _is_outdated(source: Path, sources: Path, built: Path) -> bool:
    extension = (built / source.relative_to(sources)).with_suffix(_SUFFIX)
    if not extension.exists():
        return True
    newest = max(part.stat().st_mtime for part in _parts(source, sources, set()))
    return newest > extension.stat().st_mtime


def _parts(source: Path, sources: Path, seen: set[Path]) -> set[Path]:
    """The file and, through its cimports, every .pxd of ours that it is compiled with."""
    if source not in seen:
        seen.add(source)
        for declared in [source.with_suffix(".pxd"), *_cimported(source, sources)]:
            if declared.exists():
                _parts(declared, sources, seen)
    return seen


def _cimported(source: Path, sources: Path) -> Iterator[Path]:
    for origin, names, module in _CIMPORT.findall(source.read_text("utf-8")):
        if module:
            yield sources.joinpath(*module.split(".")).with_suffix(".pxd")
            continue
        folder = sources.joinpath(*origin.split("."))
        yield folder.with_suffix(".pxd")
        for name in re.findall(r"\w+", names):
            yield folder / f"{name}.pxd"
