"""A table of a pipeline's file: its keys taken one by one, what is left over refused by name.

Rules:
- An error says where it is: the file, the table and the key.
- A text may stand in the environment: ``env:NAME``. What may be secret (``settings``) is only read
  from there when it is needed, so that a file can be checked where its secrets are not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from karrow.config.option import nearest
from karrow.errors import ConfigError

__all__ = ["Setting", "Table"]

ENVIRONMENT = "env:"
# Settings whose value nobody should see, whoever asks for the plan.
_SECRET = re.compile(r"password|jaas|secret|token|credential|\.key(\.|$)|private", re.IGNORECASE)
_MASK = "***"

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that goes to Spark or Kafka as it is, and where it stands."""

    name: str
    raw: str
    where: str

    @property
    def variable(self) -> str | None:
        """The variable of the environment that holds it."""
        return self.raw.removeprefix(ENVIRONMENT) if self.raw.startswith(ENVIRONMENT) else None

    @property
    def value(self) -> str:
        """What it is; read from the environment now, if it stands there."""
        return self.raw if self.variable is None else _from_environment(self.variable, self.where)

    @property
    def known(self) -> bool:
        """Whether the value can be had here."""
        return self.variable is None or self.variable in os.environ

    @property
    def shown(self) -> str:
        """The value for plans and logs: never what is secret or comes from the environment."""
        secret = self.variable is None and _SECRET.search(self.name)
        return _MASK if secret else self.raw

    def __repr__(self) -> str:
        return f"{self.name} = {self.shown}"


class Table:
    """One table and the name under which errors mention it."""

    def __init__(self, values: object, origin: str, name: str = "") -> None:
        self.origin = origin
        self.name = name
        if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
            raise ConfigError(f"{self.where()} has to be a table of keys and values")
        self._values: Mapping[str, Any] = values
        self._taken: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def where(self, key: str | None = None) -> str:
        """The place in the file: ``orders.toml: [sources.orders] schema``."""
        parts = [f"[{self.name}]" if self.name else "", key or ""]
        place = " ".join(part for part in parts if part)
        return f"{self.origin}: {place}" if place else self.origin

    def error(self, key: str, what: str, hint: str | None = None) -> ConfigError:
        """An error about a key."""
        return ConfigError(f"{self.where(key)} {what}", hint=hint)

    def take(self, key: str) -> Any:
        """A value as it stands, None when there is none."""
        self._taken.append(key)
        return self._values.get(key)

    def required(self, key: str, what: str) -> str:
        """A text that has to be there; ``what`` says what it is for."""
        found = self.text(key)
        if found is None:
            raise ConfigError(f"{self.where()} has no {key!r}", hint=what)
        return found

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        found = self.take(key)
        if found is None:
            return None
        if not isinstance(found, str) or not found.strip():
            raise self.error(key, f"has to be a text, not {found!r}")
        return self._read(key, found)

    def texts(self, key: str) -> tuple[str, ...]:
        """A text or a list of them."""
        found = self.take(key)
        listed = [found] if isinstance(found, str) else found
        if listed is None:
            return ()
        if not isinstance(listed, Sequence) or not listed:
            raise self.error(key, f"has to be a text or a list of texts, not {found!r}")
        for part in listed:
            if not isinstance(part, str) or not part.strip():
                raise self.error(key, f"has to hold texts, not {part!r}")
        return tuple(self._read(key, part) for part in listed)

    def count(self, key: str) -> int | None:
        """A number from 1 on."""
        found = self.take(key)
        if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
            raise self.error(key, f"has to be a whole number, not {found!r}")
        if found is not None and found < 1:
            raise self.error(key, f"has to be 1 or more, not {found}")
        return found

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """One of some words."""
        found = self.text(key) or default
        if found not in choices:
            near = nearest(found, choices)
            hint = f"did you mean {near!r}?" if near else f"there are {', '.join(choices)}"
            raise self.error(key, f"cannot be {found!r}", hint)
        return found

    def settings(self, key: str, prefix: str = "") -> tuple[Setting, ...]:
        """A table of names and plain values; dots in names make tables of tables in TOML."""
        found = self.take(key)
        if found is None:
            return ()
        if not isinstance(found, Mapping):
            raise self.error(key, f"has to be a table, not {found!r}")
        return tuple(
            Setting(prefix + name, _plain(value), f"{self.where(key)} {name}")
            for name, value in self._flat(key, found)
        )

    def _flat(self, key: str, values: Mapping[str, Any], path: str = "") -> Iterator[Any]:
        for name, value in values.items():
            if isinstance(value, Mapping):
                yield from self._flat(key, value, f"{path}{name}.")
            elif isinstance(value, Scalar):
                yield path + name, value
            else:
                kind = type(value).__name__  # the value itself may be a secret
                raise self.error(key, f"{path}{name} has to be a plain value, not a {kind}")

    def table(self, key: str) -> Table:
        """A table inside."""
        return Table(self.take(key), self.origin, f"{self.name}.{key}".lstrip("."))

    def tables(self, key: str) -> dict[str, Table]:
        """The tables of a table, by name."""
        found = self.take(key)
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise self.error(key, f"has to hold tables such as [{key}.name]")
        return {name: Table(part, self.origin, f"{key}.{name}") for name, part in found.items()}

    def done(self, about: str = "") -> None:
        """Refuse what nobody has taken; ``about`` says what has no such key."""
        for key in self._values:
            if key not in self._taken:
                near = nearest(key, self._taken)
                keys = ", ".join(sorted(set(self._taken)))
                hint = f"did you mean {near!r}?" if near else f"the keys are {keys}"
                raise ConfigError(f"{self.where()}{about} has no key {key!r}", hint=hint)

    def _read(self, key: str, text: str) -> str:
        if not text.startswith(ENVIRONMENT):
            return text
        return _from_environment(text.removeprefix(ENVIRONMENT), self.where(key))


def _from_environment(variable: str, where: str) -> str:
    if variable not in os.environ:
        raise ConfigError(f"{where} stands in the environment, which has no {variable}")
    return os.environ[variable]


def _plain(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
