"""SASL credentials as values; ``karrow.wire.sasl`` turns one into an exchange with a broker.

A mechanism of one's own is any object with ``name``, ``start()`` and ``step(challenge)``. Several
connections may authenticate at once: one that keeps state between start and step has a method
``session(host)`` instead, which gives a fresh object for each (and may be async).
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from karrow.config.msk import MskIam
from karrow.config.secret import Secret
from karrow.config.token import Token, TokenLike, call_provider, check_extensions, token_from
from karrow.errors import ConfigError

__all__ = [
    "Exchange",
    "Mechanism",
    "MskIam",
    "OAuthBearer",
    "Plain",
    "Scram",
    "ScramName",
    "SessionFactory",
    "Token",
    "check_mechanism",
    "from_env",
]

ScramName = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
SCRAM_NAMES: tuple[ScramName, ScramName] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MSK_NAME = "AWS_MSK_IAM"


@runtime_checkable
class Exchange(Protocol):
    """One authentication on one connection, as bytes in and bytes out.

    ``step`` gets what the broker sent and gives what to send next, None when there is nothing
    more to say. An exchange that has to verify the broker too has an attribute ``done``.
    """

    @property
    def name(self) -> str:
        """What the handshake names, such as PLAIN."""

    def start(self) -> bytes:
        """The first bytes to send."""

    def step(self, challenge: bytes) -> bytes | None:
        """The next bytes to send."""


@runtime_checkable
class SessionFactory(Protocol):
    """A mechanism that makes an exchange for each connection."""

    @property
    def name(self) -> str:
        """What the handshake names."""

    def session(self, host: str) -> Exchange | Awaitable[Exchange]:
        """A fresh exchange with the broker at ``host``."""


@dataclass(frozen=True, slots=True, init=False)
class Plain:
    """User and password in clear text: only over TLS, unless it is allowed by name.

    >>> Plain("alice", "hunter2")
    Plain(user='alice', password=***)
    """

    __module__ = "karrow"

    user: str
    password: Secret

    def __init__(self, user: str, password: str | Secret) -> None:
        _set_login(self, user, password)
        if "\0" in user or "\0" in self.password.reveal():
            raise ConfigError("PLAIN cannot carry a NUL character")

    @property
    def name(self) -> str:
        """What the handshake names."""
        return "PLAIN"


@dataclass(frozen=True, slots=True, init=False)
class Scram:
    """User and password, of which neither side shows the other more than a proof.

    With ``delegation_token`` the two are a token's id and its HMAC (KIP-48).

    >>> Scram("alice", "hunter2").name
    'SCRAM-SHA-512'
    """

    __module__ = "karrow"

    user: str
    password: Secret
    mechanism: ScramName
    delegation_token: bool

    def __init__(
        self,
        user: str,
        password: str | Secret,
        mechanism: ScramName = "SCRAM-SHA-512",
        *,
        delegation_token: bool = False,
    ) -> None:
        _set_login(self, user, password)
        if mechanism not in SCRAM_NAMES:
            raise ConfigError(f"mechanism={mechanism!r} is none of {', '.join(SCRAM_NAMES)}")
        object.__setattr__(self, "mechanism", mechanism)
        object.__setattr__(self, "delegation_token", delegation_token)

    @property
    def name(self) -> str:
        """What the handshake names."""
        return self.mechanism


@dataclass(frozen=True, slots=True, init=False)
class OAuthBearer:
    """A bearer token for each connection.

    ``provider`` is called for every connection and re-authentication, so it should cache; an
    async function is awaited on the client's loop, any other is called in a thread. It returns the
    token as str, ``(str, expiry in seconds since 1970)`` or ``Token``.

    >>> OAuthBearer(lambda: "token", extensions={"traceId": "7"}).name
    'OAUTHBEARER'
    """

    __module__ = "karrow"

    provider: Callable[[], TokenLike | Awaitable[TokenLike]]
    extensions: Mapping[str, str] = field(hash=False)

    def __init__(
        self,
        provider: Callable[[], TokenLike | Awaitable[TokenLike]],
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        if not callable(provider):
            raise ConfigError("the provider of OAuthBearer is not callable")
        object.__setattr__(self, "provider", provider)
        object.__setattr__(self, "extensions", check_extensions(extensions))

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], extensions: Mapping[str, str] | None = None
    ) -> OAuthBearer:
        """Tokens from a file that somebody else keeps fresh, read for each connection."""
        return cls(lambda: Path(path).read_text("utf-8").strip(), extensions)

    @property
    def name(self) -> str:
        """What the handshake names."""
        return "OAUTHBEARER"

    async def token(self, _host: str) -> Token:
        """A token for one connection."""
        return token_from(await call_provider(self.provider))


Mechanism = Plain | Scram | OAuthBearer | MskIam | Exchange | SessionFactory


def _set_login(mechanism: Plain | Scram, user: str, password: str | Secret) -> None:
    if not user:
        raise ConfigError(f"{type(mechanism).__name__} needs a user")
    object.__setattr__(mechanism, "user", user)
    object.__setattr__(mechanism, "password", Secret(password))


def check_mechanism(mechanism: object) -> None:
    """Refuse what is no mechanism, without showing it: it may be a password."""
    known = isinstance(mechanism, Plain | Scram | OAuthBearer | MskIam)
    if known or isinstance(mechanism, Exchange | SessionFactory):
        return
    raise ConfigError(
        f"sasl cannot be a {type(mechanism).__name__}",
        hint="give Plain, Scram, OAuthBearer, MskIam, or an object with name, start and step",
    )


def from_env(
    environ: Mapping[str, str] | None = None, *, prefix: str = "KARROW_SASL_"
) -> Plain | Scram | OAuthBearer | MskIam | None:
    """From KARROW_SASL_MECHANISM and what it needs; None when that is not set.

    PLAIN and SCRAM read KARROW_SASL_USERNAME and KARROW_SASL_PASSWORD, OAUTHBEARER
    KARROW_SASL_TOKEN_FILE or KARROW_SASL_TOKEN, AWS_MSK_IAM the variables of AWS.
    """
    environ = os.environ if environ is None else environ

    def needed(name: str) -> str:
        if not environ.get(prefix + name):
            raise ConfigError(f"{prefix}{name} is not set, and {mechanism} needs it")
        return environ[prefix + name]

    match mechanism := environ.get(f"{prefix}MECHANISM", "").upper():
        case "":
            return None
        case "PLAIN":
            return Plain(needed("USERNAME"), needed("PASSWORD"))
        case "SCRAM-SHA-256" | "SCRAM-SHA-512":
            return Scram(needed("USERNAME"), needed("PASSWORD"), mechanism)
        case "OAUTHBEARER" if f"{prefix}TOKEN_FILE" in environ:
            return OAuthBearer.from_file(needed("TOKEN_FILE"))
        case "OAUTHBEARER":
            token = Secret(needed("TOKEN"))
            return OAuthBearer(lambda: token)
        case "AWS_MSK_IAM":
            return MskIam()
        case _:
            known = ", ".join(["PLAIN", *SCRAM_NAMES, "OAUTHBEARER", MSK_NAME])
            raise ConfigError(f"{prefix}MECHANISM={mechanism} is none of {known}")
