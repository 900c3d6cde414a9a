"""Arrow data from outside: anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``.

The types that fit are listed once, in the functions that open a column; everything else is refused
with the column's name.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from karrow.records._arrow cimport ArrowArray, ArrowArrayStream, ArrowSchema
from karrow.records._export import ALL

from karrow.errors import LocalProtocolError

cdef enum Shape:
    COLUMN = 0                   # one column of bytes
    TABLE = 1                    # the columns of a batch
    ROUTED = 2                   # with those that say where a row goes

cdef frozenset LAYOUTS = frozenset((b"n", b"z", b"u", b"Z", b"U", b"vz", b"vu"))
cdef dict UNITS = {b"s": (1, 1000), b"m": (1, 1), b"u": (1000, 1), b"n": (1_000_000, 1)}


cdef object unfit(str column, ArrowSchema* schema, str wanted):
    kind = (<bytes>schema.format).decode("ascii", "replace")
    if schema.dictionary != NULL:
        kind = "dictionary"
    return LocalProtocolError(f"column {column!r} has Arrow type {kind!r}; it must be {wanted}")


cdef int open_bytes(
    ByteSource* source, str column, ArrowSchema* schema, ArrowArray* array, int64_t first
) except -1:
    """A binary or string column of any layout; `first` is where the parent's row 0 is."""
    cdef bytes kind = schema.format
    cdef int64_t last = array.offset + array.length
    source.first = first + array.offset
    if schema.dictionary != NULL or kind not in LAYOUTS and not kind.startswith(b"w:"):
        raise unfit(column, schema, "binary or string")
    if kind == b"n" or array.null_count == array.length:
        source.kind = ABSENT     # an array without values may have no buffers either
        return 0
    source.validity = <const uint8_t*>array.buffers[0] if array.null_count else NULL
    source.offsets = array.buffers[1]
    if kind in (b"vz", b"vu"):
        source.kind = VIEW
        source.buffers = array.buffers
    elif kind in (b"z", b"u"):
        source.kind = SMALL
        source.data = <const uint8_t*>array.buffers[2]
        source.data_end = source.data + (<const int32_t*>source.offsets)[last]
    elif kind in (b"Z", b"U"):
        source.kind = LARGE
        source.data = <const uint8_t*>array.buffers[2]
        source.data_end = source.data + (<const int64_t*>source.offsets)[last]
    else:
        source.kind = FIXED
        source.width = int(kind[2:])
        source.data = <const uint8_t*>array.buffers[1]
        source.data_end = source.data + last * source.width
    return 0


cdef int open_number(
    NumberSource* source, str column, ArrowSchema* schema, ArrowArray* array, int64_t first
) except -1:
    """int64 as it is; timestamps of any unit become milliseconds."""
    cdef bytes kind = schema.format
    if schema.dictionary != NULL or kind not in (b"l", b"n") and not kind.startswith(b"ts"):
        raise unfit(column, schema, "int64" if column == "offset" else "timestamp or int64")
    source.present = kind != b"n"
    source.first = first + array.offset
    source.divisor, source.factor = UNITS[kind[2:3]] if kind.startswith(b"ts") else (1, 1)
    if source.present:
        source.validity = <const uint8_t*>array.buffers[0] if array.null_count else NULL
        source.values = <const int64_t*>array.buffers[1]
    return 0


cdef int open_integer(
    IntegerSource* source, str column, ArrowSchema* schema, ArrowArray* array, int64_t first
) except -1:
    """Integers of any width, or of a dictionary's indices."""
    cdef bytes kind = schema.format
    if kind == b"n":
        return 0
    if len(kind) != 1 or kind not in b"cCsSiIlL":
        raise unfit(column, schema, "an integer")
    source.present = True
    source.kind = kind[0]
    source.first = first + array.offset
    source.validity = <const uint8_t*>array.buffers[0] if array.null_count else NULL
    source.values = array.buffers[1]
    return 0


cdef int open_topic(
    ArrowChunk chunk, ArrowSchema* schema, ArrowArray* array, int64_t first
) except -1:
    """A string column of any layout, or a dictionary of strings."""
    cdef ArrowSchema* values = schema if schema.dictionary == NULL else schema.dictionary
    if <bytes>values.format not in (b"u", b"U", b"vu", b"n") or values.dictionary != NULL:
        raise unfit("topic", schema, "string, or a dictionary of strings")
    if schema.dictionary == NULL:
        return open_bytes(&chunk.topic, "topic", schema, array, first)
    chunk.topic_entries = array.dictionary.length
    open_bytes(&chunk.topic, "topic", values, array.dictionary, 0)
    return open_integer(&chunk.topic_index, "topic", schema, array, first)


cdef int open_headers(
    HeaderSource* source, ArrowSchema* schema, ArrowArray* array, int64_t first
) except -1:
    cdef bytes kind = schema.format
    cdef ArrowSchema* entry
    cdef ArrowArray* entries
    cdef bytes name
    cdef int64_t i
    if kind == b"n":
        return 0
    entry = schema.children[0] if kind in (b"+l", b"+L") else NULL
    if entry == NULL or <bytes>entry.format != b"+s" or entry.n_children != 2:
        raise unfit("headers", schema, "list<struct<key, value>>")
    source.present = True
    source.large = kind == b"+L"
    source.first = first + array.offset
    source.validity = <const uint8_t*>array.buffers[0] if array.null_count else NULL
    source.offsets = array.buffers[1]
    entries = array.children[0]
    for i in range(2):
        name = entry.children[i].name
        if name == b"key":
            open_bytes(
                &source.key, "headers.key", entry.children[i], entries.children[i], entries.offset
            )
        elif name == b"value":
            open_bytes(
                &source.value, "headers.value", entry.children[i], entries.children[i],
                entries.offset,
            )
        else:
            raise unfit("headers", schema, "list<struct<key, value>>")
    return 0


cdef class ArrowChunk:
    """One Arrow record batch whose columns the encoder can read."""

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)

    cdef int64_t most_bytes(self, int64_t begin, int64_t end) noexcept nogil:
        """An upper bound on the bytes of keys, values and headers of these rows."""
        cdef int64_t total = 0
        cdef int64_t row
        cdef int64_t entry
        cdef int64_t stop
        total += most_of(&self.key, begin, end) + most_of(&self.value, begin, end)
        if self.headers.present:
            for row in range(begin, end):
                header_range(&self.headers, row, &entry, &stop)
                total += most_of(&self.headers.key, entry, stop)
                total += most_of(&self.headers.value, entry, stop) + 10 * (stop - entry)
        return total


cdef int64_t most_of(ByteSource* source, int64_t begin, int64_t end) noexcept nogil:
    """An upper bound on the bytes of these rows; exact where offsets tell it at once."""
    cdef int64_t total = 0
    cdef int64_t row
    begin += source.first
    end += source.first
    if source.kind == SMALL:
        return (<const int32_t*>source.offsets)[end] - (<const int32_t*>source.offsets)[begin]
    if source.kind == LARGE:
        return (<const int64_t*>source.offsets)[end] - (<const int64_t*>source.offsets)[begin]
    if source.kind == FIXED:
        return (end - begin) * source.width
    if source.kind == VIEW:
        for row in range(begin, end):
            if is_valid(source.validity, row):
                total += view_field(source, row).length
    return total


cdef int open_columns(ArrowChunk chunk, ArrowSchema* schema, bint routed) except -1:
    cdef int64_t i
    cdef str name
    cdef ArrowSchema* column
    cdef ArrowArray* values
    cdef int64_t first = chunk.array.offset
    cdef set seen = set()
    if <bytes>schema.format != b"+s":
        raise LocalProtocolError("Arrow data must be a table or record batch, not one column")
    for i in range(schema.n_children):
        column = schema.children[i]
        values = chunk.array.children[i]
        name = (<bytes>column.name).decode()
        if name in seen or name not in ALL:
            fault = "comes twice" if name in seen else f"is none of {', '.join(ALL)}"
            raise LocalProtocolError(f"column {name!r} {fault}")
        seen.add(name)
        if name == "key":
            open_bytes(&chunk.key, name, column, values, first)
        elif name == "value":
            open_bytes(&chunk.value, name, column, values, first)
        elif name == "headers":
            open_headers(&chunk.headers, column, values, first)
        elif name == "timestamp":
            open_number(&chunk.timestamp, name, column, values, first)
        elif name == "offset" and not routed:
            open_number(&chunk.offset, name, column, values, first)
        elif name == "partition" and routed:
            if column.dictionary != NULL:
                raise unfit(name, column, "an integer")
            open_integer(&chunk.partition, name, column, values, first)
        elif name == "topic" and routed:
            open_topic(chunk, column, values, first)
    if "value" not in seen:
        raise LocalProtocolError("the Arrow data has no column 'value'")
    return 0


cdef ArrowChunk take_chunk(ArrowSchema* schema, ArrowArray* array, bint routed):
    """Moves the array into a chunk of ours."""
    cdef ArrowChunk chunk = ArrowChunk.__new__(ArrowChunk)
    chunk.array = array[0]
    array.release = NULL
    chunk.rows = chunk.array.length
    open_columns(chunk, schema, routed)
    return chunk


cdef class ByteChunk:
    """One Arrow array of binary or string values."""

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)


cdef ByteChunk take_bytes(ArrowSchema* schema, ArrowArray* array):
    cdef ByteChunk chunk = ByteChunk.__new__(ByteChunk)
    chunk.array = array[0]
    array.release = NULL
    chunk.rows = chunk.array.length
    open_bytes(&chunk.source, "key", schema, &chunk.array, 0)
    return chunk


cdef object take(ArrowSchema* schema, ArrowArray* array, Shape shape):
    if shape == COLUMN:
        return take_bytes(schema, array)
    return take_chunk(schema, array, shape == ROUTED)


cdef list read_stream(object capsule, Shape shape):
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(
        capsule, "arrow_array_stream"
    )
    cdef ArrowSchema schema
    cdef ArrowArray array
    cdef list chunks = []
    memset(&schema, 0, sizeof(schema))
    if stream.get_schema(stream, &schema):
        raise stream_failure(stream)
    try:
        while True:
            memset(&array, 0, sizeof(array))
            if stream.get_next(stream, &array):
                raise stream_failure(stream)
            if array.release == NULL:
                return chunks
            chunks.append(take(&schema, &array, shape))
    finally:
        schema.release(&schema)


cdef object stream_failure(ArrowArrayStream* stream):
    cdef const char* reason = stream.get_last_error(stream)
    text = "no reason given" if reason == NULL else (<bytes>reason).decode("utf-8", "replace")
    return LocalProtocolError(f"the Arrow stream failed: {text}")


cdef list read_any(object data, Shape shape):
    cdef ArrowSchema* schema
    cdef ArrowArray* array
    if hasattr(data, "__arrow_c_stream__"):
        return read_stream(data.__arrow_c_stream__(), shape)
    if not hasattr(data, "__arrow_c_array__"):
        raise LocalProtocolError(
            f"{type(data).__name__} is no Arrow data: it has neither __arrow_c_stream__ nor "
            "__arrow_c_array__"
        )
    schema_holder, array_holder = data.__arrow_c_array__()
    schema = <ArrowSchema*>PyCapsule_GetPointer(schema_holder, "arrow_schema")
    array = <ArrowArray*>PyCapsule_GetPointer(array_holder, "arrow_array")
    return [take(schema, array, shape)]


def table_chunks(data):
    """The record batches of a table, a stream or a record batch, ready for the encoder."""
    return read_any(data, TABLE)


def routed_chunks(data):
    """The same of data to be sent: ``topic`` and ``partition`` say where, offsets nothing."""
    return read_any(data, ROUTED)


def byte_chunks(data):
    """The pieces of a binary or string column."""
    return read_any(data, COLUMN)
