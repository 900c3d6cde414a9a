"""``karrow pipeline``: a pipeline's file checked, explained and run."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from karrow.errors import ConfigError, KarrowError

if TYPE_CHECKING:
    from karrow.spark.pipeline import Pipeline
    from karrow.spark.pipeline.running import View

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - its only name

INTERRUPTED = 130


def register(commands: Commands) -> None:
    """Add the command and its options."""
    parser = commands.add_parser("pipeline", help="run a pipeline on Spark, or look at it")
    actions = parser.add_subparsers(title="actions", required=True, metavar="action")
    running = _action(actions, "run", "run it until interrupted; a restart goes on where it was")
    running.add_argument("--master", help='where Spark runs, such as "spark://host:7077"')
    running.add_argument("--once", action="store_true", help="end when what is there now is done")
    running.set_defaults(run=run)
    checking = _action(actions, "check", "look for what is wrong, without data")
    checking.add_argument("--brokers", action="store_true", help="ask brokers for topics, too")
    checking.set_defaults(run=check)
    _action(actions, "plan", "tell what would be done").set_defaults(run=plan)


def _action(actions: Commands, name: str, about: str) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=about, description=about)
    parser.add_argument("file", metavar="FILE.toml")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers, before those in FILE")
    parser.add_argument("--folder", help="where relative paths in FILE begin, if not beside it")
    parser.add_argument("--log", type=Path, help="a file for what Spark itself says")
    return parser


def run(options: argparse.Namespace) -> int:
    """Run until the end, or until SIGINT or SIGTERM."""
    pipeline = _pipeline(options)
    view = _view(pipeline)
    try:
        with _log(options) as log:
            pipeline.run(master=options.master, once=options.once, view=view, log=log)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def check(options: argparse.Namespace) -> int:
    """Say what is wrong, or what could not be looked at."""
    with _log(options) as log:
        print(_pipeline(options).check(ask_brokers=options.brokers, log=log))
    return 0


def plan(options: argparse.Namespace) -> int:
    """Tell what would be done."""
    with _log(options) as log:
        print(_pipeline(options).plan(log=log))
    return 0


def _pipeline(options: argparse.Namespace) -> Pipeline:
    try:
        from karrow.spark.pipeline import Pipeline  # noqa: PLC0415 - other commands go without
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"pyspark", "pyarrow"}:
            raise
        hint = "pip install 'karrow[spark]'"
        raise ConfigError("pipelines run on PySpark, which is not here", hint=hint) from None
    return Pipeline.from_file(options.file, folder=options.folder, bootstrap=options.bootstrap)


@contextmanager
def _log(options: argparse.Namespace) -> Iterator[Path]:
    """Where Spark's own words go: if nobody asked for them, into a file that is kept on failure."""
    if options.log is not None:
        yield options.log
        return
    number, name = tempfile.mkstemp(prefix="karrow-pipeline-", suffix=".log")
    os.close(number)
    place = f"what Spark says is in {name}"
    try:
        yield Path(name)
    except ConfigError:
        Path(name).unlink()
        raise
    except KarrowError as error:
        error.hint = f"{error.hint}; {place}" if error.hint else place
        raise
    except BaseException:
        print(f"karrow: {place}", file=sys.stderr)
        raise
    Path(name).unlink()


def _view(pipeline: Pipeline) -> View:
    """Drawn in a terminal, lines elsewhere; what is printed to the terminal needs lines as well."""
    from karrow.spark.pipeline.lines import Lines  # noqa: PLC0415

    prints = any(sink.kind == "console" for sink in pipeline.definition.sinks.values())
    if prints or not sys.stdout.isatty():
        return Lines()
    try:
        from karrow.spark.pipeline.view import LiveView  # noqa: PLC0415
    except ModuleNotFoundError:
        return Lines()
    return LiveView(pipeline.name)
