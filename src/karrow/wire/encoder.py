"""Compiles (message, version) into an encoder: straight-line Python, written out from the table.

The compiled code is optimistic: it takes well-formed objects and does the few checks whose failure
would otherwise go unnoticed. Anything else that is wrong raises some builtin exception, and the
caller then asks checks.py which field it was, or turns nested dicts into objects and tries again.

The output is a list of pieces. Runs of fixed-size fields, with the length prefix that follows them,
are one piece; record data is the caller's own buffer, so that it need not be copied.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from karrow.wire.source import Runs, Source, packer
from karrow.wire.structs import NO_UUID
from karrow.wire.table import FIXED, MAX_STRING, Field, Schema, layout, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karrow.wire.structs import Struct

    Piece = bytes | memoryview
    # encode(message, pieces, cuts): cuts gets the indexes of the pieces that hold record data.
    Encoder = Callable[[Struct, list[Piece], list[int]], None]

WRITE_RUNS = {
    kind: Runs(code, "pack") for kind, (code, _) in FIXED.items() if kind not in ("bool", "uuid")
}
# Strict: `struct` would take anything truthy.
BOOLS = {False: 0, True: 1}


def write_varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SHORT_VARINTS = tuple(write_varint(value) for value in range(0x80))


@functools.cache
def compile_encoder(name: str, version: int) -> Encoder:
    """The encoder of a message's version."""
    facts = schema(name)
    facts.require(version)
    return _Encoder(facts, version).compile()


# Called from the compiled source.


def string_length(length: int) -> bytes:
    """The compact length of a string too long for the table of short ones."""
    if length > MAX_STRING:
        raise ValueError("a string has at most 32767 bytes")
    return write_varint(length + 1)


def as_bytes(value: Any) -> bytes:
    """Any buffer as bytes; never bytes(5) or bytes([1, 2])."""
    return value if value.__class__ is bytes else memoryview(value).tobytes()


def as_records(value: Any) -> memoryview:
    """Any contiguous buffer as a view of single bytes."""
    return memoryview(value).cast("B")


def as_list(value: Any) -> list[Any]:
    """Any iterable as a list, but not a string's letters or a dict's keys."""
    if isinstance(value, (str, bytes, bytearray, memoryview, dict)):
        raise TypeError(f"not an array: {type(value).__name__}")
    return list(value)


def absent() -> None:
    """A field that this version lacks has a value that would be lost."""
    raise ValueError("a value the version cannot carry")


def write_tags(append: Callable[[bytes], None], tags: dict[int, Iterable[bytes]]) -> None:
    """A section of tagged fields, each given as the pieces of its value."""
    append(write_varint(len(tags)))
    for tag in sorted(tags):
        content = b"".join(tags[tag])
        append(write_varint(tag) + write_varint(len(content)) + content)


def write_unknown_tags(struct: Struct, append: Callable[[bytes], None]) -> None:
    """The section of a struct that has no tagged fields of its own."""
    write_tags(append, unknown_tags(struct, ()))


def unknown_tags(struct: Struct, known: tuple[int, ...]) -> dict[int, Iterable[bytes]]:
    """The tagged fields that were kept without being understood."""
    kept = struct.unknown_tags or {}
    if not kept.keys().isdisjoint(known):
        raise ValueError("unknown_tags holds a tag that is a field")
    return {tag: (as_bytes(value),) for tag, value in kept.items()}


class _Encoder:
    """Writes one encoder.

    In the source, ``p`` appends a piece, ``s`` is the text or bytes to be written and ``n`` its
    length, and ``o1``, ``o2``... are the structs.
    """

    def __init__(self, facts: Schema, version: int) -> None:
        self.facts = facts
        self.version = version
        self.flexible = version in facts.flexible
        self.run: list[tuple[str, str]] = []
        self.tag_writers: dict[str, str] = {}
        self.out = Source(
            short=SHORT_VARINTS,
            string_length=string_length,
            varint=write_varint,
            as_bytes=as_bytes,
            as_records=as_records,
            as_list=as_list,
            absent=absent,
            write_tags=write_tags,
            unknown_tags=unknown_tags,
            write_unknown_tags=write_unknown_tags,
            bools=BOOLS,
            no_uuid=NO_UUID,
        )

    def compile(self) -> Encoder:
        """The finished function."""
        with self.out.block("def encode(o, pieces, cuts):"):
            self.out.emit("p = pieces.append")
            self._struct("", "o")
            self._flush()
        return self.out.compile(f"{self.facts.name} v{self.version} encoder", "encode")

    # Structs.

    def _struct(self, struct_name: str, source: str) -> None:
        here = layout(self.facts, struct_name, self.version)
        lost = [
            self._differs(f"{source}.{field.name}", field)
            for field in here.absent
            if not field.ignorable
        ]
        if lost:
            self.out.emit(f"if {' or '.join(lost)}: absent()")
        for field in here.plain:
            self._field(f"{source}.{field.name}", field)
        if here.flexible:
            self._tags(struct_name, source, here.tagged)
        else:
            self.out.emit(f"if {source}.unknown_tags is not None: absent()")

    def _tags(self, struct_name: str, source: str, tagged: tuple[Field, ...]) -> None:
        """End a flexible struct: mostly a zero byte, which goes into the run before it."""
        writer = self._tag_writer(struct_name, tagged)
        some = [self._differs(f"{source}.{field.name}", field) for field in tagged]
        before = list(self.run)
        with self.out.block(f"if {' or '.join([*some, f'{source}.unknown_tags is not None'])}:"):
            self._flush()
            self.out.emit(f"{writer}({source}, p)")
        self.run = [*before, ("x", "")]
        with self.out.block("else:"):
            self._flush()

    def _tag_writer(self, struct_name: str, tagged: tuple[Field, ...]) -> str:
        if not tagged:
            return "write_unknown_tags"
        known = self.tag_writers.get(struct_name)
        if known is not None:
            return known
        name = self.tag_writers[struct_name] = self.out.name("tags")
        outer, self.run = self.run, []
        with self.out.function(f"def {name}(o, append):"):
            self.out.emit(f"tags = unknown_tags(o, {tuple(field.tag for field in tagged)})")
            for field in tagged:
                with self.out.block(f"if {self._differs(f'o.{field.name}', field)}:"):
                    self.out.emit(f"tags[{field.tag}] = pieces = []")
                    self.out.emit("p = pieces.append")
                    self._field(f"o.{field.name}", field)
                    self._flush()
            self.out.emit("write_tags(append, tags)")
        self.run = outer
        return name

    def _differs(self, source: str, field: Field) -> str:
        """An expression: does the value say more than leaving the field out would?"""
        if field.type == "uuid" and not field.array:
            return f"{source} != no_uuid"
        if field.default is None:
            return f"{source} is not None"
        if field.array:
            # The length, not the truth: None must raise where null is not allowed.
            null = f"{source} is None or " if len(field.nullable) else ""
            return f"({null}len({source}) > 0)"
        if field.is_struct:
            target = self.out.name("t")
            inner = self.facts.structs[field.type]
            parts = [self._differs(f"{target}.{each.name}", each) for each in inner]
            known = f"({target} := {source}).unknown_tags is not None"
            return f"({' or '.join([known, *parts])})"
        return f"{source} != {field.default!r}"

    # Fields.

    def _field(self, source: str, field: Field) -> None:
        nullable = self.version in field.nullable
        if field.array:
            self._array(source, field, nullable=nullable)
        elif field.is_struct:
            self._nested(source, field, nullable=nullable)
        elif field.type in FIXED:
            self._fixed(source, field.type)
        else:
            self._sized(source, field, nullable=nullable)

    def _fixed(self, source: str, kind: str) -> None:
        """Add a fixed-size value to the run; it is written when the run ends."""
        code = FIXED[kind][0]
        if kind == "uuid":
            source = f"{source}.bytes"
        elif kind == "bool":
            code, source = "B", f"bools[{source}]"
        self.run.append((code, source))

    def _flush(self) -> None:
        """Write the run of fixed-size values that has gathered."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        values = ", ".join(source for _, source in self.run if source)
        if values:
            pack = self.out.constant(packer(codes).pack, "pack")
            self.out.emit(f"p({pack}({values}))")
        else:
            self.out.emit(f"p({bytes(len(codes))!r})")
        self.run = []

    def _length(self, code: str, *, compact: bool, string: bool = False) -> None:
        """Write ``n``, the length or count; -1 means null in both forms."""
        if not compact:
            self.run.append((code, "n"))
            self._flush()
            return
        self._flush()
        long = "string_length(n)" if string else "varint(n + 1)"
        self.out.emit(f"p(short[n + 1] if n < 127 else {long})")

    def _sized(self, source: str, field: Field, *, nullable: bool) -> None:
        """A string, bytes or records."""
        string = field.type == "string"
        self.out.emit(f"s = {source}")
        if nullable:
            with self.out.block("if s is None:"):
                self.out.emit("n = -1")
            with self.out.block("else:"):
                self._measure(field.type)
        else:
            self._measure(field.type)
        compact = self.flexible and not field.inflexible
        self._length("h" if string else "i", compact=compact, string=string)
        with self.out.block("if n > 0:"):
            if field.type == "records":
                self.out.emit("cuts.append(len(pieces))")
            self.out.emit("p(s)")

    def _measure(self, kind: str) -> None:
        if kind == "string":
            self.out.emit("s = s.encode()")
        elif kind == "bytes":
            self.out.emit("if s.__class__ is not bytes: s = as_bytes(s)")
        else:
            self.out.emit("s = as_records(s)")
        self.out.emit("n = len(s)")

    def _nested(self, source: str, field: Field, *, nullable: bool) -> None:
        target = self.out.name("o")
        self.out.emit(f"{target} = {source}")
        if not nullable:
            self._struct(field.type, target)
            return
        self._flush()
        with self.out.block(f"if {target} is None:"):
            self.out.emit('p(b"\\xff")')
        with self.out.block("else:"):
            self.run.append(("b", "1"))
            self._struct(field.type, target)
            self._flush()

    # Arrays.

    def _array(self, source: str, field: Field, *, nullable: bool) -> None:
        items = self.out.name("a")
        self.out.emit(f"{items} = {source}")
        if nullable:
            with self.out.block(f"if {items} is None:"):
                self.out.emit(f"{items} = ()")
                self.out.emit("n = -1")
            with self.out.block("else:"):
                self._count(items)
        else:
            self._count(items)
        self._length("i", compact=self.flexible and not field.inflexible)
        if field.type in WRITE_RUNS:
            runs = self.out.constant(WRITE_RUNS[field.type], "runs")
            self.out.emit(f"if n > 0: p({runs}[n](*{items}))")
            return
        item = self.out.name("o")
        with self.out.block(f"for {item} in {items}:"):
            self._element(item, field)
            self._flush()

    def _count(self, items: str) -> None:
        self.out.emit(f"if {items}.__class__ is not list: {items} = as_list({items})")
        self.out.emit(f"n = len({items})")

    def _element(self, item: str, field: Field) -> None:
        if field.is_struct:
            self._struct(field.type, item)
        elif field.type in FIXED:
            self._fixed(item, field.type)
        else:
            self._sized(item, field, nullable=False)
