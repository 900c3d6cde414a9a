"""``karrow.spark.exactly_once``: what ``foreachBatch`` calls with every batch of a query.

Rules:
- What can be known before data moves is said before it moves.
- An attempt is one job of Spark: rows find their partitions, are brought together by a shuffle, and
  a barrier stage, the last one of the job, writes them. Such a stage runs once or fails its job. So
  every attempt writes one version of the batch, whole, and a failed one is computed anew.
- A batch that is in already is still computed, and thrown away: queries with state have to bring
  their state up to it.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from karrow.errors import ConfigError, StateError
from karrow.spark.exactly import report, task
from karrow.spark.exactly.batches import QUERY_ID, Batches, OnMissing
from karrow.spark.exactly.crash import crash_point
from karrow.spark.exactly.ledger import Kind, new_ledger
from karrow.spark.exactly.part import Written
from karrow.spark.exactly.renewal import Renewal
from karrow.spark.exactly.report import Report
from karrow.spark.exactly.settings import Settings
from karrow.spark.exactly.transaction import BlockingTransaction
from karrow.types import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from karrow.aio.producing.coordinator_calls import Identity
    from karrow.config.bootstrap import Servers

RUN_ID = "spark.jobGroup.id"
# How long executors that are just starting are waited for.
SLOTS_WAIT = 60.0
BAD_ROW = re.compile(r"karrow\.spark\.exactly_once: ([^\n]*?)(?: SQLSTATE|$)", re.MULTILINE)


def exactly_once(
    bootstrap: Servers | None = None,
    topic: str | None = None,
    *,
    sink_id: str,
    ledger: Kind = "group",
    ledger_topic: str | None = None,
    on_missing_ledger: OnMissing = "stop",
    tasks: int | None = None,
    retries: int = 3,
    **options: Any,
) -> ExactlyOnce:
    """A function for ``foreachBatch`` that writes every batch of a query to Kafka exactly once.

    Columns are those of Spark's own sink: ``value``, and where they are there ``key``, ``headers``,
    ``partition``, and ``topic`` unless the argument names one. All executors write, in one
    transaction for a batch, which also holds the ledger's entry of it.

    Args:
        sink_id: The sink's name: the same after every restart, and no other query's.
        ledger: Where it is noted which batch is in: "group", as an offset of a group, or "topic",
            in a compacted topic of its own, which never expires.
        ledger_topic: For "group" a topic that always exists; needed when rows name their topics.
            For "topic" its name.
        on_missing_ledger: What to do about a later batch when the ledger is empty: "stop", "redo"
            the batch, or "skip" it.
        tasks: How many tasks write at once; by default one for each slot, or for each partition.
        retries: How often an attempt that failed is made again.
        options: A producer's options, or Kafka's own names behind ``kafka.``.

    Example::

        sink = karrow.spark.exactly_once("broker:9092", "totals", sink_id="totals")
        frame.writeStream.foreachBatch(sink).option("checkpointLocation", folder).start()
    """
    return ExactlyOnce(
        Settings(bootstrap, sink_id, options),
        topic,
        ledger=ledger,
        ledger_topic=ledger_topic,
        on_missing=on_missing_ledger,
        tasks=tasks,
        retries=retries,
    )


class Run(NamedTuple):
    """A query, and which run of it."""

    query: str
    run: str


class ExactlyOnce:
    """The function that ``exactly_once`` makes."""

    def __init__(
        self,
        settings: Settings,
        topic: str | None,
        *,
        ledger: Kind,
        ledger_topic: str | None,
        on_missing: OnMissing,
        tasks: int | None,
        retries: int,
    ) -> None:
        for name, value in (("topic", topic), ("ledger_topic", ledger_topic)):
            if value is not None and not is_topic_name(value):
                raise ConfigError(f"{name}={value!r} is no name of a topic")
        if tasks is not None and (type(tasks) is not int or tasks < 1):
            raise ConfigError(f"tasks={tasks!r} is no number from 1 on")
        self._settings = settings
        self._topic = topic
        self._tasks = tasks
        self._transaction = BlockingTransaction(
            settings.config, new_ledger(ledger, settings.sink_id, topic, ledger_topic)
        )
        self._batches = Batches(
            self._transaction, sink_id=settings.sink_id, on_missing=on_missing, retries=retries
        )
        self._lock = threading.Lock()
        self._renewal: Renewal | None = None
        self._renewed: Run | None = None
        self._known: Run | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write a batch, unless it is in."""
        context = _context(frame)
        run = _run(context)
        if run != self._known:
            self._begin(frame, context, run)

        def write(who: Identity, version: int) -> int:
            return self._write(frame, context, batch, who, version)

        if not self._batches.run(run.query, run.run, batch, write):
            frame.write.format("noop").mode("overwrite").save()

    def _begin(self, frame: DataFrame, context: SparkContext, run: Run) -> None:
        """A new run of the query: look at everything that does not change."""
        from karrow.spark.writing.columns import Columns

        Columns(frame.schema, self._topic)
        if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
            raise ConfigError(
                "spark.dynamicAllocation.enabled and exactly_once exclude each other: its tasks "
                "have to run all at once",
                hint="switch it off, or use format('karrow') with delivery=exactly-once",
            )
        slots = _slots(context, self._tasks or 1)
        if self._tasks is not None and self._tasks > slots:
            raise ConfigError(
                f"tasks={self._tasks} is more than the {slots} that can run at once",
                hint="give fewer tasks, or Spark more cores",
            )
        if self._topic is not None:
            self._transaction.partitions([self._topic])
        self._renew(frame.sparkSession, run)
        self._known = run

    def open(self, session: SparkSession, query: StreamingQuery) -> None:
        """Take the sink over for a query that was just started, instead of with its first batch.

        Its ledger is kept alive from now on, however long there are no rows.
        """
        run = Run(query.id, query.runId)
        self._batches.open(run.run)
        self._renew(session, run)

    def _renew(self, session: SparkSession, run: Run) -> None:
        """Keep the ledger alive while the run goes on; the first batch may come meanwhile."""
        with self._lock:
            if run == self._renewed:
                return
            if self._renewal is not None:
                self._renewal.stop()
            self._renewal = Renewal(self._batches, lambda: _is_active(session, run))
            self._renewed = run

    # ---- an attempt

    def _write(
        self, frame: DataFrame, context: SparkContext, batch: int, who: Identity, version: int
    ) -> int:
        from karrow.spark.exactly.routing import routed

        with self._counted(frame) as (rows, counts):
            if not counts:
                return 0
            tasks = min(self._tasks or _slots(context, 1), sum(counts.values()))
            config = self._settings.config
            prepared = routed(rows, self._topic, counts, tasks, str(config.partitioner))
            crash_point("prepared")
            write = task.writer(self._settings, self._topic, batch, who, version)
            with _bad_rows_named():
                told = prepared.mapInArrow(write, report.SCHEMA, barrier=True).collect()
            crash_point("written")
            return report.check(map(_report, told), who)

    @contextlib.contextmanager
    def _counted(self, frame: DataFrame) -> Iterator[tuple[DataFrame, dict[str, int]]]:
        """The rows, and the partitions of their topics; those of a column are looked for first."""
        if self._topic is not None:
            yield frame, self._transaction.partitions([self._topic])
            return
        is_ours = not (frame.storageLevel.useMemory or frame.storageLevel.useDisk)
        kept = frame.persist() if is_ours else frame
        try:
            topics = [row.topic for row in kept.select("topic").distinct().collect()]
            if None in topics:
                raise ConfigError(
                    "column 'topic' is null in some rows", hint="give the argument topic"
                )
            yield kept, self._transaction.partitions(topics)
        finally:
            if is_ours:
                kept.unpersist()

    def __repr__(self) -> str:
        return f"<exactly_once {self._settings.sink_id!r}>"

    def __reduce__(self) -> NoReturn:
        """Only Spark Connect sends the function elsewhere, where its transaction is not."""
        raise _not_here()


@contextlib.contextmanager
def _bad_rows_named() -> Iterator[None]:
    """What Spark says of a row that cannot be written, in one line, and as nothing to try again."""
    try:
        yield
    except Exception as error:
        found = BAD_ROW.search(str(error))
        if found is None:
            raise
        raise ConfigError(found[1]) from None


def _report(row: Row) -> Report:
    return Report(**{**row.asDict(), "written": [Written(*one) for one in row.written]})


def _context(frame: DataFrame) -> SparkContext:
    context: SparkContext | None = getattr(frame.sparkSession, "_sc", None)
    if context is None:
        raise _not_here()
    return context


def _not_here() -> StateError:
    return StateError(
        "exactly_once needs a session of its own process, not Spark Connect",
        hint="use format('karrow') with delivery=exactly-once",
    )


def _run(context: SparkContext) -> Run:
    query, run = context.getLocalProperty(QUERY_ID), context.getLocalProperty(RUN_ID)
    if not query or not run:
        raise StateError(
            "exactly_once is called by a streaming query only",
            hint="frame.writeStream.foreachBatch(karrow.spark.exactly_once(...))",
        )
    return Run(query, run)


def _is_active(session: SparkSession, run: Run) -> bool:
    """Whether a run goes on; asked by a thread that may outlive Spark.

    ``session.streams`` knows nothing of it: Spark gives batches a session of their own.
    """
    try:
        inner: Any = session._jsparkSession  # noqa: SLF001 - what sessions share is nowhere else
        query = session._jvm.java.util.UUID.fromString(run.query)  # type: ignore[union-attr]  # noqa: SLF001
        found = inner.sharedState().activeStreamingQueries().get(query)
        return found is not None and bool(found.runId().toString() == run.run)
    except Exception:  # noqa: BLE001 - Spark has ended
        return False


def _slots(context: SparkContext, wanted: int) -> int:
    """How many tasks can run at once; waits a little for executors that have not come yet."""
    inner = context._jsc.sc()  # noqa: SLF001 - Spark itself refuses barriers by this number
    profile = inner.resourceProfileManager().defaultResourceProfile()
    # A local Spark has all it will ever have.
    deadline = time.monotonic() + (0 if inner.isLocal() else SLOTS_WAIT)
    while True:
        found = int(inner.maxNumConcurrentTasks(profile))
        if found >= wanted or time.monotonic() >= deadline:
            return max(found, 1)
        time.sleep(0.1)
