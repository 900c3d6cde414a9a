"""Numbers on the wire: those that stand for kinds of things, and the one that stands for none."""

from __future__ import annotations

import enum
from difflib import get_close_matches
from typing import Self

from karrow.errors import ConfigError

__all__ = ["Numbered", "number_or_none"]


def number_or_none(number: int) -> int | None:
    """A number of an answer, where -1 means that there is none."""
    return number if number >= 0 else None


class Numbered(enum.IntEnum):
    """A number on the wire with a name.

    Every subclass has UNKNOWN, which stands for numbers that newer brokers may send.
    """

    @classmethod
    def _missing_(cls, value: object) -> Numbered | None:
        return cls.__members__.get("UNKNOWN") if isinstance(value, int) else None

    @classmethod
    def named(cls, name: str) -> Self:
        """The member with this name, in any case; blanks and hyphens count as underscores."""
        wanted = name.upper().replace("-", "_").replace(" ", "_")
        if wanted not in cls.__members__:
            near = get_close_matches(wanted, cls.__members__, 1)
            hint = f"did you mean {near[0].lower()!r}?" if near else None
            raise ConfigError(f"no {cls.__name__} is called {name!r}", hint=hint)
        return cls.__members__[wanted]

    def __str__(self) -> str:
        return self.name.lower()
