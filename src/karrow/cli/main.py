"""``karrow``: what can be done from a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from karrow.cli import broker, pipeline
from karrow.errors import KarrowError
from karrow.version import __version__

COMMANDS = (broker, pipeline)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit code."""
    parser = argparse.ArgumentParser(prog="karrow", description="Kafka for Python.")
    parser.add_argument("--version", action="version", version=f"karrow {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")
    for command in COMMANDS:
        command.register(commands)
    options = parser.parse_args(arguments)
    try:
        result: int = options.run(options)
    except (KarrowError, OSError) as error:
        print(f"karrow: {error}", file=sys.stderr)
        return 1
    return result
