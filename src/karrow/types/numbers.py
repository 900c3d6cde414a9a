"""Numbers that Kafka gives to kinds of things, under names that people write."""

from __future__ import annotations

import enum

__all__ = ["Numbered"]


class Numbered(enum.IntEnum):
    """A number on the wire with a name; also found by that name, in any case.

    Every subclass has UNKNOWN, which stands for numbers that newer brokers may send.
    """

    @classmethod
    def _missing_(cls, value: object) -> Numbered | None:
        if isinstance(value, str):
            return cls.__members__.get(value.upper().replace("-", "_").replace(" ", "_"))
        return cls.__members__.get("UNKNOWN") if isinstance(value, int) else None

    def __str__(self) -> str:
        return self.name.lower()
