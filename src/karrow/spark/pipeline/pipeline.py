"""``karrow.spark.Pipeline``: a pipeline's file, or the same in Python."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from karrow.spark.pipeline import brokers, checks, graph, queries, session
from karrow.spark.pipeline.beginnings import beginning_together
from karrow.spark.pipeline.define import define, read_file
from karrow.spark.pipeline.plan import Plan
from karrow.spark.pipeline.running import Running
from karrow.spark.pipeline.signals import StopWish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from karrow.spark.pipeline.definition import Definition
    from karrow.spark.pipeline.lines import Summary
    from karrow.spark.pipeline.running import View

__all__ = ["Pipeline"]


class Pipeline:
    """Sources, steps and sinks that run as one thing.

    The arguments are the keys of a pipeline's file (docs/pipeline.md), and tables are dicts. A
    ``function`` of a step may be the function itself. Relative paths begin in ``folder``, where
    modules are looked for, too. A ``bootstrap`` that stands beside a file or a dict goes before
    those inside.

    Example::

        pipeline = Pipeline.from_file("orders.toml")
        pipeline.check()
        print(pipeline.run(once=True))
    """

    def __init__(self, *, folder: str | Path = ".", **keys: Any) -> None:
        origin = f"pipeline {keys.get('name', '')}".strip()
        self.definition = define(keys, origin=origin, folder=Path(folder).absolute())

    @classmethod
    def from_file(
        cls, path: str | Path, *, folder: str | Path | None = None, bootstrap: str | None = None
    ) -> Self:
        """Read a TOML file; relative paths in it begin in ``folder``, or where the file is."""
        path = Path(path)
        values = read_file(path)
        start = Path(folder) if folder is not None else path.parent
        return cls._of(
            define(values, origin=str(path), folder=start.absolute(), bootstrap=bootstrap)
        )

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], *, folder: str | Path = ".", bootstrap: str | None = None
    ) -> Self:
        """The values of a file as a dict."""
        origin = f"pipeline {values.get('name', '')}".strip()
        start = Path(folder).absolute()
        return cls._of(define(values, origin=origin, folder=start, bootstrap=bootstrap))

    @classmethod
    def _of(cls, definition: Definition) -> Self:
        made = cls.__new__(cls)
        made.definition = definition
        return made

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    def __repr__(self) -> str:
        one = self.definition
        parts = f"{len(one.sources)} sources, {len(one.steps)} steps, {len(one.sinks)} sinks"
        return f"<Pipeline {one.name}: {parts}>"

    def check(
        self,
        spark: SparkSession | None = None,
        *,
        ask_brokers: bool = False,
        log: Path | None = None,
    ) -> checks.Checked:
        """Look at everything that can be looked at without data; raises ConfigError.

        Schemas and SQL are checked by a local Spark, or the one that is given. Brokers are only
        asked if that is wanted; what was not looked at is in the result.
        """
        with session.opened(self.definition, spark, session.LOCAL, log) as own:
            self._checked(own)
        if ask_brokers:
            checks.check_environment(self.definition)  # nobody can log in with half a login
            brokers.check_topics(self.definition)
        return checks.Checked(self.name, checks.unchecked(self.definition, asked=ask_brokers))

    def plan(self, spark: SparkSession | None = None, *, log: Path | None = None) -> Plan:
        """What would be done, with the schemas of all tables; asks no broker."""
        with session.opened(self.definition, spark, session.LOCAL, log) as own:
            tables = graph.build(self.definition, own).tables
            schemas = {name: table.schema.toDDL() for name, table in tables.items()}
        return Plan(self.definition, schemas)

    def start(
        self,
        spark: SparkSession | None = None,
        *,
        master: str | None = None,
        once: bool = False,
        log: Path | None = None,
    ) -> Running:
        """Check everything, topics too, and start all queries.

        Without ``spark`` one is started, on ``master`` (local by default), and stopped with them;
        what it says on stderr goes into the file ``log``. With ``once`` queries end when they have
        what is there now.
        """
        checks.check_environment(self.definition)
        with ExitStack() as stack:
            opened = session.opened(self.definition, spark, master, log)
            own = stack.enter_context(opened)
            self._checked(own)
            brokers.check_topics(self.definition)
            places = queries.checkpoints(self.definition)
            flows = self._flows(own, beginning_together(self.definition, places, own))
            checks.check_files(flows, own)
            return Running(self.name, flows, stack.pop_all(), once=once)

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        master: str | None = None,
        once: bool = False,
        view: View | None = None,
        log: Path | None = None,
    ) -> Summary:
        """Start, show what happens, and stop at SIGINT or SIGTERM, or with ``once`` at the end.

        Raises PipelineFailed if a query fails. In other threads than the main one there are no
        signals: there, ``start`` gives what can be stopped.
        """
        with (
            StopWish() as wish,
            self.start(spark, master=master, once=once, log=log) as running,
        ):
            wish.listen()
            return running.watch(view, wish)

    def _checked(self, spark: SparkSession) -> None:
        """Look at everything that needs neither brokers nor files."""
        made = graph.build(self.definition, spark)
        checks.check_options(self.definition, made)
        queries.flows(self.definition, lambda _: made)

    def _flows(self, spark: SparkSession, seen: Mapping[str, Definition]) -> list[queries.Flow]:
        """The queries, each with tables of its own, of the pipeline as it is to see it."""
        return queries.flows(self.definition, lambda name: graph.build(seen[name], spark))
