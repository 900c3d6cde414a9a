# Writing records and messages: sizes, fields, headers. The caller has reserved the room.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from karrow.records._cursor cimport (
    copy_short, store32, store64, varint_size, write_varint, zigzag,
)

cdef enum:
    RECORD_OVERHEAD = 36         # the most a record takes beside its key, value and headers
    MESSAGE_OVERHEAD = 34        # the same for a message of magic 1
    WRITE_SLACK = 64             # past every output buffer, so that short copies may overshoot


cdef inline uint8_t* write_field(
    uint8_t* at, const uint8_t* source, int64_t length, bint wide_source
) noexcept nogil:
    """Length and bytes of a key or value; -1 is null. A wide source may be read 32 bytes further."""
    at = write_varint(at, zigzag(length))
    if length > 0:
        if wide_source and length <= 256:
            copy_short(at, source, length)
        else:
            memcpy(at, source, length)
        at += length
    return at


cdef inline uint8_t* write_record(
    uint8_t* at, int64_t timestamp_delta, int64_t offset_delta,
    const uint8_t* key, int64_t key_length, const uint8_t* value, int64_t value_length,
    const uint8_t* headers, int64_t headers_length, int64_t header_count,
    bint wide_key, bint wide_value,
) noexcept nogil:
    """One record of a batch; `headers` are encoded already. Gives the place after it."""
    cdef uint64_t time = zigzag(timestamp_delta)
    cdef uint64_t offset = zigzag(offset_delta)
    cdef int64_t body = (
        1 + varint_size(time) + varint_size(offset)
        + varint_size(zigzag(key_length)) + (key_length if key_length > 0 else 0)
        + varint_size(zigzag(value_length)) + (value_length if value_length > 0 else 0)
        + varint_size(zigzag(header_count)) + headers_length
    )
    at = write_varint(at, zigzag(body))
    at[0] = 0
    at = write_varint(at + 1, time)
    at = write_varint(at, offset)
    at = write_field(at, key, key_length, wide_key)
    at = write_field(at, value, value_length, wide_value)
    at = write_varint(at, zigzag(header_count))
    if headers_length:
        memcpy(at, headers, headers_length)
        at += headers_length
    return at


cdef inline uint8_t* write_size_and_bytes(
    uint8_t* at, const uint8_t* source, int64_t length
) noexcept nogil:
    store32(at, <int32_t>length)
    at += 4
    if length > 0:
        memcpy(at, source, length)
        at += length
    return at


cdef inline uint8_t* write_message(
    uint8_t* at, int magic, int attributes, int64_t offset, int64_t timestamp,
    const uint8_t* key, int64_t key_length, const uint8_t* value, int64_t value_length,
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
    at = write_size_and_bytes(at, key, key_length)
    at = write_size_and_bytes(at, value, value_length)
    store32(start + 8, <int32_t>(at - start - 12))
    return at


cdef bytes field_bytes(str name, object value)
cdef bytes encoded_headers(object headers)
