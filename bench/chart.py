"""Draws ratios as a bar chart in SVG, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from bench.model import OURS, Benchmark, Outcome

WIDTH = 760
RIGHT = 80
LETTER = 6.6  # about what a letter takes
BAR = 11
GAP = 9
HEADING = 30
TOP = 62
# A peer has the same color in every chart.
COLORS = {"aiokafka": "#3b82c4", "kafka-python": "#e08a1e"}
OTHER = "#3f9c6b"
STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #24292f }
    .title { font-size: 15px; font-weight: 600 }
    .group { font-weight: 600 }
    .small { font-size: 11px }
    .grid { stroke: #8c959f; stroke-opacity: .35 }
    .one { stroke: #8c959f; stroke-width: 1.5 }
    .wanted { stroke: #24292f; stroke-width: 2; stroke-dasharray: 2 1 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .wanted { stroke: #e6edf3 }
    }"""


class Scale:
    """A logarithmic axis: ratios of 2 and of 400 stand in the same chart."""

    def __init__(self, ratios: Sequence[float], left: float) -> None:
        self.left = left
        self.low = math.floor(math.log10(min([1.0, *ratios])))
        self.high = max(1, math.ceil(math.log10(max(ratios))))

    def x(self, ratio: float) -> float:
        """The place of a ratio across the page."""
        part = (math.log10(ratio) - self.low) / (self.high - self.low)
        return self.left + part * (WIDTH - self.left - RIGHT)

    def ticks(self) -> list[float]:
        """Every power of ten on the axis."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def draw(benchmark: Benchmark, outcomes: Sequence[Outcome]) -> str:
    """The whole chart as SVG text."""
    ratios = [
        ratio.median
        for outcome in outcomes
        for peer in benchmark.peers
        if (ratio := outcome.ratio(peer))
    ]
    scale = Scale(ratios, 20 + LETTER * max(len(row.case) for row in benchmark.rows))
    body: list[str] = []
    y = float(TOP)
    for group in benchmark.groups:
        y += HEADING
        body.append(f'<text class="group" x="8" y="{y - 8:.0f}">{escape(group)}</text>')
        for outcome in outcomes:
            if outcome.row.group == group:
                body += _bars(benchmark, outcome, scale, y)
                y = _below(outcome, benchmark, y)
    return "\n".join([*_frame(benchmark, scale, y), *body, "</svg>", ""])


def _below(outcome: Outcome, benchmark: Benchmark, y: float) -> float:
    return y + BAR * sum(peer in outcome.rates for peer in benchmark.peers) + GAP


def _frame(benchmark: Benchmark, scale: Scale, bottom: float) -> Iterator[str]:
    height = bottom + 12
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
    )
    yield f"<title>{escape(benchmark.title)}: {OURS}'s rate as a multiple of its peers'</title>"
    yield f"<style>{STYLE}\n</style>"
    yield f'<text class="title" x="8" y="20">{escape(benchmark.title)}</text>'
    x = 8
    for peer in benchmark.peers:
        color = COLORS.get(peer, OTHER)
        yield f'<rect x="{x}" y="32" width="11" height="11" rx="2" fill="{color}"/>'
        label = f"times {peer}"
        yield f'<text x="{x + 16}" y="42">{label}</text>'
        x += 30 + round(LETTER * len(label))
    for tick in scale.ticks():
        kind = "one" if tick == 1 else "grid"
        at = f"{scale.x(tick):.1f}"
        yield f'<line class="{kind}" x1="{at}" x2="{at}" y1="{TOP}" y2="{bottom:.0f}"/>'
        yield f'<text class="small" x="{at}" y="{TOP - 4}" text-anchor="middle">{tick:g}x</text>'


def _bars(benchmark: Benchmark, outcome: Outcome, scale: Scale, top: float) -> Iterator[str]:
    y = top
    origin = scale.x(1)
    middle = (top + _below(outcome, benchmark, top) - GAP) / 2 + 4
    yield (
        f'<text x="{scale.left - 8:.0f}" y="{middle:.1f}" text-anchor="end">'
        f"{escape(outcome.row.case)}</text>"
    )
    for peer in benchmark.peers:
        ratio = outcome.ratio(peer)
        if ratio is None:
            continue
        end = scale.x(ratio.median)
        left, width = min(origin, end), abs(end - origin)
        yield (
            f'<rect x="{left:.1f}" y="{y:.0f}" width="{width:.1f}" height="{BAR - 2}" '
            f'rx="1.5" fill="{COLORS.get(peer, OTHER)}"/>'
        )
        yield (
            f'<text class="small" x="{max(origin, end) + 5:.1f}" y="{y + BAR - 2.5:.1f}">'
            f"{times(ratio.median)}</text>"
        )
        if wanted := outcome.row.wanted.get(peer):
            at = f"{scale.x(wanted):.1f}"
            yield f'<line class="wanted" x1="{at}" x2="{at}" y1="{y - 1:.0f}" y2="{y + BAR:.0f}"/>'
        y += BAR


def times(ratio: float) -> str:
    """A ratio with as many digits as mean something."""
    digits = 0 if ratio >= 20 else 1 if ratio >= 2 else 2
    return f"{ratio:.{digits}f}x"
