"""Credentials as values: what they accept, and where they come from."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from karrow.config import MskIam, OAuthBearer, Plain, Scram, Secret, Token, sasl
from karrow.config.sasl import check_mechanism
from karrow.errors import AuthenticationError, ConfigError, KarrowError

CANARY = "canary-7f3a"


def jwt(claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def token_of(mechanism: OAuthBearer) -> Token:
    return asyncio.run(mechanism.token("b1"))


def test_passwords_do_not_print() -> None:
    assert CANARY not in repr([Plain("u", CANARY), Scram("u", CANARY), Token(CANARY)])


@pytest.mark.parametrize("make", [Plain, Scram])
def test_a_login_needs_a_user(make: Any) -> None:
    with pytest.raises(ConfigError, match="needs a user"):
        make("", CANARY)


def test_plain_cannot_carry_a_nul() -> None:
    with pytest.raises(ConfigError, match="NUL") as caught:
        Plain("alice", f"{CANARY}\0")
    assert CANARY not in str(caught.value)


def test_scram_has_two_mechanisms() -> None:
    assert Scram("u", "p").name == "SCRAM-SHA-512"
    assert Scram("u", "p", "SCRAM-SHA-256").name == "SCRAM-SHA-256"
    with pytest.raises(ConfigError, match="SCRAM-SHA-1"):
        Scram("u", "p", "SCRAM-SHA-1")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["abc", Secret("abc"), Token("abc"), ("abc", 5)])
def test_a_provider_may_return_text_a_token_or_text_with_expiry(given: Any) -> None:
    token = token_of(OAuthBearer(lambda: given))
    assert token.value == Secret("abc")
    assert token.expires_at == (5 if isinstance(given, tuple) else None)


def test_a_plain_provider_runs_beside_the_loop_and_an_async_one_on_it() -> None:
    threads: list[threading.Thread] = []

    def plain() -> str:
        threads.append(threading.current_thread())
        return "abc"

    async def awaited() -> str:
        threads.append(threading.current_thread())
        return "abc"

    def indirect() -> Awaitable[str]:
        return awaited()

    token_of(OAuthBearer(plain))
    token_of(OAuthBearer(awaited))
    token_of(OAuthBearer(indirect))
    assert [thread is threading.main_thread() for thread in threads] == [False, True, True]


def test_a_provider_is_called_for_each_connection() -> None:
    numbers = iter(["a", "b"])
    mechanism = OAuthBearer(lambda: next(numbers))
    assert [token_of(mechanism).value.reveal() for _ in range(2)] == ["a", "b"]


@pytest.mark.parametrize(("cause", "retriable"), [(OSError, True), (LookupError, False)])
def test_a_failing_provider_is_an_authentication_error_without_its_words(
    cause: type[Exception], retriable: bool
) -> None:
    def provider() -> str:
        raise cause(f"POST with {CANARY} failed")

    with pytest.raises(AuthenticationError, match=cause.__name__) as caught:
        token_of(OAuthBearer(provider))
    assert CANARY not in str(caught.value)
    assert caught.value.retriable is retriable
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize("given", [None, 5, b"abc", ("abc",), {"access_token": CANARY}])
def test_a_provider_that_returns_something_else_is_told_what_to_return(given: Any) -> None:
    with pytest.raises(AuthenticationError, match="has to return") as caught:
        token_of(OAuthBearer(lambda: given))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("text", ["", "a b", "a\x01b", "a\n", "tökn"])
def test_a_token_with_odd_characters_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(KarrowError) as caught:
        token_of(OAuthBearer(lambda: text + CANARY if text else text))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("token", "expiry"),
    [
        (jwt({"exp": 1_700_000_000}), 1_700_000_000.0),
        (jwt({"sub": "alice"}), None),
        (jwt({"exp": "soon"}), None),
        (jwt([1]), None),
        ("e30.%%%.x", None),
        ("opaque", None),
        ("a.b.c", None),
    ],
)
def test_a_json_web_token_tells_its_expiry(token: str, expiry: float | None) -> None:
    assert Token(token).expires_at == expiry


def test_an_expiry_given_counts_more_than_the_tokens_own() -> None:
    assert Token(jwt({"exp": 1}), expires_at=2.0).expires_at == 2.0


@pytest.mark.parametrize(
    ("extensions", "problem"),
    [
        ({"auth": "x"}, "'auth' is taken"),
        ({"trace_id": "x"}, "letters only"),
        ({"": "x"}, "letters only"),
        ({"traceId": ""}, "odd characters"),
        ({"traceId": "a\x01auth=Bearer x"}, "odd characters"),
        ({"traceId": "ä"}, "odd characters"),
    ],
)
def test_bad_extensions_are_refused_by_name(extensions: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        OAuthBearer(lambda: "abc", extensions)
    with pytest.raises(ConfigError, match=problem):
        Token("abc", extensions=extensions)


def test_a_provider_has_to_be_callable() -> None:
    with pytest.raises(ConfigError, match="not callable") as caught:
        OAuthBearer(CANARY)  # type: ignore[arg-type]
    assert CANARY not in str(caught.value)


def test_a_token_file_is_read_for_each_connection(tmp_path: Path) -> None:
    path = tmp_path / "token"
    mechanism = OAuthBearer.from_file(path)
    for text in ("one", "two"):
        path.write_text(f"{text}\n")
        assert token_of(mechanism).value.reveal() == text


def test_an_object_with_name_start_and_step_is_a_mechanism() -> None:
    class Own:
        name = "OWN"

        def start(self) -> bytes:
            return b""

        def step(self, challenge: bytes) -> None: ...

    class Factory:
        name = "OWN"

        def session(self, host: str) -> Own:
            return Own()

    check_mechanism(Own())
    check_mechanism(Factory())
    with pytest.raises(ConfigError, match="sasl cannot be"):
        check_mechanism(object())


LOGIN = {"KARROW_SASL_USERNAME": "alice", "KARROW_SASL_PASSWORD": CANARY}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("PLAIN", Plain("alice", CANARY)),
        ("scram-sha-256", Scram("alice", CANARY, "SCRAM-SHA-256")),
        ("SCRAM-SHA-512", Scram("alice", CANARY)),
        ("AWS_MSK_IAM", MskIam()),
    ],
)
def test_the_environment_names_the_mechanism(name: str, expected: object) -> None:
    assert sasl.from_env({"KARROW_SASL_MECHANISM": name, **LOGIN}) == expected


def test_tokens_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    bearer = {"KARROW_SASL_MECHANISM": "OAUTHBEARER"}
    (tmp_path / "token").write_text("from-file")
    for variables, text in (
        ({"KARROW_SASL_TOKEN": "direct"}, "direct"),
        ({"KARROW_SASL_TOKEN_FILE": str(tmp_path / "token")}, "from-file"),
    ):
        mechanism = sasl.from_env({**bearer, **variables})
        assert isinstance(mechanism, OAuthBearer)
        assert token_of(mechanism).value.reveal() == text


def test_no_mechanism_in_the_environment_is_none() -> None:
    assert sasl.from_env(LOGIN) is None


def test_the_environment_is_told_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="KARROW_SASL_PASSWORD is not set"):
        sasl.from_env({"KARROW_SASL_MECHANISM": "PLAIN", "KARROW_SASL_USERNAME": "alice"})
    with pytest.raises(ConfigError, match="KARROW_SASL_MECHANISM=GSSAPI is none of"):
        sasl.from_env({"KARROW_SASL_MECHANISM": "GSSAPI", **LOGIN})
