"""Which brokers are asked for topics, and with what login."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from karrow.config import ClientConfig, ConsumerConfig, ProducerConfig, Scram
from karrow.errors import ConfigError
from karrow.spark import pool
from karrow.spark.pipeline import session
from karrow.spark.pipeline.brokers import check_topics
from karrow.spark.pipeline.checks import check_environment, check_options, unchecked
from karrow.spark.pipeline.define import define
from karrow.spark.pipeline.definition import Definition
from karrow.spark.pipeline.graph import Graph
from karrow.spark.pipeline.queries import flows
from karrow.spark.pipeline.settings import letter_options
from karrow.spark.pipeline.table import Setting
from karrow.spark.writing.terms import Terms

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
ENVIRONMENT = {"credentials": "environment"}
TOPIC = {"kind": "topic", "topic": "t"}


class Asked:
    """Clients that know every topic, with the options that they were made of."""

    def __init__(self) -> None:
        self.configs: list[ClientConfig] = []

    def client(self, config: ClientConfig) -> Asked:
        self.configs.append(config)
        return self

    def metadata(self, names: Sequence[str]) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(error=None) for name in names})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    monkeypatch.setattr(pool, "client", made.client)
    return made


def shop(
    kafka: dict[str, Any], source: dict[str, Any] | None = None, sink: dict[str, Any] | None = None
) -> Definition:
    values = {
        "name": "shop",
        "bootstrap": "h:1",
        "checkpoint": "/state",
        "kafka": kafka,
        "sources": {
            "orders": {"topic": "o", "schema": "n INT", "dead_letter": "bad", **(source or {})}
        },
        "sinks": {"out": {"from": "orders", **(sink or TOPIC)}},
    }
    return define(values, origin="o.toml", folder=Path("/data"))


def letters(definition: Definition) -> dict[str, str]:
    source = definition.sources["orders"]
    assert source.dead_letter is not None
    return letter_options(source, source.dead_letter)


def test_options_of_consumers_and_producers_are_no_hindrance(asked: Asked) -> None:
    source = {"kafka": {"max.partition.fetch.bytes": 7}}
    sink = {**TOPIC, "kafka": {"compression.type": "lz4", "linger.ms": 5}}
    check_topics(shop({"acks": "all", "max.poll.records": 9}, source, sink))
    assert list(map(type, asked.configs)) == [ConsumerConfig, ProducerConfig, ProducerConfig]


def test_a_login_by_credentials_is_used_for_topics_too(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KARROW_SASL_MECHANISM", "SCRAM-SHA-512")
    monkeypatch.setenv("KARROW_SASL_USERNAME", "me")
    monkeypatch.setenv("KARROW_SASL_PASSWORD", "secret")
    options = {"options": ENVIRONMENT}
    check_topics(shop(LOGIN, options, {**TOPIC, **options, "delivery": "exactly-once"}))
    assert [isinstance(config.sasl, Scram) for config in asked.configs] == [True] * 3


def test_what_is_wrong_with_a_login_has_its_place(asked: Asked) -> None:
    with pytest.raises(ConfigError, match=r"^o.toml: \[sources.orders\] kafka.sasl.jaas.config"):
        check_topics(shop(LOGIN))
    assert asked.configs == []


def test_dead_letters_have_the_sources_login_and_not_how_it_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = {"kafka": {"max.partition.fetch.bytes": 7}, "options": {"Credentials": "environment"}}
    found = letters(shop({**LOGIN, "isolation.level": "read_committed"}, source))
    assert found == {
        "kafka.bootstrap.servers": "h:1",
        "topic": "bad",
        "credentials": "environment",
        **{f"kafka.{name}": value for name, value in LOGIN.items()},
    }
    monkeypatch.setenv("KARROW_SASL_MECHANISM", "SCRAM-SHA-512")
    monkeypatch.setenv("KARROW_SASL_USERNAME", "me")
    monkeypatch.setenv("KARROW_SASL_PASSWORD", "secret")
    assert isinstance(Terms.read(found).config.sasl, Scram)


def test_what_only_dead_letters_need_has_to_be_set_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHOP_ACKS", raising=False)
    definition = shop({"acks": "env:SHOP_ACKS"}, sink={"kind": "console"})
    (told,) = unchecked(definition, asked=True)
    assert told == "env:SHOP_ACKS is not set here, nor what it is for"
    with pytest.raises(ConfigError, match="has no SHOP_ACKS"):
        check_environment(definition)


def rows() -> Graph:
    schema = StructType([StructField("value", StringType())])
    frame: Any = SimpleNamespace(schema=schema)
    return Graph({}, {"out": frame}, {"orders": frame})


@pytest.mark.parametrize("kafka", [{}, LOGIN])
def test_a_login_that_the_environment_lacks_is_not_checked_and_not_started_without(
    monkeypatch: pytest.MonkeyPatch, kafka: dict[str, str]
) -> None:
    for name in [name for name in os.environ if name.startswith(("KARROW_SASL_", "KARROW_TLS_"))]:
        monkeypatch.delenv(name)
    options = {"options": ENVIRONMENT}
    definition = shop(kafka, options, {**TOPIC, **options})
    graph = rows()
    check_options(definition, graph)
    assert flows(definition, lambda _: graph) == []
    (told,) = unchecked(definition, asked=True)
    assert told == "KARROW_SASL_* and KARROW_TLS_* are not set here, nor what they are for"
    where = r"^o.toml: \[sources.orders\] options credentials finds no login: neither KARROW_SASL_M"
    with pytest.raises(ConfigError, match=where):
        check_environment(definition)
    monkeypatch.setenv("KARROW_SASL_USERNAME", "me")
    with pytest.raises(ConfigError, match="finds KARROW_SASL_USERNAME, and no KARROW_SASL_MECH"):
        check_options(definition, graph)


def test_settings_of_spark_that_are_not_set_here_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SHOP_SECRET", raising=False)
    definition = replace(
        shop({}),
        spark=(
            Setting("spark.hadoop.fs.s3a.secret.key", "env:SHOP_SECRET", "there"),
            Setting("spark.sql.shuffle.partitions", "3", "there"),
        ),
    )
    conf: dict[str, str] = {}
    own = SimpleNamespace(conf=SimpleNamespace(isModifiable=lambda _: True, set=conf.__setitem__))
    given = SimpleNamespace(get={session.REDACTED: "pin"}.__getitem__)
    spark: Any = SimpleNamespace(newSession=lambda: own, conf=given)
    with session.opened(definition, spark):
        pass
    hidden = f"(?:pin)|{session.SECRETS}"
    assert conf == {
        **session.DEFAULTS,
        session.REDACTED: hidden,
        "spark.sql.shuffle.partitions": "3",
    }
    assert "env:SHOP_SECRET is not set here" in unchecked(definition, asked=True)[0]
    with pytest.raises(ConfigError, match="has no SHOP_SECRET"):
        check_environment(definition)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"start": "group"}, "start=group needs a group; name it with commitGroup"),
        ({"start": "sometime"}, "start='sometime' "),
        ({"bootstrap": "h:x"}, "bootstrap 'h:x': 'x' is no port"),
    ],
)
def test_errors_name_the_keys_of_the_file(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_options(shop({}, source), rows())
    assert str(caught.value).startswith(f"o.toml: [sources.orders] {message}")
