"""The answer to a request that says nothing but an error, whatever the API and version.

It mirrors the request: where the answer has a list for each topic, partition or group that was
asked about, each of them gets the error; an error field at the top is set too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from karrow.broker.naming import PARTITION_FIELDS, TOPIC_FIELDS
from karrow.wire.structs import Struct, struct_class

if TYPE_CHECKING:
    from karrow.wire.table import Field

# An offset would mean that the batch was appended before it was refused.
NOWHERE = -1
# Names that requests and answers have for the same thing.
SAME = (PARTITION_FIELDS, TOPIC_FIELDS, ("group_id", "group"))


def refusal(api: str, version: int, request: Struct, code: int) -> Struct:
    """An answer in which everything failed with ``code``."""
    answer = struct_class(f"{api}Response")()
    _fill(answer, request, version, code)
    return answer


def _fill(answer: Struct, request: object, version: int, code: int) -> None:
    for field in answer.fields:
        if version not in field.versions:
            continue
        if field.array:
            if field.is_struct:
                items = _asked(field, request, version)
                setattr(answer, field.name, [_item(answer, field, i, version, code) for i in items])
        elif field.name == "error_code" or field.name.endswith("_error_code"):
            setattr(answer, field.name, code)
        elif field.name == "base_offset":
            setattr(answer, field.name, NOWHERE)
        else:
            _copy(answer, field, request)


def _item(parent: Struct, field: Field, asked: object, version: int, code: int) -> Struct:
    item = parent.structs[field.type]()
    _fill(item, asked, version, code)
    return item


def _asked(field: Field, request: object, version: int) -> list[Any]:
    """What the request lists where the answer has ``field``: under its name, or its only list."""
    if not isinstance(request, Struct):
        return []
    lists = {
        asked.name: getattr(request, asked.name) or []
        for asked in request.fields
        if asked.array and version in asked.versions
    }
    if field.name in lists:
        return list(lists[field.name])
    return list(next(iter(lists.values()))) if len(lists) == 1 else []


def _copy(answer: Struct, field: Field, request: object) -> None:
    """Name in the answer what was asked about."""
    if isinstance(request, Struct):
        for name in _aliases(field.name):
            if hasattr(request, name):
                setattr(answer, field.name, getattr(request, name))
                return
    kind = {str: "string", int: "int32"}.get(type(request))
    if kind is not None and field is _first(answer, kind):
        setattr(answer, field.name, request)


def _first(answer: Struct, kind: str) -> Field | None:
    """The field that names what the answer is about."""
    fields = (field for field in answer.fields if field.name != "error_message")
    return next((field for field in fields if field.type == kind), None)


def _aliases(name: str) -> Iterator[str]:
    yield name
    for names in SAME:
        if name in names:
            yield from names
