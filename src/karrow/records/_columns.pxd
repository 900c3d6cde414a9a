# The Arrow columns of a run of records while they are being filled.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from karrow.records._segment cimport Segment

cdef enum:
    KEY = 1
    VALUE = 2
    TOPIC = 4
    PARTITION = 8
    OFFSET = 16
    TIMESTAMP = 32
    TIMESTAMP_TYPE = 64
    HEADERS = 128

cdef struct Validity:
    uint8_t* bits                # NULL while nothing is null
    int64_t nulls

cdef struct ByteColumn:
    Validity validity
    int32_t* ends                # ends[i] to ends[i + 1] is row i
    uint8_t* data
    int64_t length
    int64_t room

cdef struct Columns:
    uint32_t wanted
    int64_t rows
    int64_t capacity
    int64_t timestamp_factor
    int64_t last_offset          # of the last row
    ByteColumn key
    ByteColumn value
    int64_t* offset
    int64_t* timestamp
    Validity timestamp_validity
    int8_t* timestamp_type
    int32_t* header_ends
    int64_t header_rows
    int64_t header_capacity
    ByteColumn header_key
    ByteColumn header_value

cdef bint grow_rows(ByteColumn* column, int64_t old, int64_t new) noexcept nogil
cdef bint grow_data(ByteColumn* column, int64_t more) noexcept nogil
cdef void trim(ByteColumn* column) noexcept nogil
cdef int open_columns(Columns* columns, uint32_t wanted, int64_t timestamp_factor) noexcept nogil
cdef void drop_columns(Columns* columns) noexcept nogil
cdef int reserve_segment(
    Columns* columns, Segment* segment, int64_t most, int64_t ahead
) noexcept nogil
cdef void fill(
    Columns* columns, Segment* segment, int64_t max_rows, int64_t max_bytes, int64_t from_offset
) noexcept nogil
