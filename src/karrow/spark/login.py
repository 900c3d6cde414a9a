"""Who we are, where Kafka's own properties do not say: ``credentials``, and a user without JAAS.

Rules:
- Credentials that give nothing are an error, or a program would connect as nobody.
- What credentials give goes beside the options and never over them: what contradicts is refused.
- What a function of the user raises stays as it is, with a note on who has called it.
- Properties have Java's names here; whoever reads Spark's options tells them with their prefix.
"""

from __future__ import annotations

import functools
import importlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from karrow.config import TLS, ClientConfig, MskIam, Plain, Scram, sasl
from karrow.config.dialects import properties
from karrow.errors import ConfigError

__all__ = ["EVERYWHERE", "NAMES", "NOT_SET", "is_environment", "is_set", "read"]

# For logins without JAAS; Java has no such names.
NAMES = ("sasl.username", "sasl.password")
_ENVIRONMENT = "environment"
_SASL, _TLS = "KARROW_SASL_", "KARROW_TLS_"
_MECHANISM = _SASL + "MECHANISM"
_FORMS = (
    "'environment' reads KARROW_SASL_* and KARROW_TLS_*, 'module:function' calls what gives a "
    "mechanism, a TLS, or a dict of both"
)
NOT_SET = f"neither {_MECHANISM} nor any {_TLS}* is set"
EVERYWHERE = (
    "every process that connects needs them; executors get theirs by spark.executorEnv."
    f"{_MECHANISM} and so on"
)
_NO_LOGIN, _NO_TLS = ("PLAINTEXT", "SSL"), ("PLAINTEXT", "SASL_PLAINTEXT")


def read(source: str, kafka: dict[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """The options sasl and tls where no property makes them; takes out what Java does not know."""
    user, password = (kafka.pop(name, None) for name in NAMES)
    if source:
        if user or password or "sasl.jaas.config" in kafka:
            raise ConfigError(
                "credentials and a login among the options contradict each other",
                hint="leave out sasl.jaas.config, sasl.username and sasl.password",
            )
        made = _of_environment(environ) if is_environment(source) else _of_function(source)
        _check_agreement(made, kafka, f"credentials={source}")
        return made
    if user is None and password is None:
        return {}
    if "sasl.jaas.config" in kafka:
        raise ConfigError("sasl.jaas.config and sasl.username are two logins; leave out one")
    made = {"sasl": _of_user(kafka.get("sasl.mechanism", ""), user, password)}
    _check_agreement(made, kafka, "sasl.username")
    return made


def is_environment(source: str) -> bool:
    """Whether credentials of that text stand in the environment."""
    return source.strip().lower() == _ENVIRONMENT


def is_set(environ: Mapping[str, str]) -> bool:
    """Whether an environment has anything of a login."""
    return any(name.startswith((_SASL, _TLS)) for name in environ)


# ---- where they come from


def _of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    made = {"sasl": sasl.from_env(environ), "tls": TLS.from_env(environ)}
    halves = sorted(name for name in environ if name.startswith(_SASL))
    if made["sasl"] is None and halves:
        raise ConfigError(
            f"credentials=environment finds {halves[0]}, and no {_MECHANISM}", hint=EVERYWHERE
        )
    found = {name: value for name, value in made.items() if value is not None}
    if not found:
        raise ConfigError(f"credentials=environment finds no login: {NOT_SET}", hint=EVERYWHERE)
    return found


def _of_function(source: str) -> dict[str, Any]:
    """What a function of the user gives: called in every process that connects."""
    function = _function(source)
    try:
        made = function()
    except Exception as error:
        error.add_note(f"raised by the function of credentials={source}")
        raise
    if isinstance(made, TLS | ssl.SSLContext):
        made = {"tls": made}
    elif not isinstance(made, Mapping):
        made = {"sasl": made}
    if strange := sorted(str(name) for name in made if name not in ("sasl", "tls")):
        raise ConfigError(
            f"credentials={source} gave a dict with {', '.join(strange)}", hint=_FORMS
        )
    found = {name: one for name, one in made.items() if one is not None and one is not False}
    if not found:
        raise ConfigError(f"credentials={source} gave no login", hint=_FORMS)
    return found


def _function(source: str) -> Callable[[], Any]:
    module, _, name = source.partition(":")
    if not module or not name:
        raise ConfigError(f"credentials={source!r} names no function", hint=_FORMS)
    try:
        home = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"credentials={source!r}: {error}", hint=_FORMS) from None
    found: Callable[[], Any] | None = getattr(home, name, None)
    if found is None:
        raise ConfigError(f"credentials: {module} has no {name}", hint=_FORMS)
    if not callable(found):
        raise ConfigError(f"credentials: {name} of {module} is no function", hint=_FORMS)
    return found


def _of_user(mechanism: str, user: str | None, password: str | None) -> Plain | Scram:
    if not user or not password:
        raise ConfigError("sasl.username and sasl.password belong together")
    match mechanism.strip().upper():
        case "PLAIN":
            return Plain(user, password)
        case "SCRAM-SHA-256" | "SCRAM-SHA-512" as name:
            return Scram(user, password, name)
        case "":
            raise ConfigError(
                "sasl.username is set, and sasl.mechanism is not",
                hint="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
            )
        case other:
            raise ConfigError(
                f"sasl.mechanism={other} has no sasl.username",
                hint="PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 have",
            )


# ---- what stands beside them


def _check_agreement(made: Mapping[str, Any], kafka: Mapping[str, str], giver: str) -> None:
    """Refuse properties that say something else than the login, or would not be looked at."""
    login, tls = made.get("sasl"), made.get("tls")
    protocol = kafka.get("security.protocol", "").strip().upper()
    mechanism = kafka.get("sasl.mechanism", "").strip().upper()
    if login is not None and protocol in _NO_LOGIN:
        raise _contradiction(f"security.protocol={protocol}", f"the login of {giver}")
    if tls is not None and protocol in _NO_TLS:
        raise _contradiction(f"security.protocol={protocol}", f"the TLS of {giver}")
    if login is None and protocol.startswith("SASL_") and mechanism != sasl.MSK_NAME:
        raise ConfigError(
            f"security.protocol={protocol} needs a login, and {giver} gives TLS alone",
            hint=f"it takes {_MECHANISM} and what that needs, or a function that gives both",
        )
    names = _names(login)
    if names and mechanism and mechanism not in names:
        raise _contradiction(f"sasl.mechanism={mechanism}", f"the {names[0]} of {giver}")
    twice = sorted(_of_tls() & kafka.keys()) if tls is not None else []
    if twice:
        raise _contradiction(twice[0], f"the TLS of {giver}")


def _contradiction(one: str, other: str) -> ConfigError:
    return ConfigError(f"{one} and {other} contradict each other", hint="leave out one of them")


def _names(login: Any) -> tuple[str, ...]:
    """What a mechanism may be called; what is no mechanism has none, and is refused elsewhere."""
    if not hasattr(login, "name"):
        return ()
    name = str(login.name).upper()
    return (name, sasl.MSK_NAME) if isinstance(login, MskIam) else (name,)


@functools.cache
def _of_tls() -> frozenset[str]:
    rows = properties("java", ClientConfig).values()
    return frozenset(one.name for one in rows if one.option == "tls") - {"security.protocol"}
