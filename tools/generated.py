"""What every generator does with its output: write it, or with --check compare it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def write_or_check(files: Mapping[Path, str], arguments: Sequence[str]) -> None:
    """Write the files, or leave with an error when ``--check`` finds one that differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args(arguments).check
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if not check:
            path.write_text(files[path])
            print(f"wrote {path.name}")
    if check and stale:
        names = ", ".join(path.name for path in stale)
        sys.exit(f"{names}: out of date, run {sys.argv[0]}")
