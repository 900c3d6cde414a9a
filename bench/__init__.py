"""Benchmarks against the peers: `python -m bench [name ...]`, or `make bench ONLY=name`.

Each benchmark is a module here that declares a `BENCHMARK`; how it is run, tabled and drawn is the
same for all.
"""

from __future__ import annotations

NAMES = ("records", "wire", "requests", "broker", "produce", "consume", "spark")
