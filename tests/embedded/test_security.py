"""TLS and SASL of the embedded broker, tried by our client and by others."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka.admin
import pytest

import karrow
from karrow import errors
from tests.brokers import RawConnection
from tests.brokers.certificates import Certificates, make_certificates

USERS = {"alice": "canary-of-alice", "bob": "canary-of-bob"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker() -> Iterator[karrow.Broker]:
    with karrow.Broker(sasl=USERS) as broker:
        yield broker


@pytest.mark.parametrize(
    "login",
    [
        karrow.Plain("alice", USERS["alice"]),
        karrow.Scram("bob", USERS["bob"], "SCRAM-SHA-256"),
        karrow.Scram("bob", USERS["bob"], "SCRAM-SHA-512"),
    ],
)
def test_users_log_in_by_every_mechanism(
    broker: karrow.Broker, login: karrow.Plain | karrow.Scram
) -> None:
    with karrow.Client(broker.bootstrap, sasl=login, allow_plaintext_password=True) as client:
        assert client.metadata([]).cluster_id == broker.cluster_id


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_logs_in(broker: karrow.Broker, mechanism: str) -> None:
    options: dict[str, str | int | float | bool] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": USERS["alice"],
    }
    assert confluent_kafka.admin.AdminClient(options).list_topics(timeout=5).brokers


def test_a_wrong_password_is_refused_without_showing_it(
    broker: karrow.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    login = karrow.Scram("alice", "canary-wrong")
    with (
        karrow.Client(broker.bootstrap, sasl=login) as client,
        pytest.raises(errors.AuthenticationError) as refused,
    ):
        client.metadata([])
    assert "canary" not in str(refused.value) + caplog.text


def test_nothing_is_answered_before_the_login(broker: karrow.Broker) -> None:
    host, port = broker.bootstrap.rsplit(":", 1)
    with RawConnection(host, int(port)) as connection:
        assert connection.api_versions()
        with pytest.raises(ConnectionError):
            connection.request("Metadata", {"topics": None}, 9)


def test_bare_tokens_follow_an_old_handshake() -> None:
    login = {"alice": "canary"}
    with karrow.Broker(sasl=login, version="2.8") as broker:
        host, port = broker.bootstrap.rsplit(":", 1)
        with RawConnection(host, int(port)) as connection:
            answer = connection.request("SaslHandshake", {"mechanism": "PLAIN"}, 0)
            assert answer.error_code == 0
            assert connection.send_token(b"\0alice\0canary") == b""
            assert connection.request("Metadata", {"topics": None}, 9).cluster_id


def test_a_mechanism_that_is_not_offered_is_refused(broker: karrow.Broker) -> None:
    host, port = broker.bootstrap.rsplit(":", 1)
    with RawConnection(host, int(port)) as connection:
        answer = connection.request("SaslHandshake", {"mechanism": "GSSAPI"}, 1)
        assert answer.error_code == errors.UnsupportedSaslMechanism.code
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_users_come_and_go_while_it_runs(broker: karrow.Broker) -> None:
    root = karrow.Scram("alice", USERS["alice"])
    carol = karrow.Scram("carol", "canary-of-carol", "SCRAM-SHA-256")
    with karrow.Admin(broker.bootstrap, sasl=root) as admin:
        admin.alter_scram_user(
            "carol", "canary-of-carol", mechanism=karrow.ScramMechanism.SCRAM_SHA_256
        )
        with karrow.Client(broker.bootstrap, sasl=carol) as client:
            assert client.metadata([]).brokers
        admin.delete_scram_user("carol")
        with (
            karrow.Client(broker.bootstrap, sasl=carol) as client,
            pytest.raises(errors.AuthenticationError),
        ):
            client.metadata([])


def test_a_login_is_repeated_when_its_time_is_over() -> None:
    clock = karrow.ManualClock()
    login = karrow.Scram("alice", "canary")
    with karrow.Broker(sasl=login, session_lifetime=60.0, clock=clock) as broker:
        with karrow.Client(broker.bootstrap, sasl=login) as client:
            client.metadata([])
            clock.advance(61)
            client.metadata([])
        logins = [request for request in broker.requests if request.api == "SaslAuthenticate"]
        assert len(logins) >= 4, "two messages each time"


def test_tls_with_a_certificate_that_clients_check(certificates: Certificates) -> None:
    tls = karrow.TLS(certificate=certificates.server.certificate, key=certificates.server.key)
    with karrow.Broker(tls=tls, sasl=karrow.Plain("alice", "canary")) as broker:
        options = {"tls": karrow.TLS(ca=certificates.ca), "sasl": karrow.Plain("alice", "canary")}
        with karrow.Client(broker.bootstrap, **options) as client:  # type: ignore[arg-type]
            client.produce("t", [b"1"], partition=0)
            assert client.fetch("t", 0, offset=0).records[0].value == b"1"
        with (
            karrow.Client(broker.bootstrap, tls=True, connect_timeout=2.0) as stranger,
            pytest.raises(errors.NetworkError, match="certificate"),
        ):
            stranger.metadata([])


def test_a_server_needs_a_certificate() -> None:
    with pytest.raises(errors.ConfigError, match="certificate is missing"):
        karrow.Broker(tls=karrow.TLS())


@pytest.mark.parametrize("group", [None, "group"])
@pytest.mark.parametrize("way", ["subscribed", "assigned", "assigned at an offset"])
def test_a_login_that_is_refused_ends_a_consumer(
    broker: karrow.Broker, way: str, group: str | None
) -> None:
    login = karrow.Scram("alice", "canary-wrong")
    options: dict[str, Any] = {
        "retry_backoff": 0.02,
        "retry_backoff_max": 0.05,
        "start": "earliest",
    }
    with karrow.Consumer(broker.bootstrap, sasl=login, group=group, **options) as consumer:
        if way == "subscribed":
            consumer.subscribe("topic")
        elif way == "assigned":
            consumer.assign([("topic", 0)])
        else:
            consumer.assign({("topic", 0): 0})
        for _ in range(3):
            with pytest.raises(errors.AuthenticationError):
                consumer.poll(15)
        assert consumer.health().state is karrow.HealthState.DEAD
        time.sleep(0.3)
        broker.clear_requests()
        time.sleep(0.3)
        assert broker.requests == []  # nobody tries the same again
