# Writing records and messages: sizes, fields, headers. The caller has reserved the room.

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memmove

from karrow.records._cursor cimport (
    STEP, copy_short, store32, store64, varint_size, write_varint, zigzag,
)

cdef enum:
    RECORD_OVERHEAD = 36         # the most a record takes beside its key, value and headers
    MESSAGE_OVERHEAD = 34        # the same for a message of magic 1
    WRITE_SLACK = 64             # past every output buffer, so that short copies may overshoot

cdef struct Field:
    const uint8_t* start
    int64_t length               # -1 is null
    const uint8_t* readable_end  # how far the memory behind `start` may be read


cdef inline uint8_t* write_field(
    uint8_t* at, const uint8_t* source, int64_t length, const uint8_t* readable_end
) noexcept nogil:
    """Length and bytes of a key or value; -1 is null. The source may be read to readable_end."""
    at = write_varint(at, zigzag(length))
    if length > 0:
        if length <= 256 and readable_end - source >= length + STEP:
            copy_short(at, source, length)
        else:
            memcpy(at, source, length)
        at += length
    return at


cdef inline uint8_t* write_record(
    uint8_t* at, int64_t timestamp_delta, int64_t offset_delta, Field key, Field value,
    int64_t header_count, int64_t headers_length,
) noexcept nogil:
    """One record of a batch up to its header count; the caller appends the encoded headers.

    The body is written first, where a length of two bytes leaves it, and moved in the rarer cases:
    cheaper than adding up the sizes of five varints before.
    """
    cdef uint8_t* body = at + 2
    cdef uint8_t* end = body
    cdef uint64_t length
    cdef int64_t shift
    end[0] = 0
    end = write_varint(end + 1, zigzag(timestamp_delta))
    end = write_varint(end, zigzag(offset_delta))
    end = write_field(end, key.start, key.length, key.readable_end)
    end = write_field(end, value.start, value.length, value.readable_end)
    end = write_varint(end, zigzag(header_count))
    length = zigzag(end - body + headers_length)
    shift = varint_size(length) - 2
    if shift:
        memmove(body + shift, body, end - body)
    write_varint(at, length)
    return end + shift


cdef inline uint8_t* write_size_and_bytes(uint8_t* at, Field field) noexcept nogil:
    store32(at, <int32_t>field.length)
    at += 4
    if field.length > 0:
        memcpy(at, field.start, field.length)
        at += field.length
    return at


cdef inline uint8_t* write_message(
    uint8_t* at, int magic, int attributes, int64_t offset, int64_t timestamp, Field key,
    Field value,
) noexcept nogil:
    """One message of magic 0 or 1 with its checksum left open. Gives the place after it."""
    cdef uint8_t* start = at
    store64(at, offset)
    store32(at + 12, 0)
    at[16] = magic
    at[17] = attributes
    at += 18
    if magic == 1:
        store64(at, timestamp)
        at += 8
    at = write_size_and_bytes(at, key)
    at = write_size_and_bytes(at, value)
    store32(start + 8, <int32_t>(at - start - 12))
    return at


cdef inline Field field_of(bytes value):
    """The bytes of an object that outlives the field; None is null."""
    cdef Field field
    field.start = NULL
    field.length = -1
    if value is not None:
        field.start = <const uint8_t*>PyBytes_AS_STRING(value)
        field.length = len(value)
    field.readable_end = field.start + (field.length if value is not None else 0)
    return field


cdef inline Field field_at(const uint8_t* start, int64_t length) noexcept nogil:
    """Bytes in memory of which nothing is known beyond them; -1 is null."""
    cdef Field field
    field.start = start
    field.length = length
    field.readable_end = start + max(length, 0)
    return field


cdef bytes field_bytes(str name, object value)
cdef bytes encoded_headers(tuple headers)
