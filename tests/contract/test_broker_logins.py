"""Logging in: the same observations on the embedded broker and on a real one."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.brokers import RawConnection
from tests.contract.transactional import name_of
from tests.fix_any import AnyKafka, SecuredKafka

PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
ALICE = b"\0alice\0alice-secret"
PROOF = base64.b64encode(bytes(32))
ENDED = "the connection ended"


def ask(connection: RawConnection, api: str, body: dict[str, Any], version: int) -> Any:
    """An answer, or that there is none."""
    try:
        return connection.request(api, body, version)
    except ConnectionError:
        return ENDED


def outcome(answer: Any) -> str:
    return ENDED if answer == ENDED else name_of(answer.error_code)


def choose(connection: RawConnection, mechanism: str = PLAIN, version: int = 1) -> str:
    return outcome(ask(connection, "SaslHandshake", {"mechanism": mechanism}, version))


def step(connection: RawConnection, token: bytes, version: int = 2) -> str:
    return outcome(ask(connection, "SaslAuthenticate", {"auth_bytes": token}, version))


def is_in(connection: RawConnection) -> bool:
    """Whether the connection may do what only users may."""
    answer = ask(connection, "Metadata", {"topics": []}, 1)
    return answer != ENDED and len(answer.brokers) == 1


def test_logins_are_refused_where_there_are_none(newest_kafka: AnyKafka) -> None:
    with newest_kafka.connect() as connection:
        assert choose(connection) == "ILLEGAL_SASL_STATE"
        assert step(connection, ALICE) == "ILLEGAL_SASL_STATE"
        assert is_in(connection)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_password_lets_in(secured_kafka: SecuredKafka, version: int) -> None:
    with secured_kafka.connect() as connection:
        assert choose(connection) == "NONE"
        answer = ask(connection, "SaslAuthenticate", {"auth_bytes": ALICE}, version)
        assert (answer.error_code, answer.error_message or "") == (0, "")
        assert (bytes(answer.auth_bytes), answer.session_lifetime_ms) == (b"", 0)
        assert is_in(connection)


def test_tokens_may_come_bare(secured_kafka: SecuredKafka) -> None:
    with secured_kafka.connect() as connection:
        assert choose(connection, version=0) == "NONE"
        assert connection.send_token(ALICE) == b""
        assert is_in(connection)
    with secured_kafka.connect() as connection:
        assert choose(connection, version=0) == "NONE"
        with pytest.raises(ConnectionError):
            connection.send_token(b"\0alice\0wrong")


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        (PLAIN, b"\0alice\0wrong"),
        (PLAIN, b"\0nobody\0alice-secret"),
        (PLAIN, b"bob" + ALICE),
        (PLAIN, b"\0\0x"),
        (PLAIN, b"\0alice\0"),
        (PLAIN, b"rubbish"),
        (PLAIN, b""),
        (SCRAM, b"n,,n=nobody,r=abc"),
        (SCRAM, b"rubbish"),
        (SCRAM, b""),
    ],
)
def test_failed_login_is_the_last(
    secured_kafka: SecuredKafka, mechanism: str, token: bytes
) -> None:
    with secured_kafka.connect() as connection:
        assert choose(connection, mechanism) == "NONE"
        assert step(connection, token) == "SASL_AUTHENTICATION_FAILED"
        assert step(connection, ALICE) == ENDED


def test_scram_wants_the_proof(secured_kafka: SecuredKafka) -> None:
    with secured_kafka.connect() as connection:
        assert choose(connection, SCRAM) == "NONE"
        body = {"auth_bytes": b"n,,n=alice,r=abc"}
        first = bytes(ask(connection, "SaslAuthenticate", body, 2).auth_bytes)
        assert first.startswith(b"r=abc")
        assert first.endswith(b",i=4096")
        nonce = first.partition(b",")[0]
        assert step(connection, b"c=biws," + nonce + b",p=" + PROOF) == "SASL_AUTHENTICATION_FAILED"


def test_unknown_mechanism_is_answered_with_the_known_ones(secured_kafka: SecuredKafka) -> None:
    with secured_kafka.connect() as connection:
        answer = ask(connection, "SaslHandshake", {"mechanism": "NONE-SUCH"}, 1)
        assert outcome(answer) == "UNSUPPORTED_SASL_MECHANISM"
        assert {PLAIN, SCRAM, "SCRAM-SHA-512"} <= set(answer.mechanisms)
        assert choose(connection) == ENDED


@pytest.mark.parametrize("api", ["Metadata", "SaslAuthenticate", "Produce"])
def test_nothing_goes_before_the_choice(secured_kafka: SecuredKafka, api: str) -> None:
    with secured_kafka.connect() as connection:
        assert ask(connection, api, {}, 0) == ENDED


def test_versions_are_told_once_before_a_login(secured_kafka: SecuredKafka) -> None:
    with secured_kafka.connect() as connection:
        assert outcome(ask(connection, "ApiVersions", {}, 0)) == "NONE"
        assert ask(connection, "ApiVersions", {}, 0) == ENDED
    with secured_kafka.connect() as connection:
        assert outcome(ask(connection, "ApiVersions", {}, 0)) == "NONE"
        assert choose(connection) == "NONE"
        assert step(connection, ALICE) == "NONE"
        assert outcome(ask(connection, "ApiVersions", {}, 0)) == "NONE"


def test_nothing_goes_between_choice_and_login(secured_kafka: SecuredKafka) -> None:
    for api, body in (("ApiVersions", {}), ("SaslHandshake", {"mechanism": PLAIN})):
        with secured_kafka.connect() as connection:
            assert choose(connection) == "NONE"
            assert outcome(ask(connection, api, body, 0)) == "ILLEGAL_SASL_STATE"
            assert step(connection, ALICE) == ENDED
    with secured_kafka.connect() as connection:
        assert choose(connection) == "NONE"
        assert not is_in(connection)
        assert step(connection, ALICE) == ENDED


def test_logins_without_end_are_not_repeated(secured_kafka: SecuredKafka) -> None:
    with secured_kafka.connect() as connection:
        assert choose(connection) == "NONE"
        assert step(connection, ALICE) == "NONE"
        assert choose(connection) == "ILLEGAL_SASL_STATE"
        assert choose(connection, SCRAM) == "ILLEGAL_SASL_STATE"
        assert step(connection, ALICE) == "ILLEGAL_SASL_STATE"
        assert is_in(connection)
