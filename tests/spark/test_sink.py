"""The sink beside Spark's own: the same DataFrame into two topics, and what others find there."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from tests.brokers import KafkaCluster

PARTITIONS = 4
ROWS = 500
PATIENCE = 60
THEIRS, OURS = "kafka", "karrow"

# key, value, headers
Found = tuple[Any, Any, Any]


def stored(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, list[Found]]:
    """What a topic holds, by partition, as another client sees it."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "the counter",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    count = len(consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions)
    found: dict[int, list[Found]] = {number: [] for number in range(count)}
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, number, begin) for number in found])
    try:
        ended: set[int] = set()
        while len(ended) < count:
            message = consumer.poll(PATIENCE)
            assert message is not None, f"{topic} gives nothing"
            error = message.error()
            if error is None:
                one = (message.key(), message.value(), message.headers())
                found[message.partition() or 0].append(one)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
            else:
                raise confluent_kafka.KafkaException(error)
    finally:
        consumer.close()
    return found


def in_any_order(found: Mapping[int, list[Found]]) -> list[str]:
    return sorted(repr(one) for records in found.values() for one in records)


def said(error: PySparkException) -> str:
    """karrow's own line of what Spark tells with all its stacks."""
    found = re.findall(r"^karrow\.errors\.\S+: (.*)", str(error), re.MULTILINE)
    assert found, error
    return str(found[-1])


class Sinks:
    """Both sinks on one broker."""

    def __init__(self, spark: SparkSession, cluster: KafkaCluster) -> None:
        self.spark = spark
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap()

    def frame(self, *columns: str, rows: int = ROWS) -> DataFrame:
        """Rows with a number ``id``, in two tasks."""
        return self.spark.range(rows, numPartitions=2).selectExpr(*columns)

    def write(self, connector: str, frame: DataFrame, **options: str) -> None:
        given = {"kafka.bootstrap.servers": self.bootstrap, **options}
        frame.write.format(connector).mode("append").options(**given).save()

    def both(
        self, frame: DataFrame, **options: str
    ) -> tuple[dict[int, list[Found]], dict[int, list[Found]]]:
        """What is in the topics that Spark's sink and ours wrote to."""
        found = []
        for connector in (THEIRS, OURS):
            topic = self.cluster.create_topic(partitions=PARTITIONS)
            self.write(connector, frame, topic=topic, **options)
            found.append(stored(self.bootstrap, topic))
        return found[0], found[1]

    def refused(self, frame: DataFrame, **options: str) -> str:
        """The line that karrow says."""
        with pytest.raises(PySparkException) as caught:
            self.write(OURS, frame, **options)
        return said(caught.value)


@pytest.fixture
def sinks(spark: SparkSession, kafka: KafkaCluster) -> Sinks:
    return Sinks(spark, kafka)


NUMBER = "encode(cast(id as string), 'utf-8')"
HEADER = (
    f"array(struct('a' as key, {NUMBER} as value), "
    "struct('a' as key, cast(null as binary) as value), struct('' as key, x'' as value))"
)


@pytest.mark.gate
@pytest.mark.connector
@pytest.mark.parametrize(
    "columns",
    [
        ("cast(id as string) as key", "concat('value ', id) as value"),
        (
            f"if(id % 10 = 0, null, {NUMBER}) as key",
            f"if(id % 7 = 0, null, {NUMBER}) as value",
            "cast(id % 3 as int) as partition",
            f"if(id % 5 = 0, null, {HEADER}) as headers",
            "id",
            "current_timestamp() as timestamp",
        ),
    ],
    ids=["texts by key", "everything"],
)
def test_both_write_the_same_records_to_the_same_partitions(
    sinks: Sinks, columns: tuple[str, ...]
) -> None:
    theirs, ours = sinks.both(sinks.frame(*columns))
    assert {number: sorted(map(repr, records)) for number, records in ours.items()} == {
        number: sorted(map(repr, records)) for number, records in theirs.items()
    }
    assert sum(map(len, ours.values())) == ROWS


@pytest.mark.connector
@pytest.mark.parametrize(
    "columns",
    [
        ("'v' as value",),
        ("cast(null as string) as key", "cast(id as string) as value"),
        ("'' as key", "'' as value"),
        ("cast(id as string) as value", "cast(null as int) as partition"),
        (
            "cast(id as string) as value",
            "cast(array() as array<struct<key: string, value: binary>>) as headers",
        ),
    ],
)
def test_both_write_the_same_records(sinks: Sinks, columns: tuple[str, ...]) -> None:
    theirs, ours = sinks.both(sinks.frame(*columns))
    assert in_any_order(ours) == in_any_order(theirs)


@pytest.mark.connector
def test_rows_of_a_key_keep_their_order(sinks: Sinks) -> None:
    frame = sinks.frame("cast(id % 5 as string) as key", "cast(id as string) as value")
    theirs, ours = sinks.both(frame.coalesce(1))
    assert ours == theirs


@pytest.mark.gate
@pytest.mark.connector
def test_rows_go_to_the_topics_of_their_column(sinks: Sinks) -> None:
    found = {}
    for connector in (THEIRS, OURS):
        topics = [sinks.cluster.create_topic(partitions=2) for _ in range(3)]
        names = ", ".join(f"'{name}'" for name in topics)
        frame = sinks.frame(
            f"element_at(array({names}), cast(id % 3 + 1 as int)) as topic",
            "cast(id as string) as key",
            "cast(id as string) as value",
        )
        sinks.write(connector, frame)
        found[connector] = [
            {
                number: sorted(map(repr, one))
                for number, one in stored(sinks.bootstrap, name).items()
            }
            for name in topics
        ]
    assert found[OURS] == found[THEIRS]


@pytest.mark.connector
def test_the_option_goes_before_the_column(sinks: Sinks) -> None:
    theirs, ours = sinks.both(sinks.frame("'elsewhere' as topic", "cast(id as string) as value"))
    assert in_any_order(ours) == in_any_order(theirs)


@pytest.mark.connector
@pytest.mark.parametrize("given", ["true", "false"])
def test_headers_are_written_whatever_the_option_of_sources_says(sinks: Sinks, given: str) -> None:
    """Spark's sink takes it as well, so programs have it."""
    columns = (f"{NUMBER} as value", f"{HEADER} as headers")
    theirs, ours = sinks.both(sinks.frame(*columns), includeHeaders=given)
    assert in_any_order(ours) == in_any_order(theirs)
    assert all(headers for records in ours.values() for _, _, headers in records)


@pytest.mark.connector
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_options_of_java_are_understood(sinks: Sinks, codec: str) -> None:
    options = {
        "kafka.compression.type": codec,
        "kafka.linger.ms": "20",
        "kafka.batch.size": "10000",
        "kafka.acks": "all",
        "kafka.max.request.size": "1000000",
        "kafka.delivery.timeout.ms": "60000",
        "kafka.client.id": "the sink",
    }
    theirs, ours = sinks.both(sinks.frame("cast(id as string) as value"), **options)
    assert in_any_order(ours) == in_any_order(theirs)


@pytest.mark.connector
@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_other_acknowledgements_are_taken(sinks: Sinks, acks: str) -> None:
    theirs, ours = sinks.both(sinks.frame("cast(id as string) as value"), **{"kafka.acks": acks})
    assert in_any_order(ours) == in_any_order(theirs)
    assert sum(map(len, ours.values())) == ROWS


def test_a_dataframe_without_rows_writes_nothing(sinks: Sinks) -> None:
    topic = sinks.cluster.create_topic(partitions=1)
    sinks.write(OURS, sinks.frame("'v' as value", rows=0), topic=topic)
    assert stored(sinks.bootstrap, topic) == {0: []}


# ---- what is refused


IN_GATE = pytest.mark.gate


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        pytest.param(
            ("'k' as key",), {"topic": "t"}, "the DataFrame has no column 'value'", marks=IN_GATE
        ),
        (("id as value",), {"topic": "t"}, "column 'value' has the type bigint"),
        (("'v' as value",), {}, "no topic: the option 'topic' is not given"),
        (("'v' as value",), {"topic": "t", "topics": "t"}, "there is no option 'topics'"),
        (("'v' as value",), {"topic": "missing"}, "the topic does not exist .*missing"),
        pytest.param(
            ("'v' as value", "9 as partition"),
            {"topic": None},
            "column 'partition' asks for what is not there",
            marks=IN_GATE,
        ),
        (("'v' as value", "cast(null as string) as topic"), {}, "column 'topic' is null"),
    ],
    ids=["value", "type", "topic", "option", "missing", "partition", "null"],
)
def test_bad_input_is_one_clear_line(
    sinks: Sinks, columns: tuple[str, ...], options: dict[str, Any], text: str
) -> None:
    topic = sinks.cluster.create_topic(partitions=1)
    given = {name: value or topic for name, value in options.items()}
    if given.get("topic") == "missing":
        given["kafka.allow.auto.create.topics"] = "false"
    line = sinks.refused(sinks.frame(*columns), **given)
    assert re.search(text, line), line
    assert stored(sinks.bootstrap, topic) == {0: []}


def test_rows_of_arrow_batches_before_the_one_with_a_bad_row_are_written(sinks: Sinks) -> None:
    """A task looks at an Arrow batch, of 10,000 rows unless Spark is told otherwise, as a whole."""
    topic = sinks.cluster.create_topic(partitions=1)
    columns = ("cast(id as string) as value", "if(id = 25000, 7, 0) as partition")
    line = sinks.refused(sinks.frame(*columns, rows=30_000).coalesce(1), topic=topic)
    assert "column 'partition' asks for what is not there" in line
    before = [str(number).encode() for number in range(20_000)]
    deadline = time.monotonic() + PATIENCE
    while len(found := stored(sinks.bootstrap, topic)[0]) < len(before):
        assert time.monotonic() < deadline, len(found)
        time.sleep(0.5)
    assert [value for _, value, _ in found] == before


def test_a_wrong_address_is_one_clear_line(sinks: Sinks) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "500"}
    line = sinks.refused(sinks.frame("'v' as value"), topic="t", **options)
    assert "127.0.0.1:1" in line


def test_topics_cannot_be_overwritten(sinks: Sinks) -> None:
    frame = sinks.frame("'v' as value")
    given = {"kafka.bootstrap.servers": sinks.bootstrap, "topic": "t"}
    with pytest.raises(PySparkException, match="topics only grow"):
        frame.write.format(OURS).mode("overwrite").options(**given).save()


# ---- streams


class Files:
    """A stream of Parquet files, so that what a batch has is known."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.schema = "id bigint, text string"
        self.rows = 0

    def add(self, rows: int) -> None:
        """Rows for the next batch."""
        frame = self.spark.range(self.rows, self.rows + rows, numPartitions=1)
        frame.selectExpr("id", "concat('row ', id) as text").write.mode("append").parquet(
            str(self.folder)
        )
        self.rows += rows

    def stream(self) -> DataFrame:
        return self.spark.readStream.schema(self.schema).parquet(str(self.folder))


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Iterator[Files]:
    made = Files(spark, tmp_path / "files")
    made.add(100)
    yield made
    for query in spark.streams.active:
        query.stop()


def run(
    frame: DataFrame, checkpoint: Path, mode: str = "append", connector: str = OURS, **options: str
) -> None:
    """Have everything that is there written."""
    writer = frame.writeStream.format(connector).outputMode(mode).trigger(availableNow=True)
    query = writer.options(checkpointLocation=str(checkpoint), **options).start()
    assert query.awaitTermination(PATIENCE)


@pytest.mark.gate
def test_a_stream_goes_on_where_it_was(sinks: Sinks, files: Files, tmp_path: Path) -> None:
    topic = sinks.cluster.create_topic(partitions=2)
    frame = files.stream().selectExpr("cast(id as string) as key", "text as value")
    options = {"kafka.bootstrap.servers": sinks.bootstrap, "topic": topic}
    run(frame, tmp_path / "checkpoint", **options)
    files.add(50)
    run(frame, tmp_path / "checkpoint", **options)
    found = [
        value for records in stored(sinks.bootstrap, topic).values() for _, value, _ in records
    ]
    assert sorted(map(repr, found)) == sorted(repr(b"row %d" % number) for number in range(150))


@pytest.mark.connector
def test_streams_of_both_write_the_same_records_to_the_same_partitions(
    sinks: Sinks, files: Files, tmp_path: Path
) -> None:
    """Over a restart, with what a batch may hold."""
    frame = files.stream().selectExpr(
        f"if(id % 10 = 0, null, {NUMBER}) as key",
        "if(id % 7 = 0, null, text) as value",
        "if(id % 10 = 0, cast(id % 3 as int), null) as partition",
        f"if(id % 5 = 0, null, {HEADER}) as headers",
    )
    topics = {one: sinks.cluster.create_topic(partitions=PARTITIONS) for one in (THEIRS, OURS)}
    for _ in range(2):
        files.add(80)
        for one, topic in topics.items():
            given = {"kafka.bootstrap.servers": sinks.bootstrap, "topic": topic}
            run(frame, tmp_path / one, connector=one, **given, **{"kafka.acks": "1"})
    theirs, ours = (
        {number: sorted(map(repr, records)) for number, records in found.items()}
        for found in (stored(sinks.bootstrap, topic) for topic in topics.values())
    )
    assert ours == theirs
    assert sum(map(len, ours.values())) == files.rows == 260


@pytest.mark.connector
def test_streams_of_both_write_the_same_totals_in_complete_mode(
    sinks: Sinks, files: Files, tmp_path: Path
) -> None:
    totals = files.stream().groupBy((functions.col("id") % 3).alias("rest")).count()
    frame = totals.selectExpr("cast(rest as string) as key", "cast(count as string) as value")
    topics = {one: sinks.cluster.create_topic(partitions=1) for one in (THEIRS, OURS)}
    for _ in range(2):
        for one, topic in topics.items():
            given = {"kafka.bootstrap.servers": sinks.bootstrap, "topic": topic}
            run(frame, tmp_path / one, "complete", one, **given)
        files.add(30)
    theirs, ours = (in_any_order(stored(sinks.bootstrap, topic)) for topic in topics.values())
    assert ours == theirs
    assert len(ours) == 6


def test_in_complete_mode_every_batch_has_the_whole_result(
    sinks: Sinks, files: Files, tmp_path: Path
) -> None:
    topic = sinks.cluster.create_topic(partitions=1)
    totals = files.stream().groupBy().count()
    frame = totals.selectExpr("cast(count as string) as value")
    options = {"kafka.bootstrap.servers": sinks.bootstrap, "topic": topic}
    run(frame, tmp_path / "checkpoint", "complete", **options)
    files.add(50)
    run(frame, tmp_path / "checkpoint", "complete", **options)
    assert [value for _, value, _ in stored(sinks.bootstrap, topic)[0]] == [b"100", b"150"]


def test_a_stream_with_wrong_columns_does_not_start_writing(
    sinks: Sinks, files: Files, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": sinks.bootstrap, "topic": "t"}
    with pytest.raises(PySparkException, match="the DataFrame has no column 'value'"):
        run(files.stream(), tmp_path / "checkpoint", **options)


def test_examples_of_the_documentation_run(
    spark: SparkSession, kafka: KafkaCluster, tmp_path: Path
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "spark-writing.md").read_text("utf-8")
    for name in ("orders", "totals"):
        kafka.create_topic(name, partitions=2)
    known: dict[str, Any] = {"spark": spark, "folder": str(tmp_path)}
    blocks = re.findall(r"^```python spark\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(block.replace("localhost:9092", kafka.bootstrap()), known)
    try:
        for topic in ("orders", "totals"):
            while repr((None, b"1", None)) not in in_any_order(stored(kafka.bootstrap(), topic)):
                time.sleep(1)
    finally:
        for query in spark.streams.active:
            query.stop()
    assert sum(map(len, stored(kafka.bootstrap(), "orders").values())) >= 1000
    assert len(blocks) == 3
