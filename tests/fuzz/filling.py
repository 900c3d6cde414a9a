"""Messages filled at random: what the oracle compares and the fuzzers start from."""

from __future__ import annotations

import random
import struct
from typing import Any, Literal, get_args
from uuid import UUID

from karrow.wire.checks import INTEGERS
from karrow.wire.structs import Struct, struct_class
from karrow.wire.table import Field, Schema

# default: nothing set. full: everything set. null, empty: as much of that as the version allows.
# extreme: the ends of the ranges, and lengths that need two bytes as a varint.
Style = Literal["default", "random", "full", "null", "empty", "extreme"]
STYLES: tuple[Style, ...] = get_args(Style)

LETTERS = "abcXYZ019-_. äß€日😀"


def fill(rng: random.Random, facts: Schema, version: int, style: Style) -> Struct:
    """A message with values in the fields ``version`` has, and defaults in the others."""
    return _Filling(rng, facts, version, style).struct("")


class _Filling:
    def __init__(self, rng: random.Random, facts: Schema, version: int, style: Style) -> None:
        self.rng = rng
        self.facts = facts
        self.version = version
        self.style = style

    def struct(self, name: str) -> Struct:
        kind = struct_class(self.facts.name, name)
        return kind(**{field.name: self.field(field) for field in kind.fields if self.has(field)})

    def has(self, field: Field) -> bool:
        """Whether to set the field; a plain field that is left out travels as its default."""
        if self.version not in field.versions or self.style == "default":
            return False
        return self.style != "random" or self.rng.random() < 0.8

    def field(self, field: Field) -> Any:
        if self.version in field.nullable and self.is_null():
            return None
        if not field.array:
            return self.value(field)
        return [self.value(field) for _ in range(self.count(field))]

    def is_null(self) -> bool:
        return self.style == "null" or (self.style == "random" and self.rng.random() < 0.3)

    def count(self, field: Field) -> int:
        if self.style == "empty":
            return 0
        if self.style == "extreme" and not field.is_struct:
            return self.rng.choice((1, 126, 127, 128, 300))
        return self.rng.randint(1, 2) if self.style == "full" else self.rng.randint(0, 3)

    def value(self, field: Field) -> Any:
        kind = field.type
        if field.is_struct:
            return self.struct(kind)
        if kind in INTEGERS:
            return self.integer(INTEGERS[kind])
        if kind == "string":
            return self.text()
        if kind in ("bytes", "records"):
            return self.rng.randbytes(self.size())
        if kind == "uuid":
            return UUID(bytes=self.rng.randbytes(16))
        return self.rng.random() < 0.5 if kind == "bool" else self.number()

    def integer(self, allowed: range) -> int:
        if self.style == "extreme":
            return self.rng.choice((allowed[0], allowed[-1]))
        if self.rng.random() < 0.5:
            return self.rng.randint(max(-1, allowed[0]), 5)
        return self.rng.randint(allowed[0], allowed[-1])

    def number(self) -> float:
        value: float = struct.unpack(">d", self.rng.randbytes(8))[0]
        # JSON, which the oracle speaks, has neither infinities nor NaN.
        return value if value - value == 0 else 0.5

    def text(self) -> str:
        return "".join(self.rng.choices(LETTERS, k=self.size()))

    def size(self) -> int:
        if self.style == "empty":
            return 0
        if self.style == "extreme":
            return self.rng.choice((0, 125, 126, 127, 128, 1000))
        return self.rng.randint(0, 12)
