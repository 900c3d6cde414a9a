"""Exactly once inside one Spark: batches, failures of tasks, and what is refused."""

from __future__ import annotations

import functools
import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import karrow
import karrow.spark
from karrow import errors, events
from karrow.aio.producing.coordinator_calls import Identity
from karrow.records._hash import partition_for
from karrow.spark.exactly import report
from karrow.spark.exactly import sink as sinks
from karrow.spark.exactly.ledger import Entry, GroupLedger
from karrow.spark.exactly.renewal import Renewal
from karrow.spark.exactly.report import Report
from tests.brokers import KafkaCluster
from tests.spark.once import Case, committed, frame, orders, wait_for

# Transactions of version 2, and of version 1.
BOTH = pytest.mark.parametrize("kafka_version", ["4.3.1", "3.9.2"], indirect=True)
EVERYWHERE = pytest.mark.kafka(every_release=True)


@pytest.fixture
def case(kafka_version: KafkaCluster, tmp_path: Path) -> Case:
    return Case(kafka_version, tmp_path)


@pytest.fixture
def newest(kafka: KafkaCluster, tmp_path: Path) -> Case:
    return Case(kafka, tmp_path)


@pytest.mark.gate
@EVERYWHERE
@BOTH
def test_batches_are_committed_whole_where_their_keys_belong(
    spark: SparkSession, case: Case
) -> None:
    case.add(3).run(spark)
    case.add(2).run(spark)
    assert case.found() == case.wanted()
    for partition, value in committed(case.bootstrap, case.topic):
        if value[-1:] < b"5":  # those have keys
            assert partition == partition_for(value, case.partitions)
    assert {partition for partition, _ in committed(case.bootstrap, case.topic)} == {0, 1, 2}


@pytest.fixture
def in_pieces(spark: SparkSession) -> Iterator[None]:
    """Tasks get few rows at a time, so that they come by the point between two pieces."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, 5)
    yield
    spark.conf.set(name, str(before))


@EVERYWHERE
@BOTH
@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize(
    "point",
    [
        "raise=task-begun",
        "task-begun",
        "task-wrote",
        pytest.param("task-done", marks=pytest.mark.gate),
    ],
)
def test_task_that_dies_is_fenced_and_its_batch_written_again(
    spark: SparkSession, case: Case, point: str
) -> None:
    told: list[events.Event] = []
    with orders(f"{point}@1:{case.flag()}"), events.subscribe(told.append, "sink.retry"):
        case.add(3).run(spark)
    assert [event.fields["batch"] for event in told] == [1]
    assert case.found() == case.wanted()
    # What the first attempt wrote is there, and nobody sees it.
    if point == "task-done":
        assert case.offsets() > len(case.wanted()) + 3 * case.partitions


@BOTH
@pytest.mark.parametrize("point", ["raise=written", "raise=checked", "raise=stored", "raise=ended"])
def test_failure_of_the_driver_between_two_steps_changes_nothing(
    spark: SparkSession, case: Case, point: str
) -> None:
    with orders(f"{point}@1:{case.flag()}"):
        case.add(3).run(spark)
    assert case.found() == case.wanted()


@BOTH
def test_tasks_that_die_again_and_again_stop_the_query_and_leave_nothing(
    spark: SparkSession, case: Case
) -> None:
    # Enough for both tasks of both attempts.
    text = ",".join(f"task-done@1:{case.flag()}" for _ in range(4))
    case.add(2)
    with orders(text), pytest.raises(PySparkException):
        case.run(spark, retries=1)
    assert case.found() == case.wanted()[: len(case.wanted()) // 2]
    case.run(spark)
    assert case.found() == case.wanted()


@BOTH
def test_ledger_in_a_topic_of_its_own(spark: SparkSession, case: Case) -> None:
    case.add(2).run(spark, ledger="topic")
    with orders(f"raise=stored@2:{case.flag()}"):
        case.add(1).run(spark, ledger="topic")
    assert case.found() == case.wanted()
    with karrow.Admin(case.bootstrap) as admin:
        found = admin.describe_topic(f"karrow.ledger.{case.sink_id}")
    assert len(found.partitions) == 1


def test_ledger_topic_has_the_name_that_it_was_given(spark: SparkSession, newest: Case) -> None:
    named = {"ledger": "topic", "ledger_topic": f"{newest.sink_id}.notes"}
    newest.add(2).run(spark, **named)
    newest.add(1).run(spark, **named)
    with karrow.Admin(newest.bootstrap) as admin:
        topics = set(admin.list_topics())
    assert named["ledger_topic"] in topics
    assert f"karrow.ledger.{newest.sink_id}" not in topics
    assert newest.found() == newest.wanted()
    newest.add(1)
    with pytest.raises(PySparkException, match="no ledger to tell"):
        newest.run(spark, ledger="topic")


@pytest.mark.parametrize("count", [1, 2])
def test_as_many_tasks_write_as_are_wanted(
    spark: SparkSession, newest: Case, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[Report]] = []
    check = report.check

    def noted(reports: Iterable[Report], who: Identity) -> int:
        told.append(list(reports))
        return check(told[-1], who)

    monkeypatch.setattr(report, "check", noted)
    newest.add(2).run(spark, tasks=count)
    wrote = [sorted(one.task for one in reports if one.written) for reports in told]
    assert wrote == [list(range(count))] * 2
    assert newest.found() == newest.wanted()


def test_same_function_can_be_started_again(spark: SparkSession, newest: Case) -> None:
    sink = newest.sink()
    newest.add(1).run(spark, sink)
    newest.add(1).run(spark, sink)
    assert newest.found() == newest.wanted()


@BOTH
def test_ledger_is_kept_alive_while_the_query_runs(
    spark: SparkSession, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The day that an entry may grow old is a moment here; the query has nothing to write."""
    monkeypatch.setattr(sinks, "Renewal", functools.partial(Renewal, interval=0.2))
    stored: list[str] = []
    monkeypatch.setattr(GroupLedger, "write", noting(stored, GroupLedger.write))
    writer = frame(spark, case.add(1).source).writeStream.foreachBatch(case.sink())
    query = writer.option("checkpointLocation", str(case.checkpoint)).start()
    try:
        wait_for(lambda: len(stored) > 3, "the entry was not renewed")
    finally:
        query.stop()
    time.sleep(1.0)  # one that is under way
    count = len(stored)
    time.sleep(1.0)
    assert len(stored) == count
    case.add(1).run(spark)
    assert case.found() == case.wanted()


def noting(stored: list[str], write: Any) -> Any:
    async def noted(self: GroupLedger, transaction: Any, entry: Entry) -> None:
        await write(self, transaction, entry)
        stored.append(entry.encode())

    return noted


def test_batches_that_are_empty_are_noted(spark: SparkSession, newest: Case) -> None:
    newest.add(1).add(1, rows=0).add(1).run(spark)
    newest.add(1, rows=0).run(spark)
    newest.add(1).run(spark)
    assert newest.found() == newest.wanted()


def test_batch_that_spark_repeats_is_not_written_twice(spark: SparkSession, newest: Case) -> None:
    """With state, which a query has to bring up to that batch all the same."""
    sink = newest.add(3).sink()
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(newest.source))
    counts = lines.groupBy("value").count().selectExpr("value")
    failures = [OSError("before Spark heard of it")]

    def write(rows: DataFrame, batch: int) -> None:
        sink(rows, batch)
        if batch == 1 and failures:
            raise failures.pop()

    def run() -> None:
        writer = counts.writeStream.foreachBatch(write).outputMode("update")
        started = writer.option("checkpointLocation", str(newest.checkpoint))
        started.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(PySparkException, match="before Spark heard of it"):
        run()
    run()
    newest.add(1)
    run()
    assert newest.found() == newest.wanted()


def test_rows_for_the_ledger_are_refused(spark: SparkSession, newest: Case) -> None:
    lines = spark.readStream.text(str(newest.add(1).source))
    rows = lines.selectExpr(f"'karrow.ledger.{newest.sink_id}' AS topic", "value")
    writer = rows.writeStream.foreachBatch(newest.sink(topic=None, ledger="topic"))
    writer = writer.option("checkpointLocation", str(newest.checkpoint))
    with pytest.raises(PySparkException, match="is the ledger of this sink"):
        writer.trigger(availableNow=True).start().awaitTermination()


def test_rows_name_their_topics_and_partitions(spark: SparkSession, newest: Case) -> None:
    other = newest.kafka.create_topic(partitions=2)

    def write(rows: DataFrame, batch: int) -> None:
        picked = rows.selectExpr(
            "value",
            f"if(right(value, 1) < '3', '{other}', '{newest.topic}') AS topic",
            "if(right(value, 1) = '0', 1, null) AS partition",
            "array(struct('h' AS key, cast(value AS BINARY) AS value)) AS headers",
        )
        sink(picked, batch)

    sink = newest.sink(topic=None, ledger_topic=newest.topic)
    newest.add(2).run(spark, write)
    there, here = committed(newest.bootstrap, other), committed(newest.bootstrap, newest.topic)
    assert sorted(value.decode() for _, value in there + here) == newest.wanted()
    assert {value[-1:] for _, value in there} == {b"0", b"1", b"2"}
    assert {partition for partition, value in there if value.endswith(b"0")} == {1}


@BOTH
def test_partitions_that_come_within_a_batch_are_used_by_the_next(
    spark: SparkSession, case: Case
) -> None:
    hold = case.flag()
    hold.touch()
    case.add(2)
    with orders(f"wait=task-begun@0:{hold}"):
        query = case.start(spark, case.sink())
        wait_for(lambda: "task-begun" in _seen(hold), "the tasks did not begin")
        with karrow.Admin(case.bootstrap) as admin:
            admin.create_partitions({case.topic: 6})
        hold.unlink()
        query.awaitTermination()
    assert case.found() == case.wanted()
    used = {
        batch: {part for part, value in committed(case.bootstrap, case.topic) if value < batch}
        for batch in (b"0001", b"0002")
    }
    assert max(used[b"0001"]) == 2
    assert max(used[b"0002"]) == 5


def _seen(hold: Path) -> str:
    """What waits at a point says so beside its file."""
    mark = hold.with_suffix(".seen")
    return mark.read_text() if mark.exists() else ""


@BOTH
@pytest.mark.parametrize("point", ["task-begun", "task-done"])
def test_topic_that_is_deleted_within_a_batch_stops_the_query(
    spark: SparkSession, case: Case, point: str
) -> None:
    """Asking for it has the broker create one, which has not the partitions that rows name."""
    hold = case.flag()
    hold.touch()
    case.add(1)
    with orders(f"wait={point}@0:{hold}"):
        query = case.start(spark, case.sink(delivery_timeout=5.0, retries=0))
        wait_for(lambda: point in _seen(hold), "the tasks did not get there")
        with karrow.Admin(case.bootstrap) as admin:
            admin.delete_topics([case.topic])
        hold.unlink()
        # Raised as such, as the last failure of a delivery, or told by the topic's id.
        reason = "UnknownTopicOrPartition|UNKNOWN_TOPIC_OR_PARTITION|made anew within the batch"
        with pytest.raises(PySparkException, match=reason):
            query.awaitTermination()


@BOTH
def test_transaction_that_times_out_is_written_again_or_stops(
    spark: SparkSession, case: Case
) -> None:
    hold = case.flag()
    hold.touch()
    case.add(2)
    threading.Timer(15.0, hold.unlink).start()
    told: list[events.Event] = []
    is_stopped = False
    with orders(f"wait=task-done@1:{hold}"), events.subscribe(told.append, "sink.retry"):
        try:
            case.run(spark, transaction_timeout=6.0)
        except PySparkException as error:
            assert case.kafka.version.startswith("3.")
            assert "restart" in str(error)  # noqa: PT017
            is_stopped = True
            case.run(spark)
    # The broker has aborted the transaction meanwhile: it was noticed, one way or the other.
    assert is_stopped or [event.fields["batch"] for event in told] == [1]
    assert case.found() == case.wanted()


# ---- what is refused


@pytest.mark.gate
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink_id": "a b"}, "sink_id='a b' is no name"),
        ({"sink_id": ""}, "sink_id='' is no name"),
        ({"topic": "a/b"}, "topic='a/b'"),
        ({"topic": None}, "needs ledger_topic"),
        ({"ledger": "file"}, "ledger='file'"),
        ({"on_missing_ledger": "guess"}, "on_missing_ledger='guess'"),
        ({"tasks": 0}, "tasks=0"),
        ({"retries": -1}, "retries=-1"),
        ({"acks": 1}, "acks='all'"),
        ({"idempotent": False}, "idempotent"),
        ({"transactional_id": "mine"}, "sink_id"),
        ({"partitioner": "random"}, "partitioner='random'"),
        ({"lingr": 1}, "lingr"),
        ({"bootstrap": None}, "bootstrap"),
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    given = {"bootstrap": "nowhere:9092", "topic": "t", "sink_id": "s", **options}
    with pytest.raises(errors.ConfigError, match=re.escape(message)):
        karrow.spark.exactly_once(given.pop("bootstrap"), given.pop("topic"), **given)


def test_sink_without_a_name_is_refused() -> None:
    with pytest.raises(TypeError, match="sink_id"):
        karrow.spark.exactly_once("nowhere:9092", "t")  # type: ignore[call-arg]


@pytest.mark.gate
def test_what_cannot_be_written_is_refused_before_it_moves(
    spark: SparkSession, newest: Case
) -> None:
    def refusal(picked: list[str], **options: Any) -> str:
        sink = newest.sink(**options)
        with pytest.raises(PySparkException) as caught:
            newest.run(spark, lambda rows, batch: sink(rows.selectExpr(*picked), batch))
        return str(caught.value)

    newest.add(1)
    assert "no column 'value'" in refusal(["value AS text"])
    assert "column 'value' has the type int" in refusal(["1 AS value"])
    assert "there is no column 'topic'" in refusal(["value"], topic=None, ledger_topic=newest.topic)
    assert "'no-such-topic' does not exist" in refusal(["value"], topic="no-such-topic")
    assert "tasks=3 is more than the 2 that can run at once" in refusal(["value"], tasks=3)
    assert "has partitions 0 to 2" in refusal(["value", "7 AS partition"])
    assert "transaction_timeout=86400 s" in refusal(["value"], transaction_timeout=86400.0)
    assert newest.found() == []


def test_frame_that_is_no_stream_is_refused(spark: SparkSession, newest: Case) -> None:
    with pytest.raises(errors.StateError, match="streaming query"):
        newest.sink()(spark.range(1).selectExpr("'a' AS value"), 0)


@BOTH
def test_new_checkpoint_on_an_old_sink_stops(spark: SparkSession, case: Case) -> None:
    case.add(2).run(spark)
    shutil.rmtree(case.checkpoint)
    with pytest.raises(PySparkException, match="belongs to the query"):
        case.run(spark)
    assert case.found() == case.wanted()


@BOTH
def test_ledger_that_is_gone_stops_unless_told_otherwise(spark: SparkSession, case: Case) -> None:
    case.add(2).run(spark)
    with karrow.Admin(case.bootstrap) as admin:
        admin.delete_groups([f"karrow.ledger.{case.sink_id}"])
    case.add(1)
    with pytest.raises(PySparkException, match="no ledger to tell"):
        case.run(spark)
    assert len(case.found()) < len(case.wanted())
    case.run(spark, on_missing_ledger="redo")
    assert case.found() == case.wanted()


@BOTH
def test_ledger_topic_that_was_deleted_stops(spark: SparkSession, case: Case) -> None:
    case.add(2).run(spark, ledger="topic")
    with karrow.Admin(case.bootstrap) as admin:
        admin.delete_topics([f"karrow.ledger.{case.sink_id}"])
    case.add(1)
    with pytest.raises(PySparkException, match="no ledger to tell"):
        case.run(spark, ledger="topic")
    assert len(case.found()) < len(case.wanted())
    case.run(spark, ledger="topic", on_missing_ledger="redo")
    assert case.found() == case.wanted()


@BOTH
def test_old_checkpoint_with_another_sink_id_stops(spark: SparkSession, case: Case) -> None:
    case.add(2).run(spark)
    case.add(1)
    with pytest.raises(PySparkException, match="another sink_id"):
        case.run(spark, sink_id=f"{case.sink_id}-other")
    assert len(case.found()) < len(case.wanted())
    case.run(spark)
    assert case.found() == case.wanted()


def test_batch_is_skipped_when_its_ledger_is_gone_and_that_is_wanted(
    spark: SparkSession, newest: Case
) -> None:
    newest.add(2).run(spark)
    with karrow.Admin(newest.bootstrap) as admin:
        admin.delete_groups([f"karrow.ledger.{newest.sink_id}"])
    newest.add(2).run(spark, on_missing_ledger="skip")
    assert not any(value.startswith("0002") for value in newest.found())
    assert any(value.startswith("0003") for value in newest.found())


@BOTH
def test_old_checkpoint_that_was_brought_back_stops(
    spark: SparkSession, case: Case, tmp_path: Path
) -> None:
    case.add(1).run(spark)
    shutil.copytree(case.checkpoint, tmp_path / "old")
    case.add(2).run(spark)
    shutil.rmtree(case.checkpoint)
    (tmp_path / "old").rename(case.checkpoint)
    with pytest.raises(PySparkException, match="last batch is 2, and this is 1"):
        case.run(spark)
    assert case.found() == case.wanted()
