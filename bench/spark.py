"""karrow in Spark against Spark's own Kafka connector.

Each measurement is a process with a Spark of its own, local[2], that has both connectors and runs
the same program with one of them: some runs until Java has compiled what it needs, then those that
count. The program differs in the word behind `format`, and in how a batch is written exactly once.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

import karrow
from bench.model import OURS, Benchmark, Row, Samples
from bench.produce import BOOTSTRAP, PARTITIONS, PLAIN, bootstrap, new_topic, wait_for_leaders
from karrow.spark import exactly_once
from tests.brokers import NEWEST, KafkaCluster
from tests.brokers.folders import new_folder, remove_folder
from tests.spark import sessions

THEIRS = "Spark's connector"
FORMATS = {OURS: "karrow", THEIRS: "kafka"}

TOPIC = "spark"
ROWS = int(os.environ.get("KARROW_BENCH_ROWS", "3000000"))
WARM_UPS = 3
FILES = "KARROW_BENCH_FILES"
RATE = 1000
STEP = 0.01
LATENCY_SECONDS = 10.0
SETTINGS = {"spark.driver.memory": "4g"}

# Does the work once with one connector.
Work = Callable[[], object]


@contextmanager
def broker() -> Iterator[Mapping[str, str]]:
    """One real broker with a full topic, and the same rows in files, for the whole run."""
    files = new_folder()
    with KafkaCluster() as cluster:
        place = {BOOTSTRAP: cluster.bootstrap(), FILES: str(files)}
        os.environ.update(place)
        cluster.create_topic(TOPIC, partitions=PARTITIONS)
        wait_for_leaders(TOPIC)
        rows = 100_000
        numbers = pa.array([n * PARTITIONS // rows for n in range(rows)], pa.int32())
        values = pa.array(PLAIN * (rows // len(PLAIN)), pa.binary())
        table = pa.table({"value": values, "partition": numbers})
        with karrow.Producer(bootstrap()) as producer:
            for _ in range(ROWS // rows):
                producer.send_arrow(TOPIC, table).result()
        spark, folder = session()
        generated(spark).write.parquet(f"{files}/rows", compression="none")
        spark.stop()
        shutil.rmtree(folder)
        yield place
    remove_folder(files)


def session() -> tuple[SparkSession, Path]:
    folder = Path(tempfile.mkdtemp(prefix="karrow-bench-"))
    return sessions.session(folder, settings=SETTINGS), folder


def started() -> tuple[SparkSession, Path]:
    """A session for the whole process."""
    spark, folder = session()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(spark.stop)
    return spark, folder


def generated(spark: SparkSession) -> DataFrame:
    """Rows of 100 bytes in as many parts as the topic has."""
    text = functions.rpad(functions.col("id").cast("string"), len(PLAIN[0]), ".")
    return spark.range(0, ROWS, 1, PARTITIONS).select(text.cast("binary").alias("value"))


def timed(work: Work, units: int = ROWS) -> Samples:
    """Seconds for each row."""
    for _ in range(WARM_UPS):
        work()

    def once() -> list[float]:
        start = perf_counter()
        work()
        return [(perf_counter() - start) / units]

    return once


# ---- reading


def read(library: str, spark: SparkSession) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap(), "subscribe": TOPIC}
    return spark.read.format(FORMATS[library]).options(**options).load()


def to_nothing(library: str) -> Samples:
    spark, _ = started()
    return timed(lambda: read(library, spark).write.format("noop").mode("overwrite").save())


def into_sums(library: str) -> Samples:
    spark, _ = started()

    def work() -> None:
        sums = (
            read(library, spark)
            .groupBy("partition")
            .agg(functions.count("*"), functions.sum(functions.length("value")))
        )
        assert sum(row[1] for row in sums.collect()) == ROWS

    return timed(work)


def stream(library: str) -> Callable[[], float]:
    """A query that reads all there is; it tells how long its batch took, by Spark's own clock."""
    spark, folder = started()
    options = {
        "kafka.bootstrap.servers": bootstrap(),
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
    }

    def work() -> float:
        rows = spark.readStream.format(FORMATS[library]).options(**options).load()
        return run_through(rows.writeStream.format("noop"), folder)

    return work


def stream_to_nothing(library: str) -> Samples:
    return timed(stream(library))


def stream_batch(library: str) -> Samples:
    """Without the start of the query, which queries that go on have once."""
    work = stream(library)
    for _ in range(WARM_UPS):
        work()
    return lambda: [work() / ROWS]


def run_through(writer: Any, folder: Path) -> float:
    """All that is there, in a query that begins anew; how many seconds its batches took."""
    place = tempfile.mkdtemp(dir=folder)
    query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
    query.awaitTermination()
    batches = query.recentProgress
    assert sum(batch.numInputRows for batch in batches) == ROWS
    taken: int = sum(batch.durationMs["triggerExecution"] for batch in batches)
    return taken / 1000


# ---- writing


def emptied(topic: str) -> None:
    """Takes back what was written, else the broker's memory would fill."""
    with karrow.Admin(bootstrap()) as admin:
        admin.delete_records({(topic, number): "latest" for number in range(PARTITIONS)})


def written(topic: str, write: Work) -> Samples:
    """Only writing counts."""

    def once() -> list[float]:
        start = perf_counter()
        write()
        taken = perf_counter() - start
        emptied(topic)
        return [taken / ROWS]

    for _ in range(WARM_UPS):
        once()
    return once


def batch_sink(library: str) -> Samples:
    spark, _ = started()
    topic = new_topic()
    rows = generated(spark).persist()
    assert rows.count() == ROWS
    options = {"kafka.bootstrap.servers": bootstrap(), "topic": topic}
    return written(
        topic, lambda: rows.write.format(FORMATS[library]).options(**options).mode("append").save()
    )


def from_files(spark: SparkSession) -> DataFrame:
    return spark.readStream.schema("value binary").parquet(f"{os.environ[FILES]}/rows")


def stream_sink(library: str) -> Samples:
    spark, folder = started()
    topic = new_topic()
    options = {"kafka.bootstrap.servers": bootstrap(), "topic": topic}

    def write() -> None:
        writer = from_files(spark).writeStream.format(FORMATS[library]).options(**options)
        run_through(writer, folder)

    return written(topic, write)


def exactly_once_sink() -> Samples:
    spark, folder = started()
    topic = new_topic()
    turns = iter(range(1_000_000))

    def write() -> None:
        # A sink id belongs to one checkpoint, and every run has a new one.
        sink = exactly_once(bootstrap(), topic=topic, sink_id=f"{topic}-{next(turns)}")
        run_through(from_files(spark).writeStream.foreachBatch(sink), folder)

    return written(topic, write)


# ---- latency


def latency(library: str) -> Samples:
    """From the broker's stamp on a row to the function that is given the row's micro-batch."""
    spark, folder = started()
    topic = new_topic()
    stamped = {"message.timestamp.type": "LogAppendTime"}
    with karrow.Admin(bootstrap()) as admin:
        admin.alter_config(karrow.ConfigResource.topic(topic), stamped)
    seen: list[float] = []

    def note(batch: DataFrame, _: int) -> None:
        stamps = batch.select(functions.unix_millis("timestamp")).collect()
        now = time.time() * 1000
        seen.extend((now - stamp) / 1000 for (stamp,) in stamps)

    options = {"kafka.bootstrap.servers": bootstrap(), "subscribe": topic}
    rows = spark.readStream.format(FORMATS[library]).options(**options).load()
    place = tempfile.mkdtemp(dir=folder)
    query = rows.writeStream.foreachBatch(note).option("checkpointLocation", place).start()
    atexit.register(query.stop)
    ended = threading.Event()
    feeding = threading.Thread(target=feed, args=(topic, ended), daemon=True)
    feeding.start()
    atexit.register(ended.set)

    def once() -> list[float]:
        seen.clear()
        time.sleep(LATENCY_SECONDS)
        taken, seen[:] = seen[:], []
        assert query.isActive
        assert taken
        return taken

    return once


def feed(topic: str, ended: threading.Event) -> None:
    """A steady trickle."""
    with karrow.Producer(bootstrap()) as producer:
        due = perf_counter()
        while not ended.is_set():
            for number in range(round(RATE * STEP)):
                producer.send(topic, PLAIN[0], partition=number % PARTITIONS)
            due += STEP
            time.sleep(max(due - perf_counter(), 0))


# ---- the table


def row(
    group: str, case: str, make: Callable[[str], Samples], wanted: float, *, headline: bool = True
) -> Row:
    return Row(
        group=group,
        case=case,
        units=1,
        libraries={library: functools.partial(make, library) for library in FORMATS},
        wanted={THEIRS: wanted},
        sampled=True,
        headline=headline,
    )


TABLE = (
    row("Batch read", "to noop", to_nothing, 3.0),
    row("Batch read", "into sums by partition", into_sums, 3.0),
    row("Stream, AvailableNow", "its batch", stream_batch, 3.0),
    row("Stream, AvailableNow", "with the start of the query", stream_to_nothing, 3.0),
    row("Write", "batch", batch_sink, 2.5),
    row("Write", "stream, at least once", stream_sink, 2.5),
    Row(
        group="Write",
        case="stream, exactly once, against at least once",
        units=1,
        libraries={OURS: exactly_once_sink, THEIRS: functools.partial(stream_sink, THEIRS)},
        wanted={THEIRS: 1.0},
        sampled=True,
        headline=True,
    ),
    row("Micro-batches", f"latency at {RATE:,} rows/s", latency, 0.83),
)

BENCHMARK = Benchmark(
    name="spark",
    title="Spark",
    about=(
        f"PySpark with two cores, one Kafka {NEWEST} on the same machine with its log in memory, "
        f"{ROWS:,} rows of 100 bytes on four partitions. Each measurement is a Spark of its own "
        "that has run the program a few times already. The rate is rows a second from the call "
        "until it is done, planning and start of the query included; streams run through what is "
        "there with a new checkpoint, read to noop. Batches are written out of Spark's memory, "
        "streams out of Parquet files in memory. In the last line it is one over the median of the "
        "seconds between the broker's stamp on a row and the function that gets its micro-batch "
        "(foreachBatch, default trigger), in a topic that is written to all the time."
    ),
    unit="rows",
    peers=(THEIRS,),
    rows=TABLE,
    packages=("pyspark", "pyarrow"),
    around=broker,
)
