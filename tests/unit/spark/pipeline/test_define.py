"""A pipeline's file: what it means, and the one line that says what is wrong with it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from karrow.errors import ConfigError
from karrow.spark import Pipeline
from karrow.spark.pipeline.define import define, read_file
from karrow.spark.pipeline.definition import Definition

FILE: dict[str, Any] = {
    "name": "orders",
    "bootstrap": "localhost:9092",
    "checkpoint": "checkpoint",
    "sources": {
        "orders": {
            "topic": "orders",
            "schema": "id BIGINT NOT NULL, at TIMESTAMP",
            "watermark": {"column": "at", "delay": "10 seconds"},
            "dead_letter": "orders.bad",
        }
    },
    "steps": {
        "totals": {"sql": "SELECT count(*) AS n FROM orders"},
        "rich": {"function": "shop:enrich", "inputs": ["orders", "totals"]},
    },
    "sinks": {
        "totals": {"from": "totals", "kind": "topic", "topic": "totals"},
        "raw": {"from": "orders", "kind": "parquet", "path": "raw"},
        "look": {"from": "rich", "kind": "console"},
    },
}
MISSING = object()


def changed(path: str, value: object) -> dict[str, Any]:
    """The file with one thing different; its place is given with dots."""
    found = copy.deepcopy(FILE)
    *tables, key = path.split(".")
    inner = found
    for table in tables:
        inner = inner.setdefault(table, {})
    if value is MISSING:
        del inner[key]
    else:
        inner[key] = value
    return found


def read(values: dict[str, Any], bootstrap: str | None = None) -> Definition:
    return define(values, origin="o.toml", folder=Path("/data"), bootstrap=bootstrap)


def test_the_keys_of_a_file_are_the_arguments_of_a_pipeline(tmp_path: Path) -> None:
    made = Pipeline(folder=tmp_path, **FILE)
    assert made.definition == Pipeline.from_dict(FILE, folder=tmp_path).definition
    assert made.definition.sinks["raw"].path == str(tmp_path / "raw")
    with pytest.raises(ConfigError, match=r"^pipeline orders has no key 'sinc'; did you mean"):
        Pipeline(**FILE, sinc={})
    with pytest.raises(ConfigError, match=r"^pipeline has no 'name'"):
        Pipeline(sources={})


def test_a_file_is_read() -> None:
    found = read(FILE)
    source = found.sources["orders"]
    assert source.topics == ("orders",)
    assert source.start == "earliest"
    assert source.dead_letter is not None
    assert source.dead_letter.sink_id == "orders.orders.dead-letter"
    assert source.dead_letter.delivery == "exactly-once"
    assert found.sinks["totals"].sink_id == "orders.totals"
    assert found.sinks["totals"].delivery == "at-least-once"
    assert found.sinks["raw"].path == "/data/raw"
    assert found.checkpoint == "/data/checkpoint"
    assert found.steps["rich"].inputs == ("orders", "totals")


def test_the_top_is_for_all() -> None:
    values = changed("delivery", "exactly-once")
    values["kafka"] = {"security": {"protocol": "SSL"}, "client.id": "x"}
    values["sinks"]["totals"]["kafka"] = {"client.id": "y"}
    sink = read(values).sinks["totals"]
    assert sink.delivery == "exactly-once"
    assert {one.name: one.value for one in sink.kafka} == {
        "kafka.security.protocol": "SSL",
        "kafka.client.id": "y",
    }


def test_the_top_is_used_where_it_applies() -> None:
    """Names that only producers or only consumers have, and dead letters, which are produced."""
    top = {"client.id": "x", "linger.ms": 5, "max.poll.records": 9, "sasl.username": "me"}
    values = changed("kafka", top)
    values["sources"]["orders"]["kafka"] = {"Max.Partition.Fetch.Bytes": 7, "client.id": "y"}
    found = read(values)
    source, sink = found.sources["orders"], found.sinks["totals"]
    assert source.dead_letter is not None
    assert {one.name: one.value for one in source.kafka} == {
        "kafka.client.id": "y",
        "kafka.max.poll.records": "9",
        "kafka.sasl.username": "me",
        "kafka.Max.Partition.Fetch.Bytes": "7",
    }
    for produced, client in ((source.dead_letter.kafka, "y"), (sink.kafka, "x")):
        assert {one.name: one.value for one in produced} == {
            "kafka.client.id": client,
            "kafka.linger.ms": "5",
            "kafka.sasl.username": "me",
        }


def test_a_caller_goes_before_the_file() -> None:
    assert read(FILE, "other:1").sources["orders"].bootstrap == "other:1"


@pytest.mark.parametrize("path", ["s3a://bucket/x", "hdfs://host/x", "/tmp/x"])
def test_addresses_and_whole_paths_stay(path: str) -> None:
    assert read(changed("checkpoint", path)).checkpoint == path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10 seconds", "10 seconds"),
        ("10 s", "10 seconds"),
        ("500ms", "500 milliseconds"),
        (" 1 Minute  30S ", "1 minute 30 seconds"),
        ("2 days", "2 days"),
    ],
)
def test_times_are_in_the_words_of_spark(text: str, found: str) -> None:
    values = changed("trigger", text)
    values["sinks"]["raw"]["trigger"] = text
    values["sources"]["orders"]["watermark"]["delay"] = text
    read_so = read(values)
    watermark = read_so.sources["orders"].watermark
    assert watermark is not None
    assert (read_so.trigger, read_so.sinks["raw"].trigger, watermark.delay) == (found,) * 3


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schmea", "x", "o.toml has no key 'schmea'; the keys are"),
        ("check_point", "x", "o.toml has no key 'check_point'; did you mean 'checkpoint'?"),
        ("name", MISSING, "o.toml has no 'name'"),
        ("name", "a b", "o.toml: name cannot be 'a b'"),
        ("bootstrap", MISSING, "o.toml: [sources.orders] has no 'bootstrap'"),
        ("checkpoint", MISSING, "o.toml has no 'checkpoint'"),
        ("delivery", "exactly_once", "delivery cannot be 'exactly_once'; did you mean"),
        ("trigger", "soon", "o.toml: trigger cannot be 'soon'; a time such as '10 seconds'"),
        (
            "kafka",
            {"linger.msec": 1},
            "o.toml: kafka linger.msec is no property of Kafka's clients; did you mean 'linger.ms'",
        ),
        ("sources", {}, "o.toml has no sources"),
        ("sinks", {}, "o.toml has no sinks"),
        ("sinks", [1], "o.toml: sinks has to hold tables such as [sinks.name]"),
        ("sources.orders", 5, "o.toml: [sources.orders] has to be a table"),
        (
            "sources.orders.schmea",
            "x",
            "[sources.orders] has no key 'schmea'; did you mean 'schema'",
        ),
        ("sources.orders.schema", MISSING, "[sources.orders] has no 'schema', which json needs"),
        ("sources.orders.topic", MISSING, "[sources.orders] has no topic"),
        ("sources.orders.pattern", "a.*", "[sources.orders] has both"),
        ("sources.orders.topic", 5, "[sources.orders] topic has to be a text or a list of texts"),
        (
            "sources.orders.format",
            "avro",
            "[sources.orders] format cannot be 'avro'; there are json",
        ),
        ("sources.orders.dead_letter", "orders", "dead_letter is the topic that is read"),
        (
            "sources.orders.dead_letter",
            {"topik": "x"},
            "[sources.orders.dead_letter] has no 'topic'",
        ),
        ("sources.orders.bad_rows", "drop", "bad_rows and dead_letter exclude each other"),
        ("sources.orders.watermark", {"column": "at"}, "[sources.orders.watermark] has no 'delay'"),
        ("sources.orders.watermark", "at", "[sources.orders.watermark] has to be a table"),
        ("sources.orders.options", {"a": [1]}, "options a has to be a plain value"),
        ("sources.a-b", {"topic": "x", "format": "raw"}, "[sources.a-b] cannot have that name"),
        ("sources.Totals", {"topic": "x", "format": "raw"}, "has the name of [sources.Totals]"),
        ("sources.raw.topic", "x", "[sources.raw] has no 'schema'"),
        ("steps.totals", {}, "[steps.totals] has neither sql nor function"),
        ("steps.totals.function", "a:b", "[steps.totals] has both sql and function"),
        ("steps.totals.inputs", ["orders"], "[steps.totals] inputs is for functions"),
        (
            "steps.rich.function",
            "shop",
            "[steps.rich] function is 'shop'; it has to be 'module:func",
        ),
        ("steps.rich.function", 5, "[steps.rich] function is 5"),
        ("steps.rich.inputs", MISSING, "[steps.rich] has no 'inputs'"),
        ("steps.rich.inputs", "ordrs", "[steps.rich] inputs names no table 'ordrs'; did you mean"),
        ("steps.rich.inputs", "rich", "[steps.rich] inputs forms a cycle: 'rich' uses itself"),
        ("sinks.totals.kind", MISSING, "[sinks.totals] has no 'kind'; one of topic, parquet"),
        ("sinks.totals.kind", "topics", "[sinks.totals] kind cannot be 'topics'; did you mean"),
        ("sinks.totals.topic", MISSING, "[sinks.totals] has no 'topic'"),
        ("sinks.totals.from", MISSING, "[sinks.totals] has no 'from'"),
        ("sinks.totals.from", "total", "[sinks.totals] from names no table 'total'; did you mean"),
        ("sinks.totals.path", "x", "[sinks.totals] (a topic sink) has no key 'path'"),
        ("sinks.totals.sink_id", "x", "[sinks.totals] sink_id is for delivery exactly-once"),
        ("sinks.totals.tasks", 0, "[sinks.totals] tasks has to be 1 or more"),
        ("sinks.totals.tasks", "2", "[sinks.totals] tasks has to be a whole number"),
        ("sinks.totals.mode", "replace", "[sinks.totals] mode cannot be 'replace'"),
        ("sinks.totals.mode", "update", "[sinks.totals] mode cannot be 'update'; Spark has it for"),
        ("sinks.raw.path", MISSING, "[sinks.raw] has no 'path'"),
        ("sinks.raw.topic", "x", "[sinks.raw] (a parquet sink) has no key 'topic'"),
        ("sinks.raw.mode", "update", "[sinks.raw] mode cannot be 'update'"),
        ("sinks.look.delivery", "exactly-once", "(a console sink) has no key 'delivery'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(path: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(changed(path, value))
    assert message in str(caught.value)
    assert str(caught.value).startswith("o.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pattern", ["orders.*", "orders", r"\.bad$", "^orders\\..*"])
def test_a_pattern_may_not_read_its_own_dead_letters(pattern: str) -> None:
    values = changed("sources.orders.topic", MISSING)
    values["sources"]["orders"]["pattern"] = pattern
    with pytest.raises(ConfigError, match=r"\[sources.orders\] dead_letter is a topic that"):
        read(values)


@pytest.mark.parametrize("pattern", ["^orders$", r"^orders\.(?!bad$)", "payments.*"])
def test_a_pattern_that_leaves_out_its_dead_letters_is_fine(pattern: str) -> None:
    values = changed("sources.orders.topic", MISSING)
    values["sources"]["orders"]["pattern"] = pattern
    assert read(values).sources["orders"].pattern == pattern


def test_a_pattern_is_a_regular_expression() -> None:
    values = changed("sources.orders.topic", MISSING)
    values["sources"]["orders"]["pattern"] = "orders("
    with pytest.raises(ConfigError, match=r"\[sources.orders\] pattern cannot be 'orders\('"):
        read(values)


def test_raw_sources_parse_nothing() -> None:
    values = changed("sources.orders", {"topic": "orders", "format": "raw", "dead_letter": "bad"})
    with pytest.raises(ConfigError, match="dead_letter is of no use with format raw"):
        read(values)


def test_steps_that_need_each_other_form_a_cycle() -> None:
    values = changed("steps", {})
    values["steps"] = {
        "a": {"function": "m:f", "inputs": ["b"]},
        "b": {"sql": "SELECT * FROM c -- not a"},
        "c": {"sql": "SELECT 'b' FROM a"},
    }
    with pytest.raises(ConfigError, match="'a' uses 'b', which uses 'a'"):
        read(values)


def test_a_step_knows_no_later_one() -> None:
    values = changed("steps", {})
    values["steps"] = {
        "a": {"function": "m:f", "inputs": ["b"]},
        "b": {"sql": "SELECT 'a' FROM orders -- a"},
    }
    with pytest.raises(ConfigError, match="uses 'b', which comes later"):
        read(values)


def test_two_sinks_cannot_share_an_id() -> None:
    values = changed("delivery", "exactly-once")
    values["sinks"]["totals"]["sink_id"] = "orders.orders.dead-letter"
    with pytest.raises(ConfigError, match=r"has the sink id .* of \[sources.orders\]"):
        read(values)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("raw", "raw"),
        ("raw", "./x//../raw/"),
        ("raw", "/data/raw"),
        ("/data/raw", "file:/data/raw"),
        ("raw", "FILE:///data/raw/"),
        ("s3a://lake/raw", "S3A://lake/raw/."),
    ],
)
def test_two_sinks_cannot_share_a_path(one: str, other: str) -> None:
    values = changed("sinks.raw.path", one)
    values["sinks"]["more"] = {"from": "orders", "kind": "parquet", "path": other}
    with pytest.raises(ConfigError, match=r"\[sinks.more\] has the path of \[sinks.raw\]; a fold"):
        read(values)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("raw", "raw2"),
        ("raw", "raw/x"),
        ("s3a://lake/raw", "s3a://sea/raw"),
        ("s3a://lake/raw", "gs://lake/raw"),
        ("s3a://lake/a#1", "s3a://lake/a#2"),
    ],
)
def test_sinks_have_paths_of_their_own(one: str, other: str) -> None:
    values = changed("sinks.raw.path", one)
    values["sinks"]["more"] = {"from": "orders", "kind": "parquet", "path": other}
    assert len(read(values).sinks) == 4


def test_only_the_console_goes_without_a_checkpoint() -> None:
    values = changed("checkpoint", MISSING)
    del values["sources"]["orders"]["dead_letter"]
    values["sinks"] = {"look": {"from": "orders", "kind": "console"}}
    assert read(values).checkpoint is None


# ---- the environment and secrets


def test_texts_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVERS", "there:9092")
    assert read(changed("bootstrap", "env:SERVERS")).sinks["totals"].bootstrap == "there:9092"
    monkeypatch.delenv("SERVERS")
    with pytest.raises(ConfigError, match="bootstrap stands in the environment, which has no SERV"):
        read(changed("bootstrap", "env:SERVERS"))


def test_settings_are_read_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGIN", raising=False)
    found = read(changed("kafka", {"sasl.jaas.config": "env:LOGIN"}))
    (setting,) = found.sources["orders"].kafka
    assert not setting.known
    with pytest.raises(ConfigError, match=r"o.toml: kafka sasl.jaas.config stands in the envir"):
        _ = setting.value
    monkeypatch.setenv("LOGIN", "hunter2")
    assert setting.value == "hunter2"
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    "name", ["sasl.jaas.config", "ssl.key.password", "sasl.password", "ssl.keystore.key"]
)
def test_secrets_are_not_shown(name: str) -> None:
    found = read(changed("kafka", {name: "hunter2"}))
    assert "hunter2" not in repr(found)
    assert f"kafka.{name} = ***" in repr(found)


def test_secrets_are_not_shown_where_they_are_no_texts() -> None:
    with pytest.raises(ConfigError, match=r"sasl.password has to be .* not a list") as caught:
        read(changed("kafka", {"sasl.password": ["hunter2"]}))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["spark.hadoop.fs.azure.account.key.me.dfs.core.windows.net", "spark.hadoop.fs.s3a.secret.key"],
)
def test_secrets_of_spark_are_not_shown(name: str) -> None:
    assert repr(read(changed("spark", {name: "hunter2"})).spark[0]) == f"{name} = ***"


# ---- files


def test_a_file_has_to_be_there_and_be_toml(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with pytest.raises(ConfigError, match=r"there is no file .*x\.toml"):
        read_file(path)
    path.write_text("name = \n")
    with pytest.raises(ConfigError, match=r"x\.toml is no TOML: .*line 1"):
        read_file(path)
    path.write_text('[steps.a]\nsql = "x"\n[steps.a]\n')
    with pytest.raises(ConfigError, match="is no TOML"):
        read_file(path)
