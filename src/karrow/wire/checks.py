"""The careful way to take a message apart: dicts become objects, and what is wrong gets a name.

The compiled encoder trusts its input; this is where a message goes that was given as a dict, or
that the encoder could not write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn
from uuid import UUID

from karrow.errors import LocalProtocolError
from karrow.wire.structs import Struct, default_value, is_default, struct_class
from karrow.wire.table import MAX_STRING, Field, Layout, Schema, layout, nearest

INTEGERS = {
    "int8": range(-(1 << 7), 1 << 7),
    "int16": range(-(1 << 15), 1 << 15),
    "uint16": range(1 << 16),
    "int32": range(-(1 << 31), 1 << 31),
    "uint32": range(1 << 32),
    "int64": range(-(1 << 63), 1 << 63),
}


def checked(facts: Schema, version: int, value: object) -> Struct:
    """The message as objects throughout, every field of it fit for ``version``.

    Raises LocalProtocolError with the path of the first field that is not.
    """
    return _Check(facts, version).struct("", value, "")


class _Check:
    """One walk over a message."""

    def __init__(self, facts: Schema, version: int) -> None:
        self.facts = facts
        self.version = version
        self.structs = struct_class(facts.name).structs

    def fail(self, path: str, text: str, hint: str | None = None) -> NoReturn:
        where = f"{self.facts.name} v{self.version}"
        raise LocalProtocolError(
            f"{where}: {path} {text}" if path else f"{where} {text}", hint=hint
        )

    def struct(self, name: str, value: object, path: str) -> Struct:
        """A struct given as an object or a dict."""
        kind = struct_class(self.facts.name, name)
        if isinstance(value, Mapping):
            self.names(kind, value, path)
            given = dict(value)
        elif isinstance(value, kind):
            given = {name: getattr(value, name) for name in kind.names()}
        else:
            self.fail(path, f"must be a {kind.__qualname__} or a dict, not {_described(value)}")
        here = layout(self.facts, name, self.version)
        fields = {
            field.name: self.field(field, given, f"{path}.{field.name}" if path else field.name)
            for field in kind.fields
        }
        return kind(**fields, unknown_tags=self.tags(here, given.get("unknown_tags"), path))

    def names(self, kind: type[Struct], value: Mapping[Any, Any], path: str) -> None:
        """Every key of a dict is a field."""
        for name in value:
            if name not in kind.names():
                hint = nearest(str(name), list(kind.names()))
                self.fail(path, f"has no field {name!r}", hint)

    def field(self, field: Field, given: Mapping[str, Any], path: str) -> Any:
        """One field of a struct, its default when nothing was given."""
        if field.name not in given:
            return default_value(field, self.structs)
        value = given[field.name]
        if self.version not in field.versions:
            return self.absent(field, value, path)
        if value is None:
            if self.version not in field.nullable:
                self.fail(path, "must not be null in this version")
            return None
        return self.array(field, value, path) if field.array else self.value(field, value, path)

    def absent(self, field: Field, value: Any, path: str) -> Any:
        """A field this version lacks: only a value that may be lost is allowed."""
        if isinstance(value, Mapping) and not value:
            return default_value(field, self.structs)
        if not field.ignorable and not is_default(field, value):
            versions = f"{field.versions[0]} to {field.versions[-1]}"
            self.fail(path, f"cannot be sent: only versions {versions} have it")
        return value

    def array(self, field: Field, value: Any, path: str) -> list[Any]:
        """An array, element by element."""
        if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(
            value, Iterable
        ):
            self.fail(path, f"must be a list, not {_described(value)}")
        return [self.value(field, item, f"{path}[{index}]") for index, item in enumerate(value)]

    def value(self, field: Field, value: Any, path: str) -> Any:
        """One value that is not null."""
        if field.is_struct:
            return self.struct(field.type, value, path)
        problem = _problem(field.type, value)
        if problem:
            found = f", not {_described(value, secret=field.secret)}"
            self.fail(path, f"must be {problem}{found}")
        return value

    def tags(self, here: Layout, tags: object, path: str) -> dict[int, bytes] | None:
        """The tagged fields to be passed on unread."""
        if tags is None:
            return None
        path = f"{path}.unknown_tags" if path else "unknown_tags"
        if not here.flexible:
            self.fail(path, "cannot be sent: this version has no tagged fields")
        known = {field.tag for field in here.tagged}
        if not isinstance(tags, Mapping):
            self.fail(path, f"must be a dict, not {_described(tags)}")
        for tag, value in tags.items():
            if not isinstance(tag, int) or tag not in INTEGERS["uint32"] or tag in known:
                self.fail(path, f"has the tag {tag!r}, which is a field or no tag at all")
            problem = _problem("bytes", value)
            if problem:
                self.fail(path, f"must hold {problem}, not {_described(value)}")
        return {tag: bytes(value) for tag, value in tags.items()}


def _problem(kind: str, value: object) -> str | None:
    """What a value should have been, or None when it is fine."""
    if kind in INTEGERS:
        return _integer_problem(kind, value)
    if kind in ("bytes", "records"):
        return _buffer_problem(value)
    if kind == "string":
        return _string_problem(value)
    fine = {"bool": (bool,), "float64": (int, float), "uuid": (UUID,)}[kind]
    return None if isinstance(value, fine) else f"a {kind}"


def _integer_problem(kind: str, value: object) -> str | None:
    if not hasattr(value, "__index__"):
        return f"an {kind}"
    allowed = INTEGERS[kind]
    return None if value.__index__() in allowed else f"from {allowed[0]} to {allowed[-1]}"


def _buffer_problem(value: Any) -> str | None:
    try:
        contiguous = memoryview(value).c_contiguous
    except TypeError:
        return "bytes"
    return None if contiguous else "contiguous bytes"


def _string_problem(value: object) -> str | None:
    if not isinstance(value, str):
        return "a str"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "text that UTF-8 can hold"
    return None if size <= MAX_STRING else f"at most {MAX_STRING} bytes of UTF-8"


def _described(value: object, *, secret: bool = False) -> str:
    """A value for an error message: its type, and its face where that is short and no secret."""
    kind = type(value).__name__
    if secret or not isinstance(value, (int, float, str)):
        return kind
    text = repr(value)
    return f"{kind} {text}" if len(text) <= 40 else f"{kind} of {len(text)} characters"
