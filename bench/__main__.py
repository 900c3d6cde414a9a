"""The command: run benchmarks, print the ratios, keep them in docs/ and bench/results/."""

from __future__ import annotations

import argparse

import bench
from bench import machine, model, report, runner


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=" or ".join(bench.NAMES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="per measurement")
    parser.add_argument("--dry", action="store_true", help="leave docs/ as it is")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    for name in options.names or bench.NAMES:
        benchmark = model.load(name)
        facts = machine.describe([model.OURS, *benchmark.peers, *benchmark.packages])
        outcomes = runner.run(benchmark, options.rounds, options.seconds)
        print(report.table(benchmark, outcomes))
        print(report.shortfalls(outcomes))
        report.save(benchmark, outcomes, facts, options.rounds)
        if not options.dry:
            report.publish(benchmark, outcomes, facts, options.rounds)


if __name__ == "__main__":
    main()
