"""What a benchmark declares, and what a run of it yields."""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeAlias

OURS = "karrow"

Job: TypeAlias = Callable[[], object]
Samples: TypeAlias = Callable[[], Sequence[float]]


def alone() -> AbstractContextManager[Mapping[str, str]]:
    """Nothing has to run beside the measurements."""
    return nullcontext({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: the same work done by karrow and by its peers.

    ``libraries`` maps a name to a function that prepares everything outside the timer and returns
    the job to time; each call of the job handles ``units`` units. ``wanted`` is the ratio to reach
    against a peer; ``headline`` rows also stand in the README. The jobs of a ``sampled`` row return
    the seconds of single measurements, of which the median counts.
    """

    group: str
    case: str
    units: int
    libraries: Mapping[str, Callable[[], Job | Samples]]
    wanted: Mapping[str, float] = field(default_factory=dict)
    headline: bool = False
    sampled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A titled set of rows; ``peers`` are what they are compared with, in column order.

    ``packages`` are what else the numbers depend on. ``around`` is entered for the whole run and
    gives the environment of every measurement.
    """

    name: str
    title: str
    about: str
    unit: str
    peers: Sequence[str]
    rows: Sequence[Row]
    packages: Sequence[str] = ("cramjam", "crc32c", "pyarrow")
    around: Callable[[], AbstractContextManager[Mapping[str, str]]] = alone

    @property
    def groups(self) -> list[str]:
        """The groups in the order of their first row."""
        return list(dict.fromkeys(row.group for row in self.rows))


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some measurements and how far they reach."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise one value per round."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row with its rates (units per second) by library, one per round."""

    row: Row
    rates: Mapping[str, Sequence[float]]

    def rate(self, library: str) -> Spread:
        """Units per second."""
        return Spread.of(self.rates[library])

    def ratio(self, peer: str) -> Spread | None:
        """How many times the peer's rate karrow reaches, or None where the peer has no such job.

        Rates of one round are divided by each other: they were measured within seconds, so what
        else the machine did at that time weighs on both.
        """
        if peer not in self.rates:
            return None
        pairs = zip(self.rates[OURS], self.rates[peer], strict=True)
        return Spread.of([ours / theirs for ours, theirs in pairs])

    def shortfalls(self) -> dict[str, Spread]:
        """The wanted ratios that were not reached."""
        reached = {peer: self.ratio(peer) for peer in self.row.wanted}
        return {
            peer: ratio
            for peer, ratio in reached.items()
            if ratio is not None and ratio.median < self.row.wanted[peer]
        }


def load(name: str) -> Benchmark:
    """The benchmark that the module of that name declares."""
    benchmark: Benchmark = importlib.import_module(f"bench.{name}").BENCHMARK
    return benchmark
