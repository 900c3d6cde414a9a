"""Fuzz the reader of Fetch answers: python tests/fuzz/fuzz_fetch.py -max_total_time=600."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["karrow"]):
    from fetch_targets import VERSIONS, answer, fetch_target

    from karrow.records import BatchBuilder


def write_corpus(folder: Path) -> None:
    """One answer in every version."""
    builder = BatchBuilder()
    builder.append(None, b"value")
    for number, version in enumerate(VERSIONS):
        (folder / str(version)).write_bytes(bytes([number]) + answer(version, builder.build()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as corpus:
        write_corpus(Path(corpus))
        atheris.Setup([*sys.argv, corpus], fetch_target)
        atheris.Fuzz()
