"""Fuzz the message decoders: python tests/fuzz/fuzz_messages.py -max_total_time=600."""

from __future__ import annotations

import functools
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import atheris

with atheris.instrument_imports(include=["karrow"]):
    from filling import fill
    from wire_targets import every_case, message_target, prefix

    from karrow.wire import codec, encode
    from karrow.wire.decoder import compile_decoder
    from karrow.wire.table import schema

if TYPE_CHECKING:
    from karrow.wire.decoder import Decoder


@functools.cache
def instrumented_decoder(name: str, version: int) -> Decoder:
    """A decoder that reports its coverage; atheris does not see what is compiled at run time."""
    return atheris.instrument_func(compile_decoder(name, version))


def write_corpus(folder: Path) -> None:
    """One valid encoding of every message and version."""
    rng = random.Random(1)
    for name, version in every_case():
        message = fill(rng, schema(name), version, "full")
        seed = prefix((name, version)) + encode(name, version, message)
        (folder / f"{name}-{version}").write_bytes(seed)


if __name__ == "__main__":
    decoders = mock.patch.object(codec, "compile_decoder", instrumented_decoder)
    with tempfile.TemporaryDirectory() as corpus, decoders:
        write_corpus(Path(corpus))
        atheris.Setup([*sys.argv, corpus], message_target)
        atheris.Fuzz()
