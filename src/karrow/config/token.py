"""Bearer tokens: where they come from, when they expire, what may travel with them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

from karrow.config.secret import Secret
from karrow.errors import AuthenticationError, ConfigError, KarrowError

__all__ = ["Token", "TokenLike", "call_provider", "check_extensions", "token_from"]

_T = TypeVar("_T")

# What Kafka's own client and server accept (KIP-255, KIP-342).
_TOKEN = re.compile(r"[\x21-\x7e]+")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_RESERVED = "auth"


@dataclass(frozen=True, slots=True, init=False)
class Token:
    """A bearer token; ``expires_at`` is in seconds since 1970, None when unknown.

    A JSON Web Token says itself when it expires. ``extensions`` travel with this token only, on
    top of those of the mechanism.

    >>> Token("abc", expires_at=1.7e9)
    Token(value=***, expires_at=1700000000.0, extensions={})
    """

    __module__ = "karrow"

    value: Secret
    expires_at: float | None
    extensions: Mapping[str, str] = field(hash=False)

    def __init__(
        self,
        value: str | Secret,
        expires_at: float | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        secret = Secret(value)
        if not _TOKEN.fullmatch(secret.reveal()):
            raise ConfigError("the token is empty or holds blanks or control characters")
        expiry = _jwt_expiry(secret.reveal()) if expires_at is None else expires_at
        object.__setattr__(self, "value", secret)
        object.__setattr__(self, "expires_at", expiry)
        object.__setattr__(self, "extensions", check_extensions(extensions))


TokenLike = str | Secret | Token | tuple[str, float]


def token_from(given: object) -> Token:
    """What a provider returned as a Token: text, a Token, or (text, expiry)."""
    match given:
        case Token():
            return given
        case str() | Secret():
            return Token(given)
        case (str() | Secret() as value, int() | float() as expires_at):
            return Token(value, expires_at)
        case _:
            raise AuthenticationError(
                f"the token provider returned a {type(given).__name__}",
                hint="it has to return the token as str, (str, expiry in seconds) or Token",
            )


def check_extensions(extensions: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of the extensions, or a ConfigError that names the bad one (KIP-342)."""
    checked = dict(extensions or {})
    for name, value in checked.items():
        if name == _RESERVED:
            raise ConfigError("the extension name 'auth' is taken by the token itself")
        if not _EXTENSION_NAME.fullmatch(name):
            raise ConfigError(f"the extension name {name!r} is not made of letters only")
        if not _EXTENSION_VALUE.fullmatch(value):
            raise ConfigError(f"the value of extension {name!r} is empty or has odd characters")
    return checked


def _jwt_expiry(token: str) -> float | None:
    """The expiry that a JSON Web Token claims; nothing is verified, the broker does that."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    expiry = claims.get("exp") if isinstance(claims, dict) else None
    return float(expiry) if isinstance(expiry, int | float) else None


async def call_provider(provider: Callable[[], _T | Awaitable[_T]]) -> _T:
    """Call a provider of tokens or keys: a coroutine function here, any other in a thread.

    Its own errors stay the cause, but their text is not repeated, since it may hold a secret.
    """
    try:
        if inspect.iscoroutinefunction(provider):
            return cast("_T", await provider())
        answer = await asyncio.to_thread(provider)
        return cast("_T", await answer) if inspect.isawaitable(answer) else answer
    except KarrowError:
        raise
    except Exception as cause:
        error = AuthenticationError(f"the provider of credentials raised {type(cause).__name__}")
        error.retriable = isinstance(cause, OSError)  # its own server may be back in a moment
        raise error from cause
