"""Sinks that log in: each way to give a login, inside of real tasks and at a broker that wants one.

Readers here use the listener without a login, so whatever is found was written with one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from karrow.spark import exactly_once
from tests.brokers import KafkaCluster, users
from tests.spark.driven import Driven
from tests.spark.once import values
from tests.spark.sessions import connector

PASSWORD = users.PASSWORDS["alice"]
MODULE = "karrow_test_logins"
JAAS = f'{users.LOGIN}.scram.ScramLoginModule required username="alice" password="{PASSWORD}";'
NAMED = {
    "jaas": {"kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": JAAS},
    "username": {
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": PASSWORD,
    },
    "function": {"credentials": f"{MODULE}:login"},
}
WAYS = pytest.mark.parametrize("way", list(NAMED))


class LoggedIn(Driven):
    """A sink at the listener with logins and TLS."""

    @property
    def servers(self) -> str:
        return self.kafka.bootstrap("SASL_SSL")

    def login(self, way: str) -> dict[str, Any]:
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.kafka.tls.ca),
            **NAMED[way],
        }

    def write_batch(self, spark: SparkSession, form: str, **options: str) -> None:
        """Rows in two tasks, by one of the connectors."""
        rows = spark.range(20, numPartitions=2).selectExpr("cast(id AS string) AS value")
        given = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, **options}
        rows.write.format(form).mode("append").options(**given).save()


@pytest.fixture
def case(kafka: KafkaCluster, tmp_path: Path) -> LoggedIn:
    return LoggedIn(kafka, tmp_path)


@pytest.fixture(scope="module", autouse=True)
def module_of_the_program(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What --py-files brings to the driver and its executors."""
    place = tmp_path_factory.mktemp("logins") / f"{MODULE}.py"
    login = f'karrow.Scram("alice", "{PASSWORD}", "SCRAM-SHA-256")'
    place.write_text(f"import karrow\n\n\ndef login():\n    return {login}\n")
    spark.sparkContext.addPyFile(str(place))


@pytest.mark.connector
def test_a_jaas_string_logs_both_sinks_in(spark: SparkSession, case: LoggedIn) -> None:
    forms = ["kafka", "karrow"] if connector() else ["karrow"]
    given = case.login("jaas")
    for form in forms:
        case.write_batch(spark, form, **given)
    given["kafka.sasl.jaas.config"] = JAAS.replace(PASSWORD, "hunter2")
    with pytest.raises(PySparkException) as caught:
        case.write_batch(spark, "karrow", **given)
    assert "SCRAM-SHA-512" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert values(case.bootstrap, case.topic) == sorted(f"{n}" for n in range(20) for _ in forms)


@WAYS
def test_a_batch_is_written_with_a_login(spark: SparkSession, case: LoggedIn, way: str) -> None:
    case.write_batch(spark, "karrow", **case.login(way))
    assert values(case.bootstrap, case.topic) == sorted(map(str, range(20)))


@WAYS
def test_a_stream_is_written_exactly_once_with_a_login(
    spark: SparkSession, case: LoggedIn, way: str
) -> None:
    """The driver has the transaction and the ledger, and tasks write: all of them log in."""
    sink = exactly_once(case.servers, case.topic, sink_id=case.sink_id, **case.login(way))
    case.add(2).run(spark, sink)
    assert case.found() == case.wanted()


@pytest.mark.parametrize("form", ["foreachBatch", "format"])
def test_logins_stand_in_the_environment_of_every_process(
    case: LoggedIn, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a program of its own: Spark hands on what it was started with."""
    given = {
        "SASL_MECHANISM": "SCRAM-SHA-512",
        "SASL_USERNAME": "alice",
        "SASL_PASSWORD": PASSWORD,
        "TLS_CA": str(case.kafka.tls.ca),
    }
    for name, value in given.items():
        monkeypatch.setenv(f"KARROW_{name}", value)
    options = {"credentials": "environment"}
    servers = {"kafka.bootstrap.servers": case.servers}
    case.add(2)
    if form == "format":
        driver = case.driver(sink=case.options(**servers, **options))
    else:
        driver = case.driver(bootstrap=case.servers, options=options)
    with driver:
        driver.succeeded()
    assert case.found() == case.wanted()
