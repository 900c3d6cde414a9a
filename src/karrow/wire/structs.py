"""The classes of the messages: one per message and nested struct, built from the table.

A class has a slot for every field of every version; what a version lacks keeps its default.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from karrow.errors import StateError
from karrow.wire.table import Field, nearest, schema

# Where the classes are found by name, so that they pickle: see messages.py.
HOME = "karrow.wire.messages"
NO_UUID = UUID(int=0)
SHOWN_BYTES = 64


class Struct:  # noqa: PLW1641 - equal by value and mutable, so without a hash
    """Base of every message and nested struct: keyword constructor, equality, repr, pickling.

    ``unknown_tags`` keeps tagged fields of the flexible format that this version of karrow does
    not know, by tag; they are written back when the struct is encoded.
    """

    __slots__: tuple[str, ...] = ()

    fields: ClassVar[tuple[Field, ...]] = ()
    structs: ClassVar[dict[str, type[Struct]]] = {}
    # The fields that hold structs, arrays or both: name, struct's name or "", whether an array.
    nested: ClassVar[tuple[tuple[str, str, bool], ...]] = ()
    unknown_tags: dict[int, bytes] | None

    if TYPE_CHECKING:
        # Each class has its own, written out by _constructor.
        def __init__(self, **fields: Any) -> None: ...

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """What the constructor takes: the fields and ``unknown_tags``."""
        return (*(field.name for field in cls.fields), "unknown_tags")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.names())

    def __repr__(self) -> str:
        shown = (
            f"{field.name}={_shown(field, getattr(self, field.name))}"
            for field in self.fields
            if not is_default(field, getattr(self, field.name))
        )
        tags = () if self.unknown_tags is None else (f"unknown_tags={self.unknown_tags!r}",)
        return f"{type(self).__qualname__}({', '.join([*shown, *tags])})"

    def __reduce__(self) -> tuple[Any, ...]:
        for field in self.fields:
            if field.secret and not is_default(field, getattr(self, field.name)):
                kind = type(self).__qualname__
                raise StateError(f"{kind}.{field.name} is a secret, which is never pickled")
        state = {name: _owned(getattr(self, name)) for name in self.names()}
        return _rebuild, (type(self), state)


def struct_class(message: str, struct: str = "") -> type[Struct]:
    """The class of a message, or of one of its nested structs."""
    return _classes(message)[struct]


def from_mapping(kind: type[Struct], value: Mapping[str, Any]) -> Struct:
    """An object from a dict, with the dicts inside it; only names are checked.

    Raises TypeError for an array that may be readable only once: the encoder would leave nothing
    of it for those who look for its mistakes.
    """
    given = dict(value)
    for name, struct, is_array in kind.nested:
        item = given.get(name)
        if item is None:
            continue
        if not is_array:
            if item.__class__ is dict:
                given[name] = from_mapping(kind.structs[struct], item)
        elif item.__class__ is not list and item.__class__ is not tuple:
            raise TypeError(f"not a list: {type(item).__name__}")
        elif struct:
            inner = kind.structs[struct]
            given[name] = [
                from_mapping(inner, one) if one.__class__ is dict else one for one in item
            ]
    return kind(**given)


def default_value(field: Field, classes: dict[str, type[Struct]]) -> Any:
    """A fresh default of a field."""
    if field.default == {} and field.is_struct and not field.array:
        return classes[field.type]()
    if field.array and field.default is not None:
        return []
    return NO_UUID if field.type == "uuid" and not field.array else field.default


def is_lazy(field: Field) -> bool:
    """Whether decoders leave the field out when it is not on the wire.

    It is a struct whose default is a struct: a fetch answer has three of those per partition, and
    making them would take longer than reading the partition.
    """
    return field.is_struct and not field.array and field.default is not None


def is_default(field: Field, value: object) -> bool:
    """Whether a value says the same as leaving the field out."""
    if isinstance(value, Struct):
        # A nullable struct's default is null, so any value at all says something.
        return field.default == {} and all(
            is_default(inner, getattr(value, inner.name)) for inner in value.fields
        )
    if field.array and value is not None and field.default is not None:
        return isinstance(value, (list, tuple)) and not value
    if field.type == "uuid" and not field.array:
        return value == NO_UUID
    return bool(value == field.default)


@functools.cache
def _classes(message: str) -> dict[str, type[Struct]]:
    """The classes of a message by struct name; the nested ones are attributes of the message's."""
    facts = schema(message)
    classes: dict[str, type[Struct]] = {}
    for struct, fields in facts.structs.items():
        classes[struct] = _build(message, struct, fields, classes)
    for struct, nested in classes.items():
        if struct:
            setattr(classes[""], struct, nested)
    return classes


def _build(
    message: str, struct: str, fields: tuple[Field, ...], classes: dict[str, type[Struct]]
) -> type[Struct]:
    lazy = {field.name: f"_{field.name}" for field in fields if is_lazy(field)}
    namespace: dict[str, Any] = {
        "__slots__": (*(lazy.get(field.name, field.name) for field in fields), "unknown_tags"),
        "__module__": HOME,
        "__qualname__": f"{message}.{struct}" if struct else message,
        "__init__": _constructor(fields, classes),
        "fields": fields,
        "structs": classes,
        "nested": tuple(
            (field.name, field.type if field.is_struct else "", field.array)
            for field in fields
            if field.is_struct or field.array
        ),
        **{field.name: _lazy_attribute(field, classes) for field in fields if is_lazy(field)},
    }
    return type(struct or message, (Struct,), namespace)


def _lazy_attribute(field: Field, classes: dict[str, type[Struct]]) -> property:
    """A nested struct, made when it is first read: see is_lazy."""
    slot = f"_{field.name}"

    def read(self: Struct) -> Any:
        try:
            return getattr(self, slot)
        except AttributeError:
            value = classes[field.type]()
            setattr(self, slot, value)
            return value

    def write(self: Struct, value: Any) -> None:
        setattr(self, slot, value)

    return property(read, write)


def _constructor(fields: tuple[Field, ...], classes: dict[str, type[Struct]]) -> Any:
    """Write ``__init__`` out: a real signature, and no loop per object.

    A parameter whose default must be made afresh for each object defaults to ``...``.
    """
    scope: dict[str, Any] = {"classes": classes, "none": NO_UUID, "unexpected": _unexpected}
    parameters, lines = [], []
    for field in fields:
        fresh, value = _default_source(field)
        parameters.append(f"{field.name}={'...' if fresh else value}")
        lines.append(
            f"self.{field.name} = {value} if {field.name} is ... else {field.name}"
            if fresh
            else f"self.{field.name} = {field.name}"
        )
    known = ", ".join([*parameters, "unknown_tags=None"])
    body = "\n    ".join([*lines, "self.unknown_tags = unknown_tags"])
    source = (
        f"def __init__(self, *, {known}, **unknown):\n"
        f"    if unknown: unexpected(self, unknown)\n"
        f"    {body}\n"
    )
    exec(source, scope)  # noqa: S102 - made of names from our own table
    return scope["__init__"]


def _default_source(field: Field) -> tuple[bool, str]:
    """Whether a default must be made for each object, and the expression that makes it."""
    if field.array and field.default is not None:
        return True, "[]"
    if field.is_struct and field.default == {}:
        return True, f"classes[{field.type!r}]()"
    if field.type == "uuid" and not field.array:
        return False, "none"
    return False, repr(field.default)


def _unexpected(struct: Struct, unknown: dict[str, Any]) -> None:
    name = next(iter(unknown))
    hint = nearest(name, list(struct.names()))
    text = f"{type(struct).__qualname__} has no field {name!r}"
    raise TypeError(f"{text}; {hint}" if hint else text)


def _shown(field: Field, value: object) -> str:
    if field.secret:
        return "***"
    if isinstance(value, (bytes, bytearray, memoryview)):
        size = len(value)
        return repr(bytes(value)) if size <= SHOWN_BYTES else f"<{size} bytes>"
    return repr(value)


def _owned(value: object) -> object:
    """A value that pickles: views of a frame become bytes."""
    return bytes(value) if isinstance(value, memoryview) else value


def _rebuild(kind: type[Struct], state: dict[str, Any]) -> Struct:
    return kind(**state)
