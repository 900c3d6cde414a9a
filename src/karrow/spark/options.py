"""Options as Spark writes them: names without case, all of them texts, Kafka's behind ``kafka.``.

Rules:
- An option that nobody knows is refused by name: a misspelt one must not count as not given.
- Errors name what stands in the program: ``kafka.bootstrap.servers``, not karrow's bootstrap.
- No message has a value that may be secret, and nothing made here is pickled: Spark carries the
  options as texts to where they are needed, and each process reads them for itself.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar, cast

from karrow import config as karrow_config
from karrow.config import ClientConfig, FetchConfig
from karrow.config.dialects import properties
from karrow.config.option import nearest
from karrow.errors import ConfigError
from karrow.spark import login

__all__ = [
    "CONNECTION_KEYS",
    "KAFKA",
    "SERVERS",
    "SPARK_KEYS",
    "check_known",
    "choice",
    "connection",
    "count",
    "flag",
    "known_names",
    "of_connection",
    "text",
]

KAFKA = "kafka."
SERVERS = KAFKA + "bootstrap.servers"

# What Spark itself puts among the options of sources and sinks, or lets users put there.
SPARK_KEYS = frozenset({"checkpointLocation", "path", "paths", "queryName", "outputMode"})
# What belongs to the connection without the prefix.
CONNECTION_KEYS = frozenset({"credentials", "isolation"})

_TRUTH = {"true": True, "false": False}
# What clients are told to give and Spark's options cannot hold, and what can be given instead.
_INSTEAD = {
    r"give (?:sasl|tls)=(\w+(?:\(\w*\))?)(?: beside the properties)?": (
        r"credentials=module:function names a function that returns \1"
    ),
    r"set tls=, use Scram, or allow it with allow_plaintext_password=True": (
        "set security.protocol=SASL_SSL, use SCRAM, or allow it with "
        "security.protocol=SASL_PLAINTEXT"
    ),
    r"credentials go into sasl=": "a login goes into credentials or sasl.username",
    r"tls= and sasl= say": "security.protocol and credentials say",
}

_ConfigT = TypeVar("_ConfigT", bound=ClientConfig)


# ---- the connection


def connection(options: Mapping[str, str], into: type[_ConfigT]) -> _ConfigT:
    """What the options say about Kafka itself; the same object for the same options."""
    given = of_connection(options)
    environ = os.environ if login.is_environment(given.get("credentials", "")) else {}
    variables = ((name, value) for name, value in environ.items() if name.startswith("KARROW_"))
    return cast("_ConfigT", _connection(frozenset(given.items()), frozenset(variables), into))  # type: ignore[arg-type]


def of_connection(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are about Kafka itself."""
    return {
        name.lower(): value
        for name, value in options.items()
        if name.lower().startswith(KAFKA) or name.lower() in CONNECTION_KEYS
    }


# A provider of tokens is a new object whenever it is made, and clients are kept by what they were
# made of: so the same options have to give the same object.
@functools.lru_cache(maxsize=64)
def _connection(
    given: frozenset[tuple[str, str]],
    environ: frozenset[tuple[str, str]],
    into: type[ClientConfig],
) -> ClientConfig:
    options = dict(given)
    kafka = {n.removeprefix(KAFKA): v for n, v in options.items() if n.startswith(KAFKA)}
    _check_servers(kafka)
    named = known_names(into)
    for name in kafka:
        if name not in named:
            raise unknown(KAFKA + name, [KAFKA + known for known in named])
    isolation = _isolation(options, kafka, into)
    try:
        source = options.get("credentials", "").strip()
        extra = {**isolation, **login.read(source, kafka, dict(environ))}
        return karrow_config.from_properties(kafka, dialect="java", into=into, **extra)
    except ConfigError as error:
        raise _in_sparks_words(error, into) from None


def _check_servers(kafka: Mapping[str, str]) -> None:
    if not kafka.get("bootstrap.servers", "").strip():
        raise ConfigError(
            f"{SERVERS} is missing", hint=f".option('{SERVERS}', 'host:port,host:port')"
        )


def known_names(into: type[ClientConfig]) -> list[str]:
    """What may stand behind ``kafka.``: Java's names, and those of logins without JAAS."""
    return [*properties("java", into), *login.NAMES]


def _isolation(
    options: Mapping[str, str], kafka: Mapping[str, str], into: type[ClientConfig]
) -> dict[str, Any]:
    own, theirs = options.get("isolation"), kafka.get("isolation.level")
    if own is None:
        return {}
    if not issubclass(into, FetchConfig):
        raise ConfigError("isolation is an option of sources, and this is a sink")
    level = choice(options, "isolation", ("read_uncommitted", "read_committed"), "")
    if theirs is not None and theirs.strip().lower() != level:
        raise ConfigError(
            f"isolation={own} and kafka.isolation.level={theirs} contradict each other",
            hint="they mean the same; leave out one",
        )
    return {"isolation": level}


def _in_sparks_words(error: ConfigError, into: type[ClientConfig]) -> ConfigError:
    """The error with the names, and the units, that stand in the program."""
    about = into.describe().items()
    own = {name: one.java for name, one in about if one.java is not None}
    names = sorted(known_names(into), key=len, reverse=True)
    foreign = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, names))})(?![\w-]|\.\w)")
    # karrow's own names are words like any other, unless a value follows.
    ours = re.compile(rf"(?<![\w./-])({'|'.join(own)})(?:=([\d.]+)|(?==)|(?= '))")

    def translated(match: re.Match[str]) -> str:
        name, number = own[match[1]], match[2]
        if number is None:
            return name
        return f"{name}={float(number) * 1000:g}" if name.endswith(".ms") else f"{name}={number}"

    def spoken(text: str) -> str:
        for told, instead in _INSTEAD.items():
            text = re.sub(told, instead, text)
        return foreign.sub(rf"{KAFKA}\1", ours.sub(translated, text))

    hint = None if error.hint is None else spoken(error.hint)
    return ConfigError(spoken(error.message), hint=hint)


# ---- the other options


def check_known(options: Iterable[str], known: Collection[str]) -> None:
    """Refuse what is neither known, nor Kafka's, nor Spark's."""
    everything = {name.lower(): name for name in (*known, *CONNECTION_KEYS, *SPARK_KEYS)}
    for name in options:
        if name.lower() not in everything and not name.lower().startswith(KAFKA):
            raise unknown(name, everything.values(), everything)


def unknown(
    name: str, known: Iterable[str], by_lower: Mapping[str, str] | None = None
) -> ConfigError:
    """The error for an option that does not exist, with the nearest that does."""
    lower = by_lower or {one.lower(): one for one in known}
    near = nearest(name.lower(), lower)
    hint = f"did you mean {lower[near]!r}?" if near else "docs/spark.md has a table of all options"
    return ConfigError(f"there is no option {name!r}", hint=hint)


def text(options: Mapping[str, str], name: str) -> str | None:
    """An option's text without space around it; None when it is not given."""
    found = _find(options, name)
    if found is None:
        return None
    if not found.strip():
        raise ConfigError(f"{name} is empty")
    return found.strip()


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false."""
    found = text(options, name)
    if found is None:
        return default
    if found.lower() not in _TRUTH:
        raise ConfigError(f"{name}={found!r} is neither true nor false")
    return _TRUTH[found.lower()]


def count(options: Mapping[str, str], name: str) -> int | None:
    """An option that is a whole number above zero; None when it is not given."""
    found = text(options, name)
    if found is None:
        return None
    try:
        number = int(found)
    except ValueError:
        raise ConfigError(f"{name}={found!r} is no whole number") from None
    if number <= 0:
        raise ConfigError(f"{name}={found} is not above zero")
    return number


def choice(options: Mapping[str, str], name: str, choices: Collection[str], default: str) -> str:
    """An option that is one of a few words, in any case."""
    found = text(options, name)
    if found is None:
        return default
    if found.lower() not in choices:
        raise ConfigError(f"{name}={found!r} is none of {', '.join(map(repr, choices))}")
    return found.lower()


def _find(options: Mapping[str, str], name: str) -> str | None:
    """Spark's mapping has lower case only; a plain dict of a test may have any."""
    if name in options:
        return options[name]
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)
