"""Produce requests and their answers, by hand: what every batch passes through.

The generic codec says the same in many more steps; a test holds the two together, version by
version. An answer in which anything went wrong, or that says more than usual, is left to it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from karrow.aio._batch cimport Batch
from karrow.aio._fields cimport (
    has_tags, read_count, read_int16, read_unsigned, write_count, write_tags,
)
from karrow.records._cursor cimport (
    FAULT_NONE, Cursor, left, read_int32, read_int64, store16, store32, take, write_varint,
)

from karrow.errors import LocalProtocolError

cdef enum:
    FIRST_WITH_START = 5         # the first version whose answer has the log's first offset
    FIRST_WITH_ERRORS = 8        # ... errors of single records
    FIRST_COMPACT = 9
    FIRST_WITH_IDS = 13
    ID_BYTES = 16
    BETWEEN = 512                # more than a topic's name and all numbers between two batches


def encode_head(int version, str transactional_id, int acks, int timeout_ms):
    """How every request of a producer begins; it stays the same."""
    cdef bytes name = None if transactional_id is None else transactional_id.encode()
    cdef uint8_t room[16]
    cdef uint8_t* at = room
    if name is not None and len(name) > 0x7FFF:
        raise LocalProtocolError(f"transactional_id has {len(name)} bytes, more than a string may")
    if version >= FIRST_COMPACT:
        at = write_varint(at, 0 if name is None else len(name) + 1)
    else:
        store16(at, -1 if name is None else len(name))
        at += 2
    start = PyBytes_FromStringAndSize(<char*>room, at - room) + (name or b"")
    store16(room, acks)
    store32(room + 2, timeout_ms)
    return start + PyBytes_FromStringAndSize(<char*>room, 6)


def encode_batches(int version, bytes head, list topics):
    """The pieces of a request, and which of them are batches.

    ``topics`` are pairs of a name, or from version 13 on an id, and batches, all in the order in
    which they are sent.
    """
    cdef bint compact = version >= FIRST_COMPACT
    cdef uint8_t room[BETWEEN]
    cdef uint8_t* at = room
    cdef list pieces = [head]
    cdef list cuts = []
    cdef bytes name
    cdef list batches
    cdef Batch batch
    cdef int64_t size
    at = write_count(at, len(topics), compact)
    for name, batches in topics:
        at = write_name(at, name, version)
        at = write_count(at, len(batches), compact)
        for batch in batches:
            size = batch.size
            store32(at, batch.partition.number)
            at = write_count(at + 4, <int32_t>size, compact)
            pieces.append(PyBytes_FromStringAndSize(<char*>room, at - room))
            cuts.append(len(pieces))
            pieces.append(memoryview(batch))
            at = write_tags(room, compact)
        at = write_tags(at, compact)
    at = write_tags(at, compact)
    pieces.append(PyBytes_FromStringAndSize(<char*>room, at - room))
    return pieces, cuts


cdef uint8_t* write_name(uint8_t* at, bytes name, int version) except NULL:
    cdef int64_t length = PyBytes_GET_SIZE(name)
    if length > BETWEEN // 2:
        raise LocalProtocolError(f"a topic's name of {length} bytes")
    if version >= FIRST_COMPACT and version < FIRST_WITH_IDS:
        at = write_varint(at, <uint64_t>length + 1)
    elif version < FIRST_COMPACT:
        store16(at, <int16_t>length)
        at += 2
    memcpy(at, PyBytes_AS_STRING(name), length)
    return at + length


# ---- the answer

cdef bytes read_name(Cursor* cursor, int version):
    """A topic's name or id; None when that cannot be."""
    cdef int64_t length
    cdef const uint8_t* at
    if version >= FIRST_WITH_IDS:
        length = ID_BYTES
    elif version >= FIRST_COMPACT:
        length = read_unsigned(cursor) - 1
    else:
        length = read_int16(cursor)
    if cursor.fault or length < 0:
        return None
    at = take(cursor, length)
    return None if at == NULL else PyBytes_FromStringAndSize(<const char*>at, length)


cdef tuple read_written(Cursor* cursor, int version):
    """One partition: index, offset, time, first offset; None if more is said of it than that."""
    cdef bint compact = version >= FIRST_COMPACT
    cdef int64_t index = read_int32(cursor)
    cdef int16_t error = read_int16(cursor)
    cdef int64_t offset = read_int64(cursor)
    cdef int64_t time = read_int64(cursor)
    cdef int64_t start = read_int64(cursor) if version >= FIRST_WITH_START else -1
    if error:
        return None
    if version >= FIRST_WITH_ERRORS:
        if read_count(cursor, compact) != 0:
            return None
        if (read_unsigned(cursor) if compact else read_int16(cursor) + 1) != 0:
            return None
    if has_tags(cursor, compact):
        return None
    return index, offset, time, start


cdef class Written:
    """An answer in which every batch was written.

    ``partitions`` has by topic (its name, or its id) and number the first offset, the time of the
    append and the log's first offset, each -1 where the broker does not say it.
    """

    cdef readonly dict partitions
    cdef readonly int32_t throttle_time_ms


def decode_written(const uint8_t[::1] frame, int64_t begin, int version):
    """The answer, if every batch was written and nothing else is said; else None."""
    cdef bint compact = version >= FIRST_COMPACT
    cdef Cursor cursor
    cdef Written answer
    cdef dict written = {}
    cdef int64_t topics
    cdef int64_t partitions
    cdef bytes name
    cdef tuple found
    if begin >= frame.shape[0] or version < 3 or version > FIRST_WITH_IDS:
        return None
    cursor.at = &frame[begin]
    cursor.end = &frame[0] + frame.shape[0]
    cursor.fault = FAULT_NONE
    topics = read_count(&cursor, compact)
    while topics > 0:
        topics -= 1
        name = read_name(&cursor, version)
        partitions = read_count(&cursor, compact)
        while partitions > 0 and name is not None:
            partitions -= 1
            found = read_written(&cursor, version)
            if found is None or cursor.fault:
                return None
            written[name, found[0]] = found[1:]
        if name is None or cursor.fault or has_tags(&cursor, compact):
            return None
    answer = Written()
    answer.partitions = written
    answer.throttle_time_ms = read_int32(&cursor)
    if has_tags(&cursor, compact) or cursor.fault or left(&cursor):
        return None
    return answer
