"""Exchanges and certificates against real brokers, below the client: bytes on one socket."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from karrow import TLS, OAuthBearer, Plain, Scram
from karrow.config.sasl import Mechanism
from karrow.errors import AuthenticationError
from karrow.wire import sasl
from tests.brokers import KafkaCluster, RawConnection, users
from tests.brokers.certificates import KEY_PASSWORD

HOST = "127.0.0.1"
PASSWORD = users.PASSWORDS["alice"]
MECHANISMS: list[Mechanism] = [
    Plain("alice", PASSWORD),
    Scram("alice", PASSWORD, "SCRAM-SHA-256"),
    Scram("alice", PASSWORD, "SCRAM-SHA-512"),
    OAuthBearer(lambda: users.unsecured_token("alice"), extensions={"traceId": "7"}),
]


def log_in(connection: RawConnection, mechanism: Mechanism) -> None:
    """The whole exchange, as a client has to run it."""
    exchange = asyncio.run(sasl.session(mechanism, HOST))
    assert connection.request("SaslHandshake", {"mechanism": exchange.name}, 1).error_code == 0
    token: bytes | None = exchange.start()
    while token is not None:
        answer = connection.request("SaslAuthenticate", {"auth_bytes": token}, 0)
        if answer.error_code:
            raise sasl.refused(exchange, answer.error_message)
        token = exchange.step(answer.auth_bytes)
    sasl.finish(exchange)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: one.name)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_every_mechanism_is_accepted(
    kafka: KafkaCluster, mechanism: Mechanism, listener: str
) -> None:
    tls = TLS(ca=kafka.tls.ca).context() if listener == "SASL_SSL" else None
    with RawConnection(HOST, kafka.ports[listener][0], tls=tls) as connection:
        log_in(connection, mechanism)
        assert connection.request("Metadata", {}, 1).brokers


@pytest.mark.parametrize(
    "mechanism",
    [
        Plain("alice", "wrong"),
        Scram("alice", "wrong"),
        Scram("nobody", PASSWORD),
        OAuthBearer(lambda: users.unsecured_token("alice", lifetime=-3600.0)),
    ],
    ids=lambda one: one.name,
)
def test_wrong_credentials_are_an_authentication_error(
    kafka: KafkaCluster, mechanism: Mechanism
) -> None:
    with kafka.connect("SASL_PLAINTEXT") as connection, pytest.raises(AuthenticationError):
        log_in(connection, mechanism)


def log_in_bare(connection: RawConnection, mechanism: Mechanism) -> None:
    """The same as brokers before 1.0 want it, whose tokens travel without headers."""
    exchange = asyncio.run(sasl.session(mechanism, HOST))
    assert connection.request("SaslHandshake", {"mechanism": exchange.name}, 0).error_code == 0
    token: bytes | None = exchange.start()
    while token is not None:
        token = exchange.step(connection.send_token(token))
    sasl.finish(exchange)


def test_bare_tokens_authenticate_on_every_release(kafka_version: KafkaCluster) -> None:
    with kafka_version.connect("SASL_PLAINTEXT") as connection:
        log_in_bare(connection, Plain("alice", PASSWORD))
        assert connection.request("Metadata", {}, 1).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: one.name)
def test_every_mechanism_is_accepted_in_bare_tokens(
    kafka: KafkaCluster, mechanism: Mechanism
) -> None:
    with kafka.connect("SASL_PLAINTEXT") as connection:
        log_in_bare(connection, mechanism)
        assert connection.request("Metadata", {}, 1).brokers


def test_a_certificate_of_ours_opens_the_listener_that_wants_one(kafka: KafkaCluster) -> None:
    ours = TLS(
        ca=kafka.tls.ca,
        certificate=kafka.tls.client.certificate,
        key=kafka.tls.encrypted_client_key,
        key_password=KEY_PASSWORD,
    )
    port = kafka.ports["MUTUAL"][0]
    with RawConnection(HOST, port, tls=ours.context()) as connection:
        assert connection.request("ApiVersions", {}, 0).error_code == 0


@pytest.mark.parametrize("listener", ["EXPIRED", "WRONG_NAME"])
def test_a_bad_certificate_is_refused_unless_verification_is_off(
    kafka: KafkaCluster, listener: str
) -> None:
    port = kafka.ports[listener][0]
    with pytest.raises(ssl.SSLCertVerificationError):
        RawConnection(HOST, port, tls=TLS(ca=kafka.tls.ca).context())
    with RawConnection(HOST, port, tls=TLS(verify=False).context()) as connection:
        assert connection.request("ApiVersions", {}, 0).error_code == 0


def test_only_the_name_can_be_left_unchecked(kafka: KafkaCluster) -> None:
    tls = TLS(ca=kafka.tls.ca, verify_hostname=False).context()
    with RawConnection(HOST, kafka.ports["WRONG_NAME"][0], tls=tls) as connection:
        assert connection.request("ApiVersions", {}, 0).error_code == 0
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        RawConnection(HOST, kafka.ports["EXPIRED"][0], tls=tls)
