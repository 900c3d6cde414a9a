"""Logins and certificates: the same options, and the same rows, with both connectors."""

from __future__ import annotations

import pytest

from tests.brokers import KafkaCluster, users
from tests.spark.both import Both
from tests.spark.filled import SIZES, Filled, filled

pytestmark = pytest.mark.connector


@pytest.fixture
def topics(kafka: KafkaCluster) -> Filled:
    return filled(kafka)


def over(kafka: KafkaCluster, listener: str) -> dict[str, str]:
    """Options for a listener with TLS, whose authority is trusted."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap(listener),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.tls.ca),
    }


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")],
)
def test_a_jaas_string_logs_both_in(
    both: Both, topics: Filled, kafka: KafkaCluster, mechanism: str, module: str
) -> None:
    login = f'username="alice" password="{users.PASSWORDS["alice"]}"'
    options = {
        **over(kafka, "SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f"{users.LOGIN}.{module} required {login};",
    }
    rows = both.read(subscribe=topics.orders, **options)
    assert len(rows) == sum(SIZES)
    wrong = options["kafka.sasl.jaas.config"].replace(users.PASSWORDS["alice"], "wrong")
    said = both.refused(subscribe=topics.orders, **{**options, "kafka.sasl.jaas.config": wrong})
    assert mechanism in said
    assert "wrong" not in said


def test_a_certificate_of_the_client_opens_the_listener_that_wants_one(
    both: Both, topics: Filled, kafka: KafkaCluster
) -> None:
    options = {**over(kafka, "MUTUAL"), "kafka.security.protocol": "SSL"}
    from_file = {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(kafka.tls.client.combined),
    }
    in_text = {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": kafka.tls.client.certificate.read_text(),
        "kafka.ssl.keystore.key": kafka.tls.client.key.read_text(),
    }
    for store in (from_file, in_text):
        assert len(both.read(subscribe=topics.orders, **options, **store)) == sum(SIZES)
    both.refused(subscribe=topics.orders, **options)
