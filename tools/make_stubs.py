"""Makes src/karrow/wire/messages.pyi: every message's fields, for editors and type checkers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from generated import write_or_check
from jars import ROOT

from karrow.wire.table import Field, names, schema

if TYPE_CHECKING:
    from collections.abc import Iterator

TARGET = ROOT / "src/karrow/wire/messages.pyi"

HEAD = """# Made by tools/make_stubs.py; do not edit.
# fmt: off
# ruff: noqa: E501

from typing import TypeAlias
from uuid import UUID

from karrow.wire.structs import Struct as Struct

_Buffer: TypeAlias = bytes | bytearray | memoryview
"""
TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "_Buffer",
    "uuid": "UUID",
}


def annotation(message: str, field: Field) -> str:
    kind = f"{message}.{field.type}" if field.is_struct else TYPES.get(field.type, "int")
    if field.array:
        kind = f"list[{kind}]"
    nullable = len(field.nullable) or (field.default is None and field.type != "uuid")
    return f"{kind} | None" if nullable else kind


def class_lines(title: str, fields: list[tuple[str, str]]) -> Iterator[str]:
    """A class's fields and its constructor, with one parameter to a line where there are many."""
    yield f"class {title}(Struct):"
    yield from (f"    {name}: {kind}" for name, kind in fields)
    parameters = [f"{name}: {kind} = ..." for name, kind in fields]
    parameters.append("unknown_tags: dict[int, bytes] | None = ...")
    yield "    def __init__("
    yield "        self,"
    yield "        *,"
    yield from (f"        {parameter}," for parameter in parameters)
    yield "    ) -> None: ..."


def message_lines(message: str) -> Iterator[str]:
    structs = schema(message).structs
    typed = {
        name: [(field.name, annotation(message, field)) for field in fields]
        for name, fields in structs.items()
    }
    outer = list(class_lines(message, typed.pop("")))
    yield outer[0]
    for name, fields in typed.items():
        yield from (f"    {line}" for line in class_lines(name, fields))
        yield ""
    yield from outer[1:]
    yield ""


def stubs() -> str:
    lines = [HEAD, *(line for message in names() for line in message_lines(message))]
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    write_or_check({TARGET: stubs()}, sys.argv[1:])
