"""Fuzz the record kernel: python tests/fuzz/fuzz_records.py -max_total_time=600.

The kernel is compiled without coverage, so libFuzzer cannot tell a good input from a bad one by
itself: every input is a damaged copy of valid data instead.
"""

from __future__ import annotations

import functools
import random
import sys

import atheris
from mutation import mutations
from record_targets import TARGETS, seeds

SEED_SETS = 50


@functools.cache
def seed_set(number: int) -> list[bytes]:
    """One of several sets of valid data."""
    return seeds(random.Random(number))


def damaged(_data: bytes, max_size: int, seed: int) -> bytes:
    """The next input; libFuzzer's own is of no use."""
    rng = random.Random(seed)
    return mutations(rng, rng.choice(seed_set(rng.randrange(SEED_SETS))))[:max_size]


def target(data: bytes) -> None:
    """Every target on the same bytes."""
    for run in TARGETS.values():
        run(data)


if __name__ == "__main__":
    atheris.Setup([*sys.argv, "-max_len=200000"], target, custom_mutator=damaged)
    atheris.Fuzz()
