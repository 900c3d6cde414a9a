"""Turns outcomes into tables: for the terminal, for docs/benchmarks.md and for the README."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import chart
from bench.model import OURS, Benchmark, Outcome, Spread

ROOT = Path(__file__).parent.parent


def table(benchmark: Benchmark, outcomes: Sequence[Outcome]) -> str:
    """The ratios as a Markdown table, with the plain rates in the last column."""
    heads = ["", "", *(f"x {peer}" for peer in benchmark.peers), f"{OURS}, {benchmark.unit}/s"]
    lines = [_line(heads), _line(["---", "---", *("---:" for _ in heads[2:])])]
    last_group = ""
    for outcome in outcomes:
        row = outcome.row
        ratios = [_ratio(outcome.ratio(peer)) for peer in benchmark.peers]
        group = row.group if row.group != last_group else ""
        lines.append(_line([group, row.case, *ratios, _rate(outcome.rate(OURS).median)]))
        last_group = row.group
    return "\n".join(lines)


def shortfalls(outcomes: Sequence[Outcome]) -> str:
    """Names the rows that miss what was wanted, so that nobody has to look for them."""
    missed = [
        f"{outcome.row.group}, {outcome.row.case}: {chart.times(ratio.median)} {peer}, "
        f"wanted {outcome.row.wanted[peer]:g}x"
        for outcome in outcomes
        for peer, ratio in outcome.shortfalls().items()
    ]
    wanted = sum(len(outcome.row.wanted) for outcome in outcomes)
    if not missed:
        return f"All {wanted} ratios that were wanted are reached." if wanted else ""
    return f"Of {wanted} ratios that were wanted, these are missed:\n\n- " + "\n- ".join(missed)


def publish(
    benchmark: Benchmark, outcomes: Sequence[Outcome], machine: Mapping[str, str], rounds: int
) -> None:
    """Rewrite the benchmark's chart and its sections in the documentation."""
    charts = ROOT / "docs" / "charts"
    charts.mkdir(exist_ok=True)
    (charts / f"{benchmark.name}.svg").write_text(chart.draw(benchmark, outcomes), "utf-8")
    parts = [
        f"## {benchmark.title}",
        benchmark.about,
        f"![{benchmark.title}](charts/{benchmark.name}.svg)",
        table(benchmark, outcomes),
        shortfalls(outcomes),
        f"Medians of {rounds} rounds, lowest and highest in brackets. "
        + ", ".join(f"{key} {value}" for key, value in machine.items())
        + ".",
    ]
    replace_section(
        ROOT / "docs" / "benchmarks.md",
        benchmark.name,
        "\n\n".join(part for part in parts if part),
    )
    headlines = [outcome for outcome in outcomes if outcome.row.headline]
    if headlines:
        replace_section(ROOT / "README.md", benchmark.name, table(benchmark, headlines))


def save(
    benchmark: Benchmark, outcomes: Sequence[Outcome], machine: Mapping[str, str], rounds: int
) -> Path:
    """Keep every single measurement as JSON."""
    folder = ROOT / "bench" / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{benchmark.name}.json"
    results = {
        "benchmark": benchmark.name,
        "unit": f"{benchmark.unit}/s",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rounds": rounds,
        "machine": dict(machine),
        "rows": [
            {
                "group": outcome.row.group,
                "case": outcome.row.case,
                "rates": dict(outcome.rates),
                "ratios": {
                    peer: ratio.median for peer in benchmark.peers if (ratio := outcome.ratio(peer))
                },
            }
            for outcome in outcomes
        ],
    }
    path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    return path


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ratio(ratio: Spread | None) -> str:
    if ratio is None:
        return ""
    low, high = chart.times(ratio.low), chart.times(ratio.high)
    return f"**{chart.times(ratio.median)}** ({low} to {high})"


def _rate(rate: float) -> str:
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter}"
    return f"{rate:.3g}"


def replace_section(path: Path, name: str, text: str) -> None:
    """Put the text between the benchmark's markers in a Markdown file."""
    begin, end = f"<!-- bench {name}: begin -->", f"<!-- bench {name}: end -->"
    before, rest = path.read_text("utf-8").split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")
