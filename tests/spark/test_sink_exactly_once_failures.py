"""delivery=exactly-once when answers, topics, ledgers and time are lost: rows are there once."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import karrow
from tests.brokers import KafkaCluster
from tests.fix_kafka import NewKafka
from tests.proxy import ClusterProxy, Proxy
from tests.proxy_link import Step
from tests.spark.driven import Driven
from tests.spark.once import Driver, committed, wait_for

# Transactions of version 2, and of version 1.
BOTH = pytest.mark.parametrize("kafka_version", ["4.3.1", "3.9.2"], indirect=True)
PATIENCE = 120.0


class Proxied(Driven):
    """The same behind a proxy: what happens to requests is what happens to the process."""

    proxy: Proxy

    def through(self, **more: str) -> dict[str, str]:
        """Options of a program that knows the brokers by the proxy."""
        return {"kafka.bootstrap.servers": self.proxy.bootstrap, **more}

    def held(self, api: str, spark: SparkSession, **more: str) -> tuple[Step, StreamingQuery]:
        """A query whose next such request has not come to the broker."""
        step = self.proxy.hold(api)
        query = self.begin(spark, **self.through(**more))
        step.wait(PATIENCE)
        return step, query


@pytest.fixture
def case(kafka_version: KafkaCluster, tmp_path: Path) -> Iterator[Proxied]:
    made = Proxied(kafka_version, tmp_path)
    with ClusterProxy(kafka_version) as proxy:
        made.proxy = proxy.nodes[0]
        yield made


def has_stopped(query: StreamingQuery) -> bool:
    """Wait for the end of a query; whether an error ended it."""
    try:
        query.awaitTermination()
    except PySparkException:
        return True
    return False


@BOTH
@pytest.mark.parametrize("ledger", ["group", "topic"])
def test_lost_answer_to_the_commit_is_asked_for_again(
    spark: SparkSession, case: Proxied, ledger: str
) -> None:
    for _ in range(2):
        lost = case.proxy.drop_answer("EndTxn")
        case.add(2).write(spark, **case.through(ledger=ledger))
        assert lost.happened
    assert case.found() == case.wanted()
    # Nothing was written a second time: the rest are the markers of four transactions.
    assert case.offsets() <= len(case.wanted()) + 4 * case.partitions


@BOTH
def test_transaction_that_times_out_is_written_again_or_stops(
    spark: SparkSession, case: Proxied
) -> None:
    short = {"kafka.transaction.timeout.ms": "5000"}
    case.add(1).write(spark, **case.through())
    late, query = case.add(1).held("EndTxn", spark, **short)
    with karrow.Admin(case.bootstrap) as admin:
        name = f"karrow.sink.{case.sink_id}"
        wait_for(lambda: admin.describe_transaction(name).state == "CompleteAbort", "no time-out")
    late.release()
    # Whoever was timed out looks like whoever was replaced, before version 2.
    assert has_stopped(query) is case.kafka.version.startswith("3.")
    case.write(spark)
    assert case.found() == case.wanted()


@BOTH
def test_partitions_that_come_within_a_batch_are_used_by_a_later_one(
    spark: SparkSession, case: Proxied
) -> None:
    late, query = case.add(2).held("Produce", spark)
    with karrow.Admin(case.bootstrap) as admin:
        admin.create_partitions({case.topic: 6})
    late.release()
    query.awaitTermination()
    case.add(1).write(spark)
    assert case.found() == case.wanted()
    used = committed(case.bootstrap, case.topic)
    assert max(partition for partition, value in used if value < b"0001") == 2
    assert max(partition for partition, value in used) == 5


@BOTH
def test_topic_that_is_deleted_within_a_batch_stops_the_query(
    spark: SparkSession, case: Proxied
) -> None:
    case.add(1).write(spark, **case.through(ledger="topic"))
    quick = {
        "ledger": "topic",
        "kafka.delivery.timeout.ms": "3000",
        "kafka.allow.auto.create.topics": "false",
    }
    late, query = case.add(1).held("Produce", spark, **quick)
    with karrow.Admin(case.bootstrap) as admin:
        admin.delete_topics([case.topic])
        late.release()
        assert has_stopped(query)
        wait_for(lambda: case.topic not in admin.list_topics(), "the topic stays")
    case.kafka.create_topic(case.topic, partitions=case.partitions)
    case.write(spark, ledger="topic")
    assert case.found() == [row for row in case.wanted() if row.startswith("0001")]


@BOTH
def test_topic_that_is_made_anew_within_a_batch_gets_all_of_it_or_the_query_stops(
    spark: SparkSession, case: Proxied
) -> None:
    case.add(1).write(spark, **case.through(ledger="topic"))
    late, query = case.add(1).held("Produce", spark, ledger="topic")
    with karrow.Admin(case.bootstrap) as admin:
        admin.delete_topics([case.topic])
        wait_for(lambda: case.topic not in admin.list_topics(), "the topic stays")
    case.kafka.create_topic(case.topic, partitions=case.partitions)
    late.release()
    batch = [row for row in case.wanted() if row.startswith("0001")]
    if has_stopped(query):
        assert case.found() == []
        case.write(spark, ledger="topic")
    assert case.found() == batch


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["4.3.1", "3.9.2"])
def test_brokers_that_die_within_a_batch_are_replaced(
    new_kafka: NewKafka, version: str, tmp_path: Path
) -> None:
    """The leader before rows are sent to it, and the coordinator before the commit is."""
    kafka = new_kafka(version, 3)
    case = Driven(kafka, tmp_path).add(4)
    first, second = case.flag(), case.flag()
    first.touch()
    second.touch()
    with case.program(f"wait=prepared@1:{first},wait=stored@2:{second}") as driver:
        driver.reaches(first)
        kafka.node(kafka.leader(case.topic)).kill()
        first.unlink()
        driver.reaches(second)
        kafka.heal()
        kafka.node(coordinator(case)).kill()
        second.unlink()
        driver.succeeded()
    kafka.heal()
    assert case.found() == case.wanted()


def coordinator(case: Driven) -> int:
    """The broker that has the sink's transactions."""
    with karrow.Client(case.bootstrap) as client:
        found = client.find_coordinator(f"karrow.sink.{case.sink_id}", "transaction")
    assert found.broker is not None
    return found.broker.id


@BOTH
def test_ledger_topic_that_was_deleted_stops(spark: SparkSession, case: Proxied) -> None:
    case.add(2).write(spark, ledger="topic")
    with karrow.Admin(case.bootstrap) as admin:
        admin.delete_topics([f"karrow.ledger.{case.sink_id}"])
    case.repeat_last()  # or the process that has written it goes on without a look
    assert "no ledger to tell" in case.refusal(spark, ledger="topic")
    case.add(1).write(spark, ledger="topic", onMissingLedger="skip")
    assert case.found() == case.wanted()


@BOTH
def test_checkpoint_of_another_sink_stops(spark: SparkSession, case: Proxied) -> None:
    case.add(2).write(spark)
    case.add(1)
    said = case.refusal(spark, sinkId=f"{case.sink_id}-other")
    assert f"sink {case.sink_id}-other: batch 2 has no ledger" in said
    assert "the checkpoint had another sinkId before" in said
    assert case.found() == [row for row in case.wanted() if row < "0002"]
    case.write(spark)
    assert case.found() == case.wanted()


@BOTH
def test_old_checkpoint_that_was_brought_back_stops(
    spark: SparkSession, case: Proxied, tmp_path: Path
) -> None:
    case.add(1).write(spark)
    shutil.copytree(case.checkpoint, tmp_path / "old")
    case.add(2).write(spark)
    shutil.rmtree(case.checkpoint)
    (tmp_path / "old").rename(case.checkpoint)
    assert "last batch is 2, and this is 1" in case.refusal(spark)
    assert case.found() == case.wanted()


# ---- processes that die

POINTS = (
    "open-claimed",
    "opened",
    "prepared",
    "task-wrote",
    "written",
    "checked",
    "stored",
    "ended",
    "committed",
    "raise=written,fence-looked",
    "raise=written,fenced",
)
BATCHES = 4


def dies_or_waits(driver: Driver, flag: Path) -> None:
    """Until the sink's process is dead, and so the driver has ended, or waits at the point."""
    seen = flag.with_suffix(".seen")
    wait_for(lambda: seen.exists() or driver.has_ended, "it goes on and on")


@pytest.mark.timeout(1800)
@BOTH
def test_any_schedule_of_deaths_leaves_every_row_once(case: Proxied) -> None:
    """With the ledger in a topic; the sink's process dies, or the driver while that one goes on."""
    seed = int(os.environ.get("KARROW_SEED") or random.randrange(1 << 32))
    print(f"KARROW_SEED={seed}")  # noqa: T201 - what pytest shows of a failure
    chance = random.Random(seed)
    case.add(BATCHES)
    for _ in range(5):
        if case.done() == case.files:
            case.add(BATCHES)
        batch = chance.randrange(case.done(), case.files)
        points = chance.choice(POINTS).split(",")
        flags = [case.flag() for _ in points]
        lives_on = chance.random() < 0.5
        if lives_on:
            flags[-1].touch()
            points[-1] = f"wait={points[-1]}"
        text = ",".join(f"{one}@{batch}:{flag}" for one, flag in zip(points, flags, strict=True))
        with case.program(text, ledger="topic") as driver:
            dies_or_waits(driver, flags[-1])
        flags[-1].unlink(missing_ok=True)  # what is left of it, if anything is, goes on
    with case.program(ledger="topic") as driver:
        driver.succeeded()
    assert case.found() == case.wanted()
