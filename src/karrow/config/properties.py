"""Option sets from property names, as librdkafka and Kafka's Java client write them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from karrow.config import security
from karrow.config.client import PAIRED, ClientConfig
from karrow.config.dialects import Dialect, Property, properties
from karrow.config.files import parse_properties
from karrow.config.option import Option, nearest
from karrow.errors import ConfigError

if TYPE_CHECKING:
    from karrow.config.option import Options

__all__ = ["from_file", "from_properties"]

_log = logging.getLogger(__name__)
_told: set[tuple[Dialect, str]] = set()

FOREVER = 1e9  # seconds; what -1 and 0 mean where both dialects switch something off
_NEVER = {
    "connections.max.idle.ms",
    "topic.metadata.refresh.interval.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
}
_SETS: dict[str, type[Options]] = {"client": ClientConfig}
_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def from_properties(
    mapping: Mapping[str, Any],
    *,
    dialect: Dialect,
    role: Literal["client"] = "client",
    **options: Any,
) -> ClientConfig:
    """A set of options from property names; keyword arguments go before them.

    An unknown property is refused, with the nearest name; one without effect here is logged once.

    >>> from_properties({"bootstrap.servers": "b1", "request.timeout.ms": 500}, dialect="java")\
.request_timeout
    0.5
    """
    known = properties(dialect, _SETS[role])
    for name in mapping:
        _check_known(dialect, name, known)
    about = ClientConfig.describe()
    read: dict[str, Any] = {}
    for name, value in mapping.items():
        option = known[name].option
        if known[name].treatment == "supported" and option and option not in ("tls", "sasl"):
            _set(read, option, _converted(name, value, about[option]), name)
    _lift_maxima(read)
    read |= security.read(dialect, mapping, given=options)
    return ClientConfig.make(None, {**read, **options})


def from_file(
    path: str | os.PathLike[str],
    *,
    dialect: Dialect,
    role: Literal["client"] = "client",
    **options: Any,
) -> ClientConfig:
    """A set of options from a property file; see ``from_properties``."""
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{os.fspath(path)} is not UTF-8") from None
    try:
        mapping = parse_properties(text, dialect)
    except ConfigError as error:
        raise ConfigError(f"{os.fspath(path)}: {error.message}", hint=error.hint) from None
    return from_properties(mapping, dialect=dialect, role=role, **options)


def _lift_maxima(read: dict[str, Any]) -> None:
    """A first wait above karrow's own limit lifts the limit, unless that was set too."""
    defaults = ClientConfig()
    for name in PAIRED:
        if name in read and f"{name}_max" not in read:
            read[f"{name}_max"] = max(read[name], getattr(defaults, f"{name}_max"))


def _check_known(dialect: Dialect, name: str, known: dict[str, Property]) -> None:
    row = known.get(name)
    if row is None:
        near = nearest(name, known)
        hint = f"did you mean {near!r}?" if near else None
        raise ConfigError(f"{dialect} has no client property {name!r}", hint=hint)
    if row.treatment == "refused":
        raise ConfigError(f"{name} is not supported", hint=row.reason)
    if row.treatment == "ignored" and (dialect, name) not in _told:
        _told.add((dialect, name))
        _log.info("%s has no effect: %s", name, row.reason)


def _set(read: dict[str, Any], option: str, value: Any, name: str) -> None:
    if option in read and read[option] != value:
        raise ConfigError(f"{name} contradicts another property that sets the same")
    read[option] = value


def _converted(name: str, value: Any, about: Option) -> Any:
    """The value in karrow's units; texts as in property files are read."""
    if about.unit == "seconds":
        milliseconds = _number(name, value)
        off = name in _NEVER and milliseconds in (0, -1)
        return FOREVER if off else milliseconds / 1000
    if about.unit is not None:
        size = int(_number(name, value))
        return None if "buffer.bytes" in name and size in (0, -1) else size
    if name in ("allow.auto.create.topics", "socket.keepalive.enable"):
        return _flag(name, value)
    return value


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}={value!r} is no number") from None


def _flag(name: str, value: Any) -> bool:
    flag = _TRUTH.get(str(value).strip().lower())
    if flag is None:
        raise ConfigError(f"{name}={value!r} is neither true nor false")
    return flag
