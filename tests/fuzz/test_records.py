"""A short, seeded run of the kernel's fuzz targets."""

from __future__ import annotations

import os
import random

import pytest
from mutation import mutations
from record_targets import TARGETS, seeds

pytestmark = pytest.mark.fuzz

SEED = int(os.environ.get("KARROW_FUZZ_SEED", "20261116"))
ROUNDS = 40


@pytest.mark.parametrize("name", TARGETS)
def test_valid_data_passes(name: str) -> None:
    for seed in seeds(random.Random(SEED)):
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_data_gives_rows_or_an_error(name: str) -> None:
    rng = random.Random(SEED)
    for seed in seeds(rng):
        for _ in range(ROUNDS):
            damaged = mutations(rng, seed)
            try:
                TARGETS[name](damaged)
            except BaseException:
                print(f"seed {SEED}, input {damaged.hex()}")  # noqa: T201
                raise
