"""The facts in messages.json: every message, its fields, and which versions have them.

The file is read on first use, and a message's entry is parsed when it is first asked for.
Version ranges are ``range`` objects, so ``version in field.versions`` is the question to ask.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from karrow.errors import LocalProtocolError, UnsupportedVersion

MessageKind = Literal["request", "response", "header", "data"]
Default = bool | int | float | str | bytes | list[Any] | dict[str, Any] | None

# Types of one size: the code of the struct module, and the size.
FIXED = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
# Bytes of the smallest length prefix, by whether the compact form is in use.
LENGTHS = {
    ("string", False): 2,
    ("bytes", False): 4,
    ("records", False): 4,
    ("array", False): 4,
    ("string", True): 1,
    ("bytes", True): 1,
    ("records", True): 1,
    ("array", True): 1,
}
# What an int16 and an int32 length can say; the compact forms are held to the same.
MAX_STRING = 0x7FFF
MAX_LENGTH = 0x7FFFFFFF
NO_VERSIONS = range(0)


class Field(NamedTuple):
    """One field of a message or struct.

    ``type`` is a primitive's name or a struct's; ``array`` says whether there are many of it. A
    ``default`` of {} stands for a struct all of whose fields have their defaults.
    """

    name: str
    type: str
    array: bool
    versions: range
    default: Default
    nullable: range
    tag: int | None
    tagged: range
    ignorable: bool
    secret: bool
    inflexible: bool

    @property
    def is_struct(self) -> bool:
        """Whether the type (or the array's element type) is a struct."""
        return self.type[0].isupper()


class Schema(NamedTuple):
    """One message: its own fields are ``structs[""]``, its nested structs go by their names."""

    name: str
    kind: MessageKind
    key: int | None
    versions: range
    flexible: range
    unstable: frozenset[int]
    structs: dict[str, tuple[Field, ...]]

    def require(self, version: int) -> None:
        """Raise UnsupportedVersion unless the message has this version."""
        if version not in self.versions:
            low, high = self.versions[0], self.versions[-1]
            raise UnsupportedVersion(f"{self.name} has versions {low} to {high}, not {version}")


class Layout(NamedTuple):
    """A struct as one version sees it: in wire order, by tag, and what that version lacks."""

    plain: tuple[Field, ...]
    tagged: tuple[Field, ...]
    absent: tuple[Field, ...]
    flexible: bool


class Versions(NamedTuple):
    """The versions of a message; ``stable`` is the newest that is no preview, None if all are."""

    first: int
    last: int
    stable: int | None


class Api(NamedTuple):
    """One API: its key, its name, and the versions of its request and response."""

    key: int
    name: str
    versions: range
    flexible: range
    unstable: frozenset[int]

    @property
    def newest_stable(self) -> int | None:
        """The highest version Kafka has committed to, None when it is all a preview."""
        return max((v for v in self.versions if v not in self.unstable), default=None)

    def require(self, version: int) -> None:
        """Raise UnsupportedVersion unless the API has this version."""
        schema(f"{self.name}Request").require(version)

    def request_header_version(self, version: int) -> int:
        """The version of the header that goes before this version of the request."""
        if self.name == "ControlledShutdown" and version == 0:
            return 0
        return 2 if self._is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """The version of the header that comes before this version of the response.

        An ApiVersions answer must be readable before the versions are known, so its header never
        became flexible.
        """
        return 1 if self._is_flexible(version) and self.name != "ApiVersions" else 0

    def _is_flexible(self, version: int) -> bool:
        # Not `in`: a peer may use a version newer than any we know, and its header is flexible too.
        return len(self.flexible) > 0 and version >= self.flexible.start


@functools.cache
def entries() -> dict[str, Any]:
    """The parsed messages.json."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("messages.json").read_bytes())
    return loaded


def names() -> list[str]:
    """The names of all messages."""
    return list(entries())


@functools.cache
def schema(name: str) -> Schema:
    """A message by its full name, such as "FetchRequest"."""
    entry = entries().get(name)
    if entry is None:
        raise LocalProtocolError(f"Kafka has no message {name!r}", hint=nearest(name, names()))
    first, last = (int(version) for version in entry["versions"].split("-"))
    structs = {
        struct: tuple(_field(item, last) for item in fields)
        for struct, fields in {"": entry["fields"], **entry.get("structs", {})}.items()
    }
    return Schema(
        name=name,
        kind=entry["kind"],
        key=entry.get("key"),
        versions=range(first, last + 1),
        flexible=_versions(entry.get("flexible"), last),
        unstable=frozenset(int(v) for v in entry.get("unstable", "").split(",") if v),
        structs=structs,
    )


@functools.cache
def apis() -> dict[str, Api]:
    """Every API by name, in the order of their keys."""
    requests = ((name, entry) for name, entry in entries().items() if entry["kind"] == "request")
    ordered = sorted(requests, key=lambda item: int(item[1]["key"]))
    found = {}
    for name, _ in ordered:
        facts = schema(name)
        api_name = name.removesuffix("Request")
        key = facts.key if facts.key is not None else -1
        found[api_name] = Api(key, api_name, facts.versions, facts.flexible, facts.unstable)
    return found


@functools.cache
def api(key_or_name: int | str) -> Api:
    """An API by its key or its name.

    >>> api(1).name, api("Fetch").key
    ('Fetch', 1)
    """
    if isinstance(key_or_name, str):
        found = apis().get(key_or_name)
        hint = None if found else nearest(key_or_name, list(apis()))
    else:
        found = next((item for item in apis().values() if item.key == key_or_name), None)
        hint = None
    if found is None:
        raise LocalProtocolError(f"Kafka has no API {key_or_name!r}", hint=hint)
    return found


def versions(name: str) -> Versions:
    """The versions of an API or of a message.

    >>> versions("InitProducerId")
    Versions(first=0, last=6, stable=5)
    """
    if name in apis():
        found = api(name)
        return Versions(found.versions[0], found.versions[-1], found.newest_stable)
    facts = schema(name)
    stable = max((v for v in facts.versions if v not in facts.unstable), default=None)
    return Versions(facts.versions[0], facts.versions[-1], stable)


def smallest(facts: Schema, field: Field, version: int) -> int:
    """The fewest bytes one value (or one element of the array) can take."""
    if field.is_struct:
        here = layout(facts, field.type, version)
        return sum(_smallest_field(facts, inner, version) for inner in here.plain) + here.flexible
    if field.type in FIXED:
        return FIXED[field.type][1]
    return LENGTHS[field.type, version in facts.flexible and not field.inflexible]


def _smallest_field(facts: Schema, field: Field, version: int) -> int:
    if field.array:
        return LENGTHS["array", version in facts.flexible]
    if field.is_struct and version in field.nullable:
        return 1
    return smallest(facts, field, version)


def layout(facts: Schema, struct: str, version: int) -> Layout:
    """How ``version`` lays out a struct of a message ("" for the message itself)."""
    fields = facts.structs[struct]
    here = [field for field in fields if version in field.versions]
    tagged = sorted((f for f in here if version in f.tagged), key=lambda f: f.tag or 0)
    return Layout(
        plain=tuple(field for field in here if version not in field.tagged),
        tagged=tuple(tagged),
        absent=tuple(field for field in fields if version not in field.versions),
        flexible=version in facts.flexible,
    )


def nearest(name: str, known: list[str]) -> str | None:
    """A hint that names the known name closest to a mistyped one."""
    from difflib import get_close_matches  # noqa: PLC0415 - only an error needs it

    matches = get_close_matches(name, known, n=1)
    return f"did you mean {matches[0]!r}?" if matches else None


def _versions(text: str | None, last: int) -> range:
    """Read "3", "3-5" or "3+"."""
    if text is None:
        return NO_VERSIONS
    if text.endswith("+"):
        return range(int(text[:-1]), last + 1)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


def _field(entry: list[Any], last: int) -> Field:
    name, kind, versions = entry[:3]
    facts: dict[str, Any] = entry[3] if len(entry) > 3 else {}
    element = kind.removeprefix("[]")
    array = element != kind
    nullable = _versions(facts.get("nullable"), last)
    if element == "records":
        # Kafka names no default; one that the newest version can send is the useful one.
        facts = {"default": None if last in nullable else b"", **facts}
    return Field(
        name=name,
        type=element,
        array=array,
        versions=_versions(versions, last),
        default=facts["default"] if "default" in facts else _implicit(element, array=array),
        nullable=nullable,
        tag=facts.get("tag"),
        tagged=_versions(facts.get("tagged"), last),
        ignorable=facts.get("ignorable", False),
        secret=facts.get("secret", False),
        inflexible=facts.get("flexible") == "none",
    )


def _implicit(kind: str, *, array: bool) -> Default:
    """The default of a field that names none."""
    if array:
        return []
    if kind[0].isupper():
        return {}
    special: dict[str, Default] = {
        "bool": False,
        "string": "",
        "bytes": b"",
        "float64": 0.0,
        "uuid": None,
    }
    return special.get(kind, 0)
