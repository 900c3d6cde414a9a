"""Times one library on one row, in a process of its own: `python -m bench.child NAME ROW LIBRARY`.

Prints the rate as JSON. Imports, preparation and one warm-up call stay outside the timer.
"""

from __future__ import annotations

import json
import statistics
import sys
from time import perf_counter
from typing import cast

from bench.model import Job, Samples, load


def calls_per_second(job: Job, seconds: float) -> float:
    """Call the job for about that long, at least twice."""
    job()
    start = perf_counter()
    calls = 0
    while calls < 2 or perf_counter() - start < seconds:
        job()
        calls += 1
    return calls / (perf_counter() - start)


def samples_per_second(job: Samples, seconds: float) -> float:
    """Call the job for about that long; one over the median of what it measured."""
    job()
    start = perf_counter()
    taken = list(job())
    while perf_counter() - start < seconds:
        taken += job()
    return 1 / statistics.median(taken)


def main(name: str, index: str, library: str, seconds: str) -> None:
    row = load(name).rows[int(index)]
    job = row.libraries[library]()
    if row.sampled:
        rate = samples_per_second(cast(Samples, job), float(seconds))
    else:
        rate = calls_per_second(job, float(seconds))
    json.dump({"rate": rate * row.units}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
