"""Records into Arrow columns: the loops that fill them.

Rules of the filling loop: it runs without the GIL; every byte it reads comes from a cursor; room
for a segment's rows and values is made before its first row (a row takes at least seven bytes of
payload, all values together take at most the payload), so only keys and headers can need more room
on the way. Key and value bytes are copied once, into buffers that the Arrow side owns.
"""

from libc.limits cimport INT_MAX
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from karrow.records._cursor cimport (
    FAULT_MEMORY, FAULT_NONE, STEP, Cursor, copy_short, fail, left, likely, read_varint, take,
    take_nullable, unzigzag,
)
from karrow.records._segment cimport NO_TIMESTAMP, WIDE, RawRecord, next_record

cdef extern from *:
    """
    static inline int64_t karrow_scale(int64_t v, int64_t factor) {
        int64_t out;
        if (__builtin_mul_overflow(v, factor, &out)) return v < 0 ? INT64_MIN : INT64_MAX;
        return out;
    }
    """
    int64_t scale "karrow_scale"(int64_t value, int64_t factor) noexcept nogil

cdef enum:
    SLACK = 64                   # past every data buffer, so that short copies may overshoot
    RUN = 128                    # simple records parsed before the columns take them
    SHORT = 256                  # up to here copying in fixed steps beats memcpy

cdef bint resize(void** memory, size_t size) noexcept nogil:
    cdef void* fresh = realloc(memory[0], size)
    if fresh == NULL:
        return False
    memory[0] = fresh
    return True


cdef bint open_validity(Validity* validity, int64_t capacity) noexcept nogil:
    cdef size_t size = (capacity + 7) // 8
    validity.bits = <uint8_t*>malloc(size)
    if validity.bits == NULL:
        return False
    memset(validity.bits, 0xFF, size)
    return True


cdef inline bint mark_null(Validity* validity, int64_t row, int64_t capacity) noexcept nogil:
    if validity.bits == NULL and not open_validity(validity, capacity):
        return False
    validity.bits[row >> 3] &= ~(1 << (row & 7))
    validity.nulls += 1
    return True


cdef bint grow_validity(Validity* validity, int64_t old, int64_t new) noexcept nogil:
    cdef size_t kept = (old + 7) // 8
    cdef size_t size = (new + 7) // 8
    if validity.bits == NULL:
        return True
    if not resize(<void**>&validity.bits, size):
        return False
    memset(validity.bits + kept, 0xFF, size - kept)
    return True


cdef bint grow_rows(ByteColumn* column, int64_t old, int64_t new) noexcept nogil:
    cdef bint first = column.ends == NULL
    if not resize(<void**>&column.ends, (new + 1) * sizeof(int32_t)):
        return False
    if first:
        column.ends[0] = 0
    return grow_validity(&column.validity, old, new)


cdef bint grow_data(ByteColumn* column, int64_t more) noexcept nogil:
    """Makes room for `more` bytes; fails where 32-bit offsets would overflow."""
    cdef int64_t need = column.length + more
    cdef int64_t room = column.room + column.room // 2
    if need > INT_MAX:
        return False
    room = min(max(room, need, 1024), <int64_t>INT_MAX)
    if not resize(<void**>&column.data, room + SLACK):
        return False
    column.room = room
    return True


cdef void trim(ByteColumn* column) noexcept nogil:
    """Gives back a data buffer's unused part, where it is worth a call."""
    if column.data != NULL and column.room - column.length > column.room // 4:
        if resize(<void**>&column.data, column.length + SLACK):
            column.room = column.length


cdef inline bint put(
    ByteColumn* column, int64_t row, int64_t capacity, const uint8_t* source, int64_t length,
    const uint8_t* readable_end,
) noexcept nogil:
    """Appends one value; `source` may be read up to `readable_end`."""
    if length > 0:
        if length > column.room - column.length and not grow_data(column, length):
            return False
        if length <= SHORT and likely(readable_end - source >= length + STEP):
            copy_short(column.data + column.length, source, length)
        else:
            memcpy(column.data + column.length, source, length)
        column.length += length
    elif length < 0:
        if not mark_null(&column.validity, row, capacity):
            return False
    column.ends[row + 1] = <int32_t>column.length
    return True


cdef int open_columns(Columns* columns, uint32_t wanted, int64_t timestamp_factor) noexcept nogil:
    memset(columns, 0, sizeof(Columns))
    columns.wanted = wanted
    columns.timestamp_factor = timestamp_factor
    return 0


cdef void drop_bytes(ByteColumn* column) noexcept nogil:
    free(column.validity.bits)
    free(column.ends)
    free(column.data)


cdef void drop_columns(Columns* columns) noexcept nogil:
    drop_bytes(&columns.key)
    drop_bytes(&columns.value)
    drop_bytes(&columns.header_key)
    drop_bytes(&columns.header_value)
    free(columns.offset)
    free(columns.timestamp)
    free(columns.timestamp_validity.bits)
    free(columns.timestamp_type)
    free(columns.header_ends)
    memset(columns, 0, sizeof(Columns))


cdef bint grow(Columns* columns, int64_t capacity) noexcept nogil:
    cdef int64_t old = columns.capacity
    cdef uint32_t wanted = columns.wanted
    cdef bint fine = True
    if wanted & KEY:
        fine = fine and grow_rows(&columns.key, old, capacity)
    if wanted & VALUE:
        fine = fine and grow_rows(&columns.value, old, capacity)
    if wanted & OFFSET:
        fine = fine and resize(<void**>&columns.offset, capacity * sizeof(int64_t))
    if wanted & TIMESTAMP:
        fine = fine and resize(<void**>&columns.timestamp, capacity * sizeof(int64_t))
        fine = fine and grow_validity(&columns.timestamp_validity, old, capacity)
    if wanted & TIMESTAMP_TYPE:
        fine = fine and resize(<void**>&columns.timestamp_type, capacity)
    if wanted & HEADERS:
        fine = fine and resize(<void**>&columns.header_ends, (capacity + 1) * sizeof(int32_t))
        if fine and old == 0:
            columns.header_ends[0] = 0
    if fine:
        columns.capacity = capacity
    return fine


cdef int reserve_segment(Columns* columns, Segment* segment, int64_t most) noexcept nogil:
    """Room for up to `most` rows of the segment. 0: done, 1: the columns are full, -1: no memory."""
    cdef int64_t rows = columns.rows + min(segment.remaining, most)
    cdef int64_t payload = left(&segment.cursor)
    if max(columns.value.length, columns.key.length, columns.header_value.length) > INT_MAX - payload:
        return 1
    if rows > columns.capacity and not grow(columns, max(rows, columns.capacity * 2)):
        return -1
    if columns.wanted & VALUE and columns.value.room - columns.value.length < payload:
        if not grow_data(&columns.value, payload):
            return -1
    return 0


cdef bint grow_header_rows(Columns* columns, int64_t more) noexcept nogil:
    cdef int64_t old = columns.header_capacity
    cdef int64_t need = columns.header_rows + more
    cdef int64_t capacity = max(need, old * 2, 64)
    if need <= old:
        return True
    if need > INT_MAX:
        return False
    if not grow_rows(&columns.header_key, old, capacity):
        return False
    if not grow_rows(&columns.header_value, old, capacity):
        return False
    columns.header_capacity = capacity
    return True


cdef inline int continuation_bytes(uint8_t lead) noexcept nogil:
    """How many bytes follow this first byte of a UTF-8 sequence; -1 if it can't be one."""
    if lead < 0x80:
        return 0
    if 0xC2 <= lead <= 0xDF:
        return 1
    if 0xE0 <= lead <= 0xEF:
        return 2
    if 0xF0 <= lead <= 0xF4:
        return 3
    return -1


cdef bint is_utf8(const uint8_t* text, int64_t length) noexcept nogil:
    cdef int64_t at = 0
    cdef int more
    cdef int i
    cdef uint8_t second
    while at < length:
        more = continuation_bytes(text[at])
        if more < 0 or more >= length - at:
            return False
        if more:
            second = text[at + 1]
            if text[at] == 0xE0 and second < 0xA0 or text[at] == 0xED and second > 0x9F:
                return False                        # overlong, surrogate
            if text[at] == 0xF0 and second < 0x90 or text[at] == 0xF4 and second > 0x8F:
                return False                        # overlong, past the last code point
        for i in range(more):
            if text[at + 1 + i] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


cdef bint put_repaired(Columns* columns, const uint8_t* text, int64_t length) noexcept with gil:
    """A header name that is not UTF-8: bad bytes become U+FFFD, as Java reads them."""
    cdef bytes repaired
    cdef const uint8_t* start
    try:
        repaired = (<const char*>text)[:length].decode("utf-8", "replace").encode()
    except MemoryError:
        return False
    start = <const uint8_t*><const char*>repaired
    return put(
        &columns.header_key, columns.header_rows, columns.header_capacity, start, len(repaired),
        start + len(repaired),
    )


cdef bint put_header(Columns* columns, Cursor* cursor) noexcept nogil:
    """Appends one header; read_record() has walked over its bytes once."""
    cdef int64_t row = columns.header_rows
    cdef int64_t capacity = columns.header_capacity
    cdef int64_t length = read_varint(cursor, 32)
    cdef const uint8_t* start = take(cursor, length)
    if not is_utf8(start, length):
        if not put_repaired(columns, start, length):
            return False
    elif not put(&columns.header_key, row, capacity, start, length, cursor.end):
        return False
    length = read_varint(cursor, 32)
    start = take_nullable(cursor, length)
    columns.header_rows = row + 1
    return put(&columns.header_value, row, capacity, start, length, cursor.end)


cdef bint put_headers(Columns* columns, RawRecord* record) noexcept nogil:
    cdef Cursor cursor
    cdef int32_t i
    if not grow_header_rows(columns, record.header_count):
        return False
    cursor.at = record.headers
    cursor.end = record.headers + record.headers_length
    cursor.fault = FAULT_NONE
    for i in range(record.header_count):
        if not put_header(columns, &cursor):
            return False
    return True


cdef bint put_time(Columns* columns, RawRecord* record) noexcept nogil:
    cdef int64_t row = columns.rows
    columns.timestamp[row] = scale(record.timestamp, columns.timestamp_factor)
    if record.timestamp_type == NO_TIMESTAMP:
        return mark_null(&columns.timestamp_validity, row, columns.capacity)
    return True


cdef bint put_row(
    Columns* columns, RawRecord* record, const uint8_t* readable_end
) noexcept nogil:
    """Appends one record to every column that is wanted; False when memory ran out."""
    cdef uint32_t wanted = columns.wanted
    cdef int64_t row = columns.rows
    if wanted & VALUE and not put(
        &columns.value, row, columns.capacity, record.value, record.value_length, readable_end
    ):
        return False
    if wanted & KEY and not put(
        &columns.key, row, columns.capacity, record.key, record.key_length, readable_end
    ):
        return False
    if wanted & OFFSET:
        columns.offset[row] = record.offset
    if wanted & TIMESTAMP and not put_time(columns, record):
        return False
    if wanted & TIMESTAMP_TYPE:
        columns.timestamp_type[row] = record.timestamp_type
    if wanted & HEADERS:
        if record.header_count and not put_headers(columns, record):
            return False
        columns.header_ends[row + 1] = <int32_t>columns.header_rows
    columns.rows = row + 1
    return True


cdef inline int small_varint(const uint8_t* at, uint64_t* value) noexcept nogil:
    """The size of a varint of up to three bytes, 0 for a longer one; three bytes must be there."""
    if at[0] < 0x80:
        value[0] = at[0]
        return 1
    if at[1] < 0x80:
        value[0] = (at[0] & 0x7F) | (<uint64_t>at[1] << 7)
        return 2
    if at[2] < 0x80:
        value[0] = (at[0] & 0x7F) | ((<uint64_t>at[1] & 0x7F) << 7) | (<uint64_t>at[2] << 14)
        return 3
    return 0


cdef inline uint32_t load_pair(const uint8_t* at) noexcept nogil:
    """Four bytes, the first one lowest."""
    return at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24


# The fast path of fill(). A record is simple when nothing about it needs a second thought: at least
# WIDE bytes follow it, its varints are short, it has no headers, and all of it checks out; its batch
# begins at or after the asked offset, and the columns will surely not be full with it. Runs of
# simple records are parsed first and then go through the columns one column at a time: every loop is
# small enough for the compiler to keep it in registers. The first record that is not simple stays
# where it is for read_record(), which alone knows what is wrong with a record.

cdef struct Run:
    int64_t count
    int64_t* offsets             # the columns' own memory where they are wanted
    int64_t* timestamps
    int64_t unwanted[RUN]
    const uint8_t* keys[RUN]
    const uint8_t* values[RUN]
    int32_t key_lengths[RUN]
    int32_t value_lengths[RUN]


cdef void parse_run(Run* run, Segment* segment, int64_t most, int64_t max_bytes) noexcept nogil:
    """Parses up to `most` simple records out of less than `max_bytes` of payload."""
    cdef const uint8_t* at = segment.cursor.at
    cdef const uint8_t* end = segment.cursor.end
    cdef const uint8_t* last_start = at + min(end - at - WIDE, max_bytes)
    cdef const uint8_t* field
    cdef const uint8_t* stop
    cdef uint64_t base_timestamp = <uint64_t>segment.base_timestamp
    cdef int64_t base_offset = segment.base_offset
    cdef uint64_t last_delta = <uint64_t>segment.last_delta
    cdef int64_t* offsets = run.offsets
    cdef int64_t* timestamps = run.timestamps
    cdef int64_t count = 0
    cdef uint64_t number
    cdef uint64_t time
    cdef uint32_t pair
    cdef int64_t length
    cdef int size
    # The segment's last record is never simple: read_record() sees to it that nothing follows.
    most = min(most, segment.remaining - 1, <int64_t>RUN)
    while count < most and at < last_start:
        size = small_varint(at, &number)
        field = at + size
        stop = field + (number >> 1)
        if size == 0 or number & 1 or stop > last_start:
            break
        field += 1                                          # the attributes: none defined
        pair = load_pair(field)
        if pair & <uint32_t>0x80808080 == <uint32_t>0x00800080:                 # both deltas take two bytes
            time = (pair & 0x7F) | (pair >> 1 & 0x3F80)
            number = (pair >> 16 & 0x7F) | (pair >> 17 & 0x3F80)
            field += 4
        else:
            size = small_varint(field, &time)
            if size == 0:
                break
            field += size
            size = small_varint(field, &number)
            if size == 0:
                break
            field += size
        if number & 1 or number >> 1 > last_delta:
            break
        timestamps[count] = <int64_t>(base_timestamp + <uint64_t>unzigzag(time))
        offsets[count] = base_offset + <int64_t>(number >> 1)
        length = -1
        if field[0] == 1:                                   # the zigzag form of -1: null
            field += 1
        else:
            size = small_varint(field, &number)
            length = <int64_t>(number >> 1)
            field += size
            run.keys[count] = field
            if size == 0 or number & 1 or length > end - field - WIDE:
                break
            field += length
        run.key_lengths[count] = <int32_t>length
        size = small_varint(field, &number)
        length = <int64_t>(number >> 1)
        field += size
        if size == 0 or number & 1 or field + length + 1 != stop or stop[-1] != 0:
            break
        run.values[count] = field
        run.value_lengths[count] = <int32_t>length
        count += 1
        at = stop
    segment.cursor.at = at
    segment.remaining -= count
    run.count = count


cdef bint put_run(
    ByteColumn* column, int64_t row, int64_t capacity, const uint8_t** sources,
    const int32_t* lengths, int64_t count, const uint8_t* readable_end,
) noexcept nogil:
    """Appends the keys or the values of a run; there is room for their bytes."""
    cdef int32_t* ends = column.ends + row + 1
    cdef uint8_t* data = column.data
    cdef int64_t at = column.length
    cdef int64_t length
    cdef int64_t i
    for i in range(count):
        length = lengths[i]
        if length <= 0:
            if length < 0 and not mark_null(&column.validity, row + i, capacity):
                return False
        elif length <= SHORT and likely(readable_end - sources[i] >= length + STEP):
            copy_short(data + at, sources[i], length)
            at += length
        else:
            memcpy(data + at, sources[i], length)
            at += length
        ends[i] = <int32_t>at
    column.length = at
    return True


cdef inline void repeat(int32_t* ends, int32_t end, int64_t count) noexcept nogil:
    """The ends of `count` rows without data."""
    cdef int64_t i
    if end == 0:
        memset(ends, 0, count * sizeof(int32_t))
        return
    for i in range(count):
        ends[i] = end


cdef bint put_nulls(
    ByteColumn* column, int64_t row, int64_t capacity, int64_t count
) noexcept nogil:
    """Appends a run of nulls, as a topic without keys has them."""
    cdef int64_t end = row + count
    cdef int64_t i
    repeat(column.ends + row + 1, <int32_t>column.length, count)
    while row < end and row & 7:
        if not mark_null(&column.validity, row, capacity):
            return False
        row += 1
    if end - row >= 8:
        if column.validity.bits == NULL and not open_validity(&column.validity, capacity):
            return False
        memset(column.validity.bits + (row >> 3), 0, (end - row) >> 3)
        column.validity.nulls += (end - row) & ~7
        row += (end - row) & ~7
    while row < end:
        if not mark_null(&column.validity, row, capacity):
            return False
        row += 1
    return True


cdef void finish_run_times(Columns* columns, Segment* segment, Run* run) noexcept nogil:
    """Times of a run are in place, in milliseconds: stamps and scales them."""
    cdef int64_t factor = columns.timestamp_factor
    cdef int64_t i
    if segment.fixed_time:
        for i in range(run.count):
            run.timestamps[i] = segment.fixed_timestamp
    if factor != 1:
        for i in range(run.count):
            run.timestamps[i] = scale(run.timestamps[i], factor)


cdef bint put_run_keys(Columns* columns, Segment* segment, Run* run) noexcept nogil:
    cdef int64_t total = 0
    cdef int64_t nulls = 0
    cdef int64_t i
    for i in range(run.count):
        nulls += run.key_lengths[i] < 0
        total += run.key_lengths[i]
    if nulls == run.count:
        return put_nulls(&columns.key, columns.rows, columns.capacity, run.count)
    total += nulls                                          # a null counted as -1
    if total > columns.key.room - columns.key.length and not grow_data(&columns.key, total):
        return False
    return put_run(
        &columns.key, columns.rows, columns.capacity, run.keys, run.key_lengths, run.count,
        segment.cursor.end,
    )


cdef bint fill_simple(
    Columns* columns, Segment* segment, int64_t max_rows, int64_t max_bytes
) noexcept nogil:
    """Moves one run of simple records into the columns; False when memory ran out."""
    cdef Run run
    cdef uint32_t wanted = columns.wanted
    cdef int64_t row = columns.rows
    cdef int64_t i
    run.offsets = columns.offset + row if wanted & OFFSET else run.unwanted
    run.timestamps = columns.timestamp + row if wanted & TIMESTAMP else run.unwanted
    parse_run(&run, segment, max_rows - row, max_bytes)
    if wanted & VALUE and not put_run(
        &columns.value, row, columns.capacity, run.values, run.value_lengths, run.count,
        segment.cursor.end,
    ):
        return False
    if wanted & KEY and not put_run_keys(columns, segment, &run):
        return False
    if wanted & TIMESTAMP:
        finish_run_times(columns, segment, &run)
    if wanted & TIMESTAMP_TYPE:
        memset(columns.timestamp_type + row, segment.fixed_time, run.count)
    if wanted & HEADERS:
        repeat(columns.header_ends + row + 1, <int32_t>columns.header_rows, run.count)
    columns.rows = row + run.count
    return True


cdef inline bint is_full(Columns* columns, int64_t max_rows, int64_t max_bytes) noexcept nogil:
    return columns.rows >= max_rows or columns.key.length + columns.value.length >= max_bytes


cdef void fill(
    Columns* columns, Segment* segment, int64_t max_rows, int64_t max_bytes, int64_t from_offset
) noexcept nogil:
    """Moves records of the segment into the columns; reserve_segment() has made the room.

    Stops at the segment's end, at max_rows rows in all, after the row that reaches max_bytes of key
    and value data, or at a fault, which is then in the segment's cursor.
    """
    cdef RawRecord record
    cdef bint may_be_simple = segment.magic == 2 and segment.base_offset >= from_offset
    cdef int64_t before
    cdef int64_t left_bytes
    while segment.remaining and not is_full(columns, max_rows, max_bytes):
        if may_be_simple:
            before = segment.remaining
            left_bytes = max_bytes - columns.key.length - columns.value.length
            if not fill_simple(columns, segment, max_rows, left_bytes):
                fail(&segment.cursor, FAULT_MEMORY)
                return
            if segment.remaining < before:
                continue
        next_record(segment, &record)
        if segment.cursor.fault:
            return
        if record.offset >= from_offset and not put_row(columns, &record, segment.cursor.end):
            fail(&segment.cursor, FAULT_MEMORY)
            return
