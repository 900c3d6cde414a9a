"""A short, seeded run of the fuzz target of Fetch answers."""

from __future__ import annotations

import os
import random

import pytest
from fetch_targets import VERSIONS, answer, fetch_target
from mutation import mutations

from karrow.records import BatchBuilder

pytestmark = pytest.mark.fuzz

PER_VERSION = 20_000 if os.environ.get("KARROW_TEST_PROFILE") == "full" else 1_500


@pytest.mark.parametrize("version", VERSIONS)
def test_any_damaged_answer_is_read_as_the_codec_does_or_left_to_it(
    version: int, request: pytest.FixtureRequest
) -> None:
    rng = random.Random(request.config.getoption("randomly_seed"))
    builder = BatchBuilder()
    builder.append(None, b"value")
    seed = answer(version, builder.build())
    choice = bytes([VERSIONS.index(version)])
    fetch_target(choice + seed)
    for _ in range(PER_VERSION):
        data = choice + mutations(rng, seed)
        try:
            fetch_target(data)
        except Exception as error:
            error.add_note(f"v{version}: {data[1:].hex()}")
            raise
