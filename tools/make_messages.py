"""Makes src/karrow/wire/messages.json from the message definitions inside Kafka's jars.

Kafka 4 dropped old versions and whole APIs, so each message takes the versions the newest jar
knows from there and the ones below from the last 3.x jar. One line of output per message:

    "NAME":{"kind","key","versions","flexible","unstable","fields","structs"}

A field is [name, type, versions] plus, where needed, {"default", "nullable", "tag", "tagged",
"ignorable", "secret", "flexible"}. A version range is "3", "3-5" or "3+" (to the newest).
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from generated import write_or_check
from jars import NEW_KAFKA, OLD_KAFKA, ROOT, JarError, kafka_clients

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TARGET = ROOT / "src/karrow/wire/messages.json"

# Values that must never be shown: (message, field) in our names. Configuration values may be
# passwords (sasl.jaas.config), and an envelope may wrap any other request.
SECRETS = {
    ("AlterConfigsRequest", "value"),
    ("AlterUserScramCredentialsRequest", "salt"),
    ("AlterUserScramCredentialsRequest", "salted_password"),
    ("CreateDelegationTokenResponse", "hmac"),
    ("DescribeDelegationTokenResponse", "hmac"),
    ("EnvelopeRequest", "request_data"),
    ("ExpireDelegationTokenRequest", "hmac"),
    ("IncrementalAlterConfigsRequest", "value"),
    ("RenewDelegationTokenRequest", "hmac"),
    ("SaslAuthenticateRequest", "auth_bytes"),
    ("SaslAuthenticateResponse", "auth_bytes"),
}

# What the message classes call their own attributes (see wire/structs.py).
RESERVED = {"fields", "names", "structs", "unknown_tags"}
# More than any message has versions.
LIMIT = 256
IMPLICIT_DEFAULTS = {"bool": False, "string": "", "bytes": "", "records": None, "uuid": None}


@dataclass
class Field:
    """One field over all versions; the version sets are already cut to what its source governs."""

    name: str
    type: str
    versions: set[int]
    default: Any
    nullable: set[int]
    tagged: set[int]
    tag: int | None
    ignorable: bool
    inflexible: bool
    secret: bool = False


@dataclass
class Message:
    """One message over all versions; ``structs`` are its own fields (under "") and its structs'."""

    name: str
    kind: str
    key: int | None
    versions: set[int]
    flexible: set[int]
    unstable: set[int]
    structs: dict[str, list[Field]] = field(default_factory=dict)


def strip_comments(text: str) -> str:
    """Drop // comments, but not the // inside a string."""
    return re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*', lambda match: match.group(1) or "", text)


def definitions(jar: Path) -> list[dict[str, Any]]:
    """The message definitions in a jar, without those it only keeps as a tombstone."""
    with zipfile.ZipFile(jar) as archive:
        names = [n for n in archive.namelist() if re.fullmatch(r"common/message/\w+\.json", n)]
        found = [json.loads(strip_comments(archive.read(name).decode())) for name in sorted(names)]
    return [item for item in found if item["validVersions"] != "none"]


def version_set(text: str | None, within: set[int]) -> set[int]:
    """The versions of "3", "3-5", "3+" or "none" that are ``within``."""
    if text is None or text == "none":
        return set()
    low, dash, high = text.removesuffix("+").partition("-")
    last = LIMIT if text.endswith("+") else int(high) if dash else int(low)
    return {version for version in within if int(low) <= version <= last}


def valid_versions(raw: dict[str, Any]) -> set[int]:
    """Every version a definition covers."""
    return version_set(raw["validVersions"], set(range(LIMIT)))


def version_range(versions: set[int], newest: int) -> str:
    """The shortest way to write a set of versions, which must have no hole."""
    low, high = min(versions), max(versions)
    if len(versions) != high - low + 1:
        raise ValueError(f"versions with a hole: {sorted(versions)}")
    if high == newest:
        return f"{low}+"
    return str(low) if low == high else f"{low}-{high}"


def snake_case(name: str) -> str:
    """FooBar -> foo_bar."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def parse_default(kind: str, value: Any) -> Any:
    """A default as JSON of the field's own type; Kafka mostly writes it as a string."""
    if value is None:
        if kind.startswith("[]"):
            return []
        return IMPLICIT_DEFAULTS.get(kind, {} if kind[0].isupper() else 0)
    if value == "null":
        return None
    if kind == "bool":
        return str(value).lower() == "true"
    if kind == "string":
        return value
    return float(value) if kind == "float64" else int(str(value), 0)


def parse_field(raw: dict[str, Any], within: set[int]) -> Field:
    """A field of a definition, cut to the versions ``within``."""
    kind = raw["type"]
    tag = raw.get("tag")
    name = snake_case(raw["name"])
    if name in RESERVED or keyword.iskeyword(name):
        raise ValueError(f"a field cannot be called {name}")
    return Field(
        name=name,
        type=kind,
        versions=version_set(raw["versions"], within),
        default=parse_default(kind, raw.get("default")),
        nullable=version_set(raw.get("nullableVersions"), within),
        tagged=version_set(raw.get("taggedVersions"), within),
        tag=None if tag is None else int(tag),
        ignorable=raw.get("ignorable") in (True, "true"),
        inflexible=raw.get("flexibleVersions") == "none",
    )


def parse_fields(
    raw: Iterable[dict[str, Any]], within: set[int], structs: dict[str, list[Field]]
) -> list[Field]:
    """The fields of one struct; the structs defined inside them go to ``structs``."""
    fields = []
    for item in raw:
        fields.append(parse_field(item, within))
        if item.get("fields"):
            name = item["type"].removeprefix("[]")
            structs[name] = parse_fields(item["fields"], within, structs)
    return fields


def parse_message(raw: dict[str, Any], versions: set[int]) -> Message:
    """A definition, cut to ``versions``."""
    newest = max(valid_versions(raw))
    unstable = {newest} & versions if raw.get("latestVersionUnstable") else set()
    message = Message(
        name=raw["name"],
        kind=raw["type"],
        key=raw.get("apiKey"),
        versions=versions,
        flexible=version_set(raw.get("flexibleVersions"), versions),
        unstable=unstable,
    )
    message.structs[""] = parse_fields(raw["fields"], versions, message.structs)
    for item in raw.get("commonStructs", ()):
        message.structs[item["name"]] = parse_fields(item["fields"], versions, message.structs)
    return message


def merge_field(new: Field, old: Field) -> Field:
    """One field known to both releases."""
    for fact in ("type", "default", "inflexible"):
        if getattr(new, fact) != getattr(old, fact):
            raise ValueError(f"the releases disagree on the {fact} of {new.name}")
    if new.tagged and old.tagged and new.tag != old.tag:
        raise ValueError(f"the releases disagree on the tag of {new.name}")
    return Field(
        name=new.name,
        type=new.type,
        versions=new.versions | old.versions,
        default=new.default,
        nullable=new.nullable | old.nullable,
        tagged=new.tagged | old.tagged,
        tag=new.tag if new.tag is not None else old.tag,
        # Only asked in versions that lack the field: there at most one of the two speaks.
        ignorable=new.ignorable or old.ignorable,
        inflexible=new.inflexible,
    )


def merge_fields(new: list[Field], old: list[Field]) -> list[Field]:
    """Both lists in one order that keeps the order of each: that order is the wire's."""
    known = {item.name: item for item in old}
    merged = [merge_field(item, known[item.name]) if item.name in known else item for item in new]
    position = 0
    for item in old:
        names = [each.name for each in merged]
        if item.name in names:
            if names.index(item.name) < position:
                raise ValueError(f"the releases disagree on the order of {item.name}")
            position = names.index(item.name) + 1
        elif item.versions:
            merged.insert(position, item)
            position += 1
    return merged


def merge(new: Message, old: Message) -> Message:
    """The newest release's message extended downwards."""
    structs = {
        name: merge_fields(new.structs.get(name, []), old.structs.get(name, []))
        for name in {**new.structs, **old.structs}
    }
    return Message(
        name=new.name,
        kind=new.kind,
        key=new.key,
        versions=new.versions | old.versions,
        flexible=new.flexible | old.flexible,
        unstable=new.unstable | old.unstable,
        structs=structs,
    )


def identity(raw: dict[str, Any]) -> tuple[str, object]:
    """What stays when an API is renamed: its key."""
    return raw["type"], raw.get("apiKey", raw["name"])


def combine(new: list[dict[str, Any]], old: list[dict[str, Any]]) -> list[Message]:
    """Every message of both releases, by name."""
    older = {identity(raw): raw for raw in old}
    messages = []
    for raw in new:
        versions = valid_versions(raw)
        message = parse_message(raw, versions)
        below = older.pop(identity(raw), None)
        if below is not None:
            rest = valid_versions(below) - versions
            if rest:
                message = merge(message, parse_message(below, rest))
        messages.append(message)
    messages.extend(parse_message(raw, valid_versions(raw)) for raw in older.values())
    return sorted(messages, key=lambda message: message.name)


def mark_secrets(messages: list[Message]) -> None:
    """Mark the fields in SECRETS, and notice an entry that marks nothing."""
    unused = set(SECRETS)
    for message in messages:
        for item in (item for fields in message.structs.values() for item in fields):
            if (message.name, item.name) in SECRETS:
                item.secret = True
                unused.discard((message.name, item.name))
    if unused:
        raise ValueError(f"no such field: {sorted(unused)}")


def field_entry(item: Field, newest: int) -> list[Any]:
    """A field as it stands in the table: facts that are as usual are left out."""
    facts: dict[str, Any] = {}
    if item.default != parse_default(item.type, None):
        facts["default"] = item.default
    if item.nullable & item.versions:
        facts["nullable"] = version_range(item.nullable & item.versions, newest)
    if item.tagged:
        facts["tag"] = item.tag
        facts["tagged"] = version_range(item.tagged, newest)
    facts.update({name: True for name in ("ignorable", "secret") if getattr(item, name)})
    if item.inflexible:
        facts["flexible"] = "none"
    entry = [item.name, item.type, version_range(item.versions, newest)]
    return [*entry, facts] if facts else entry


def message_entry(message: Message) -> dict[str, Any]:
    """A message as it stands in the table."""
    newest = max(message.versions)
    entry: dict[str, Any] = {"kind": message.kind}
    if message.key is not None:
        entry["key"] = message.key
    entry["versions"] = f"{min(message.versions)}-{newest}"
    if message.flexible:
        entry["flexible"] = version_range(message.flexible, newest)
    if message.unstable:
        entry["unstable"] = ",".join(map(str, sorted(message.unstable)))
    entries = {
        name: [field_entry(item, newest) for item in fields if item.versions]
        for name, fields in message.structs.items()
    }
    entry["fields"] = entries.pop("")
    if entries:
        entry["structs"] = {name: entries[name] for name in sorted(entries)}
    return entry


def table() -> str:
    """The whole file."""
    messages = combine(definitions(kafka_clients(NEW_KAFKA)), definitions(kafka_clients(OLD_KAFKA)))
    mark_secrets(messages)
    lines = (
        f"{json.dumps(message.name)}:{json.dumps(message_entry(message), separators=(',', ':'))}"
        for message in messages
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    try:
        write_or_check({TARGET: table()}, sys.argv[1:])
    except JarError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
