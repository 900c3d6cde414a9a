"""The benchmark harness: what it computes and where it writes."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import bench
from bench import chart, child, machine, model, report

ROOT = Path(__file__).parent.parent.parent


def outcome(karrow: list[float], peer: list[float], wanted: float) -> model.Outcome:
    row = model.Row(group="decode", case="a < b", units=1, libraries={}, wanted={"peer": wanted})
    return model.Outcome(row, {"karrow": karrow, "peer": peer})


def benchmark(outcomes: list[model.Outcome]) -> model.Benchmark:
    return model.Benchmark(
        name="sample",
        title="Sample",
        about="",
        unit="records",
        peers=("peer", "absent"),
        rows=[each.row for each in outcomes],
    )


def test_ratio_is_taken_round_by_round() -> None:
    # The machine was half as fast in the second round; the ratio was 10 in both.
    ratio = outcome([100.0, 50.0], [10.0, 5.0], wanted=10).ratio("peer")
    assert ratio == model.Spread(10.0, 10.0, 10.0)


def test_missed_ratio_is_named() -> None:
    reached, missed = outcome([30.0], [2.0], wanted=10), outcome([30.0], [6.0], wanted=10)
    assert "a < b: 5.0x peer, wanted 10x" in report.shortfalls([reached, missed])
    assert report.shortfalls([reached]) == "All 1 ratios that were wanted are reached."


def test_sampled_rate_is_that_of_the_median() -> None:
    assert child.samples_per_second(lambda: [0.1, 0.2, 9.0], seconds=0.0) == 5.0


def test_yardstick_that_is_no_library_has_no_version() -> None:
    facts = machine.describe(["karrow", "blocking socket"])
    assert "karrow" in facts
    assert "blocking socket" not in facts


def test_table_leaves_out_what_a_peer_cannot_do() -> None:
    rows = [outcome([3e6], [1e6], wanted=2)]
    last = report.table(benchmark(rows), rows).splitlines()[-1]
    assert last == "| decode | a < b | **3.0x** (3.0x to 3.0x) |  | 3 M |"


def test_chart_is_well_formed_and_longer_for_higher_ratios() -> None:
    rows = [outcome([4.0], [1.0], wanted=2), outcome([400.0], [1.0], wanted=2)]
    drawn = ET.fromstring(chart.draw(benchmark(rows), rows))
    bars = [
        float(bar.attrib["width"])
        for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")
        if bar.attrib["height"] == str(chart.BAR - 2)
    ]
    assert len(bars) == 2
    assert bars[0] < bars[1]


def test_section_is_replaced_and_the_rest_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench x: begin -->\nold\n<!-- bench x: end -->\nafter\n")
    report.replace_section(page, "x", "new")
    report.replace_section(page, "x", "newer")
    assert page.read_text() == (
        "before\n<!-- bench x: begin -->\nnewer\n<!-- bench x: end -->\nafter\n"
    )


@pytest.mark.parametrize("name", bench.NAMES)
def test_every_benchmark_has_its_section(name: str) -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert text.count(f"<!-- bench {name}: begin -->") == 1
    assert text.count(f"<!-- bench {name}: end -->") == 1
