"""The source in Spark: what only Spark itself can show. Options one by one are in test_parity_*."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import karrow
from karrow import events
from karrow.spark import data_source
from karrow.types import TopicPartition
from tests.brokers import KafkaCluster
from tests.spark.both import in_json, in_short
from tests.spark.filled import deal, new_topic

PATIENCE = 60
# Spark's 2 s and 2 s, and as much again for a machine that is busy.
KILLED_WITHIN = 8
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
LEVELS = ("read_uncommitted", "read_committed")


class Source:
    """Topics of one broker as DataFrames."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = topic

    def put(self, *bounds: int, partition: int = 0) -> None:
        with karrow.Client(self.bootstrap) as client:
            client.produce(self.topic, [b"%d" % n for n in range(*bounds)], partition=partition)

    def read(self, **options: Any) -> DataFrame:
        return self._loaded(self.spark.read, options)

    def stream(self, **options: Any) -> DataFrame:
        return self._loaded(self.spark.readStream, options)

    def _loaded(self, reader: Any, options: dict[str, Any]) -> DataFrame:
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, **options}
        frame: DataFrame = reader.format("karrow").options(**given).load()
        return frame


@pytest.fixture
def source(spark: SparkSession, kafka: KafkaCluster) -> Source:
    return Source(spark, kafka.bootstrap(), kafka.create_topic(partitions=2))


@pytest.fixture
def embedded(spark: SparkSession) -> Iterator[tuple[Source, karrow.Broker]]:
    with karrow.Broker(auto_create_topics=False) as broker:
        broker.create_topic("orders", partitions=2)
        yield Source(spark, broker.bootstrap, "orders"), broker


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


# ---- batch


@pytest.mark.gate
def test_a_frame_reads_what_is_there_whenever_it_is_asked(source: Source) -> None:
    source.put(5)
    frame = source.read()
    assert values(frame) == list(range(5))
    source.put(5, 8, partition=1)
    assert values(frame) == list(range(8))
    assert frame.where("partition = 1").count() == 3
    assert frame.rdd.getNumPartitions() == 2


@pytest.mark.gate
@pytest.mark.parametrize("enabled", [True, False])
def test_filters_with_sparks_setting_on_and_off(source: Source, enabled: bool) -> None:
    source.put(100)
    source.put(10, partition=1)
    before = source.spark.conf.get(PUSHDOWN)
    source.spark.conf.set(PUSHDOWN, enabled)
    try:
        wanted = "partition = 0 AND offset >= 10 AND offset < 20 AND timestamp > '2001-01-01'"
        assert values(source.read().where(wanted)) == list(range(10, 20))
        frame = source.read(pushdown="true")
        if not enabled:
            with pytest.raises(PySparkException, match=PUSHDOWN):
                frame.where(wanted).collect()
            return
        assert values(frame.where(wanted)) == list(range(10, 20))
        plan = frame.where(wanted)._jdf.queryExecution().optimizedPlan().toString()
        (checked,) = [line for line in plan.splitlines() if "Filter" in line]
        assert "timestamp#" in checked
        assert "offset#" not in checked
        assert values(source.read(pushdown="true").where("offset > 7 AND value = '9'")) == [9, 9]
        assert values(source.read(pushdown="true").where("timestamp > '2099-01-01'")) == []
    finally:
        source.spark.conf.set(PUSHDOWN, str(before))


def test_a_batch_of_what_is_young_and_committed_in_tasks_of_so_many_bytes(
    source: Source, kafka: KafkaCluster
) -> None:
    """Options that are karrow's own."""
    topic = new_topic(kafka)
    now = int(time.time() * 1000)
    with karrow.Producer(source.bootstrap) as producer:
        for number in range(100):
            old = 3_600_000 if number < 40 else 0
            row = b"%d" % number + b" " * 1000
            producer.send(topic, row, partition=0, timestamp_ms=now - old)
    deal(source.bootstrap, topic, (20, True), (15, False))
    young = {"subscribe": topic, "startingOffsets": "-10 minutes", "maxBytesPerPartition": "20k"}
    frame = source.read(**young, endingOffsets=in_json(topic, {0: 100}))
    assert values(frame) == list(range(40, 100))
    assert 3 <= frame.rdd.getNumPartitions() <= 6
    everything = {"subscribe": topic, "startingOffsets": in_json(topic, {0: 100})}
    counts = [source.read(**everything, isolation=one).count() for one in LEVELS]
    assert counts == [35, 20]


def test_a_session_can_be_told_of_the_source(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a name that Spark cannot have found by itself."""

    class Told(data_source.KarrowDataSource):
        @classmethod
        def name(cls) -> str:
            return "told"

    monkeypatch.setattr(data_source, "KarrowDataSource", Told)
    source.put(3)
    session = source.spark.newSession()
    frame = session.read.format("told").options(
        **{"kafka.bootstrap.servers": source.bootstrap, "subscribe": source.topic}
    )
    with pytest.raises((PySparkException, Py4JJavaError), match="Failed to find the data source"):
        frame.load()
    for _ in range(2):
        karrow.spark.register(session)
        assert values(frame.load()) == [0, 1, 2]


def test_plans_show_no_secrets(source: Source) -> None:
    source.put(1)
    frame = source.read(**{"kafka.ssl.key.password": "hunter2"})
    assert "hunter2" not in frame._jdf.queryExecution().toString()
    assert values(frame) == [0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"subscribe": "no-such-topic"}, "subscribe names topic 'no-such-topic', which does not"),
        ({"startingOffsets": "{"}, "startingOffsets is no JSON"),
        ({"startingOffset": "earliest"}, "there is no option 'startingoffset'; did you mean"),
        ({"endingOffsets": '{"TOPIC": {"0": 99, "1": 0}}'}, "endingOffsets names offset 99 of"),
        ({"startingOffsets": '{"TOPIC": {"0": 99, "1": 0}}'}, "startingOffsets names offset 99"),
        ({"startingOffsets": '{"TOPIC": {"0": 0}}'}, "startingOffsets does not speak of"),
        ({"startingOffsets": "group", "commitGroup": "none"}, "has stored no offset of topic"),
        ({"kafka.ssl.truststore.location": "/x.jks", "kafka.security.protocol": "SSL"}, "keytool"),
    ],
)
def test_bad_input_is_one_clear_line(source: Source, given: dict[str, str], said: str) -> None:
    source.put(3)
    named = {name: value.replace("TOPIC", source.topic) for name, value in given.items()}
    with pytest.raises(PySparkException) as caught:
        source.read(**named).collect()
    line = in_short(str(caught.value))
    assert said in line
    assert len(line) < 400


# ---- streams


def to_files(frame: DataFrame, folder: Path, **options: str) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(folder / "files"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).options(**options)
    return writer.queryName("files").trigger(availableNow=True).start()


def finished(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(PATIENCE)
    return query


@pytest.mark.gate
def test_a_stream_goes_on_where_it_was(source: Source, tmp_path: Path) -> None:
    spark = source.spark
    told: list[Any] = []
    listener = karrow.spark.LagListener(told.append)
    spark.streams.addListener(listener)
    heard: list[events.Event] = []
    try:
        with events.subscribe(heard.append, "stream.progress"):
            given = {
                "startingOffsets": "earliest",
                "commitGroup": "lag",
                "maxOffsetsPerTrigger": "7",
            }
            source.put(10)
            first = finished(to_files(source.stream(**given), tmp_path))
            source.put(10, 15, partition=1)
            second = finished(to_files(source.stream(**given), tmp_path))
            eventually(lambda: len(told) >= 3)
    finally:
        spark.streams.removeListener(listener)
    assert values(spark.read.parquet(str(tmp_path / "files"))) == list(range(15))
    sizes = [one.numInputRows for one in (*first.recentProgress, *second.recentProgress)]
    assert [size for size in sizes if size] == [7, 3, 5]
    assert seen_by_tools(source, "lag") == {0: 10, 1: 5}
    latest = first.recentProgress[0].sources[0].latestOffset
    assert json.loads(latest) == {source.topic: {"0": 10, "1": 0}}
    assert told[0].behind == {
        TopicPartition(source.topic, 0): 3,
        TopicPartition(source.topic, 1): 0,
    }
    assert (told[0].query, told[0].lag, told[0].rows) == ("files", 3, 7)
    assert heard[0].measurements["lag"] == 3


def seen_by_tools(source: Source, group: str) -> dict[int, int]:
    """Where a group is, as a client that is not ours asks for it."""
    partitions = [confluent_kafka.TopicPartition(source.topic, number) for number in range(2)]
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group, partitions)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": source.bootstrap})
    found = admin.list_consumer_group_offsets([asked])[group].result(PATIENCE)
    return {one.partition: one.offset for one in found.topic_partitions}


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_stream_takes_so_many_bytes_at_a_time_from_where_a_group_is(
    source: Source, tmp_path: Path
) -> None:
    """What Spark hands from latestOffset() on is a limit of its own kind, and karrow's."""
    with karrow.Client(source.bootstrap) as client:
        for partition, first in enumerate((0, 100)):
            rows = [b"%d" % n + b" " * 1000 for n in range(first, first + 100)]
            client.produce(source.topic, rows, partition=partition)
        client.commit_offsets("mover", {(source.topic, 0): 20, (source.topic, 1): 50})
    given = {
        "startingOffsets": "group",
        "kafka.group.id": "mover",
        "maxBytesPerTrigger": "40k",
        "isolation": "read_committed",
    }
    query = finished(to_files(source.stream(**given), tmp_path))
    assert values(source.spark.read.parquet(str(tmp_path / "files"))) == [
        *range(20, 100),
        *range(150, 200),
    ]
    sizes = [one.numInputRows for one in query.recentProgress if one.numInputRows]
    assert len(sizes) > 2
    assert max(sizes) <= 45


def test_a_stream_that_runs(source: Source, tmp_path: Path) -> None:
    found: list[int] = []
    stream = source.stream(**{"kafka.fetch.max.wait.ms": "50"})
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: found.extend(values(frame)))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        eventually(lambda: query.lastProgress is not None)
        for first in range(0, 30, 10):
            source.put(first, first + 10)
            query.processAllAvailable()
            assert found == list(range(first + 10))
        with karrow.Admin(source.bootstrap) as admin:
            admin.create_partitions({source.topic: 3})
        source.put(30, 35, partition=2)
        eventually(lambda: len(found) == 35)
    finally:
        query.stop()
    assert found == list(range(35))


def test_two_streams_are_joined(source: Source, tmp_path: Path) -> None:
    source.put(10)
    left = source.stream(startingOffsets="earliest").selectExpr("value AS a")
    right = source.stream(startingOffsets="earliest").selectExpr("value AS b")
    joined = left.join(right, f.col("a") == f.col("b")).selectExpr("a AS value")
    finished(to_files(joined, tmp_path))
    assert values(source.spark.read.parquet(str(tmp_path / "files"))) == list(range(10))


@pytest.mark.parametrize("fails", [True, False])
def test_loss_is_told_by_its_cause(
    embedded: tuple[Source, karrow.Broker], tmp_path: Path, fails: bool
) -> None:
    source, _ = embedded
    given = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    source.put(10)
    finished(to_files(source.stream(**given), tmp_path))
    source.put(10, 30)
    with karrow.Admin(source.bootstrap) as admin:
        admin.delete_records({("orders", 0): 20})
    query = to_files(source.stream(**given), tmp_path)
    if fails:
        with pytest.raises(PySparkException) as caught:
            query.awaitTermination(PATIENCE)
        assert in_short(str(caught.value)).startswith(
            "data is lost: offsets 10 to 19 of orders-0 were removed before they were read"
        )
        return
    finished(query)
    found = values(source.spark.read.parquet(str(tmp_path / "files")))
    assert found == [*range(10), *range(20, 30)]


# ---- tasks and their processes


def running(context: SparkContext) -> int:
    """How many tasks there are: one that was killed counts until it has really ended."""
    tracker = context._jsc.sc().statusTracker()
    return sum(one.numRunningTasks() for one in tracker.getExecutorInfos())


def workers_of(broker: karrow.Broker) -> set[int]:
    """The processes of Spark's that run tasks and are connected to the broker."""
    port = int(broker.bootstrap.rpartition(":")[2])
    connections = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in connections]
    to_broker = {f"socket:[{one[9]}]" for one in fields if int(one[2].split(":")[1], 16) == port}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # Plans are made by a process of another daemon.
            is_worker = b"pyspark.daemon\0pyspark.worker" in (process / "cmdline").read_bytes()
            if is_worker and any(str(one.readlink()) in to_broker for one in process.glob("fd/*")):
                found.add(int(process.name))
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells whose they are")
def test_a_task_that_is_killed_takes_its_process_along(
    embedded: tuple[Source, karrow.Broker],
) -> None:
    """Spark ends it, not karrow: it tells Python nothing and leaves the socket open.

    Spark's own thread looks every 2 s, waits 2 s more (spark.python.task.killTimeout) and has the
    daemon kill the process. So the bound is Spark's; ours is that the process is all there is, that
    it does not outlive this, and that nobody goes on to fetch. What karrow does when it is told,
    by the end of the generator, is in tests/embedded/test_spark_batch.py.
    """
    source, broker = embedded
    for partition in range(2):  # or a worker has nothing to wait for, and lives on as it should
        source.put(10, partition=partition)
    broker.drop("Fetch", times=1000)
    context = source.spark.sparkContext
    outcome: list[BaseException] = []
    # Whoever goes on asks again every three seconds, for longer than all of this takes.
    hasty = {"kafka.request.timeout.ms": "3000", "kafka.fetch.max.wait.ms": "20"}

    def run() -> None:
        context.setJobGroup("doomed", "waits for a broker that does not answer", True)
        try:
            source.read(**hasty).collect()
        except (Py4JJavaError, PySparkException) as error:
            outcome.append(error)

    def fetches() -> int:
        return sum(seen.api == "Fetch" for seen in broker.requests)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: fetches() > 1 and len(workers_of(broker)) == 2)
    began = time.monotonic()
    context.cancelJobGroup("doomed")
    thread.join(PATIENCE)
    eventually(lambda: running(context) == 0)
    eventually(lambda: not workers_of(broker))
    assert outcome
    assert time.monotonic() - began < KILLED_WITHIN
    before = fetches()
    time.sleep(5.0)
    assert fetches() == before
    broker.clear_faults()
    assert values(source.read()) == sorted([*range(10)] * 2)


def test_workers_are_forked_and_have_clients_of_their_own(source: Source) -> None:
    """Row 39 of failures: what the driver has open does not matter to workers, nor theirs to it."""
    source.put(5)
    bootstrap, topic = source.bootstrap, source.topic

    def look(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with karrow.Client(bootstrap) as client:
            end = client.latest_offset(topic, 0)
        for batch in rows:
            yield pa.RecordBatch.from_arrays([pa.array([end] * batch.num_rows)], ["id"])

    with karrow.Client(bootstrap) as client:
        assert client.latest_offset(topic, 0) == 5
        found = source.spark.range(4, numPartitions=2).mapInArrow(look, "id long").collect()
        assert [row.id for row in found] == [5] * 4
        assert values(source.read()) == list(range(5))
        assert client.latest_offset(topic, 0) == 5
