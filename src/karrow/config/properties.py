"""Option sets from property names, as librdkafka and Kafka's Java client write them."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, overload

from karrow.config import security
from karrow.config.client import MAX_BUFFER_BYTES, MEBIBYTE, PAIRED, ClientConfig
from karrow.config.consumer import ConsumerConfig
from karrow.config.dialects import Dialect, Property, properties
from karrow.config.fetch import FRAME_OVERHEAD
from karrow.config.files import parse_properties
from karrow.config.option import Options, nearest
from karrow.config.producer import MAX_IDEMPOTENT_IN_FLIGHT
from karrow.config.producer_properties import level_property
from karrow.errors import ConfigError

__all__ = ["from_file", "from_properties"]

_ConfigT = TypeVar("_ConfigT", bound=ClientConfig)

_log = logging.getLogger(__name__)
_told: set[tuple[Dialect, str]] = set()

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


@overload
def from_properties(
    mapping: Mapping[str, Any], *, dialect: Dialect, into: type[_ConfigT], **options: Any
) -> _ConfigT: ...
@overload
def from_properties(
    mapping: Mapping[str, Any], *, dialect: Dialect, **options: Any
) -> ClientConfig: ...
def from_properties(
    mapping: Mapping[str, Any],
    *,
    dialect: Dialect,
    into: type[ClientConfig] = ClientConfig,
    **options: Any,
) -> ClientConfig:
    """A set of options from property names; keyword arguments go before them.

    An unknown property is refused, with the nearest name; one without effect here is logged once.

    >>> from_properties({"bootstrap.servers": "b1", "request.timeout.ms": 500}, dialect="java")\
.request_timeout
    0.5
    """
    known = properties(dialect, into)
    for name in mapping:
        _check_known(dialect, name, known, into)
    read: dict[str, Any] = {}
    for name in _effective(mapping, options):
        row = known[name]
        if row.treatment == "supported" and row.option and row.option not in ("tls", "sasl"):
            _set(read, row.option, _converted(row, mapping[name], into), name)
    _lift_maxima(read)
    _yield_idempotence(read, into, options)
    if issubclass(into, ConsumerConfig):
        _fit_fetches(read, options)
        _reset_by_age(read, options)
    read |= security.read(dialect, mapping, given=options)
    return into.make(None, {**read, **options})


@overload
def from_file(
    path: str | os.PathLike[str], *, dialect: Dialect, into: type[_ConfigT], **options: Any
) -> _ConfigT: ...
@overload
def from_file(
    path: str | os.PathLike[str], *, dialect: Dialect, **options: Any
) -> ClientConfig: ...
def from_file(
    path: str | os.PathLike[str],
    *,
    dialect: Dialect,
    into: type[ClientConfig] = ClientConfig,
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
    return from_properties(mapping, dialect=dialect, into=into, **options)


def _effective(mapping: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """The properties that count: of Java's levels of compression, that of the codec in use."""
    codec = str(options.get("compression", mapping.get("compression.type"))).strip().lower()
    unused = {level_property(other) for other in ("gzip", "lz4", "zstd") if other != codec}
    return [name for name in mapping if name not in unused]


def _lift_maxima(read: dict[str, Any]) -> None:
    """A first wait above karrow's own limit lifts the limit, unless that was set too."""
    defaults = ClientConfig()
    for name in PAIRED:
        if name in read and f"{name}_max" not in read:
            read[f"{name}_max"] = max(read[name], getattr(defaults, f"{name}_max"))


def _yield_idempotence(
    read: dict[str, Any], into: type[Options], options: Mapping[str, Any]
) -> None:
    """Where no word is said of idempotence, properties that exclude it switch it off.

    So both peers do; what depends on idempotence is a word said of it.
    """
    given = {**read, **options}
    if "idempotent" not in into.describe() or "idempotent" in given:
        return
    if given.get("gapless") or given.get("transactional_id") is not None:
        return
    said = {name: value for name, value in read.items() if name not in options}
    weak = said.get("acks") in (0, 1)
    if weak or said.get("max_in_flight", 1) > MAX_IDEMPOTENT_IN_FLIGHT:
        read["idempotent"] = False


def _fit_fetches(read: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Make limits of fetches fit each other, as both peers do, where no argument sets them."""
    given = {**read, **options}
    defaults = ConsumerConfig()
    max_bytes = given.get("max_bytes", defaults.max_bytes)
    partition = given.get("partition_max_bytes", defaults.partition_max_bytes)
    if "partition_max_bytes" not in options and partition > max_bytes:
        read["partition_max_bytes"] = max_bytes
    fitting = max_bytes + FRAME_OVERHEAD
    if "max_frame_bytes" not in given and fitting > defaults.max_frame_bytes:
        read["max_frame_bytes"] = min(max_bytes + MEBIBYTE, MAX_BUFFER_BYTES)


def _reset_by_age(read: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Java's by_duration holds for offsets that are gone as well (KIP-1106)."""
    if isinstance(read.get("start"), timedelta) and "start" not in options:
        read["out_of_range"] = read["start"]


def _check_known(
    dialect: Dialect, name: str, known: dict[str, Property], into: type[Options]
) -> None:
    row = known.get(name)
    if row is None:
        near = nearest(name, known)
        hint = f"did you mean {near!r}?" if near else None
        role = into.__name__.removesuffix("Config").lower()
        raise ConfigError(f"{dialect} has no {role} property {name!r}", hint=hint)
    if row.treatment == "refused":
        raise ConfigError(f"{name} is not supported", hint=row.reason)
    if row.treatment == "ignored" and (dialect, name) not in _told:
        _told.add((dialect, name))
        _log.info("%s has no effect: %s", name, row.reason)


def _set(read: dict[str, Any], option: str, value: Any, name: str) -> None:
    if option in read and read[option] != value:
        raise ConfigError(f"{name} contradicts another property that sets the same")
    read[option] = value


def _converted(row: Property, value: Any, into: type[Options]) -> Any:
    """The value in karrow's units; texts as in property files are read."""
    if callable(row.meanings):
        return row.meanings(value)
    about = into.describe()[str(row.option)]
    if about.unit is not None:
        number = _number(row.name, value)
        return row.meanings[number] if number in row.meanings else _scaled(row.name, number)
    if into.is_flag(str(row.option)):
        return _flag(row.name, value)
    text = value.strip().lower() if isinstance(value, str) else value
    return row.meanings[text] if text in list(row.meanings) else about.chosen(value)


def _scaled(name: str, number: float) -> float:
    """A property's number in karrow's units; the property's own stands at the end of its name."""
    if name.endswith(".ms"):
        return number / 1000
    return int(number) * (1024 if name.endswith(".kbytes") else 1)


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}={value!r} is no number") from None
    if not math.isfinite(number):
        raise ConfigError(f"{name}={value!r} is no number")
    return number


def _flag(name: str, value: Any) -> bool:
    flag = _TRUTH.get(str(value).strip().lower())
    if flag is None:
        raise ConfigError(f"{name}={value!r} is neither true nor false")
    return flag
