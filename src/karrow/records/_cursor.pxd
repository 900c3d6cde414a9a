# The one place where the kernel reads untrusted bytes.
#
# Rules: a cursor never passes `end`; the first failure is kept in `fault` and moves the cursor to
# its end, so every later read fails too and one test per record is enough; a failed read gives 0.
# Lengths come out checked against what is left, so a slice that was handed out can be read freely.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    static inline uint16_t karrow_swap16(uint16_t v) {
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        return __builtin_bswap16(v);
    #else
        return v;
    #endif
    }
    static inline uint32_t karrow_swap32(uint32_t v) {
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        return __builtin_bswap32(v);
    #else
        return v;
    #endif
    }
    static inline uint64_t karrow_swap64(uint64_t v) {
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        return __builtin_bswap64(v);
    #else
        return v;
    #endif
    }
    #define karrow_likely(x) __builtin_expect(!!(x), 1)
    """
    uint16_t swap16 "karrow_swap16"(uint16_t v) noexcept nogil
    uint32_t swap32 "karrow_swap32"(uint32_t v) noexcept nogil
    uint64_t swap64 "karrow_swap64"(uint64_t v) noexcept nogil
    bint likely "karrow_likely"(bint x) noexcept nogil


cdef enum Fault:
    FAULT_NONE = 0
    FAULT_CUT = 1            # a field reaches past the end
    FAULT_VARINT = 2         # a varint is longer than its type
    FAULT_LENGTH = 3         # a negative length where none is allowed
    FAULT_RECORD_SIZE = 4    # a record's fields do not fill its declared size
    FAULT_OFFSET = 5         # a record's offset lies outside its batch
    FAULT_HEADERS = 6        # a negative or impossible number of headers
    FAULT_TRAILING = 7       # bytes after the last record
    FAULT_MEMORY = 8         # no memory for the columns


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    int fault


cdef inline void fail(Cursor* cursor, int fault) noexcept nogil:
    if cursor.fault == FAULT_NONE:
        cursor.fault = fault
    cursor.at = cursor.end


cdef inline int64_t left(Cursor* cursor) noexcept nogil:
    return cursor.end - cursor.at


# Big-endian loads from a place already known to be inside the buffer.

cdef inline int16_t load16(const uint8_t* at) noexcept nogil:
    cdef uint16_t v
    memcpy(&v, at, 2)
    return <int16_t>swap16(v)


cdef inline int32_t load32(const uint8_t* at) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, at, 4)
    return <int32_t>swap32(v)


cdef inline int64_t load64(const uint8_t* at) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, at, 8)
    return <int64_t>swap64(v)


cdef inline void store16(uint8_t* at, int16_t value) noexcept nogil:
    cdef uint16_t v = swap16(<uint16_t>value)
    memcpy(at, &v, 2)


cdef inline void store32(uint8_t* at, int32_t value) noexcept nogil:
    cdef uint32_t v = swap32(<uint32_t>value)
    memcpy(at, &v, 4)


cdef inline void store64(uint8_t* at, int64_t value) noexcept nogil:
    cdef uint64_t v = swap64(<uint64_t>value)
    memcpy(at, &v, 8)


cdef inline uint8_t read_byte(Cursor* cursor) noexcept nogil:
    cdef uint8_t value
    if cursor.at >= cursor.end:
        fail(cursor, FAULT_CUT)
        return 0
    value = cursor.at[0]
    cursor.at += 1
    return value


cdef inline int32_t read_int32(Cursor* cursor) noexcept nogil:
    cdef int32_t value
    if left(cursor) < 4:
        fail(cursor, FAULT_CUT)
        return 0
    value = load32(cursor.at)
    cursor.at += 4
    return value


cdef inline int64_t read_int64(Cursor* cursor) noexcept nogil:
    cdef int64_t value
    if left(cursor) < 8:
        fail(cursor, FAULT_CUT)
        return 0
    value = load64(cursor.at)
    cursor.at += 8
    return value


cdef inline int64_t unzigzag(uint64_t v) noexcept nogil:
    return <int64_t>((v >> 1) ^ (0 - (v & 1)))


cdef inline int64_t read_varint(Cursor* cursor, int bits) noexcept nogil:
    """A zigzag varint of 32 or 64 bits."""
    cdef uint64_t value = 0
    cdef uint64_t part
    cdef int shift = 0
    while shift < bits:
        if cursor.at >= cursor.end:
            fail(cursor, FAULT_CUT)
            return 0
        part = cursor.at[0]
        cursor.at += 1
        if shift + 7 > bits and (part & 0x7F) >> (bits - shift):
            break
        value |= (part & 0x7F) << shift
        if part < 0x80:
            return unzigzag(value)
        shift += 7
    fail(cursor, FAULT_VARINT)
    return 0


cdef inline const uint8_t* take(Cursor* cursor, int64_t length) noexcept nogil:
    """The next `length` bytes, or NULL when they are not all there."""
    cdef const uint8_t* at = cursor.at
    if length < 0:
        fail(cursor, FAULT_LENGTH)
        return NULL
    if length > cursor.end - at:
        fail(cursor, FAULT_CUT)
        return NULL
    cursor.at = at + length
    return at


cdef inline const uint8_t* take_nullable(Cursor* cursor, int64_t length) noexcept nogil:
    """As take(), where -1 means null; any other negative length is a fault."""
    if length == -1:
        return NULL
    return take(cursor, length)


# Writing varints: the caller has reserved the room.

cdef inline uint64_t zigzag(int64_t v) noexcept nogil:
    return (<uint64_t>v << 1) ^ <uint64_t>(v >> 63)


cdef extern from *:
    """
    static inline int karrow_varint_size(uint64_t z) { return (70 - __builtin_clzll(z | 1)) / 7; }
    """
    int varint_size "karrow_varint_size"(uint64_t z) noexcept nogil


cdef inline uint8_t* write_varint(uint8_t* at, uint64_t z) noexcept nogil:
    if z < 0x80:
        at[0] = <uint8_t>z
        return at + 1
    if z < 0x4000:
        at[0] = <uint8_t>(z | 0x80)
        at[1] = <uint8_t>(z >> 7)
        return at + 2
    while z >= 0x80:
        at[0] = <uint8_t>(z | 0x80)
        at += 1
        z >>= 7
    at[0] = <uint8_t>z
    return at + 1


cdef enum:
    STEP = 64                    # what copy_short() moves at a time


cdef inline void copy_short(
    uint8_t* into, const uint8_t* source, int64_t length
) noexcept nogil:
    """Copies in steps of STEP bytes, past `length` on both sides: both must have the room."""
    cdef int64_t done = 0
    while done < length:
        memcpy(into + done, source + done, STEP)
        done += STEP
