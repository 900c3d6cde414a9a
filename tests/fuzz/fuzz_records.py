"""Fuzz the record kernel: python tests/fuzz/fuzz_records.py -max_total_time=600."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import atheris
from record_targets import TARGETS, seeds


def target(data: bytes) -> None:
    """Every target on the same bytes."""
    for run in TARGETS.values():
        run(data)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as corpus:
        for place, seed in enumerate(seeds(random.Random(1))):
            (Path(corpus) / f"seed-{place}").write_bytes(seed)
        atheris.Setup([*sys.argv, "-max_len=65536", corpus], target)
        atheris.Fuzz()
