"""Compiles (message, version) into a decoder: straight-line Python, written out from the table.

Rules that make any bytes a value or a RemoteProtocolError:
- Every length and count is compared with the bytes left before it is used. An array of n needs at
  least n times its smallest element, and never less than n bytes, so a count cannot ask for more
  than the frame can hold.
- Nothing recurses on the data: nesting in the source is nesting in the schema, which is finite.
- What runs past the end raises IndexError or struct.error in one place and is translated there.
- A message must use up its bytes; the decoder returns where it stopped and the caller compares.

Runs of fixed-size fields, with the length prefix that follows them, are one unpack. Record data is
not copied: it comes out as a view of the frame.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from karrow.errors import RemoteProtocolError
from karrow.wire.source import Runs, Source, packer
from karrow.wire.structs import NO_UUID, Struct, is_lazy, struct_class
from karrow.wire.table import (
    FIXED,
    MAX_LENGTH,
    MAX_STRING,
    Field,
    Schema,
    layout,
    schema,
    smallest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Decoder = Callable[[bytes | bytearray | memoryview, int, int], tuple[Struct, int]]

READ_RUNS = {kind: Runs(code, "unpack_from") for kind, (code, _) in FIXED.items() if kind != "uuid"}


@functools.cache
def compile_decoder(name: str, version: int) -> Decoder:
    """The decoder of a message's version: ``decode(buffer, start, end) -> (message, stop)``.

    The buffer must be bytes, or any buffer of bytes for a message with record data, and ``end`` its
    length.
    """
    facts = schema(name)
    facts.require(version)
    return _Decoder(facts, version).compile()


@functools.cache
def has_records(name: str) -> bool:
    """Whether any version of the message carries record data."""
    structs = schema(name).structs.values()
    return any(field.type == "records" for fields in structs for field in fields)


def read_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes and 32 bits, and where it ended.

    Unrolled for the lengths that are common.
    """
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    byte = buffer[position + 1]
    if byte < 0x80:
        return value | byte << 7, position + 2
    value |= (byte & 0x7F) << 7
    for index in range(2, 5):
        byte = buffer[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80 and value <= 0xFFFFFFFF:
            return value, position + index + 1
    raise RemoteProtocolError(f"a varint at byte {position} has more than 32 bits")


@functools.lru_cache(maxsize=8192)
def read_uuid(raw: bytes) -> UUID:
    """A UUID from its bytes; the same topic ids come again and again."""
    return UUID(bytes=raw)


class _Decoder:
    """Writes one decoder.

    In the source, ``buf`` is the buffer, ``pos`` the place in it, ``n`` the last length read, ``q``
    where a run of bytes ends, and ``o1``, ``o2``... the structs being filled. ``end``, or ``stop``
    inside a tagged field, is the limit.
    """

    def __init__(self, facts: Schema, version: int) -> None:
        self.facts = facts
        self.version = version
        self.flexible = version in facts.flexible
        # Not bytes for sure: slices have no decode() then, and have to be copied.
        self.view = has_records(facts.name)
        self.limit = "end"
        self.run: list[tuple[str, str]] = []
        self.converted: list[str] = []
        self.tag_readers: dict[str, str] = {}
        self.out = Source(
            new=object.__new__,
            varint=read_varint,
            uuid=read_uuid,
            no_uuid=NO_UUID,
            bad_length=self._bad_length,
            bad_count=self._bad_count,
            bad_size=self._bad_size,
            bad_tag=self._bad_tag,
            unknown_tags=self._unknown_tags,
            bad_bytes=self._bad_bytes,
            broken=(IndexError, struct.error, UnicodeDecodeError),
        )

    def compile(self) -> Decoder:
        """The finished function."""
        with self.out.block("def decode(buf, pos, end):"):
            if self.view:
                self.out.emit("view = memoryview(buf).toreadonly()")
            with self.out.block("try:"):
                target = self._struct("")
                self.out.emit(f"return {target}, pos")
            with self.out.block("except broken as error:"):
                self.out.emit("bad_bytes(error, pos, end)")
        return self.out.compile(f"{self.facts.name} v{self.version} decoder", "decode")

    # Called from the compiled source.

    def _fail(self, text: str) -> NoReturn:
        raise RemoteProtocolError(f"{self.facts.name} v{self.version}: {text}")

    def _bad_length(self, field: str, length: int, left: int) -> NoReturn:
        if length < 0:
            self._fail(f"{field} is null or has the length {length}")
        self._fail(f"{field} has {length} bytes where {left} are left")

    def _bad_size(self, size: int, most: int) -> NoReturn:
        self._fail(f"a length or count of {size}, the most is {most}")

    def _bad_count(self, field: str, count: int, left: int) -> NoReturn:
        if count < 0:
            self._fail(f"{field} is null or has {count} elements")
        self._fail(f"{field} has {count} elements where {left} bytes are left")

    def _bad_tag(self, struct_name: str, tag: int, position: int) -> NoReturn:
        self._fail(f"tag {tag} of {struct_name} is out of order or of a wrong size ({position})")

    def _bad_bytes(self, error: Exception, position: int, end: int) -> NoReturn:
        if isinstance(error, UnicodeDecodeError):
            self._fail(f"a string near byte {position} is not UTF-8")
        self._fail(f"cut short near byte {min(position, end)} of {end}")

    def _unknown_tags(self, target: Any, buffer: bytes, position: int, end: int) -> int:
        """Read the tagged fields of a struct that has none we know."""
        found: dict[int, bytes] = {}
        target.unknown_tags = found
        last = -1
        count, position = read_varint(buffer, position)
        for _ in range(count):
            tag, position = read_varint(buffer, position)
            size, position = read_varint(buffer, position)
            stop = position + size
            if tag <= last or stop > end:
                self._bad_tag(type(target).__name__, tag, position)
            found[tag] = bytes(buffer[position:stop])
            last, position = tag, stop
        return position

    # Structs.

    def _struct(self, struct_name: str) -> str:
        """Read a struct into a new variable."""
        here = layout(self.facts, struct_name, self.version)
        target = self.out.name("o")
        kind = self.out.constant(struct_class(self.facts.name, struct_name), "C")
        self.out.emit(f"{target} = new({kind})")
        for field in here.plain:
            self._field(f"{target}.{field.name}", field, struct_name)
        self._flush()
        for field in (*here.absent, *here.tagged):
            self._default(f"{target}.{field.name}", field)
        self.out.emit(f"{target}.unknown_tags = None")
        if here.flexible:
            reader = self._tag_reader(struct_name)
            with self.out.block("if buf[pos]:"):
                self.out.emit(f"pos = {reader}({target}, buf, pos, {self.limit})")
            with self.out.block("else:"):
                self.out.emit("pos += 1")
        return target

    def _default(self, place: str, field: Field) -> None:
        if field.array and field.default is not None:
            self.out.emit(f"{place} = []")
        elif is_lazy(field):
            return
        elif field.type == "uuid" and not field.array:
            self.out.emit(f"{place} = no_uuid")
        else:
            self.out.emit(f"{place} = {field.default!r}")

    def _tag_reader(self, struct_name: str) -> str:
        """The function that reads the tagged fields of a struct, written when first needed."""
        if not layout(self.facts, struct_name, self.version).tagged:
            return "unknown_tags"
        known = self.tag_readers.get(struct_name)
        if known is not None:
            return known
        name = self.tag_readers[struct_name] = self.out.name("tags")
        outer, self.limit = self.limit, "stop"
        label = repr(struct_name or self.facts.name)
        with self.out.function(f"def {name}(o, buf, pos, end):"):
            self.out.emit("last = -1")
            self.out.emit("count, pos = varint(buf, pos)")
            # A count too large ends in an IndexError: each turn reads two bytes at least.
            with self.out.block("for _ in range(count):"):
                self.out.emit("tag, pos = varint(buf, pos)")
                self.out.emit("size, pos = varint(buf, pos)")
                self.out.emit("stop = pos + size")
                self.out.emit(f"if tag <= last or stop > end: bad_tag({label}, tag, pos)")
                self.out.emit("last = tag")
                self._known_tags(struct_name)
                self.out.emit(f"if pos != stop: bad_tag({label}, tag, pos)")
            self.out.emit("return pos")
        self.limit = outer
        return name

    def _known_tags(self, struct_name: str) -> None:
        word = "if"
        for field in layout(self.facts, struct_name, self.version).tagged:
            with self.out.block(f"{word} tag == {field.tag}:"):
                self._field(f"o.{field.name}", field, struct_name)
                self._flush()
            word = "elif"
        with self.out.block("else:"):
            self.out.emit("if o.unknown_tags is None: o.unknown_tags = {}")
            self.out.emit("o.unknown_tags[tag] = bytes(buf[pos:stop])")
            self.out.emit("pos = stop")

    # Fields.

    def _field(self, place: str, field: Field, struct_name: str) -> None:
        path = f"{struct_name}.{field.name}" if struct_name else field.name
        nullable = self.version in field.nullable
        if field.array:
            self._array(place, field, path, nullable=nullable)
        elif field.is_struct:
            self._nested(place, field, nullable=nullable)
        elif field.type in FIXED:
            self._fixed(place, field.type)
        else:
            self._sized(place, field, path, nullable=nullable)

    def _fixed(self, place: str, kind: str) -> None:
        """Add a fixed-size value to the run; it is read when the run ends."""
        if kind == "uuid":
            temporary = self.out.name("u")
            self.converted.append(f"{place} = uuid({temporary})")
            place = temporary
        self.run.append((FIXED[kind][0], place))

    def _flush(self) -> None:
        """Read the run of fixed-size values that has gathered."""
        if not self.run:
            return
        run = packer("".join(code for code, _ in self.run))
        unpack = self.out.constant(run.unpack_from, "unpack")
        places = ", ".join(place for _, place in self.run)
        self.out.emit(f"{places}{',' if len(self.run) == 1 else ''} = {unpack}(buf, pos)")
        self.out.emit(f"pos += {run.size}")
        for line in self.converted:
            self.out.emit(line)
        self.run, self.converted = [], []

    def _length(self, code: str, *, compact: bool, most: int = MAX_LENGTH) -> None:
        """Read a length or count into ``n``; -1 means null in both forms.

        The compact form could say more than the other one can, so ``most`` holds it to the same.
        """
        if not compact:
            self.run.append((code, "n"))
            self._flush()
            return
        self._flush()
        self.out.emit("n = buf[pos] - 1")
        self.out.emit("pos += 1")
        with self.out.block("if n > 126:"):
            self.out.emit("n, pos = varint(buf, pos - 1)")
            self.out.emit("n -= 1")
            self.out.emit(f"if n > {most}: bad_size(n, {most})")

    def _sized(self, place: str, field: Field, path: str, *, nullable: bool) -> None:
        """A string, bytes or records."""
        compact = self.flexible and not field.inflexible
        if field.type == "string":
            self._length("h", compact=compact, most=MAX_STRING)
        else:
            self._length("i", compact=compact)
        if nullable:
            with self.out.block("if n == -1:"):
                self.out.emit(f"{place} = None")
            with self.out.block("else:"):
                self._content(place, field, path)
        else:
            self._content(place, field, path)

    def _content(self, place: str, field: Field, path: str) -> None:
        self.out.emit("q = pos + n")
        with self.out.block(f"if n < 0 or q > {self.limit}:"):
            self.out.emit(f"bad_length({path!r}, n, {self.limit} - pos)")
        self.out.emit(f"{place} = {self._slice(field.type)}")
        self.out.emit("pos = q")

    def _slice(self, kind: str) -> str:
        if kind == "string":
            return 'str(buf[pos:q], "utf-8")' if self.view else "buf[pos:q].decode()"
        if kind == "records":
            return "view[pos:q]"
        return "bytes(buf[pos:q])" if self.view else "buf[pos:q]"

    def _nested(self, place: str, field: Field, *, nullable: bool) -> None:
        if not nullable:
            self._flush()
            self.out.emit(f"{place} = {self._struct(field.type)}")
            return
        self.run.append(("b", "n"))
        self._flush()
        with self.out.block("if n < 0:"):
            self.out.emit(f"{place} = None")
        with self.out.block("else:"):
            self.out.emit(f"{place} = {self._struct(field.type)}")

    # Arrays.

    def _array(self, place: str, field: Field, path: str, *, nullable: bool) -> None:
        self._length("i", compact=self.flexible and not field.inflexible)
        if nullable:
            with self.out.block("if n == -1:"):
                self.out.emit(f"{place} = None")
            with self.out.block("else:"):
                self._elements(place, field, path)
        else:
            self._elements(place, field, path)

    def _elements(self, place: str, field: Field, path: str) -> None:
        size = max(1, smallest(self.facts, field, self.version))
        needed = "n" if size == 1 else f"n * {size}"
        with self.out.block(f"if n < 0 or {needed} > {self.limit} - pos:"):
            self.out.emit(f"bad_count({path!r}, n, {self.limit} - pos)")
        if field.type in READ_RUNS:
            runs = self.out.constant(READ_RUNS[field.type], "runs")
            self.out.emit(f"{place} = list({runs}[n](buf, pos)) if n else []")
            self.out.emit(f"pos += {needed}")
            return
        items = self.out.name("a")
        self.out.emit(f"{place} = {items} = []")
        # Many arrays are empty: those skip making a bound method and an iterator.
        with self.out.block("if n:"):
            self.out.emit(f"{items} = {items}.append")
            with self.out.block("for _ in range(n):"):
                self._element(items, field, path)

    def _element(self, append: str, field: Field, path: str) -> None:
        if field.is_struct:
            self.out.emit(f"{append}({self._struct(field.type)})")
            return
        item = self.out.name("i")
        if field.type in FIXED:
            self._fixed(item, field.type)
            self._flush()
        else:
            self._sized(item, field, path, nullable=False)
        self.out.emit(f"{append}({item})")
