"""Runs a benchmark: fresh processes, libraries interleaved, several rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from bench.model import Benchmark, Outcome


def run(benchmark: Benchmark, rounds: int, seconds: float) -> list[Outcome]:
    """Measure every row in every round; a round is complete before the next begins."""
    with benchmark.around() as environment:
        rates = _rates(benchmark, rounds, seconds, {**os.environ, **environment})
    return [Outcome(row, by_library) for row, by_library in zip(benchmark.rows, rates, strict=True)]


def _rates(
    benchmark: Benchmark, rounds: int, seconds: float, environment: Mapping[str, str]
) -> list[dict[str, list[float]]]:
    rates: list[dict[str, list[float]]] = [
        {library: [] for library in row.libraries} for row in benchmark.rows
    ]
    for turn in range(rounds):
        for index, row in enumerate(benchmark.rows):
            if sys.stderr.isatty():
                place = f"round {turn + 1}/{rounds}, row {index + 1}/{len(rates)}"
                print(f"\r{benchmark.name}: {place} ", end="", file=sys.stderr)
            # Who comes first alternates: the second finds the machine's caches and clock warm.
            for library in sorted(row.libraries, reverse=turn % 2 == 1):
                arguments = [benchmark.name, str(index), library, str(seconds)]
                rates[index][library].append(_measure(arguments, environment))
    return rates


def _measure(arguments: list[str], environment: Mapping[str, str]) -> float:
    command = [sys.executable, "-m", "bench.child", *arguments]
    answer = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True).stdout
    rate: float = json.loads(answer)["rate"]
    return rate
