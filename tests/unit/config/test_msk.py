"""IAM on Amazon MSK: whose keys, which region; AWS's signer is played by a stand-in."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from karrow.config import MskIam, Secret
from karrow.errors import AuthenticationError, ConfigError

HOST = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com"
CANARY = "canary-7f3a"
EXPIRY_MS = 1_700_000_000_000


class Signer(ModuleType):
    """Notes what it signs; the token is what it was called with."""

    def __init__(self) -> None:
        super().__init__("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
        self.calls: list[tuple[Any, ...]] = []

    def generate_auth_token(self, region: str) -> tuple[str, int]:
        self.calls.append((region, "found"))
        return "found-token", EXPIRY_MS

    def generate_auth_token_from_credentials_provider(
        self, region: str, provider: Any
    ) -> tuple[str, int]:
        keys = provider.load()
        self.calls.append((region, keys.access_key, keys.secret_key, keys.token))
        return "given-token", EXPIRY_MS


@pytest.fixture(autouse=True)
def signer(monkeypatch: pytest.MonkeyPatch) -> Signer:
    signer = Signer()
    botocore: Any = ModuleType("botocore.credentials")
    botocore.CredentialProvider = type("CredentialProvider", (), {})
    botocore.Credentials = lambda access, secret, token: SimpleNamespace(
        access_key=access, secret_key=secret, token=token
    )
    package = ModuleType("aws_msk_iam_sasl_signer")
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", package)
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    monkeypatch.setitem(sys.modules, "botocore", ModuleType("botocore"))
    monkeypatch.setitem(sys.modules, "botocore.credentials", botocore)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return signer


def sign(mechanism: MskIam, host: str = HOST) -> str:
    token = asyncio.run(mechanism.token(host))
    assert token.expires_at == EXPIRY_MS / 1000
    return token.value.reveal()


def test_it_is_oauthbearer_on_the_wire() -> None:
    assert MskIam().name == "OAUTHBEARER"


def test_without_keys_aws_finds_them(signer: Signer) -> None:
    assert sign(MskIam()) == "found-token"
    assert signer.calls == [("eu-west-1", "found")]


def test_explicit_keys_are_used_with_their_session(signer: Signer) -> None:
    sign(MskIam(access_key_id="AKIA", secret_access_key=CANARY, session_token="session"))
    sign(MskIam(access_key_id="AKIA", secret_access_key=Secret(CANARY)))
    assert signer.calls == [
        ("eu-west-1", "AKIA", CANARY, "session"),
        ("eu-west-1", "AKIA", CANARY, None),
    ]


def test_a_provider_goes_before_explicit_keys(signer: Signer) -> None:
    async def provider() -> tuple[str, str, str]:
        return "ASIA", "rotated", "session"

    sign(MskIam(provider=provider, access_key_id="AKIA", secret_access_key=CANARY))
    sign(MskIam(provider=lambda: ("ASIB", "again")))
    assert signer.calls == [
        ("eu-west-1", "ASIA", "rotated", "session"),
        ("eu-west-1", "ASIB", "again", None),
    ]


@pytest.mark.parametrize("given", [None, "AKIA", ("AKIA",), ("AKIA", ""), ["AKIA", CANARY]])
def test_a_provider_of_something_else_is_told_what_to_return(given: Any) -> None:
    with pytest.raises(AuthenticationError, match="has to return") as caught:
        sign(MskIam(provider=lambda: given))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("keys", [{"access_key_id": "AKIA"}, {"secret_access_key": CANARY}])
def test_half_a_key_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="both"):
        MskIam(**keys)


def test_the_region_comes_from_the_argument_the_name_or_the_environment(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(MskIam("us-east-1"), "private.link")
    sign(MskIam(), "boot-x.c1.kafka-serverless.us-gov-west-1.amazonaws.com")
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    sign(MskIam(), "private.link")
    sign(MskIam())
    assert [region for region, _ in signer.calls] == [
        "us-east-1",
        "us-gov-west-1",
        "ap-south-1",
        "eu-west-1",
    ]


def test_an_unknown_region_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"MskIam\(region=\)"):
        sign(MskIam(), "private.link")


def test_a_region_that_contradicts_the_host_is_refused() -> None:
    with pytest.raises(ConfigError, match="is for us-east-1"):
        sign(MskIam("us-east-1"))


def test_without_the_signer_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", None)
    with pytest.raises(ConfigError, match=r"pip install 'karrow\[msk\]'"):
        sign(MskIam())


def test_missing_credentials_are_named(signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_found(_region: str) -> None:
        raise AttributeError("'NoneType' object has no attribute 'access_key'")

    monkeypatch.setattr(signer, "generate_auth_token", nothing_found)
    with pytest.raises(AuthenticationError, match="no AWS credentials"):
        sign(MskIam())


def test_errors_of_the_signer_are_named_without_their_words(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_region: str) -> None:
        raise LookupError(CANARY)

    monkeypatch.setattr(signer, "generate_auth_token", fail)
    with pytest.raises(AuthenticationError, match="LookupError") as caught:
        sign(MskIam())
    assert CANARY not in str(caught.value)


def test_keys_do_not_print() -> None:
    mechanism = MskIam(access_key_id="AKIA", secret_access_key=CANARY, session_token=CANARY)
    assert CANARY not in repr(mechanism)
