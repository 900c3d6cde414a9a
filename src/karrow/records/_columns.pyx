"""Records into Arrow columns: the loops that fill them.

Rules of the filling loop: it runs without the GIL; every byte it reads comes from a cursor; room
for a segment's rows and values is made before its first row (a row takes at least seven bytes of
payload, all values together take at most the payload), so only keys and headers can need more room
on the way. Key and value bytes are copied once, into buffers that the Arrow side owns.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from karrow.records._cursor cimport (
    FAULT_MEMORY, FAULT_NONE, STEP, Cursor, copy_short, fail, left, likely, read_varint, take,
    take_nullable,
)
from karrow.records._run cimport Run, parse_run, small_varint
from karrow.records._segment cimport NO_TIMESTAMP, RawRecord, next_record

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
    SHORT = 256                  # up to here copying in fixed steps beats memcpy

# glibc hands freed memory back to the system as soon as a few megabytes lie free, unless the
# program has freed a large block before: then it keeps up to twice that (its dynamic threshold).
# Without this one untouched block, every batch of some megabytes would fault its pages in anew,
# which took longer than decoding it. (By Python's names: compilers drop a plain malloc and free.)
PyMem_RawFree(PyMem_RawMalloc(8 * 1024 * 1024))


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


cdef inline bint ensure_room(ByteColumn* column, int64_t more) noexcept nogil:
    return more <= column.room - column.length or grow_data(column, more)


cdef inline bint put(
    ByteColumn* column, int64_t row, int64_t capacity, const uint8_t* source, int64_t length,
    const uint8_t* readable_end,
) noexcept nogil:
    """Appends one value; `source` may be read up to `readable_end`."""
    if length > 0:
        if not ensure_room(column, length):
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


cdef int reserve_segment(
    Columns* columns, Segment* segment, int64_t most, int64_t ahead
) noexcept nogil:
    """Room for up to `most` rows of the segment. 0: done, 1: columns are full, -1: no memory.

    Columns that are empty get room for `ahead` more bytes of records like these: growing copies.
    """
    cdef int64_t rows = columns.rows + min(segment.remaining, most)
    cdef int64_t payload = left(&segment.cursor)
    cdef int64_t longest = max(
        columns.value.length, columns.key.length, columns.header_key.length,
        columns.header_value.length,
    )
    cdef int64_t room = payload
    if longest > INT_MAX - payload:
        return 1
    if columns.capacity == 0 and payload > 0 and segment.remaining < most:
        room = min(payload + ahead, <int64_t>INT_MAX)
        rows += min(segment.remaining * (room - payload) // payload, most - segment.remaining)
    if rows > columns.capacity and not grow(columns, max(rows, columns.capacity * 2)):
        return -1
    if columns.wanted & VALUE and not ensure_room(&columns.value, room):
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
    cdef uint8_t high = 0
    for at in range(length):
        high |= text[at]
    if high < 0x80:
        return True
    at = 0
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


cdef bint put_name(Columns* columns, const uint8_t* text, int64_t length) noexcept nogil:
    """Appends a header's name to the row that `header_rows` is at."""
    if not is_utf8(text, length):
        return put_repaired(columns, text, length)
    return put(
        &columns.header_key, columns.header_rows, columns.header_capacity, text, length,
        text + length,
    )


cdef bint put_header(Columns* columns, Cursor* cursor) noexcept nogil:
    """Appends one header; read_record() has walked over its bytes once."""
    cdef int64_t length = read_varint(cursor, 32)
    cdef const uint8_t* start = take(cursor, length)
    if not put_name(columns, start, length):
        return False
    length = read_varint(cursor, 32)
    start = take_nullable(cursor, length)
    if not put(
        &columns.header_value, columns.header_rows, columns.header_capacity, start, length,
        cursor.end,
    ):
        return False
    columns.header_rows += 1
    return True


cdef bint put_headers(
    Columns* columns, const uint8_t* start, const uint8_t* end, int64_t count
) noexcept nogil:
    """Appends the headers between `start` and `end`; the caller sets the row's own end."""
    cdef Cursor cursor
    cursor.at = start
    cursor.end = end
    cursor.fault = FAULT_NONE
    if not grow_header_rows(columns, count):
        return False
    while count:
        if not put_header(columns, &cursor):
            return False
        count -= 1
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
        if record.header_count and not put_headers(
            columns, record.headers, record.headers + record.headers_length, record.header_count
        ):
            return False
        columns.header_ends[row + 1] = <int32_t>columns.header_rows
    columns.last_offset = record.offset
    columns.rows = row + 1
    return True


# The fast path of fill(): a run of simple records (see _run.pxd) goes through the columns one
# column at a time, every loop small enough for the compiler to keep it in registers.

cdef bint put_run(
    ByteColumn* column, int64_t row, int64_t capacity, const uint8_t** sources,
    const int32_t* lengths, int64_t count,
) noexcept nogil:
    """Appends the keys or the values of a run; there is room for their bytes.

    Short copies may overread their source: WIDE bytes follow every simple record.
    """
    cdef int32_t* ends = column.ends + row + 1
    cdef uint8_t* data = column.data
    cdef int64_t at = column.length
    cdef int64_t length
    cdef int64_t i
    for i in range(count):
        length = lengths[i]
        if length > SHORT:
            memcpy(data + at, sources[i], length)
            at += length
        elif length >= 0:
            copy_short(data + at, sources[i], length)
            at += length
        elif not mark_null(&column.validity, row + i, capacity):
            return False
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


cdef bint put_run_keys(Columns* columns, Run* run) noexcept nogil:
    cdef int64_t total = 0
    cdef int64_t nulls = 0
    cdef int64_t i
    for i in range(run.count):
        nulls += run.key_lengths[i] < 0
        total += run.key_lengths[i]
    if nulls == run.count:
        return put_nulls(&columns.key, columns.rows, columns.capacity, run.count)
    total += nulls                                          # a null counted as -1
    if not ensure_room(&columns.key, total):
        return False
    return put_run(
        &columns.key, columns.rows, columns.capacity, run.keys, run.key_lengths, run.count
    )


cdef inline bint is_ascii(const uint8_t* text, int64_t length) noexcept nogil:
    """Whether the text is ASCII; eight bytes after it must be readable."""
    cdef uint64_t high = 0
    cdef uint64_t word
    while length >= 8:
        memcpy(&word, text, 8)
        high |= word
        text += 8
        length -= 8
    while length > 0:
        high |= text[0]
        text += 1
        length -= 1
    return high & <uint64_t>0x8080808080808080 == 0


cdef inline const uint8_t* put_short(
    ByteColumn* column, int64_t row, const uint8_t* at, int64_t length
) noexcept nogil:
    """Appends bytes for which there is room, with STEP more to read behind; gives what follows."""
    if length <= SHORT:
        copy_short(column.data + column.length, at, length)
    else:
        memcpy(column.data + column.length, at, length)
    column.length += length
    column.ends[row + 1] = <int32_t>column.length
    return at + length


cdef const uint8_t* put_simple_headers(
    Columns* columns, const uint8_t* at, int64_t count
) noexcept nogil:
    """Appends a simple record's headers, for which there is room; NULL when memory ran out."""
    cdef int64_t row = columns.header_rows
    cdef ByteColumn* keys = &columns.header_key
    cdef ByteColumn* values = &columns.header_value
    cdef uint64_t number = 0
    while count:
        at += small_varint(at, &number)
        if likely(is_ascii(at, <int64_t>(number >> 1))):
            at = put_short(keys, row, at, <int64_t>(number >> 1))
        else:
            columns.header_rows = row
            if not put_name(columns, at, <int64_t>(number >> 1)):
                return NULL
            at += number >> 1
        at += small_varint(at, &number)
        if number == 1:
            if not mark_null(&values.validity, row, columns.header_capacity):
                return NULL
            values.ends[row + 1] = <int32_t>values.length
        else:
            at = put_short(values, row, at, <int64_t>(number >> 1))
        row += 1
        count -= 1
    columns.header_rows = row
    return at


cdef bint reserve_headers(Columns* columns, Segment* segment, Run* run) noexcept nogil:
    """Room for the headers of the run, and where that is short for the segment's rest like them."""
    cdef int64_t runs = segment.remaining // run.count + 2
    cdef int64_t rows = run.header_total
    cdef int64_t size = run.header_bytes
    if columns.header_capacity - columns.header_rows < rows:
        rows = min(rows * runs, rows + left(&segment.cursor) // 2)
    if not grow_header_rows(columns, rows):
        return False
    if columns.header_key.room - columns.header_key.length < size:
        size = min(size * runs, size + left(&segment.cursor))
    if not ensure_room(&columns.header_key, size):
        return False
    return ensure_room(&columns.header_value, size)


cdef bint put_run_headers(Columns* columns, Segment* segment, Run* run) noexcept nogil:
    cdef int32_t* ends = columns.header_ends + columns.rows + 1
    cdef int64_t i
    if run.header_total == 0:
        repeat(ends, <int32_t>columns.header_rows, run.count)
        return True
    if not reserve_headers(columns, segment, run):
        return False
    for i in range(run.count):
        if run.header_counts[i]:
            if put_simple_headers(columns, run.headers[i], run.header_counts[i]) == NULL:
                return False
        ends[i] = <int32_t>columns.header_rows
    return True


cdef bint fill_simple(
    Columns* columns, Segment* segment, int64_t max_rows, int64_t max_bytes
) noexcept nogil:
    """Moves one run of simple records into the columns; False when memory ran out."""
    cdef Run run
    cdef uint32_t wanted = columns.wanted
    cdef int64_t row = columns.rows
    run.offsets = columns.offset + row if wanted & OFFSET else run.unwanted
    run.timestamps = columns.timestamp + row if wanted & TIMESTAMP else run.unwanted
    parse_run(&run, segment, max_rows - row, max_bytes)
    if wanted & VALUE and not put_run(
        &columns.value, row, columns.capacity, run.values, run.value_lengths, run.count
    ):
        return False
    if wanted & KEY and not put_run_keys(columns, &run):
        return False
    if wanted & TIMESTAMP:
        finish_run_times(columns, segment, &run)
    if wanted & TIMESTAMP_TYPE:
        memset(columns.timestamp_type + row, segment.fixed_time, run.count)
    if wanted & HEADERS:
        if not put_run_headers(columns, segment, &run):
            return False
    if run.count:
        columns.last_offset = run.offsets[run.count - 1]
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
    memset(&record, 0, sizeof(record))  # gcc does not see that whatever is unread ends the loop
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
