# Columns of an Arrow batch as the encoder reads them, row by row, without the GIL.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from karrow.records._arrow cimport ArrowArray, ArrowSchema
from karrow.records._writing cimport Field

cdef enum ByteKind:
    ABSENT = 0                   # no such column, or one of Arrow's null type: every row is null
    SMALL = 1                    # 32-bit offsets
    LARGE = 2                    # 64-bit offsets
    VIEW = 3                     # 16-byte views, as polars exports them
    FIXED = 4                    # values of one width

cdef struct ByteSource:
    ByteKind kind
    int64_t first                # index of row 0 in the buffers
    const uint8_t* validity
    const void* offsets
    const uint8_t* data
    const uint8_t* data_end
    const void** buffers         # of a view
    int64_t width

cdef struct NumberSource:
    bint present
    int64_t first
    const uint8_t* validity
    const int64_t* values
    int64_t divisor              # what turns the values into milliseconds: one of these is 1
    int64_t factor

# Integers of any width, where a column says which partition, or which entry of a dictionary.
cdef struct IntegerSource:
    bint present
    int64_t first
    const uint8_t* validity
    const void* values
    char kind                    # Arrow's letter for the type

cdef struct HeaderSource:
    bint present
    bint large
    int64_t first
    const uint8_t* validity
    const void* offsets
    ByteSource key
    ByteSource value


cdef inline bint is_valid(const uint8_t* validity, int64_t index) noexcept nogil:
    return validity == NULL or (validity[index >> 3] >> (index & 7)) & 1


cdef inline Field null_field() noexcept nogil:
    cdef Field field
    field.start = NULL
    field.length = -1
    field.readable_end = NULL
    return field


cdef inline Field view_field(ByteSource* source, int64_t index) noexcept nogil:
    cdef const uint8_t* view = <const uint8_t*>source.offsets + 16 * index
    cdef int32_t length
    cdef int32_t buffer
    cdef int32_t at
    cdef Field field
    memcpy(&length, view, 4)
    field.length = length
    field.start = view + 4
    if length > 12:
        memcpy(&buffer, view + 8, 4)
        memcpy(&at, view + 12, 4)
        field.start = <const uint8_t*>source.buffers[2 + buffer] + at
    field.readable_end = field.start + length
    return field


cdef inline Field byte_field(ByteSource* source, int64_t row) noexcept nogil:
    """The bytes of one row."""
    cdef int64_t index = source.first + row
    cdef Field field
    if source.kind == ABSENT or not is_valid(source.validity, index):
        return null_field()
    if source.kind == SMALL:
        field.start = source.data + (<const int32_t*>source.offsets)[index]
        field.length = (<const int32_t*>source.offsets)[index + 1] - (
            <const int32_t*>source.offsets
        )[index]
    elif source.kind == LARGE:
        field.start = source.data + (<const int64_t*>source.offsets)[index]
        field.length = (<const int64_t*>source.offsets)[index + 1] - (
            <const int64_t*>source.offsets
        )[index]
    elif source.kind == FIXED:
        field.start = source.data + index * source.width
        field.length = source.width
    else:
        return view_field(source, index)
    field.readable_end = source.data_end
    return field


cdef inline bint has_number(NumberSource* source, int64_t row) noexcept nogil:
    return source.present and is_valid(source.validity, source.first + row)


cdef inline int64_t number(NumberSource* source, int64_t row) noexcept nogil:
    """The value of a row that has one, times floored to milliseconds."""
    cdef int64_t value = source.values[source.first + row]
    cdef int64_t floored
    if source.divisor == 1:
        return value * source.factor
    floored = value // source.divisor
    return floored - 1 if value % source.divisor < 0 else floored


cdef inline bint has_integer(IntegerSource* source, int64_t row) noexcept nogil:
    return source.present and is_valid(source.validity, source.first + row)


cdef inline int64_t integer(IntegerSource* source, int64_t row) noexcept nogil:
    """The value of a row that has one; what only an uint64 can hold comes out negative."""
    cdef int64_t index = source.first + row
    if source.kind == b"i":
        return (<const int32_t*>source.values)[index]
    if source.kind == b"l" or source.kind == b"L":
        return (<const int64_t*>source.values)[index]
    if source.kind == b"I":
        return (<const uint32_t*>source.values)[index]
    if source.kind == b"s":
        return (<const int16_t*>source.values)[index]
    if source.kind == b"S":
        return (<const uint16_t*>source.values)[index]
    if source.kind == b"c":
        return (<const int8_t*>source.values)[index]
    return (<const uint8_t*>source.values)[index]


cdef inline void header_range(
    HeaderSource* source, int64_t row, int64_t* begin, int64_t* end
) noexcept nogil:
    """Which entries are the headers of the row."""
    cdef int64_t index = source.first + row
    begin[0] = 0
    end[0] = 0
    if not source.present or not is_valid(source.validity, index):
        return
    if source.large:
        begin[0] = (<const int64_t*>source.offsets)[index]
        end[0] = (<const int64_t*>source.offsets)[index + 1]
    else:
        begin[0] = (<const int32_t*>source.offsets)[index]
        end[0] = (<const int32_t*>source.offsets)[index + 1]


cdef class ArrowChunk:
    cdef ArrowArray array
    cdef readonly int64_t rows
    cdef ByteSource key
    cdef ByteSource value
    cdef HeaderSource headers
    cdef NumberSource timestamp
    cdef NumberSource offset
    # only of data that is sent: where its rows go
    cdef ByteSource topic        # by row, or the dictionary's entries
    cdef IntegerSource topic_index
    cdef int64_t topic_entries   # of the dictionary
    cdef IntegerSource partition

    cdef int64_t most_bytes(self, int64_t begin, int64_t end) noexcept nogil


cdef class ByteChunk:
    cdef ArrowArray array
    cdef readonly int64_t rows
    cdef ByteSource source
