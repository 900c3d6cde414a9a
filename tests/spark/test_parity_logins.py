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
    """Options for a listener; the authority of one with TLS is trusted."""
    servers = {"kafka.bootstrap.servers": kafka.bootstrap(listener)}
    if listener == "SASL_PLAINTEXT":
        return servers
    return {
        **servers,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.tls.ca),
    }


MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        *(("SASL_SSL", mechanism) for mechanism in MODULES),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ],
)
def test_a_jaas_string_logs_both_in(
    both: Both, topics: Filled, kafka: KafkaCluster, protocol: str, mechanism: str
) -> None:
    login = f'username="alice" password="{users.PASSWORDS["alice"]}"'
    options = {
        **over(kafka, protocol),
        "kafka.security.protocol": protocol,
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f"{users.LOGIN}.{MODULES[mechanism]} required {login};",
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
