# A segment is a run of records that is ready to be read: the payload of one batch (decompressed),
# or a run of messages of one magic. next_record() reads one record of it without the GIL.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from karrow.records._cursor cimport (
    FAULT_CUT, FAULT_HEADERS, FAULT_NONE, FAULT_OFFSET, FAULT_RECORD_SIZE, FAULT_TRAILING, Cursor,
    fail, left, load32, load64, read_byte, read_int32, read_int64, read_varint, take, take_nullable,
)
from karrow.records._layout cimport (
    LENGTH_AT, LOG_APPEND_TIME, MESSAGE_ATTRIBUTES_AT, MESSAGE_BODY_AT, MESSAGE_CRC_AT, MIN_MESSAGE,
)

cdef enum:
    CREATE_TIME = 0
    APPEND_TIME = 1
    NO_TIMESTAMP = -1            # magic 0 carries none
    WIDE = 64                    # more than a record's fixed part, and what short copies overread

cdef struct RawRecord:
    int64_t offset
    int64_t timestamp
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers       # the encoded headers, after their count
    int64_t headers_length
    int64_t crc                  # the message's own, -1 in a batch
    int32_t key_length           # -1 is null
    int32_t value_length
    int32_t header_count
    int16_t attributes
    int8_t timestamp_type

cdef struct Segment:
    Cursor cursor
    int64_t remaining            # records not read yet
    int64_t base_offset          # what a record's own offset is relative to
    int64_t last_delta           # the largest delta that belongs to the batch
    int64_t base_timestamp
    int64_t fixed_timestamp      # of every record, when the broker stamped the batch
    int64_t next_offset          # the position after the segment
    int8_t magic
    bint fixed_time
    int16_t attributes


cdef inline void skip_headers(Cursor* cursor, int64_t count) noexcept nogil:
    cdef int64_t length
    if count < 0 or count > left(cursor) // 2:
        fail(cursor, FAULT_HEADERS)
        return
    while count:
        length = read_varint(cursor, 32)
        take(cursor, length)
        length = read_varint(cursor, 32)
        take_nullable(cursor, length)
        if cursor.fault:
            return
        count -= 1


cdef inline void read_record(Segment* segment, RawRecord* record) noexcept nogil:
    """One record of a batch; what is wrong with it stands in the segment's cursor.

    The fields have a cursor of their own, so they cannot leave their record.
    """
    cdef Cursor fields
    cdef int64_t number = read_varint(&segment.cursor, 32)
    fields.fault = FAULT_NONE
    fields.at = take(&segment.cursor, number)
    fields.end = segment.cursor.at
    if fields.at == NULL:
        return
    read_byte(&fields)                                  # record attributes: none defined
    number = read_varint(&fields, 64)
    record.timestamp = <int64_t>(<uint64_t>segment.base_timestamp + <uint64_t>number)
    if segment.fixed_time:
        record.timestamp = segment.fixed_timestamp
    number = read_varint(&fields, 32)
    if number < 0 or number > segment.last_delta:
        fail(&fields, FAULT_OFFSET)
    record.offset = segment.base_offset + number
    number = read_varint(&fields, 32)
    record.key_length = <int32_t>number
    record.key = take_nullable(&fields, number)
    number = read_varint(&fields, 32)
    record.value_length = <int32_t>number
    record.value = take_nullable(&fields, number)
    number = read_varint(&fields, 32)
    record.header_count = <int32_t>number
    record.headers = fields.at
    skip_headers(&fields, number)
    record.headers_length = fields.at - record.headers
    if fields.fault or fields.at != fields.end:
        fail(&segment.cursor, fields.fault or FAULT_RECORD_SIZE)
    segment.remaining -= 1
    if segment.remaining == 0 and segment.cursor.at != segment.cursor.end:
        fail(&segment.cursor, FAULT_TRAILING)


cdef inline void read_message(Segment* segment, RawRecord* record) noexcept nogil:
    """One message of a message set, magic 0 or 1."""
    cdef Cursor* cursor = &segment.cursor
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* end
    cdef int64_t size
    if left(cursor) < MIN_MESSAGE or load32(at + LENGTH_AT) > left(cursor) - 12:
        fail(cursor, FAULT_CUT)
        return
    end = at + 12 + load32(at + LENGTH_AT)
    record.offset = segment.base_offset + load64(at)
    record.crc = <uint32_t>load32(at + MESSAGE_CRC_AT)
    record.attributes = at[MESSAGE_ATTRIBUTES_AT]
    cursor.at = at + MESSAGE_BODY_AT
    if segment.magic == 0:
        record.timestamp = -1
        record.timestamp_type = NO_TIMESTAMP
    else:
        read_message_time(segment, record)
    size = read_int32(cursor)
    record.key_length = <int32_t>size
    record.key = take_nullable(cursor, size)
    size = read_int32(cursor)
    record.value_length = <int32_t>size
    record.value = take_nullable(cursor, size)
    if cursor.at != end or cursor.fault:
        fail(cursor, FAULT_RECORD_SIZE)
    segment.remaining -= 1


cdef inline void read_message_time(Segment* segment, RawRecord* record) noexcept nogil:
    record.timestamp = read_int64(&segment.cursor)
    record.timestamp_type = CREATE_TIME
    if record.attributes & LOG_APPEND_TIME:
        record.timestamp_type = APPEND_TIME
    if segment.fixed_time:
        record.timestamp = segment.fixed_timestamp
        record.timestamp_type = APPEND_TIME


cdef inline void next_record(Segment* segment, RawRecord* record) noexcept nogil:
    """The next record; the caller has seen that `remaining` is not 0."""
    if segment.magic == 2:
        record.crc = -1
        record.attributes = segment.attributes
        record.timestamp_type = APPEND_TIME if segment.fixed_time else CREATE_TIME
        read_record(segment, record)
    else:
        record.header_count = 0
        record.headers = NULL
        record.headers_length = 0
        read_message(segment, record)
