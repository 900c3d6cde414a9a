"""IAM credentials for Amazon MSK, which brokers take as a signed bearer token."""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, cast

from karrow.config.secret import Secret
from karrow.config.token import Token, call_provider
from karrow.errors import AuthenticationError, ConfigError

__all__ = ["AwsKeys", "MskIam"]

_SIGNER = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com(?:\.cn)?$")


class AwsKeys(NamedTuple):
    """An access key, its secret, and the token of a temporary session."""

    access_key_id: str
    secret_access_key: Secret
    session_token: Secret | None = None


KeysLike = tuple[str, str] | tuple[str, str, str | None] | AwsKeys


@dataclass(frozen=True, slots=True, init=False)
class MskIam:
    """IAM on Amazon MSK; needs AWS's own signer, ``pip install 'karrow[msk]'``.

    Keys come from ``provider`` if there is one (called for each connection, sync or async, giving
    ``(access key id, secret access key[, session token])``), else from the arguments, else from
    where AWS's tools look for them. The region is taken from the broker's name if it is not given.

    >>> MskIam(region="eu-west-1", access_key_id="AKIA", secret_access_key="s3cr3t")
    MskIam(region='eu-west-1', keys=AwsKeys(access_key_id='AKIA', secret_access_key=***, \
session_token=None))
    """

    __module__ = "karrow"

    region: str | None
    provider: Callable[[], KeysLike | Awaitable[KeysLike]] | None
    keys: AwsKeys | None

    def __init__(
        self,
        region: str | None = None,
        *,
        provider: Callable[[], KeysLike | Awaitable[KeysLike]] | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | Secret | None = None,
        session_token: str | Secret | None = None,
    ) -> None:
        if (access_key_id is None) != (secret_access_key is None):
            raise ConfigError("MskIam needs both access_key_id and secret_access_key, or neither")
        keys = None
        if access_key_id is not None:
            keys = _keys((access_key_id, secret_access_key, session_token))
        object.__setattr__(self, "region", region)
        object.__setattr__(self, "provider", provider)
        object.__setattr__(self, "keys", keys)

    def __repr__(self) -> str:
        return f"MskIam(region={self.region!r}, keys={'provider' if self.provider else self.keys})"

    @property
    def name(self) -> str:
        """What the handshake names."""
        return "OAUTHBEARER"

    @property
    def hint(self) -> str:
        """What to look at when the broker refuses."""
        return (
            "check the IAM policy, the region, and this machine's clock: a signature is valid for "
            "15 minutes from the time it carries"
        )

    async def token(self, host: str) -> Token:
        """A token signed for the region of ``host``."""
        region = self._region(host)
        keys = self.keys
        if self.provider is not None:
            keys = _keys(await call_provider(self.provider))
        text, expires_ms = await call_provider(functools.partial(_sign, region, keys))
        return Token(text, expires_ms / 1000)

    def _region(self, host: str) -> str:
        in_name = match[1] if (match := _HOST.search(host)) else None
        if self.region and in_name and self.region != in_name:
            raise ConfigError(f"MskIam is for {self.region}, but {host} is in {in_name}")
        environ = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        region = self.region or in_name or environ
        if region is None:
            raise ConfigError(f"the name {host} holds no AWS region", hint="give MskIam(region=)")
        return region


def _keys(given: object) -> AwsKeys:
    if isinstance(given, tuple) and len(given) in (2, 3) and all(given[:2]):
        access, secret, *session = given
        return AwsKeys(access, Secret(secret), Secret(session[0]) if any(session) else None)
    raise AuthenticationError(
        f"the provider of AWS keys returned a {type(given).__name__} of another form",
        hint="it has to return (access key id, secret access key[, session token])",
    )


def _sign(region: str, keys: AwsKeys | None) -> tuple[str, int]:
    signer = _signer()
    if keys is None:
        try:
            signed = signer.generate_auth_token(region)
        except AttributeError as error:  # so it says that it found no credentials
            raise AuthenticationError(
                "no AWS credentials were found", hint="give keys or a provider to MskIam"
            ) from error
    else:
        provider = _provider_of(keys)
        signed = signer.generate_auth_token_from_credentials_provider(region, provider)
    return cast("tuple[str, int]", signed)


def _signer() -> ModuleType:
    try:
        return importlib.import_module(_SIGNER)
    except ImportError as error:
        raise ConfigError("MskIam needs AWS's signer", hint="pip install 'karrow[msk]'") from error


def _provider_of(keys: AwsKeys) -> Any:
    """The keys in the only form that AWS's signer takes."""
    credentials = importlib.import_module("botocore.credentials")

    def load(_self: object) -> Any:
        session = keys.session_token.reveal() if keys.session_token else None
        return credentials.Credentials(keys.access_key_id, keys.secret_access_key.reveal(), session)

    return type("Given", (credentials.CredentialProvider,), {"METHOD": "karrow", "load": load})()
