"""Options as dataclass fields: what each means, its limits, and how a set of them is made.

A set of options is a frozen dataclass that inherits from Options; its fields are made by
``option``. Values are checked once, when the set is made, and errors name the option.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Literal, Self

from karrow.errors import ConfigError

__all__ = ["ENV_PREFIX", "Option", "Options", "Unit", "nearest", "option"]

ENV_PREFIX = "KARROW_"
NEAR_ENOUGH = 0.85  # a variable this much like an option's is a typing error, not somebody else's

Unit = Literal["seconds", "bytes", "count", "level"]
Status = Literal["stable", "experimental", "deprecated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What there is to know about an option besides its type and default.

    ``librdkafka`` and ``java`` are the property that says the same in those dialects, None where
    there is none; ``above`` excludes its bound, ``minimum`` and ``maximum`` include theirs.
    """

    doc: str
    unit: Unit | None = None
    above: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str | int, ...] = ()
    librdkafka: str | None = None
    java: str | None = None
    status: Status = "stable"
    positional: bool = False

    def check(self, name: str, value: Any) -> Any:
        """The value as the dataclass holds it; a ConfigError when it does not fit."""
        # True is no 1 here, though Python says they are equal.
        if self.choices and (isinstance(value, bool) or value not in self.choices):
            allowed = ", ".join(map(repr, self.choices))
            raise ConfigError(f"{name}={value!r} is none of {allowed}")
        return value if self.unit is None else self._number(name, value)

    def chosen(self, value: Any) -> Any:
        """The choice that a text from outside names; anything else as it is."""
        if not isinstance(value, str):
            return value
        text = value.strip().lower()
        return next((choice for choice in self.choices if str(choice) == text), value)

    def _number(self, name: str, value: Any) -> float:
        if self.unit == "seconds" and isinstance(value, timedelta):
            value = value.total_seconds()
        number_type = (int, float) if self.unit == "seconds" else int
        if isinstance(value, bool) or not isinstance(value, number_type):
            kind = "a number of seconds" if self.unit == "seconds" else "an integer"
            raise ConfigError(f"{name}={value!r} is not {kind}")
        if not self._fits(value):
            raise ConfigError(f"{name}={value!r} is outside its range, {self.range}")
        return float(value) if self.unit == "seconds" else value

    def _fits(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.above is None or value > self.above)
            and (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
        )

    @property
    def range(self) -> str:
        """Its limits in words, empty when it has none."""
        bounds = (("above", self.above), ("from", self.minimum), ("to", self.maximum))
        return " ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)


def option(default: Any, **about: Any) -> Any:
    """A dataclass field with its Option as metadata."""
    return dataclasses.field(default=default, metadata={"option": Option(**about)})


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a wrong one, None when none is like it."""
    found = get_close_matches(name, list(known), 1)
    return found[0] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Base of the option sets: checks on making one, changed copies, the environment."""

    def __post_init__(self) -> None:
        for name, about in self.describe().items():
            value = getattr(self, name)
            if value is not None or not _optional(type(self), name):
                object.__setattr__(self, name, about.check(name, value))

    @classmethod
    def describe(cls) -> dict[str, Option]:
        """Every option of the set by its name."""
        return {field.name: field.metadata["option"] for field in dataclasses.fields(cls)}

    @classmethod
    def is_flag(cls, name: str) -> bool:
        """Whether an option is just true or false."""
        return _types(cls, name) == ["bool"]

    @classmethod
    def make(cls, config: Self | None, options: Mapping[str, Any]) -> Self:
        """The set that keyword arguments give, on top of ``config`` where there is one."""
        known = cls.describe()
        for name in options:
            if name not in known:
                raise unknown(name, known)
        return cls(**options) if config is None else dataclasses.replace(config, **options)

    def replace(self, **options: Any) -> Self:
        """A copy with other values."""
        return type(self).make(self, options)

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, prefix: str = ENV_PREFIX, **options: Any
    ) -> Self:
        """From variables such as KARROW_REQUEST_TIMEOUT; arguments go before the environment.

        Only plain values can come that way; ``karrow.config.from_env`` reads the others as well.
        """
        environ = os.environ if environ is None else environ
        readers = {name: _reader(cls, name) for name in cls.describe()}
        simple = {name: reader for name, reader in readers.items() if reader is not None}
        for variable in environ:
            name = variable.removeprefix(prefix).lower()
            if not variable.startswith(prefix) or name in simple:
                continue
            if near := get_close_matches(name, simple, 1, NEAR_ENOUGH):
                raise ConfigError(
                    f"{variable} is no option", hint=f"did you mean {prefix}{near[0].upper()}?"
                )
        read = {
            name: simple[name](f"{prefix}{name.upper()}", text)
            for name in sorted(simple)
            if (text := environ.get(f"{prefix}{name.upper()}")) is not None
        }
        return cls.make(None, {**read, **options})


def unknown(name: str, known: Mapping[str, Option]) -> ConfigError:
    """The error for an option that does not exist, naming the nearest that does."""
    if (meant := _called(name, known)) is not None:
        unit = known[meant].unit
        hint = f"here it is called {meant!r}" + (f", in {unit}" if unit == "seconds" else "")
    elif (near := nearest(name, known)) is not None:
        hint = f"did you mean {near!r}?"
    else:
        hint = f"the options are {', '.join(known)}"
    return ConfigError(f"there is no option {name!r}", hint=hint)


def _called(name: str, known: Mapping[str, Option]) -> str | None:
    """The option that other clients call so, as a property or as a keyword."""
    written = name.replace("_", ".")
    # A set's own options come behind those that it has inherited, and say more of it.
    called = [it for it, about in known.items() if written in (about.java, about.librdkafka)]
    return called[-1] if called else None


def _types(cls: type, name: str) -> list[str]:
    annotation = next(field.type for field in dataclasses.fields(cls) if field.name == name)
    return str(annotation).split(" | ")


def _optional(cls: type, name: str) -> bool:
    return "None" in _types(cls, name)


def _reader(cls: type[Options], name: str) -> Callable[[str, str], Any] | None:
    """What reads an option's variable; None for what no text can hold."""
    about = cls.describe()[name]
    if about.choices:
        return lambda _variable, text: about.chosen(text)
    return _READERS.get(_types(cls, name)[0])


def _read_bool(variable: str, text: str) -> bool:
    truth = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.strip().lower() not in truth:
        raise ConfigError(f"{variable}={text!r} is neither true nor false")
    return truth[text.strip().lower()]


def _read_float(variable: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{variable}={text!r} is no number") from None


def _read_int(variable: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{variable}={text!r} is no integer") from None


def _read_str(_variable: str, text: str) -> str:
    return text


_READERS: dict[str, Callable[[str, str], Any]] = {
    "bool": _read_bool,
    "float": _read_float,
    "int": _read_int,
    "str": _read_str,
    "Assignors": _read_str,
    "OutOfRange": _read_str,
    "Servers": _read_str,
    "Start": _read_str,
}
