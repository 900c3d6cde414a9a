"""A short, seeded run of the kernel's fuzz targets."""

from __future__ import annotations

import random

import pytest
from mutation import mutations
from record_targets import TARGETS, seeds

pytestmark = pytest.mark.fuzz

ROUNDS = 250


@pytest.mark.parametrize("name", TARGETS)
def test_any_damaged_data_gives_rows_or_an_error(name: str, request: pytest.FixtureRequest) -> None:
    rng = random.Random(request.config.getoption("randomly_seed"))
    for seed in seeds(rng):
        TARGETS[name](seed)
        for _ in range(ROUNDS):
            data = mutations(rng, seed)
            try:
                TARGETS[name](data)
            except Exception as error:
                error.add_note(data.hex())
                raise
