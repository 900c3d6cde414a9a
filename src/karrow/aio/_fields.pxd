# Fields of messages that are encoded and decoded by hand, in the old and in the compact form.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from karrow.records._cursor cimport (
    Cursor, load16, read_byte, read_int32, store32, take, write_varint,
)


cdef inline uint8_t* write_count(uint8_t* at, int32_t count, bint compact) noexcept nogil:
    """How many entries or bytes follow."""
    if compact:
        return write_varint(at, <uint64_t>count + 1)
    store32(at, count)
    return at + 4


cdef inline uint8_t* write_tags(uint8_t* at, bint compact) noexcept nogil:
    """No tagged fields, where there could be some."""
    if compact:
        at[0] = 0
        return at + 1
    return at


cdef inline int64_t read_unsigned(Cursor* cursor) noexcept nogil:
    """An unsigned varint of 32 bits; -1 if it is longer."""
    cdef int64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 35:
        byte = read_byte(cursor)
        value |= <int64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    return -1


cdef inline int64_t read_count(Cursor* cursor, bint compact) noexcept nogil:
    return read_unsigned(cursor) - 1 if compact else read_int32(cursor)


cdef inline int16_t read_int16(Cursor* cursor) noexcept nogil:
    cdef const uint8_t* at = take(cursor, 2)
    return -1 if at == NULL else load16(at)


cdef inline bint has_tags(Cursor* cursor, bint compact) noexcept nogil:
    """Whether tagged fields follow; if not, goes on behind that."""
    return compact and read_byte(cursor) != 0
