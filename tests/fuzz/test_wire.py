"""A short, seeded run of the wire's fuzz targets."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from filling import STYLES, fill
from mutation import mutations
from wire_seeds import answer_stream, request_stream
from wire_targets import (
    client_target,
    every_case,
    frames_target,
    message_target,
    prefix,
    server_target,
)

from karrow.wire import encode
from karrow.wire.table import schema

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.fuzz

FULL = os.environ.get("KARROW_TEST_PROFILE") == "full"
PER_MESSAGE = 500 if FULL else 25
STREAMS = 20_000 if FULL else 400


def test_any_damaged_message_is_a_value_or_a_remote_protocol_error(
    request: pytest.FixtureRequest,
) -> None:
    rng = random.Random(request.config.getoption("randomly_seed"))
    for case in every_case():
        name, version = case
        message = fill(rng, schema(name), version, rng.choice(STYLES))
        seed = encode(name, version, message)
        for _ in range(PER_MESSAGE):
            data = prefix(case) + mutations(rng, seed)
            try:
                message_target(data)
            except Exception as error:
                error.add_note(f"{name} v{version}: {data[2:].hex()}")
                raise


@pytest.mark.parametrize(
    ("target", "stream"),
    [
        (frames_target, answer_stream),
        (client_target, answer_stream),
        (server_target, request_stream),
    ],
)
def test_any_damaged_stream_is_frames_or_a_remote_protocol_error(
    target: Callable[[bytes], None],
    stream: Callable[[int], bytes],
    request: pytest.FixtureRequest,
) -> None:
    rng = random.Random(request.config.getoption("randomly_seed"))
    seed = stream(rng.randrange(1000))
    target(seed)
    for _ in range(STREAMS):
        data = mutations(rng, seed)
        try:
            target(data)
        except Exception as error:
            error.add_note(data.hex())
            raise
