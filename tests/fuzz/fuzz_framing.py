"""Fuzz frames, client and server: python tests/fuzz/fuzz_framing.py -max_total_time=600."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["karrow"]):
    from wire_seeds import answer_stream, request_stream
    from wire_targets import client_target, frames_target, server_target


def target(data: bytes) -> None:
    """All three at once: they read the same kind of stream."""
    frames_target(data)
    client_target(data)
    server_target(data)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as corpus:
        Path(corpus, "answers").write_bytes(answer_stream())
        Path(corpus, "requests").write_bytes(request_stream())
        atheris.Setup([*sys.argv, corpus], target)
        atheris.Fuzz()
