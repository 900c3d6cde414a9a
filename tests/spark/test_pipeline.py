"""Pipelines in one Spark session: run, run on, bad rows, functions, and what is said before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import karrow
from karrow.errors import ConfigError
from karrow.spark import Pipeline
from karrow.spark.pipeline import PipelineFailed, graph, queries, session
from tests.fix_kafka import NewKafka
from tests.spark.committed import read_committed
from tests.spark.pipelines import SCHEMA, Shop, order

BAD = [b'{"id": 1', b"no json", b"\xff\xfe", None, b""]


@pytest.fixture(scope="module")
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker() as made:
        yield made


@pytest.fixture
def shop(broker: karrow.Broker, tmp_path: Path) -> Shop:
    return Shop(broker.bootstrap, tmp_path)


def run_and_run_on(shop: Shop, spark: SparkSession) -> None:
    """Two runs with --once: nothing is lost in between, nothing comes twice."""
    shop.send(order(0), order(1, cents=50), order(2, "bob"), *BAD, order(3, minute=1))
    first = shop.pipeline().run(spark, once=True)
    assert {query.name: query.rows_in for query in first.queries} == {
        "totals": 9,
        "raw": 9,
        "orders.dead-letter": 9,
    }
    assert first.ended == "finished"
    assert shop.raw() == [0, 1, 2, 3]
    assert shop.totals() == [], "the minute may still get orders, ten seconds late"
    shop.send(order(4, minute=1), order(5, minute=5), b"late and bad", key="ann")
    second = shop.pipeline().run(spark, once=True)
    assert {query.name: query.rows_out for query in second.queries} == {
        "totals": 3,
        "raw": 2,
        "orders.dead-letter": 1,
    }
    assert shop.raw() == [0, 1, 2, 3, 4, 5]
    assert shop.totals() == [("ann", 0, 2, 150), ("ann", 1, 2, 200), ("bob", 0, 1, 100)]
    bad = [message.value() for message in shop.bad()]
    # What had no value has none there either, and is no empty one.
    assert sorted(bad, key=repr) == sorted([*BAD, b"late and bad"], key=repr)
    third = shop.pipeline().run(spark, once=True)
    assert [query.rows_in for query in third.queries] == [0, 0, 0]


@pytest.mark.gate
def test_a_run_goes_on_where_the_last_one_was(shop: Shop, spark: SparkSession) -> None:
    run_and_run_on(shop, spark)
    keys = {message.value(): message.key() for message in shop.bad()}
    assert keys == {b"late and bad": b"ann", **dict.fromkeys(BAD)}
    headers = {message.value(): message.headers() for message in shop.bad()}
    assert headers[b"no json"] == [
        ("error", b"the value is not one JSON object"),
        ("topic", shop.topic("orders").encode()),
        ("partition", b"0"),
        ("offset", b"2"),
    ]
    said = {value: dict(headers[value] or ())["error"] for value in (None, b"")}
    assert said == {None: b"the record has no value", b"": b"the value is not one JSON object"}


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_a_run_goes_on_at_a_real_broker(
    new_kafka: NewKafka, version: str, spark: SparkSession, tmp_path: Path
) -> None:
    run_and_run_on(Shop(new_kafka(version).bootstrap(), tmp_path), spark)


def test_a_pipeline_is_made_in_python(shop: Shop, spark: SparkSession) -> None:
    """The keys of the file are arguments; a path begins in the folder."""
    shop.send(order(0), order(1))
    source = {"topic": shop.topic("orders"), "schema": SCHEMA}
    pipeline = Pipeline(
        folder=shop.folder,
        name=shop.name,
        bootstrap=shop.bootstrap,
        checkpoint="checkpoint",
        sources={"orders": source},
        steps={"first": {"function": lambda rows: rows.where("id = 0"), "inputs": ["orders"]}},
        sinks={"raw": {"from": "first", "kind": "parquet", "path": "raw"}},
    )
    assert pipeline.name == shop.name
    assert repr(pipeline) == f"<Pipeline {shop.name}: 1 sources, 1 steps, 1 sinks>"
    pipeline.run(spark, once=True)
    assert shop.raw() == [0]


def test_at_least_once_and_all_kinds_of_sinks(shop: Shop, spark: SparkSession) -> None:
    """Raw sources and sinks, files by column, the console."""
    shop.send(order(0), order(1), key="ann")
    pipeline = shop.pipeline(
        delivery="at-least-once",
        sources__lines={"topic": shop.topic("orders"), "format": "raw"},
        sources__orders__dead_letter={"topic": shop.topic("bad"), "delivery": "at-least-once"},
        steps__upper={"sql": "SELECT key, upper(CAST(value AS STRING)) AS value FROM lines"},
        sinks__totals={
            "from": "upper",
            "kind": "topic",
            "topic": shop.topic("totals"),
            "format": "raw",
        },
        sinks__raw__partition_by="customer",
        sinks__look={"from": "orders", "kind": "console"},
    )
    pipeline.run(spark, once=True)
    found = read_committed(shop.bootstrap, shop.topic("totals"))
    values = sorted(message.value() or b"" for message in found)
    assert values == [order(0).upper(), order(1).upper()]
    assert {message.key() for message in found} == {b"ann"}
    assert (shop.folder / "raw" / "customer=ann").is_dir()
    assert shop.raw() == [0, 1]


def double(orders: DataFrame, totals: DataFrame) -> DataFrame:
    """A step as a function."""
    assert totals.isStreaming
    twice = f.udf(lambda cents: cents * 2, "bigint")
    return orders.select("id", twice("cents").alias("cents"))


def test_a_step_may_be_a_function(shop: Shop, spark: SparkSession) -> None:
    module = "from pyspark.sql import functions as f\n\ndef text(n):\n    return f'#{n}'\n\n"
    module += (
        "def enrich(rows):\n    return rows.select('id', f.udf(text)('cents').alias('note'))\n"
    )
    (shop.folder / f"{shop.name.replace('-', '_')}.py").write_text(module)
    shop.send(order(7, cents=21))
    pipeline = shop.pipeline(
        steps__doubled={"function": double, "inputs": ["orders", "totals"]},
        steps__noted={"function": f"{shop.name.replace('-', '_')}:enrich", "inputs": ["doubled"]},
        sinks__totals={
            "from": "noted",
            "kind": "topic",
            "topic": shop.topic("totals"),
        },
    )
    pipeline.run(spark, once=True)
    (message,) = read_committed(shop.bootstrap, shop.topic("totals"))
    assert message.value() == b'{"id":7,"note":"#42"}'


def trigger_of(query: StreamingQuery) -> str:
    """What Spark itself was told of when a query is to look for rows."""
    execution: Any = query._jsq
    return str(execution.streamingQuery().trigger().toString())


def test_a_trigger_is_that_of_the_sink_or_else_of_the_pipeline(
    shop: Shop, spark: SparkSession
) -> None:
    def told(*, once: bool = False, **changes: Any) -> dict[str, str]:
        with shop.pipeline(delivery="at-least-once", **changes).start(spark, once=once) as running:
            return {name: trigger_of(query) for name, query in running.queries.items()}

    assert told(trigger="1 hour", sinks__raw__trigger="2 minutes") == {
        "totals": "ProcessingTimeTrigger(3600000)",
        "raw": "ProcessingTimeTrigger(120000)",
        "orders.dead-letter": "ProcessingTimeTrigger(3600000)",
    }
    alone: dict[str, Any] = {"sources__orders__dead_letter": None, "sinks__totals": None}
    assert told(**alone) == {"raw": "ProcessingTimeTrigger(0)"}, "as soon as there is data"
    own = told(**alone, sinks__raw__trigger="2 minutes", once=True)
    assert own["raw"].startswith("AvailableNowTrigger")


@pytest.mark.parametrize("by_pattern", [True, False])
def test_a_source_reads_all_of_its_topics(
    shop: Shop, spark: SparkSession, *, by_pattern: bool
) -> None:
    """Each row knows which one it is of, a bad one too; other topics of the broker are left out."""
    others = [f"{shop.name}.north", f"{shop.name}.south"]
    with karrow.Client(shop.bootstrap) as client:
        for number, topic in enumerate(others):
            client.create_topic(topic, 1)
            client.produce(topic, [order(number), f"bad {number}".encode()], partition=0)
    shop.send(order(7))
    pipeline = shop.pipeline(
        sources__orders__topic=None if by_pattern else others,
        sources__orders__pattern=rf"^{shop.name}\.(nor|sou)th$" if by_pattern else None,
        sources__orders__kafka_column="place",
        steps__totals__sql="SELECT id, place.topic AS place FROM orders",
        sinks__totals__key=None,
        sinks__raw=None,
    )
    pipeline.run(spark, once=True)
    found = read_committed(shop.bootstrap, shop.topic("totals"))
    rows = [json.loads(message.value() or b"") for message in found]
    assert sorted((row["id"], row["place"]) for row in rows) == list(enumerate(others))
    bad = {message.value(): dict(message.headers() or ())["topic"] for message in shop.bad()}
    assert bad == {b"bad 0": others[0].encode(), b"bad 1": others[1].encode()}
    assert len(shop.bad()) == 2


@pytest.mark.gate
def test_a_bad_row_without_a_dead_letter_stops_it(shop: Shop, spark: SparkSession) -> None:
    shop.send(order(0), order(1), b'{"id": 2, "customer": "x", "cents": "many"}')
    changes: dict[str, Any] = {"sources__orders__dead_letter": None, "sinks__totals": None}
    with pytest.raises(PipelineFailed) as caught:
        shop.pipeline(**changes).run(spark, once=True)
    text = str(caught.value)
    assert "[sinks.raw]" in text
    assert f"{shop.topic('orders')}-0 has at offset 1 a bad row: cents is no BIGINT" in text
    assert "\n" not in text
    assert shop.raw() == []
    dropped = shop.pipeline(**changes, sources__orders__bad_rows="drop")
    dropped.run(spark, once=True)
    assert shop.raw() == [0, 1]


# ---- what is said before data moves


def nowhere(tmp_path: Path) -> Shop:
    """A shop whose broker nobody asks."""
    shop = Shop.__new__(Shop)
    shop.bootstrap, shop.folder, shop.name = "nowhere:1", tmp_path, "shop"
    return shop


@pytest.mark.gate
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps__totals__sql": "SELECT * FROM ordrs"}, "sql names no table 'ordrs'; did you mean"),
        ({"steps__totals__sql": "SELECT custmer FROM orders"}, "[steps.totals] sql [UNRESOLVED"),
        ({"steps__totals__sql": "SELEC 1"}, "[steps.totals] sql [PARSE_SYNTAX_ERROR]"),
        ({"sources__orders__schema": "id BIGNT"}, "[sources.orders] schema [UNSUPPORTED_DATATYPE]"),
        ({"sources__orders__schema": "at TIMESTAMP, AT INT"}, "schema has two columns 'at'"),
        (
            {"sources__orders__schema": "v VARCHAR(9), at TIMESTAMP"},
            "table schema.; texts are STRI",
        ),
        (
            {"sources__orders__schema": "m MAP<INT, INT>, at TIMESTAMP"},
            "[sources.orders] schema [D",
        ),
        (
            {"sources__orders__schema": "_Karrow_bad INT"},
            "schema cannot have a column '_karrow_bad'",
        ),
        (
            {"sources__orders__options": {"includeHeaders": "maybe"}},
            "includeHeaders='maybe' is nei",
        ),
        (
            {"spark": {"spark.sql.shuffle.partitions": "many"}},
            "spark spark.sql.shuffle.partitions [INVALID_CONF_VALUE.TYPE_MISMATCH] The value",
        ),
        (
            {"steps__totals__sql": "SELECT customer, id AS x, cents AS X FROM orders"},
            "[sinks.totals] [AMBIGUOUS_REFERENCE] Reference `",
        ),
        ({"sources__orders__watermark__column": "att"}, "names no column 'att'; did you mean 'at'"),
        ({"sources__orders__watermark__column": "id"}, "watermark column 'id' is bigint"),
        ({"sources__orders__options": {"maxOffsetPerTrigger": 1}}, "did you mean 'maxOffsetsPerTr"),
        ({"sources__orders__options": {"subscribe": "x"}}, "has a key of its own; 'topic'"),
        ({"sources__orders__start": "soon"}, "[sources.orders] start"),
        (
            {"sources__orders__kafka": {"sasl.mechanisn": "x"}},
            "[sources.orders] there is no option 'kafka.sasl.mech",
        ),
        ({"sources__orders__watermark": None}, "[sinks.totals] mode append: "),
        ({"sinks__totals__key": "custmer"}, "[sinks.totals] key names no column 'custmer'; did"),
        ({"sinks__totals__format": "raw", "sinks__totals__key": None}, "no column 'value'"),
        ({"sinks__totals__options": {"ledgr": "x"}}, "is no option of exactly-once; did you mean"),
        ({"sinks__raw__partition_by": ["x"]}, "[sinks.raw] partition_by names no column 'x'"),
        (
            {"steps__totals__sql": "SELECT id, id FROM orders"},
            "[sinks.totals] from 'totals' has two columns 'id'; name them with AS",
        ),
        (
            {
                "steps__both": {"sql": "SELECT a.id, b.ID FROM orders a JOIN orders b USING (at)"},
                "sinks__raw__from": "both",
            },
            "[sinks.raw] from 'both' has two columns 'ID'; name them with AS",
        ),
        (
            {"steps__f": {"function": "os:getcwd", "inputs": "orders"}},
            "[steps.f] function os:getcw",
        ),
        (
            {"steps__f": {"function": len, "inputs": "orders"}},
            "[steps.f] function raised TypeError",
        ),
        (
            {"steps__a": {"sql": "SELECT * FROM b"}, "steps__b": {"sql": "SELECT * FROM a"}},
            "[steps.a] sql forms a cycle: 'a' uses 'b', which uses 'a'",
        ),
        (
            {"steps__a": {"sql": "SELECT * FROM b"}, "steps__b": {"sql": "SELECT * FROM orders"}},
            "[steps.a] sql uses 'b', which comes later",
        ),
    ],
)
def test_what_is_wrong_is_found_without_data(
    spark: SparkSession, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        nowhere(tmp_path).pipeline(**changes).check(spark)
    assert message in str(caught.value)
    assert str(caught.value).startswith("pipeline shop: ")
    assert "\n" not in str(caught.value)


def test_settings_of_spark_that_are_elsewhere_are_not_shown(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SECRET", "hunter2")
    pipeline = nowhere(tmp_path).pipeline(spark={"spark.sql.shuffle.partitions": "env:SHOP_SECRET"})
    with pytest.raises(ConfigError, match="The value 'env:SHOP_SECRET' in the config") as caught:
        pipeline.check(spark)
    assert "hunter2" not in str(caught.value)


@pytest.mark.gate
def test_plans_of_spark_show_no_secrets(spark: SparkSession, tmp_path: Path) -> None:
    """Streams have their options there. What is hidden is up to the session that a query is of."""
    kafka = {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "org.Plain required username='me' password='hunter2';",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----hunter2",
        "ssl.key.password": "hunter2",
        "client.id": "hunter2",
    }
    pipeline = nowhere(tmp_path).pipeline(sources__orders__kafka=kafka)
    sessions: Any = spark._jvm and spark._jvm.org.apache.spark.sql.classic.SparkSession
    spark.conf.set(session.REDACTED, r"client\.id")
    try:
        with session.opened(pipeline.definition, spark) as own:
            table = graph.build(pipeline.definition, own).tables["orders"]
            sessions.setActiveSession(own._jsparkSession)
            plan = table._jdf.queryExecution().toString()
    finally:
        sessions.setActiveSession(spark._jsparkSession)
        spark.conf.unset(session.REDACTED)
    assert "nowhere:1" in plan
    assert "hunter2" not in plan


@pytest.mark.parametrize("delay", ["10 s", "500 ms", "1 minute 30s"])
def test_short_words_for_times_are_spark_s_own(
    spark: SparkSession, tmp_path: Path, delay: str
) -> None:
    pipeline = nowhere(tmp_path).pipeline(
        trigger=delay, sources__orders__watermark__delay=delay, checkpoint="there"
    )
    pipeline.check(spark)
    made = graph.build(pipeline.definition, spark)
    flow = queries.flows(pipeline.definition, lambda _: made)[1]
    assert flow.trigger is not None
    flow.rows.writeStream.trigger(processingTime=flow.trigger)


@pytest.mark.gate
def test_queries_have_no_part_of_a_plan_in_common(spark: SparkSession, tmp_path: Path) -> None:
    """Spark keeps a set without a lock in every plan; queries that shared one broke it for good."""
    pipeline = nowhere(tmp_path).pipeline()
    seen = dict.fromkeys(queries.checkpoints(pipeline.definition), pipeline.definition)
    flows = pipeline._flows(spark, seen)
    parts = [set(plan_parts(spark, flow.rows)) for flow in flows]
    assert len(parts) == 3
    assert all(len(one) > 3 for one in parts)
    assert not any(one & other for one, other in combinations(parts, 2))


def plan_parts(spark: SparkSession, rows: DataFrame) -> Iterator[int]:
    """Who the nodes of a frame's plan are, and the sets of frames in them."""
    java: Any = spark._jvm
    datasets = java.org.apache.spark.sql.classic.Dataset.DATASET_ID_TAG()
    to_do = [rows._jdf.queryExecution().analyzed()]
    while to_do:
        node = to_do.pop()
        yield java.System.identityHashCode(node)
        noted = node.getTagValue(datasets)
        if noted.isDefined():
            yield java.System.identityHashCode(noted.get())
        to_do += [node.children().apply(index) for index in range(node.children().size())]


@pytest.mark.gate
@pytest.mark.parametrize("name", ["(cents / 1.19)", "a`b"])
def test_columns_are_found_by_whatever_name_they_have(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """SQL names a column without a name by its expression, which may have dots."""
    quoted = name.replace("`", "``")
    shop = nowhere(tmp_path)
    sink = {"from": "named", "kind": "topic", "topic": "out", "key": name}
    pipeline = shop.pipeline(
        steps__named={
            "sql": f"SELECT id, at AS `{quoted}` FROM orders",
            "watermark": {"column": name, "delay": "1 second"},
        },
        sinks__named=sink,
    )
    pipeline.check(spark)
    rows = spark.sql(f"SELECT 7 AS id, 'x' AS `{quoted}`")
    (record,) = graph._records(pipeline.definition.sinks["named"], rows).collect()
    assert (record.key, json.loads(record.value)) == ("x", {"id": 7, name: "x"})


@pytest.mark.gate
def test_a_check_says_what_it_left_out(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOP_LOGIN", raising=False)
    secret = shop.pipeline(kafka={"sasl.jaas.config": "env:SHOP_LOGIN"})
    assert secret.check(spark).unchecked == (
        "env:SHOP_LOGIN is not set here, nor what it is for",
        "topics and brokers, which were not asked",
    )
    assert "kafka.sasl.jaas.config = env:SHOP_LOGIN" in str(secret.plan(spark))
    for asking in (secret.start, partial(secret.check, ask_brokers=True)):
        with pytest.raises(ConfigError, match="stands in the environment, which has no SHOP_LOGIN"):
            asking(spark)
    assert shop.pipeline().check(spark, ask_brokers=True).unchecked == ()
    other = shop.pipeline(sinks__totals__topic="missing")
    with pytest.raises(ConfigError, match=r"\[sinks.totals\] topic 'missing': .*; create it at"):
        other.start(spark)


@pytest.mark.gate
@pytest.mark.parametrize(
    ("written", "known", "told"),
    [
        (["0"], [], "batches up to 0, and the checkpoint {} knows none: "),
        (["9.compact", "10"], [], "batches up to 10, and the checkpoint {} knows none: "),
        (["9.compact", ".10.crc"], ["7", "8"], "up to 9, and the checkpoint {} knows none after 8"),
    ],
)
def test_files_of_another_checkpoint_are_refused_before_anything_starts(
    spark: SparkSession, shop: Shop, written: list[str], known: list[str], told: str
) -> None:
    """Spark would pass over batches whose numbers are in the folder, and lose their rows."""
    checkpoint = shop.folder / "checkpoint" / "raw"
    for log, names in (
        (shop.folder / "raw" / "_spark_metadata", written),
        (checkpoint / "offsets", known),
    ):
        log.mkdir(parents=True)
        for name in names:
            (log / name).touch()
    with pytest.raises(ConfigError) as caught:
        shop.pipeline().start(spark)
    assert f"[sinks.raw] path {shop.folder}/raw has files of" in str(caught.value)
    assert told.format(checkpoint) in str(caught.value)
    assert "bring the checkpoint back" in str(caught.value)
    assert spark.streams.active == []
    assert not (shop.folder / "checkpoint" / "totals").exists()


def test_a_deleted_checkpoint_does_not_lose_rows_of_files(shop: Shop, spark: SparkSession) -> None:
    changes: dict[str, Any] = {"sources__orders__dead_letter": None, "sinks__totals": None}
    shop.send(order(0), order(1))
    shop.pipeline(**changes).run(spark, once=True)
    shutil.rmtree(shop.folder / "checkpoint")
    shop.send(order(2))
    with pytest.raises(ConfigError, match=r"\[sinks.raw\] path .* batches up to 0, and the check"):
        shop.pipeline(**changes).run(spark, once=True)
    shop.pipeline(**changes, sinks__raw__path="anew").run(spark, once=True)
    assert sorted(row.id for row in spark.read.parquet(f"{shop.folder}/anew").collect()) == [
        0,
        1,
        2,
    ]


def test_a_folder_that_cannot_be_asked_is_named(shop: Shop, spark: SparkSession) -> None:
    other = shop.pipeline(sinks__raw__path="nosuch://host/x")
    with pytest.raises(
        ConfigError, match=r"\[sinks.raw\] path nosuch://host/x: .*nosuch"
    ) as caught:
        other.start(spark)
    assert "\n" not in str(caught.value)


def test_a_running_pipeline_can_be_stopped(shop: Shop, spark: SparkSession) -> None:
    shop.send(order(0), b"bad")
    with shop.pipeline(trigger="100 milliseconds").start(spark) as running:
        assert not running.wait(1.0)
        assert set(running.queries) == {"totals", "raw", "orders.dead-letter"}
        while sum(tracker.batches for tracker in running.trackers) < 3:
            running.look()
        summary = running.stop()
    assert summary.ended == "stopped"
    assert not running.active
    assert summary is running.stop()
    assert Pipeline.from_dict(shop.values(), folder=shop.folder).name == shop.name
