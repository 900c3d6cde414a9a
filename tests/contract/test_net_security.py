"""TLS and SASL on real listeners: what lets us in, and what each refusal says."""

from __future__ import annotations

import base64
import logging
import pickle
import time
import traceback
from typing import Any

import pytest

import karrow
from karrow import TLS, OAuthBearer, Plain, Scram, errors, events
from tests.brokers import KafkaCluster
from tests.brokers.certificates import KEY_PASSWORD
from tests.brokers.users import PASSWORDS, unsecured_token

ALICE = PASSWORDS["alice"]
QUICK: dict[str, Any] = {"api_timeout": 2.0, "connect_timeout": 5.0}


def mechanisms() -> dict[str, Any]:
    return {
        "PLAIN": Plain("alice", ALICE),
        "SCRAM-SHA-256": Scram("alice", ALICE, "SCRAM-SHA-256"),
        "SCRAM-SHA-512": Scram("alice", ALICE),
        "OAUTHBEARER": OAuthBearer(lambda: unsecured_token("alice")),
    }


def reach(cluster: KafkaCluster, listener: str, **options: Any) -> None:
    """Write and read a record, which takes more than one connection."""
    topic = cluster.create_topic()
    with karrow.Client(cluster.bootstrap(listener), **{**QUICK, **options}) as client:
        client.produce_one(topic, b"v" * 100_000, partition=0)
        assert len(client.fetch(topic, 0, 0).records[0].value or b"") == 100_000


def test_tls(kafka: KafkaCluster) -> None:
    reach(kafka, "SSL", tls=TLS(ca=kafka.tls.ca))
    reach(kafka, "SSL", tls=kafka.tls.context())
    reach(kafka, "SSL", tls=TLS(verify=False))


def test_client_certificate(kafka: KafkaCluster) -> None:
    tls = kafka.tls
    certificate = tls.client.certificate
    reach(kafka, "MUTUAL", tls=TLS(ca=tls.ca, certificate=certificate, key=tls.client.key))
    encrypted = TLS(
        ca=tls.ca,
        certificate=certificate,
        key=tls.encrypted_client_key,
        key_password=KEY_PASSWORD,
    )
    reach(kafka, "MUTUAL", tls=encrypted)


def refuse(cluster: KafkaCluster, listener: str, **options: Any) -> errors.KarrowError:
    start = time.monotonic()
    with (
        karrow.Client(cluster.bootstrap(listener), **{**QUICK, **options}) as client,
        pytest.raises(errors.KarrowError) as caught,
    ):
        client.brokers()
    assert time.monotonic() - start < 5
    return caught.value


def test_missing_client_certificate(kafka: KafkaCluster) -> None:
    error = refuse(kafka, "MUTUAL", tls=TLS(ca=kafka.tls.ca))
    assert isinstance(error, errors.NetworkError)
    assert "certificate" in str(error)


def test_certificates_nobody_should_accept(kafka: KafkaCluster) -> None:
    for listener, ca, text in (
        ("EXPIRED", kafka.tls.ca, "expired"),
        ("WRONG_NAME", kafka.tls.ca, "not for the name '127.0.0.1'"),
        ("SSL", kafka.tls.stranger, "tls=TLS(ca=...)"),
    ):
        error = refuse(kafka, listener, tls=TLS(ca=ca))
        assert isinstance(error, errors.AuthenticationError), listener
        assert text in str(error)


def test_tls_to_a_plaintext_port(kafka: KafkaCluster) -> None:
    error = refuse(kafka, "PLAINTEXT", tls=TLS(ca=kafka.tls.ca))
    assert "a plaintext port spoken to with TLS" in str(error)


def test_plaintext_to_a_tls_port(kafka: KafkaCluster) -> None:
    error = refuse(kafka, "SSL")
    assert "TLS" in str(error)


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("name", mechanisms())
def test_sasl(kafka: KafkaCluster, listener: str, name: str) -> None:
    tls = TLS(ca=kafka.tls.ca) if listener == "SASL_SSL" else None
    seen: list[events.Event] = []
    with events.subscribe(seen.append, "auth"):
        reach(
            kafka, listener, tls=tls, sasl=mechanisms()[name], allow_plaintext_password=tls is None
        )
    assert {event.name for event in seen} == {"auth.start", "auth.stop"}
    assert seen[0].fields["mechanism"] == name


@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_wrong_credentials(kafka: KafkaCluster, name: str) -> None:
    wrong = {
        "PLAIN": Plain("alice", "canary-secret"),
        "SCRAM-SHA-512": Scram("alice", "canary-secret"),
        "OAUTHBEARER": OAuthBearer(lambda: unsecured_token("alice", -100)),
    }
    error = refuse(
        kafka, "SASL_PLAINTEXT", sasl=wrong[name], allow_plaintext_password=name == "PLAIN"
    )
    assert isinstance(error, errors.AuthenticationError)
    assert name in str(error)
    assert "canary" not in str(error) + repr(error.__dict__)


class Unknown:
    name = "NO-SUCH-THING"

    def start(self) -> bytes:
        return b""

    def step(self, challenge: bytes) -> bytes | None:
        return None


def test_unknown_mechanism_names_what_there_is(kafka: KafkaCluster) -> None:
    error = refuse(kafka, "SASL_PLAINTEXT", sasl=Unknown())
    assert isinstance(error, errors.AuthenticationError)
    assert "SCRAM-SHA-512" in str(error)


def test_sasl_port_without_credentials(kafka: KafkaCluster) -> None:
    error = refuse(kafka, "SASL_PLAINTEXT")
    assert "SASL" in str(error)


def test_own_mechanism(kafka: KafkaCluster) -> None:
    class Own:
        name = "PLAIN"

        def start(self) -> bytes:
            return b"\0alice\0" + ALICE.encode()

        def step(self, challenge: bytes) -> bytes | None:
            return None

    reach(kafka, "SASL_PLAINTEXT", sasl=Own(), allow_plaintext_password=True)


def test_sasl_over_bare_frames(kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """SaslHandshake v0, which is all that brokers before 1.0 have."""
    from karrow.net.versions import BrokerVersions  # noqa: PLC0415

    real = BrokerVersions.choose

    def choose(self: BrokerVersions, name: str, *args: Any, **options: Any) -> int:
        return 0 if name == "SaslHandshake" else real(self, name, *args, **options)

    monkeypatch.setattr(BrokerVersions, "choose", choose)
    reach(kafka, "SASL_PLAINTEXT", sasl=Scram("alice", ALICE))
    error = refuse(kafka, "SASL_PLAINTEXT", sasl=Scram("alice", "wrong"))
    assert isinstance(error, errors.AuthenticationError)


def test_no_secret_leaves_the_client(
    kafka: KafkaCluster, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Logs at DEBUG, all events, errors, reprs: none holds a password or a token."""
    token = unsecured_token("alice")
    canaries = ["canary-secret", ALICE, token]
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    with (
        events.subscribe(lambda event: said.append(f"{event} {event!r}")),
        events.log_to(logging.getLogger("test"), level=logging.DEBUG),
    ):
        for sasl in (
            Plain("alice", ALICE),
            Plain("alice", "canary-secret"),
            Scram("alice", ALICE, "SCRAM-SHA-256"),
            Scram("alice", "canary-secret"),
            OAuthBearer(lambda: token),
        ):
            client = karrow.Client(
                kafka.bootstrap("SASL_PLAINTEXT"), sasl=sasl, allow_plaintext_password=True, **QUICK
            )
            said.append(f"{client!r} {client.config!r} {client.twin!r}")
            try:
                client.brokers()
            except errors.AuthenticationError as error:
                said.append(f"{error} {error!r} {error.__dict__} {pickle.dumps(error)!r}")
                said.append("".join(traceback.format_exception(error)))
            client.close()
    out, err = capfd.readouterr()
    everything = "\n".join([*said, caplog.text, out, err])
    assert "auth.stop" in everything
    assert "auth.exception" in everything
    for canary in canaries:
        assert canary not in everything
        assert base64.b64encode(canary.encode()).decode() not in everything
